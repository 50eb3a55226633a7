"""Reading by index: ``onnx_aot/ops/core/indexing.py``."""

from __future__ import annotations

from typing import Any

import torch
from onnx.reference import ReferenceEvaluator

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

INT32 = torch.int32
NONE_N = ({"n": 0},)
NONE_K = ({"k": 0},)


def below(size: int, *sizes: int | str, dtype: torch.dtype = torch.int64) -> T:
    """Positions in an axis, some counted from its end."""
    return ints(*sizes, low=-size, high=size, dtype=dtype)


def positions(size: int, *sizes: int | str) -> T:
    """Nonnegative positions, as required by ``gather``."""
    return ints(*sizes, low=0, high=size)


def trues(*sizes: int | str) -> T:
    """A mask that is true everywhere."""
    return T(sizes, torch.bool, lambda *s: torch.ones(s))


def none_true(*sizes: int | str) -> T:
    return T(sizes, torch.bool, lambda *s: torch.zeros(s))


def alternating(*sizes: int | str) -> T:
    """A mask that is true at the elements 0, 2, 4, ..."""
    return T(sizes, torch.bool, lambda *s: torch.arange(torch.Size(s).numel()).view(s) % 2 == 0)


GATHERS = [
    *(
        Row(aten.gather.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 4), 1, positions(4, "n", 3)), NONE_N),
            ("negative dim", (floats("n", 4, 3), -2, positions(4, "n", 6, 3)), NONE_N),
            ("first", (floats(4, "n"), 0, positions(4, "k", "n")), NONE_N + NONE_K),
            ("smaller index", (floats(5, 4), 1, positions(4, 2, 3)), ()),
            ("int", (ints("n", 4), 1, positions(4, "n", 3)), ()),
            ("int32", (ints("n", 4, dtype=INT32), 1, positions(4, "n", 3)), ()),
            ("bool", (bools("n", 4), 1, positions(4, "n", 3)), ()),
            ("no index", (floats("n", 4), 1, positions(4, "n", 0)), NONE_N),
            ("row", (floats(1, 90), 1, positions(90, 1, "n")), NONE_N),
            ("row of rank 3", (floats(1, "k", 1), -2, positions(1, 1, "n", 1)), NONE_N),
            ("vector", (floats("k"), 0, positions(1, "n")), NONE_N),
            ("rank0", (floats(), 0, positions(1)), ()),
            ("rank0, index of one element", (floats(), -1, positions(1, 1)), ()),
            ("rank0, several", (floats(), 0, positions(1, "k")), NONE_K),
            ("index of rank0", (floats(4), 0, positions(4)), ()),
            ("index of rank0, negative dim", (floats("n"), -1, positions(1)), ()),
        )
    ),
    Row(
        aten.gather.default,
        (floats("n", 4), 1, positions(4, "n", 3)),
        {"sparse_grad": True},
        name="sparse grad",
    ),
    *(
        Row(aten.index_select.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats(4, "n"), 0, positions(4, "k")), NONE_N + NONE_K),
            ("last", (floats("n", 4), -1, positions(4, "k")), NONE_N),
            ("dynamic", (floats("n", 4), 0, positions(1, "k")), NONE_K),
            ("int32 index", (ints("n", 4), 1, ints("k", low=0, high=4, dtype=INT32)), ()),
            ("bool", (bools("n", 4), 1, positions(4, 2)), ()),
            ("index of rank0", (floats("n", 4), 1, positions(4)), ()),
            ("rank0", (floats(), 0, positions(1, 1)), ()),
            ("rank0, index of rank0", (floats(), 0, positions(1)), ()),
        )
    ),
    *(
        Row(aten.take.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("negative", (floats("n", 4), below(4, "k")), NONE_K),
            ("matrix", (ints("n", 4), below(4, "k", 3)), NONE_K),
            ("index of rank0", (floats("n", 4), below(4)), ()),
            ("rank0", (floats(), below(1, 3)), ()),
            ("bool", (bools(4), below(4, 3)), ()),
        )
    ),
]


def indexed(values: T, *indices: Any, sizes: tuple[dict[str, int], ...] = (), name: str) -> Row:
    """``values[indices]``, captured with None for each colon."""
    return Row(aten.index.Tensor, (values, list(indices)), sizes=sizes, name=name)


