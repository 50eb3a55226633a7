"""Exports the smallest model when it is imported: the rows that are forked then find it all loaded.

An export imports some 900 modules, which takes seconds, and leaves torch as it was.
"""

from __future__ import annotations

import importlib

import torch

import onnx_aot

for _name in ("compare", "rounding", "size_checks", "verify"):
    importlib.import_module(f"onnx_aot.inspection.{_name}")
for _name in ("constraints", "file_checks", "loading", "session"):
    importlib.import_module(f"onnx_aot.program.{_name}")
importlib.import_module("onnx_aot.sweep.export_task")

onnx_aot.export(torch.nn.Linear(2, 2), (torch.ones(2, 2),), dynamic_shapes=({0: "n"},))
