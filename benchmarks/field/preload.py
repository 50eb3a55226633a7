"""Does once what every row needs, in the process from which those of the rows fork."""

from __future__ import annotations

import importlib

from benchmarks.models.torchvision_cpu import load_torchaudio, load_torchvision
from benchmarks.zoo_models.measure import warm_up

MODULES = ("onnxruntime", "benchmarks.field.measure", "onnx_aot.export", "onnx_aot.translate")

load_torchvision()  # before the packages, which import it
load_torchaudio()
for name in MODULES:
    importlib.import_module(name)
warm_up()  # what both ways do once per process; the rows inherit it