INDICES = [
    indexed(floats(4, "n"), below(4, "k"), sizes=NONE_N + NONE_K, name="first"),
    indexed(floats("n", 4), None, below(4, "k"), sizes=NONE_N + NONE_K, name="last"),
    indexed(floats("n", 3), below(1, "k"), sizes=NONE_K, name="dynamic axis"),
    indexed(floats("n", 4, 3), None, below(4, 2, "k"), sizes=NONE_N + NONE_K, name="rank2"),
    indexed(floats("n", 4), None, below(4), name="rank0"),
    indexed(floats("n", 4), None, below(4, 0), sizes=NONE_N, name="no elements"),
    indexed(ints("n", 4), None, below(4, 2, dtype=INT32), name="int32 index"),
    indexed(ints(4, 3, dtype=INT32), below(4, "k"), name="int32"),
    indexed(bools(4, 3), below(4, "k"), name="bool"),
    indexed(floats(4, 3, "n"), below(4, "k"), below(3, "k"), sizes=NONE_N + NONE_K, name="two"),
    indexed(floats(4, 3), below(4, 5), below(3, 5), name="two static"),
    indexed(ints(4, 3), below(4), below(3), name="two of rank0"),
    indexed(bools(4, 3, 2), below(4, "k"), below(3, "k"), below(2, "k"), name="three"),
    indexed(
        floats("n", 4, 3, 2),
        None,
        below(4, "k"),
        below(3, "k"),
        sizes=NONE_N + NONE_K,
        name="adjacent",
    ),
    indexed(
        floats("n", 4, 3, 2), None, below(4, "k"), None, below(2, "k"), sizes=NONE_N, name="apart"
    ),
    indexed(floats(4, "n", 3), below(4, "k"), None, below(3, "k"), name="apart from the first"),
    indexed(floats(4, 3, "n"), below(4, "k", 1), below(3, "m"), sizes=NONE_K, name="broadcast"),
    indexed(floats(4, 3, "n"), below(4, 2, 1), below(3, 5), name="broadcast static"),
    indexed(floats(4, 3), below(4), below(3, "k"), sizes=NONE_K, name="broadcast rank0"),
    indexed(floats(4, 3), below(4, 1), below(3, "k"), sizes=NONE_K, name="broadcast one"),
    indexed(
        floats("n", 4, 3),
        None,
        below(4, "k", 1),
        below(3, 1, "m"),
        sizes=NONE_N,
        name="broadcast adjacent",
    ),
    indexed(floats(4, "n", 3), below(4, "k", 1), None, below(3, 1, "m"), name="broadcast apart"),
    indexed(floats(4, 3), below(4, 0), below(3, 0), name="two without elements"),
    indexed(floats(4, 3), below(4, 0), below(3, 1), name="broadcast to no elements"),
    indexed(floats("n", 3), bools("n"), sizes=NONE_N, name="mask"),
    indexed(floats("n", 3), trues("n"), name="mask, all true"),
    indexed(floats("n", 3), none_true("n"), name="mask, none true"),
    indexed(ints("n", 4), None, bools(4), sizes=NONE_N, name="mask, last"),
    indexed(bools("n", 4), None, bools(4), name="mask, last of bool"),
    indexed(floats("n", "m"), bools("n", "m"), sizes=NONE_N, name="mask of rank2"),
    indexed(floats("n", "m", 3), bools("n", "m"), sizes=NONE_N, name="mask of rank2, one axis"),
    indexed(floats(3, "n", "m"), None, bools("n", "m"), name="mask of rank2, last"),
    indexed(floats(3, "n", 4, 2), None, bools("n", 4), name="mask of rank2, middle"),
    indexed(ints("n", 2, "m", dtype=INT32), bools("n", 2, "m"), name="mask of rank3"),
    # The capture knows the number of true elements to equal no size but 1.
    indexed(floats(5, 4, "n"), alternating(5), below(4, 1), sizes=NONE_N, name="mask, index"),
    indexed(floats(4, 5, "n"), below(4, 1), alternating(5), name="index, mask"),
    indexed(floats(5, "n", 4), alternating(5), None, below(4, 1), name="mask, index apart"),
    indexed(floats("n", 5, 4), None, alternating(5), below(4, 1), name="mask, index adjacent"),
    indexed(floats(2, 3, 4), alternating(2, 3), below(4, 1), name="mask of rank2, index"),
    indexed(floats(4, 2, 3), below(4, "k", 1), alternating(2, 3), name="index, mask of rank2"),
    indexed(floats(5, 4), alternating(5), below(4, 2, 1), name="mask, index of rank2"),
    Row(
        aten.index.Tensor,
        (floats("n", 4, 3), ints("k", low=0, high=4)),
        call=lambda x, i: x[..., i, 1:],
        name="with a slice",
    ),
    Row(
        aten.index.Tensor,
        (floats("n", 4),),
        call=lambda x: x[:, [0, -1, 2]],
        sizes=NONE_N,
        name="list",
    ),
    Row(
        aten.index.Tensor,
        (floats("n", 4),),
        call=lambda x: x[:, [True, False, True, True]],
        sizes=NONE_N,
        name="list of booleans",
    ),
    Row(
        aten.index.Tensor,
        (floats("n", 4),),
        call=lambda x: x[torch.arange(x.shape[0]), torch.arange(x.shape[0]) % 4],
        sizes=NONE_N,
        name="own size",
    ),
    Row(
        aten.index.Tensor,
        (floats("n", "m"),),
        call=lambda x: x[x > 0],
        sizes=NONE_N,
        name="condition",
    ),
]


