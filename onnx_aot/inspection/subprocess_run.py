"""Runs a model in a subprocess first, on inputs that may crash ONNX Runtime.

Its kernels of ``Einsum``, ``LSTM`` and ``GRU`` crash on an empty batch, which would take the caller
down with them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from onnx_aot.dtypes import to_onnx

__all__ = ["run_in_subprocess"]

# Imports neither torch nor this package, which would take longer than the run itself.
RUN = """
import json, sys
import numpy as np
import onnxruntime as ort

model, described = sys.argv[1:]
options = ort.SessionOptions()
options.log_severity_level = 4
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feeds = {}
for name, kind, width, shape, file in json.load(open(described)):
    bits = np.fromfile(file, dtype=f"uint{8 * width}").reshape(shape)
    feeds[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
try:
    session.run_with_ort_values(None, feeds)
except Exception:
    pass  # that it refuses them is seen again by the caller
"""


def run_in_subprocess(program: Any, inputs: Mapping[str, torch.Tensor]) -> str:
    """Runs the model of an ``ONNXProgram`` on the CPU in a subprocess, on inputs by name.

    Returns:
        An empty string if the process ends normally, else a description of how it ended.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        model = os.path.join(folder, "model.onnx")
        program._save_for(torch.device("cpu"), model)
        described = []
        for index, (name, tensor) in enumerate(inputs.items()):
            file = os.path.join(folder, str(index))
            elements = tensor.detach().cpu().contiguous().reshape(-1)
            elements.view(torch.uint8).numpy().tofile(file)
            kind, width = int(to_onnx(tensor.dtype)), tensor.dtype.itemsize
            described.append((name, kind, width, list(tensor.shape), file))
        listing = os.path.join(folder, "inputs.json")
        with open(listing, "w", encoding="utf-8") as opened:
            json.dump(described, opened)
        command = [sys.executable, "-c", RUN, model, listing]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return f"it crashes with {signal.Signals(-done.returncode).name}"
    last = done.stderr.strip().rpartition("\n")[2][:300]
    return (last or f"exit code {done.returncode}") if done.returncode else ""
