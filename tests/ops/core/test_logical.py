"""Comparisons, logic, bits and selection: ``onnx_aot/ops/core/logical.py``."""

from __future__ import annotations

import math
from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

INT32 = torch.int32
EMPTY = ({"n": 0},)


def small(*sizes: int | str, dtype: torch.dtype = torch.int64) -> T:
    """Integers with frequent duplicates."""
    return ints(*sizes, low=-1, high=3, dtype=dtype)


def _not_finite(size: int) -> torch.Tensor:
    values = torch.tensor([math.nan, math.inf, -math.inf, 1.0, -0.0, 0.0, 3e38])
    return values.repeat(size)[:size]


NOT_FINITE = T(("m",), torch.float32, _not_finite)

TENSOR_COMPARISONS = (
    *(aten.eq.Tensor, aten.ne.Tensor, aten.gt.Tensor),
    *(aten.ge.Tensor, aten.lt.Tensor, aten.le.Tensor),
)
SCALAR_COMPARISONS = (
    *(aten.eq.Scalar, aten.ne.Scalar, aten.gt.Scalar),
    *(aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar),
)

# Aliases of the comparisons, which share their translations.
TENSOR_ALIASES = (
    *(aten.not_equal.Tensor, aten.greater.Tensor, aten.greater_equal.Tensor),
    *(aten.less.Tensor, aten.less_equal.Tensor),
)
SCALAR_ALIASES = (
    *(aten.not_equal.Scalar, aten.greater.Scalar, aten.greater_equal.Scalar),
    *(aten.less.Scalar, aten.less_equal.Scalar),
)

ALIASES = [
    *(
        Row(target, args, name=name)
        for target in TENSOR_ALIASES
        for name, args in (
            ("int float", (small("n", 3), floats(3))),
            ("bool", (bools("n", 3), bools(3))),
            ("bool int", (bools("n", 3), small("n", 3))),
        )
    ),
    *(
        Row(target, args, name=name)
        for target in SCALAR_ALIASES
        for name, args in (
            ("int with float", (small("n", 3), 0.5)),
            ("bool", (bools("n", 3), True)),
        )
    ),
]

COMPARISONS = [
    Row(target, args, sizes=sizes, name=name)
    for target in TENSOR_COMPARISONS
    for name, args, sizes in (
        ("broadcast", (floats("n", 3), floats("n", 1)), EMPTY),
        ("int", (small("n", 3), small(3)), ()),
        ("int32", (small("n", 3, dtype=INT32), small("n", 3, dtype=INT32)), ()),
        ("int32 int64", (small("n", dtype=INT32), small("n")), ()),
        ("int float", (small("n", 3), floats(3)), ()),
        ("bool", (bools("n", 3), bools(3)), EMPTY),
        ("bool int", (bools("n", 3), small("n", 3)), ()),
        ("bool float", (bools("n", 3), floats("n", 3)), ()),
        ("rank0", (floats(), floats()), ()),
        ("rank0 bool", (bools(), bools()), ()),
        ("int with rank0 float", (small("n", 3), floats()), ()),
        ("float with rank0 int", (floats("n", 3), small()), ()),
        ("int32 with rank0 int", (small("n", 3, dtype=INT32), small()), ()),
        ("not finite", (NOT_FINITE, NOT_FINITE), ()),
    )
]

SCALARS = [
    Row(target, args, name=name)
    for target in SCALAR_COMPARISONS
    for name, args in (
        ("float", (floats("n", 3), 1)),
        ("rank0", (floats(), 0.5)),
        ("int", (small("n", 3), 1)),
        ("int with float", (small("n", 3), 0.5)),
        ("int with bool", (small("n", 3), True)),
        ("int32", (small("n", 3, dtype=INT32), 1)),
        ("int32 with float", (small("n", 3, dtype=INT32), 0.5)),
        ("bool", (bools("n", 3), True)),
        ("bool with false", (bools("n", 3), False)),
        ("bool with int", (bools("n", 3), 1)),
        ("bool with float", (bools("n", 3), 0.5)),
    )
]


def _compare_to_size(target: Any, factor: float) -> Any:
    return lambda x: target(x, x.shape[0] * factor)