CONDITIONS = [
    *(
        Row(aten.nonzero.default, (values,), sizes=sizes, name=name)
        for name, values, sizes in (
            ("matrix", ints("n", 3, low=0, high=3), NONE_N),
            ("vector", bools("n"), NONE_N),
            ("double", T(("n", 3), torch.float64, lambda *s: torch.rand(s).round()), ()),
            ("float", T(("n", 3), torch.float32, lambda *s: torch.rand(s).round()), ()),
            ("int32", ints("n", 3, low=0, high=2, dtype=INT32), ()),
            ("rank3", bools("n", 2, 3), ()),
            ("none", none_true("n", 3), ()),
            ("rank0 true", trues(), ()),
            ("rank0 false", none_true(), ()),
        )
    ),
    *(
        Row(aten.masked_select.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("same", (floats("n", 3), bools("n", 3)), NONE_N),
            ("static", (floats(4, 3), bools(4, 3)), ()),
            ("int", (ints("n"), bools("n")), ()),
            ("int32", (ints("n", dtype=INT32), bools("n")), ()),
            ("bool", (bools("n"), bools("n")), ()),
            ("mask of fewer axes", (floats("n", 3), bools(3)), NONE_N),
            ("mask of more axes", (floats(3), bools("n", 3)), NONE_N),
            ("both broadcast", (floats("n", 1), bools("m")), NONE_N),
            ("mask of rank0", (floats("n", 3), bools()), ()),
            ("rank0", (floats(), bools("n")), NONE_N),
            ("both rank0", (floats(), trues()), ()),
            ("none true", (floats("n", 3), none_true("n", 3)), ()),
        )
    ),
]

TRIANGLES = [
    Row(target, args, call=call, name=f"{name}")
    for target, call in (
        (aten.tril_indices.default, lambda x, *a: x + torch.tril_indices(*a)[0, 0]),
        (aten.triu_indices.default, lambda x, *a: x + torch.triu_indices(*a)[1, -1]),
    )
    for name, args in (
        ("square", (ints(2), 4, 4)),
        ("offset", (ints(2), 3, 5, -1)),
        ("large", (ints(2), 60, 50, 2)),
    )
]


CHECKED = [
    *(
        Row(aten.nonzero_static.default, (values,), kwargs, sizes=sizes, name=name)
        for name, values, kwargs, sizes in (
            ("some", ints("n", 3, low=0, high=2), {"size": 4}, NONE_N),
            ("more", bools("n"), {"size": 20, "fill_value": -7}, NONE_N),
            ("none", floats("n", 3), {"size": 0}, ()),
            ("rank0", floats(), {"size": 3}, ()),
        )
    ),
    *(
        Row(aten._unsafe_masked_index.default, (values, mask, indices, fill), name=name)
        for name, values, mask, indices, fill in (
            ("one", floats("n", 4), bools(6), [None, below(9, 6)], 2.5),
            ("two", floats(5, 4), bools(7, 3), [below(9, 7, 1), below(9, 3)], -1.0),
        )
    ),
    Row(aten.gather.default, (floats(5), 0, ints(0, dtype=torch.uint8)), name="empty of any type"),
    *(
        Row(aten.take_along_dim.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("same", (floats(5, 4), positions(4, 5, 3), 1), ()),
            ("broadcast", (floats(1, 4, 2), positions(4, 5, 3, 1), -2), ()),
            ("flat", (floats("n", 3), positions(3, "m", 2)), ()),
        )
    ),
    Row(  # torch itself specializes the sizes of inputs
        aten.take_along_dim.default,
        (floats("n"),),
        call=lambda x: torch.arange(1, x.shape[0] % 2 + 3).take_along_dim(
            torch.arange(x.shape[0] % 2 + 2), 0
        ),
        name="sizes",
    ),
    Row(aten.gather.default, (floats(5), 0, ints(2, 0)), name="empty of other rank"),
]


