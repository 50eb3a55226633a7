"""Imports what every row of the zoo needs, in the process from which those of the rows fork."""

from __future__ import annotations

import importlib

from benchmarks.models.torchvision_cpu import load_torchaudio, load_torchvision

MODULES = (
    "onnxruntime",
    "transformers",
    "benchmarks.zoo_models.measure",
    "onnx_aot.export",
    "onnx_aot.translate",
)

load_torchvision()  # before transformers, which imports them
load_torchaudio()
for name in MODULES:
    importlib.import_module(name)
