"""Merges consecutive casts."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["MERGE_CASTS"]

_T = ir.DataType

HOLDS: dict[ir.DataType, frozenset[ir.DataType]] = {
    _T.BOOL: frozenset({_T.UINT8, _T.INT8, _T.INT16, _T.INT32, _T.INT64})
    | frozenset({_T.FLOAT16, _T.BFLOAT16, _T.FLOAT, _T.DOUBLE}),
    _T.UINT8: frozenset({_T.INT16, _T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE}),
    _T.INT8: frozenset({_T.INT16, _T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE}),
    _T.INT16: frozenset({_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE}),
    _T.INT32: frozenset({_T.INT64, _T.DOUBLE}),
    _T.FLOAT16: frozenset({_T.FLOAT, _T.DOUBLE}),
    _T.BFLOAT16: frozenset({_T.FLOAT, _T.DOUBLE}),
    _T.FLOAT: frozenset({_T.DOUBLE}),
}
"""Types that hold every value of a type, so that a cast through them can be skipped."""


def merge_casts(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Cast<T>(Cast<U>(x))`` -> ``Cast<T>(x)`` if ``U`` holds all values of the type of ``x``.

    Becomes ``x`` alone if that is of type ``T``.
    """
    inner = rewriter.producer(node.inputs[0], "Cast")
    source = None if inner is None else inner.inputs[0]
    between = node.inputs[0]
    if inner is None or source is None or source.dtype is None or between is None:
        return False
    if between.dtype not in HOLDS.get(source.dtype, ()):
        return False
    wanted = node.outputs[0].dtype
    if wanted == source.dtype:
        rewriter.replace(node.outputs[0], source)
        return True
    new = rewriter.emit("Cast", [source], node.attributes, like=inner, dtype=wanted)
    rewriter.replace(node.outputs[0], new)
    return True


MERGE_CASTS = Rule(
    "merge_casts",
    ("Cast",),
    merge_casts,
    exact=True,
    since=13,
    behind=frozenset({"Cast"}),
)
