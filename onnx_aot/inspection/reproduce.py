"""Runs the nodes of one value, stored in this folder, on the inputs that PyTorch computed for them.

Prints how far ONNX Runtime is from PyTorch, with its own graph optimizations and without, and exits
with 1 if the difference exceeds the tolerance. Needs numpy and onnxruntime.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import numpy as np
import onnxruntime as ort

FOLDER = os.path.dirname(os.path.abspath(__file__))
KEYS = ("captured", "module", "at", "tolerance relative", "tolerance absolute")
LEVELS = {
    "ONNX Runtime as it is": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "ONNX Runtime without its graph optimizations": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def main() -> int:
    """Runs the model with and without optimizations; returns 1 if a value differs."""
    inputs = read("inputs.npz")
    expected = read("expected.npz")
    wrong = False
    for index, (name, level) in enumerate(LEVELS.items()):
        session = open_session(level)
        about = session.get_modelmeta().custom_metadata_map
        if index == 0:
            print("\n".join(f"{key:<20}{about[key]}" for key in KEYS if about.get(key)))
        print(name)
        tolerance = float(about["tolerance relative"]), float(about["tolerance absolute"])
        for value, given in zip(expected, session.run(list(expected), inputs), strict=True):
            differs, text = compare(given, expected[value], *tolerance)
            print(f"    {value}: {text}")
            wrong = wrong or differs
    return int(wrong)


def read(name: str) -> dict[str, Any]:
    """Reads the arrays of a file, by name."""
    with np.load(os.path.join(FOLDER, name)) as file:
        return dict(file)


def open_session(level: Any) -> Any:
    """Opens the model in ONNX Runtime."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    # as an ONNXProgram does: multiply by dequantized weights without rounding to int8
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    model = os.path.join(FOLDER, "node.onnx")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare(given: Any, wanted: Any, relative: float, absolute: float) -> tuple[bool, str]:
    """Returns True if ONNX Runtime's value differs from PyTorch's, and a text that says how."""
    if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
        found = f"{given.dtype}{list(given.shape)}, PyTorch's is {wanted.dtype}{list(wanted.shape)}"
        return True, found
    a, b = given.astype(np.float64), wanted.astype(np.float64)
    same = (given == wanted) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(a - b))
        differs = ~same & ~((distance <= absolute + relative * np.abs(b)) & (relative > 0))
    text = f"{differs.sum()} of {differs.size} elements differ"
    if not differs.any():
        return False, f"{text}, max abs {distance.max(initial=0.0):.3g}"
    flat = int(np.where(differs, np.nan_to_num(distance, nan=np.inf), -1.0).argmax())
    at = [int(i) for i in np.unravel_index(flat, distance.shape)]
    pair = f"PyTorch {wanted.reshape(-1)[flat]!s}, ONNX Runtime {given.reshape(-1)[flat]!s}"
    return True, f"{text}, max abs {np.nanmax(distance):.3g}, most at {at}: {pair}"


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the user's line may hold any character
    sys.exit(main())