REPEATED = [
    *(
        Row(aten.repeat_interleave.Tensor, (repeats,), sizes=NONE_N, name=name)
        for name, repeats in (
            ("some", ints("n", low=0, high=4)),
            ("none", ints("n", low=0, high=1)),
            ("int32", ints("n", low=0, high=4, dtype=INT32)),
        )
    ),
    Row(
        aten.repeat_interleave.Tensor,
        (T(("n",), torch.int64, torch.ones),),
        call=lambda x: aten.repeat_interleave.Tensor(x, output_size=x.shape[0]),
        name="known size",
    ),
]

TRACES = [
    Row(aten.trace.default, (matrix,), sizes=({"n": 0},), name=name)
    for name, matrix in (
        ("", floats("n", "m")),
        ("int32", ints("n", 3, dtype=INT32)),
        ("half", floats(3, "n", dtype=torch.float16)),
    )
]

DIAGONALS = [
    Row(aten.diagonal.default, args, sizes=sizes, name=name)
    for name, args, sizes in (
        ("square", (floats(4, 4),), ()),
        ("wide", (floats(3, 5),), ()),
        ("tall", (ints(5, 3),), ()),
        ("above", (floats(4, 5), 2), ()),
        ("below", (floats(4, 5), -1), ()),
        ("above, none", (floats(4, 5), 7), ()),
        ("below, none", (floats(4, 5), -4), ()),
        ("bool", (bools(4, 4),), ()),
        ("int32", (ints(4, 4, dtype=INT32),), ()),
        ("batch", (floats("n", 4, 5), 1, 1, 2), NONE_N),
        ("negative dims", (floats("n", 4, 5), -1, -2, -1), NONE_N),
        ("dims exchanged", (floats("n", 4, 5), 1, -1, -2), NONE_N),
        ("dims apart", (floats(4, "n", 5), -2, 0, 2), NONE_N),
        ("dims in front", (floats(4, 5, "n", 2), 1), NONE_N),
        ("dims backwards", (floats(4, "n", 2, 5), 1, 3, 0), NONE_N),
        ("dynamic square", (floats("n", "n"),), NONE_N),
        ("dynamic square above", (floats("n", "n"), 2), NONE_N),
        ("dynamic square below", (floats("n", "n"), -1), NONE_N),
        ("dynamic", (floats("n", "m"),), NONE_N),
        ("dynamic above", (floats("n", "m"), 2), NONE_N),
        ("dynamic below", (floats("n", "m"), -3), NONE_N),
        ("dynamic rows", (floats("n", 5), 1), NONE_N),
        ("dynamic columns", (floats(5, "n"), -1), NONE_N),
        ("dynamic batch", (floats("k", "n", "m"), 1, 1, 2), NONE_N + NONE_K),
        ("empty", (floats(0, 3),), ()),
    )
]

COMBINED = [
    Row(aten.combinations.default, args, name=name, sizes=({"n": 0}, {"n": 2}), refused=True)
    for name, args in (
        ("pairs", (floats("n"),)),
        ("pairs with replacement", (floats("n"), 2, True)),
        ("three", (ints("n"), 3)),
        ("three with replacement", (floats("n"), 3, True)),
        ("each", (floats("n"), 1)),
        ("none", (floats("n"), 0)),
        ("static", (bools(4), 3)),
        ("more than there are", (floats(2), 3)),
    )
]

ROWS = [
    *COMBINED,
    *GATHERS,
    *INDICES,
    *CONDITIONS,
    *CHECKED,
    *TRIANGLES,
    *REPEATED,
    *TRACES,
    *DIAGONALS,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


def test_the_reference_implementation_gathers_from_a_long_row() -> None:
    """Its GatherElements fails beyond 64 elements; BERT gathers types of tokens so."""

    def take(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table.gather(1, index)

    given = torch.arange(90.0)[None], torch.tensor([[3, 77, 89]])
    program = onnx_aot.export(take, given, dynamic_shapes=({}, {1: "n"}))
    evaluator = ReferenceEvaluator(program.model_proto)
    feeds = dict(zip(evaluator.input_names, [value.numpy() for value in given], strict=True))
    (taken,) = evaluator.run(None, feeds)
    assert taken.tolist() == take(*given).tolist()
