"""The table of kernels matches the installed ONNX Runtime."""

from __future__ import annotations

import json

import onnxruntime

from onnx_aot.targets import TARGETS
from onnx_aot.targets.kernels import Kernel, decode_kernels, load_kernels
from onnx_aot.targets.regenerate import FILE, make_table

TARGET = "onnxruntime"


def test_the_installed_version_has_what_the_table_has() -> None:
    table = json.loads(FILE.read_text(encoding="utf-8"))
    found = make_table()
    assert load_kernels(TARGETS[TARGET]) == decode_kernels(table)
    if table["version"] == onnxruntime.__version__:
        assert found == table
    wanted, there = decode_kernels(table), decode_kernels(found)
    gone = [
        (operator, since, kernel)
        for (operator, since), needed in wanted.by_operator.items()
        for kernel in needed
        if not any(_covers(other, kernel) for other in there.by_operator.get((operator, since), ()))
    ]
    assert not gone
    assert not [key for key, types in wanted.inlined.items() if types - there.inlined[key]]


def _covers(kernel: Kernel, other: Kernel) -> bool:
    """Returns True if one kernel supports all types of the other."""
    return kernel.keys() == other.keys() and all(kernel[name] >= other[name] for name in other)
