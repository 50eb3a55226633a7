"""Surrogates for types that a target has no kernel for, and the accuracy that they lose."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["PRESERVING", "SURROGATES", "is_lossy"]

_T = ir.DataType

_SMALL = (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE)

SURROGATES: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    _T.FLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.FLOAT8E4M3FN: (_T.FLOAT,),
    _T.FLOAT8E4M3FNUZ: (_T.FLOAT,),
    _T.FLOAT8E5M2: (_T.FLOAT,),
    _T.FLOAT8E5M2FNUZ: (_T.FLOAT,),
    _T.BOOL: (_T.UINT8, _T.INT32, _T.INT64, _T.FLOAT),
    _T.UINT8: _SMALL,
    _T.INT8: _SMALL,
    _T.INT16: _SMALL,
    _T.UINT16: (*_SMALL, _T.UINT32),
    _T.INT32: (_T.INT64, _T.DOUBLE, _T.FLOAT),
    _T.UINT32: (_T.INT64, _T.DOUBLE, _T.FLOAT),
    _T.INT64: (_T.DOUBLE, _T.INT32, _T.FLOAT),
    _T.UINT64: (_T.INT64, _T.DOUBLE, _T.FLOAT),
    _T.DOUBLE: (_T.FLOAT,),
}
"""Surrogates by type, in the order in which they are tried."""

PRESERVING = frozenset(
    {
        "Compress",
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Max",
        "MaxPool",
        "Min",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
    }
)
"""Operators whose results are elements of their inputs."""

# Operators that wrap around in 64 bits as in any other width, signed or not.
_WRAPPING = PRESERVING - {"Max", "Min", "MaxPool", "ReduceMax", "ReduceMin", "Relu", "TopK"} | {
    "Add",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "CumSum",
    "Equal",
    "Mul",
    "Neg",
    "NonZero",
    "ScatterElements",
    "ScatterND",
    "Sub",
}

_EXACT_IN_FLOAT = frozenset({_T.BOOL, _T.UINT8, _T.INT8, _T.INT16, _T.UINT16})


def is_lossy(op_type: str, dtype: ir.DataType, surrogate: ir.DataType) -> bool:
    """Returns True if the result of an operator may differ in the surrogate type."""
    if dtype in (_T.FLOAT16, _T.BFLOAT16) or dtype.name.startswith("FLOAT8"):
        return False
    if dtype == _T.DOUBLE:
        return True
    if surrogate == _T.FLOAT:
        return dtype not in _EXACT_IN_FLOAT
    if dtype == _T.UINT64:
        return not (surrogate == _T.INT64 and op_type in _WRAPPING)
    return dtype == _T.INT64