SYMBOLIC = [
    Row(target, (values,), call=_compare_to_size(target, factor), name=f"{name} with a size")
    for target in (aten.eq.Scalar, aten.lt.Scalar)
    for name, values, factor in (
        ("float", floats("n", 3, low=0.0, high=9.0), 1),
        ("int", ints("n", 3, low=0, high=9), 1),
        ("int32", ints("n", 3, low=0, high=9, dtype=INT32), 1),
        ("bool", bools("n", 3), 1),
        ("half", ints("n", 3, low=0, high=9), 0.5),
    )
]

LOGICAL = [
    Row(target, args, sizes=sizes, name=name)
    for target in (
        aten.logical_and.default,
        aten.logical_or.default,
        aten.logical_xor.default,
    )
    for name, args, sizes in (
        ("bool", (bools("n", 3), bools("n", 1)), EMPTY),
        ("rank0", (bools("n", 3), bools()), ()),
        ("int", (small("n", 3), small(3)), ()),
        ("int32", (small("n", 3, dtype=INT32), small(3, dtype=INT32)), ()),
        ("mixed", (floats("n", 3), small("n", 3)), ()),
        ("fractions", (floats("n", 3, low=-0.5, high=0.5), floats("n", 3)), ()),
        ("not finite", (NOT_FINITE, bools("m")), ()),
    )
] + [
    Row(aten.logical_not.default, (values,), name=name)
    for name, values in (
        ("bool", bools("n", 3)),
        ("rank0", bools()),
        ("int", small("n", 3)),
        ("int32", small("n", 3, dtype=INT32)),
        ("float", floats("n", 3)),
        ("not finite", NOT_FINITE),
    )
]

BITWISE_TENSOR = (
    *(aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor),
    *(aten.__and__.Tensor, aten.__or__.Tensor, aten.__xor__.Tensor),
)
BITWISE_SCALAR = (
    *(aten.bitwise_and.Scalar, aten.bitwise_or.Scalar, aten.bitwise_xor.Scalar),
    *(aten.__and__.Scalar, aten.__or__.Scalar, aten.__xor__.Scalar),
)
BITWISE_SCALAR_TENSOR = (
    aten.bitwise_and.Scalar_Tensor,
    aten.bitwise_or.Scalar_Tensor,
    aten.bitwise_xor.Scalar_Tensor,
)

BITWISE = [
    *(
        Row(target, args, since=since, sizes=sizes, name=name)
        for target in BITWISE_TENSOR
        for name, args, since, sizes in (
            ("bool", (bools("n", 3), bools("n", 1)), 17, EMPTY),
            ("int", (ints("n", 3), ints(3)), 18, ()),
            ("int32", (ints("n", 3, dtype=INT32), ints("n", 3, dtype=INT32)), 18, ()),
            ("int32 int64", (ints("n", 3, dtype=INT32), ints("n", 3)), 18, ()),
            ("bool int", (bools("n", 3), ints("n", 3)), 18, ()),
            ("rank0", (ints("n", 3, dtype=INT32), ints()), 18, ()),
        )
    ),
    *(
        Row(target, args, since=since, name=name)
        for target in BITWISE_SCALAR
        for name, args, since in (
            ("bool", (bools("n", 3), True), 17),
            ("int", (ints("n", 3), 6), 18),
            ("negative", (ints("n", 3), -2), 18),
            ("int32", (ints("n", 3, dtype=INT32), 6), 18),
            ("bool with int", (bools("n", 3), 3), 18),
        )
    ),
    *(
        Row(target, args, since=since, name=name)
        for target in BITWISE_SCALAR_TENSOR
        for name, args, since in (
            ("bool", (True, bools("n", 3)), 17),
            ("int", (6, ints("n", 3)), 18),
            ("int32", (-2, ints("n", 3, dtype=INT32)), 18),
            ("int with bool", (3, bools("n", 3)), 18),
        )
    ),
    Row(aten.bitwise_not.default, (bools("n", 3),), name="bool"),
    Row(aten.bitwise_not.default, (ints("n", 3),), name="int"),
    Row(aten.bitwise_not.default, (ints(dtype=INT32),), name="int32 rank0"),
    Row(
        aten.bitwise_not.default, (ints("n", 3, low=0, high=256, dtype=torch.uint8),), name="uint8"
    ),
]

WHERE = [
    *(
        Row(aten.where.self, args, sizes=EMPTY, name=name)
        for name, args in (
            ("float", (bools("n", 3), floats("n", 3), floats("n", 3))),
            ("condition broadcasts", (bools("n", 1), floats("n", 3), floats(3))),
            ("sides broadcast", (bools("n", 3), floats("n", 1), floats(1, 3))),
            ("all broadcast", (bools(3, 1, 1), floats("n", 1), floats("m"))),
            ("rank0", (bools("n", 3), floats(), floats())),
            ("rank0 condition", (bools(), floats("n", 3), floats(3))),
            ("int", (bools("n", 3), ints("n", 3), ints(3))),
            ("int32", (bools("n", 3), ints("n", 3, dtype=INT32), ints(3, dtype=INT32))),
            ("bool", (bools("n", 3), bools("n", 3), bools(3))),
            ("bool broadcasts", (bools(3), bools("n", 1), bools())),
            ("bool int", (bools("n", 3), bools("n", 3), ints(3))),
            ("int float", (bools("n", 3), ints("n", 3), floats(3))),
            ("int32 int64", (bools("n", 3), ints("n", 3, dtype=INT32), ints("n", 3))),
            ("int with rank0 float", (bools("n", 3), ints("n", 3), floats())),
        )
    ),
    *(
        Row(aten.where.ScalarOther, (bools("n", 3), values, other), name=f"{name} {other}")
        for name, values in (
            ("float", floats("n", 3)),
            ("int", ints(3)),
            ("int32", ints("n", 1, dtype=INT32)),
            ("bool", bools("n", 3)),
        )
        for other in (2, 0.5, True, False)
    ),
    *(
        Row(aten.where.ScalarSelf, (bools("n", 3), other, values), name=f"{name} {other}")
        for name, values in (
            ("float", floats("n", 3)),
            ("int", ints(3)),
            ("int32", ints("n", 1, dtype=INT32)),
            ("bool", bools("n", 3)),
        )
        for other in (2, -math.inf, True, False)
    ),
    *(
        Row(aten.where.Scalar, (bools("n", 3), *both), name=str(both))
        for both in ((1, 2), (1, 2.5), (0.5, -math.inf), (True, False), (False, True), (True, 3))
    ),
    Row(
        aten.where.ScalarOther,
        (bools("n", 3), floats("n", 3)),
        call=lambda condition, x: torch.where(condition, x, x.shape[0]),
        name="size",
    ),
]

MASKED_FILL = [
    *(
        Row(aten.masked_fill.Scalar, args, sizes=EMPTY, name=name)
        for name, args in (
            ("float", (floats("n", 3), bools("n", 3), 0.5)),
            ("infinite", (floats("n", 3), bools("n", 3), -math.inf)),
            ("float with int", (floats("n", 3), bools("n", 1), 2)),
            ("float with bool", (floats("n", 3), bools(3), True)),
            ("int", (ints("n", 3), bools("n", 3), 9)),
            ("int with float", (ints("n", 3), bools("n", 3), 2.5)),
            ("int32", (ints("n", 3, dtype=INT32), bools("n", 3), 9)),
            ("bool with true", (bools("n", 3), bools("n", 3), True)),
            ("bool with false", (bools("n", 3), bools("n", 3), False)),
            ("bool with int", (bools("n", 3), bools(3), 2)),
            ("both broadcast", (floats("n", 1), bools(2, 1, 3), 1.0)),
            ("rank0", (floats("n", 3), bools(), 1.0)),
        )
    ),
    Row(aten.masked_fill.Scalar, (floats(), bools(), 1.0), name="all rank0"),
    *(
        Row(aten.masked_fill.Tensor, args, sizes=EMPTY, name=name)
        for name, args in (
            ("float", (floats("n", 3), bools("n", 1), floats())),
            ("float with int", (floats("n", 3), bools(3), ints())),
            ("int with float", (ints("n", 3), bools("n", 3), floats())),
            ("int32 with int", (ints("n", 3, dtype=INT32), bools("n", 3), ints())),
            ("bool", (bools("n", 3), bools("n", 3), bools())),
            ("both broadcast", (floats("n", 1), bools(2, 1, 3), floats())),
        )
    ),
]

PREDICATES = [
    Row(target, (values,), sizes=sizes, name=name)
    for target in (
        aten.isnan.default,
        aten.isinf.default,
        aten.isfinite.default,
        aten.signbit.default,
    )
    for name, values, sizes in (
        ("not finite", NOT_FINITE, ({"m": 0},)),
        ("rank0", floats(), ()),
        ("int", ints("n", 3, "m"), ({"n": 0},)),
        ("int static", ints(2, 3), ()),
        ("int rank0", ints(), ()),
        ("int32", ints("n", dtype=INT32), ()),
        ("bool", bools("n", 1), ()),
    )
]

MEMBERS = [
    Row(aten.isin.Tensor_Tensor, (ints("n", 3), ints("m")), sizes=({"m": 0},)),
    Row(aten.isin.Tensor_Tensor, (ints("n"), floats(3)), {"invert": True}, name="not"),
    Row(aten.isin.Tensor_Tensor, (ints(), ints(2, 3)), name="rank0"),
]

REDUCTIONS = [
    # from torch._check_tensor_all
    *(
        Row(target, (values,), sizes=sizes, name=name)
        for target in (aten._is_any_true.default, aten._is_all_true.default)
        for name, values, sizes in (
            ("dynamic", bools("n", 3), ({"n": 0}, {"n": 2})),
            ("empty", bools(0, 3), ()),
            ("rank0", bools(), ()),
        )
    ),
    *(
        Row(target, (values,), sizes=sizes, name=name)
        for target in (aten.any.default, aten.all.default)
        for name, values, sizes in (
            ("bool", bools("n", 3), ({"n": 0}, {"n": 2})),
            ("bool static", bools(2, 3), ()),
            ("empty", bools(0, 3), ()),
            ("float", floats("n", 3), EMPTY),
            ("int", small("n"), ({"n": 0}, {"n": 2})),
            ("int32", small("n", 2, dtype=INT32), ()),
            ("rank0", bools(), ()),
            ("rank0 float", floats(), ()),
            ("not finite", NOT_FINITE, ()),
        )
    ),
    *(
        Row(target, (values, dim, keepdim), sizes=sizes, name=f"{name} {dim} {keepdim}")
        for target in (aten.any.dim, aten.all.dim)
        for dim, keepdim in ((0, False), (-1, True), (1, False))
        for name, values, sizes in (
            ("bool", bools("n", 3, "m"), ({"n": 0}, {"m": 0})),
            ("bool static", bools(2, 3), ()),
            ("empty", bools(3, 0), ()),
            ("sum of zero", T((2, 2), torch.int64, lambda *_: torch.tensor([[1, -1], [0, 0]])), ()),
            ("float", floats("n", 2, low=0.0, high=0.2), ()),
            ("int32", small("n", 2, dtype=INT32), EMPTY),
        )
    ),
    *(
        Row(target, (bools(), dim, keepdim), name=f"rank0 {dim} {keepdim}")
        for target in (aten.any.dim, aten.all.dim)
        for dim, keepdim in ((0, False), (-1, True))
    ),
    *(
        Row(target, (values, dims, keepdim), sizes=sizes, name=f"{name} {dims} {keepdim}")
        for target in (aten.any.dims, aten.all.dims)
        for dims, keepdim in (([0, -1], False), ([1], True), ([], False), (None, True))
        for name, values, sizes in (
            ("bool", bools("n", 3, "m"), ({"n": 0}, {"m": 0})),
            ("static", bools(2, 3, 1), ()),
            ("int", small("n", 2, 2), ()),
        )
    ),
    *(
        Row(target, (small(), dims), name=f"rank0 {dims}")
        for target in (aten.any.dims, aten.all.dims)
        for dims in ([0], [], None)
    ),
]

ROWS = [
    *MEMBERS,
    *ALIASES,
    *COMPARISONS,
    *SCALARS,
    *SYMBOLIC,
    *LOGICAL,
    *BITWISE,
    *WHERE,
    *MASKED_FILL,
    *PREDICATES,
    *REDUCTIONS,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
