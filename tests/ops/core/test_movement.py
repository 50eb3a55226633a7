"""Views, permutations, joining and splitting: ``onnx_aot/ops/core/movement.py``."""

from __future__ import annotations

import warnings

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, ints, parametrize

Tensor = torch.Tensor

INT32 = torch.int32
NONE_N = ({"n": 0},)
NONE_M = ({"m": 0},)


def reversed_axes(x: Tensor) -> Tensor:
    """``x.T`` of a tensor that is not a matrix, for which torch gives a deprecation warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.T


VIEWS = [
    *(
        Row(target, (floats("n", 3, "m"), size), call=call, sizes=NONE_M, name="inferred")
        for target, size, call in (
            (aten.view.default, -1, lambda x, size: x.view(x.shape[0], size)),
            (aten.reshape.default, -1, lambda x, size: x.reshape(x.shape[0], size)),
        )
    ),
    *(
        Row(target, (values, size), sizes=sizes, name=name)
        for target in (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
        for name, values, size, sizes in (
            ("flat", floats("n", 3, "m"), [-1], NONE_N + NONE_M),
            ("rows", floats("n", 12), [-1, 3, 4], NONE_N),
            ("rows last", floats("n", 12), [6, 2, -1], NONE_N),
            ("int", ints("n", 12), [-1, 6], NONE_N),
            ("int32", ints("n", 12, dtype=INT32), [-1, 6], NONE_N),
            ("bool", bools("n", 12), [-1, 6], NONE_N),
            ("static", floats(2, 6), [3, 4], ()),
            ("same", floats(2, 6), [2, 6], ()),
            ("rank0", floats(), [1, 1], ()),
            ("to rank0", floats(1, 1), [], ()),
            ("rank0 to rank0", floats(), [], ()),
            ("literal zero", floats(0, 3), [3, 0], ()),
            ("literal zero more axes", floats(0, 3), [2, 0, 5, 4], ()),
            ("zero inferred", floats(0, 3), [-1, 3], ()),
            ("zero beside a dynamic size", floats("n", 0), [0, 7], NONE_N),
        )
    ),
    *(
        Row(aten.view.default, (values,), call=call, sizes=NONE_N + NONE_M, name=name)
        for name, values, call in (
            ("swapped sizes", floats("n", "m"), lambda x: x.view(x.shape[1], x.shape[0])),
            ("kept", floats("n", "m", 6), lambda x: x.view(x.shape[0], x.shape[1], 2, 3)),
            (
                "kept and merged",
                floats("n", 3, "m"),
                lambda x: x.view(x.shape[0], 3 * x.shape[2]),
            ),
            (
                "merged first",
                floats("n", "m", 4),
                lambda x: x.view(x.shape[0] * x.shape[1], 2, 2),
            ),
            (
                "merged, then dynamic",
                floats("n", 3, "m"),
                lambda x: x.view(x.shape[0] * 3, x.shape[2]),
            ),
            (
                "kept and moved",
                floats("n", 3, "m"),
                lambda x: x.view(x.shape[0], x.shape[2], 3),
            ),
            (
                "three sizes",
                floats("n", "m", "k", 4),
                lambda x: x.view(x.shape[0], x.shape[1] * x.shape[2], 2, 2),
            ),
            ("added axes", floats("n", "m"), lambda x: x.view(1, x.shape[0], 1, x.shape[1])),
            ("halved", floats("n", 6), lambda x: x.view(x.shape[0] * 2, 3)),
        )
    ),
    Row(
        aten.view.default,
        (floats("n", "m"), floats("m")),
        call=lambda x, y: x.view(x.shape[0], -1, y.shape[0]),
        name="kept, inferred, dynamic",
        sizes=NONE_N[:0],
    ),
    *(
        Row(target, (values, other), sizes=NONE_N + NONE_M, name=name)
        for target in (aten.view_as.default, aten.reshape_as.default)
        for name, values, other in (
            ("dynamic", floats("n", "m"), floats("m", "n")),
            ("merged", floats("n", 2, 3), floats("n", 6)),
            ("same", floats("n", "m"), ints("n", "m")),
        )
    ),
    Row(aten.view_as.default, (floats(2, 6), floats(3, 4)), name="static"),
    Row(aten.reshape_as.default, (floats(1), floats()), name="to rank0"),
    *(
        Row(aten.flatten.using_ints, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("all", (floats("n", 3, "m"),), NONE_N + NONE_M),
            ("from 1", (floats("n", 3, "m"), 1), NONE_N + NONE_M),
            ("from 1 to -1", (floats("n", 3, 4), 1, -1), NONE_N),
            ("from 2", (floats("n", 3, "h", "w"), 2), ({"n": 0}, {"h": 0})),
            ("from 2 of one image", (floats(1, 3, "h", "w"), 2), ({"h": 0},)),
            ("from 2 static", (floats("n", 3, 4, 5), 2), NONE_N),
            ("to -2", (floats("n", "m", 3), 0, -2), NONE_N),
            ("middle", (floats("n", 3, "m", 2), 1, 2), NONE_N + NONE_M),
            ("middle static", (floats("n", 3, 2, "m"), 1, 2), NONE_N + NONE_M),
            ("negative", (floats("n", 3, "m"), -3, -2), NONE_N),
            ("one axis", (floats("n", 3, "m"), 1, 1), ()),
            ("rank0", (floats(),), ()),
            ("rank1", (ints("n"),), NONE_N),
            ("static", (bools(2, 3, 4), 1), ()),
            ("empty", (floats(2, 0, 4), 0, 1), ()),
        )
    ),
    *(
        Row(aten.unflatten.int, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("static", (floats("n", 6), 1, [2, 3]), NONE_N),
            ("inferred", (floats("n", 6), -1, [2, -1]), NONE_N),
            ("dynamic kept", (floats("n", "m"), 1, [3, -1]), NONE_N + NONE_M),
            ("dynamic first", (floats("m", "n"), 0, [-1, 3]), NONE_N + NONE_M),
            ("dynamic middle", (floats("n", "m", "k"), 1, [3, -1]), NONE_N + NONE_M),
            ("one", (ints("n"), 0, [-1, 1]), NONE_N),
            ("all static", (floats(2, 6), 1, [3, 2]), ()),
            ("zero", (floats("n", 0), 1, [0, 3]), NONE_N),
        )
    ),
    Row(aten.ravel.default, (floats("n", 3, "m"),), sizes=NONE_N),
    Row(aten.ravel.default, (floats(),), name="rank0"),
    Row(aten.ravel.default, (ints("n"),), name="rank1"),
]

ONES = [
    *(
        Row(
            aten.squeeze.default,
            args,
            call=lambda x: torch.cat([x, x]).squeeze(),  # 2 * m is never 1
            sizes=NONE_M,
            name=name,
        )
        for name, args in (("dynamic", (floats("m", 1, 4, 1),)), ("nothing", (floats("m", 3),)))
    ),
    Row(aten.squeeze.default, (floats(),), name="rank0"),
    Row(aten.squeeze.default, (ints(1, 1),), name="to rank0"),
    Row(aten.squeeze.dim, (floats("n", 1), 1), sizes=NONE_N),
    Row(aten.squeeze.dim, (bools("n", 1, 3), -2), name="negative"),
    Row(aten.squeeze.dim, (floats("n", 3), 1), name="nothing"),
    Row(aten.squeeze.dim, (floats(), 0), name="rank0"),
    Row(aten.squeeze.dim, (floats(), -1), name="rank0 negative"),
    Row(aten.squeeze.dims, (floats(1, "n", 1, 3), [0, -2]), sizes=NONE_N),
    Row(aten.squeeze.dims, (floats(1, "n", 1, 3), [0, 3]), name="only one"),
    Row(aten.squeeze.dims, (floats(1, "n"), []), name="no dims"),
    Row(aten.squeeze.dims, (floats(), [0]), name="rank0"),
    *(
        Row(aten.unsqueeze.default, (values, dim), sizes=NONE_N, name=name)
        for name, values, dim in (
            ("first", floats("n", 3), 0),
            ("last", ints("n", 3, dtype=INT32), 2),
            ("negative", floats("n", 3), -1),
            ("most negative", bools("n", 3), -3),
        )
    ),
    Row(aten.unsqueeze.default, (floats(), 0), name="rank0"),
    Row(aten.unsqueeze.default, (floats(), -1), name="rank0 negative"),
]

EXPANSIONS = [
    *(
        Row(aten.expand.default, (values, size), sizes=sizes, name=name)
        for name, values, size, sizes in (
            ("keeps", floats("n", 1), [-1, 4], NONE_N),
            ("adds", floats("n", 3), [2, -1, -1], NONE_N),
            ("adds zero", floats("n", 3), [0, -1, -1], NONE_N),
            ("to zero", floats("n", 1), [-1, 0], NONE_N),
            ("one to zero", floats(1, 3), [0, 3], ()),
            ("adds two", ints("n", 1), [2, 5, -1, 3], NONE_N),
            ("nothing", floats("n", 3), [-1, 3], NONE_N),
            ("rank0", floats(), [2, 3], ()),
            ("rank0 to rank0", floats(), [], ()),
            ("int32", ints(3, 1, dtype=INT32), [3, 2], ()),
            ("bool", bools(3, 1), [-1, 2], ()),
        )
    ),
    Row(
        aten.expand.default,
        (floats("n", "m", 1),),
        call=lambda x: torch.cat([x.neg().expand(-1, -1, 0), x], 2),
        sizes=NONE_N + NONE_M,
        name="to zero, with a neighbour",
    ),
    Row(
        aten.expand.default,
        (floats("n", 1), floats("m", 2)),
        call=lambda x, y: x.expand(-1, y.shape[0]),
        sizes=NONE_N + NONE_M,
        name="to a size",
    ),
    Row(
        aten.expand.default,
        (floats("n", 3), floats("m", 2)),
        call=lambda x, y: x.expand(y.shape[0], 2, x.shape[0], 3),
        sizes=NONE_N + NONE_M,
        name="adds a size",
    ),
    Row(
        aten.expand.default,
        (floats("n", 4),),
        call=lambda x: x[:3:3].expand(3, -1),
        name="what is 1 at every size",
    ),
    Row(aten.expand_as.default, (floats("n", 1), floats(2, "n", "m")), sizes=NONE_N),
    Row(aten.expand_as.default, (floats("n", 3), ints("n", 3)), name="nothing"),
    Row(aten.expand_as.default, (floats(), floats("n", 3)), name="rank0"),
    Row(aten.broadcast_to.default, (floats("n", 1), [2, -1, 3]), sizes=NONE_N),
    Row(aten.broadcast_to.default, (ints(1, 3), [2, 3]), name="int"),
]

PERMUTATIONS = [
    Row(aten.permute.default, (floats("n", 3, "m"), [2, 0, 1]), sizes=NONE_N),
    Row(aten.permute.default, (ints("n", 3, "m"), [-1, 0, -2]), name="negative"),
    Row(aten.permute.default, (floats("n", 3), [0, 1]), name="nothing"),
    Row(aten.permute.default, (floats(), []), name="rank0"),
    *(
        Row(target, args, sizes=sizes, name=name)
        for target in (aten.transpose.int, aten.swapdims.default, aten.swapaxes.default)
        for name, args, sizes in (
            ("first", (floats("n", 3, "m"), 0, 1), NONE_N),
            ("negative", (bools("n", 3, "m"), -1, 0), ()),
            ("same", (floats("n", 3), 1, -1), ()),
            ("rank0", (floats(), 0, -1), ()),
            ("rank1", (ints("n"), 0, -1), NONE_N),
        )
    ),
    *(
        Row(aten.t.default, (values,), sizes=sizes, name=name)
        for name, values, sizes in (
            ("matrix", floats("n", 3), NONE_N),
            ("vector", floats("n"), NONE_N),
            ("rank0", ints(), ()),
        )
    ),
    Row(aten.mT.default, (floats("n", 3, "m"),), sizes=NONE_N),
    Row(aten.mT.default, (floats("n", 3),), name="matrix"),
    Row(aten.numpy_T.default, (floats("n", 3),), sizes=NONE_N),
    Row(aten.numpy_T.default, (floats("n", 3, "m"),), call=reversed_axes, name="rank3"),
    Row(aten.numpy_T.default, (floats("n"),), call=reversed_axes, name="rank1"),
    Row(aten.numpy_T.default, (floats(),), call=reversed_axes, name="rank0"),
    Row(aten.movedim.int, (floats("n", 3, "m", 2), 0, 2), sizes=NONE_N),
    Row(aten.movedim.int, (floats("n", 3, "m", 2), -1, 1), name="negative"),
    Row(aten.movedim.int, (floats("n", 3), 1, 1), name="nothing"),
    Row(aten.movedim.int, (floats(), 0, 0), name="rank0"),
    Row(aten.movedim.intlist, (floats("n", 3, "m", 2), [0, 1], [-1, 0]), sizes=NONE_N),
    Row(aten.movedim.intlist, (ints("n", 3, "m", 2), [3, -4, 1], [0, 1, 2]), name="three"),
    Row(aten.movedim.intlist, (floats("n", 3), [], []), name="nothing"),
]

JOINS = [
    *(
        Row(target, ([floats("n", 3), floats("m", 3)],), sizes=NONE_N + NONE_M)
        for target in (aten.cat.default, aten.concat.default, aten.concatenate.default)
    ),
    *(
        Row(aten.cat.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", ([floats("n", 3), floats("n", "m")], -1), NONE_N + NONE_M),
            ("three", ([floats("n", 3), floats("n", 1), floats("n", 2)], 1), NONE_N),
            ("one", ([floats("n", 3)],), ()),
            ("same twice", ("x", 0), ()),
            ("1-d of size 0", ([floats(0), floats("n", 3)], 1), NONE_N),
            ("1-d of size 0 later", ([floats("n", 3), floats(0), floats("n", 2)], -1), ()),
            ("only 1-d of size 0", ([floats(0), floats(0)],), ()),
            ("empty", ([floats("n", 0), floats("n", 3)], 1), NONE_N),
            ("promotes", ([ints("n", 3), floats("n", 3)],), NONE_N),
            ("promotes int", ([ints("n", dtype=INT32), ints("m"), bools("k")],), NONE_N),
            ("promotes a 1-d of size 0", ([ints("n", 3), floats(0)],), ()),
            ("int", ([ints("n"), ints("m")],), NONE_N),
            ("bool", ([bools("n", 2), bools("n", 3)], 1), NONE_N),
        )
        if args[0] != "x"
    ),
    Row(aten.cat.default, (floats("n", 3),), call=lambda x: torch.cat([x, x], 0), name="twice"),
    Row(aten.stack.default, ([floats("n", 3), floats("n", 3)],), sizes=NONE_N),
    Row(aten.stack.default, ([floats("n", 3), floats("n", 3)], -1), name="last"),
    Row(aten.stack.default, ([floats("n", 3), floats("n", 3)], -2), name="middle"),
    Row(aten.stack.default, ([ints(), floats(), bools()],), name="rank0 promotes"),
    Row(aten.stack.default, ([bools("n")], 1), name="one"),
]

REMAINDERS = tuple({"n": n} for n in (0, 2, 3, 5, 6, 8))

SPLITS = [
    *(
        Row(aten.split.Tensor, args, name=name)
        for name, args in (
            ("even", (floats("n", 6), 2, 1)),
            ("rest", (floats("n", 7), 3, -1)),
            ("larger", (floats("n", 3), 5, 1)),
            ("exact", (ints("n", 3), 3, 1)),
            ("int32", (ints(5, dtype=INT32), 2)),
            ("bool", (bools(5), 2)),
            ("empty", (floats("n", 0), 2, 1)),
            ("zero", (floats("n", 0), 0, 1)),
        )
    ),
    Row(
        aten.split.Tensor,
        (floats("h", 3),),
        call=lambda x: x.split(x.shape[0]),
        sizes=({"h": 0},),
        name="whole dynamic",
    ),
    Row(
        aten.split.Tensor,
        (floats("n", 3), floats("n")),
        call=lambda x, y: torch.cat([x, x, x]).split(y.shape[0]),
        name="dynamic",
    ),
    *(
        Row(target, args, sizes=sizes, name=name)
        for target in (aten.split_with_sizes.default, aten.split.sizes)
        for name, args, sizes in (
            ("last", (floats("n", 6), [1, 2, 3], 1), NONE_N),
            ("negative", (ints("n", 6), [2, 4], -1), NONE_N),
            ("zero", (floats("n", 6), [2, 0, 4], 1), NONE_N),
            ("one", (floats("n", 6), [6], 1), ()),
            ("bool", (bools(6), [2, 4]), ()),
        )
    ),
    *(
        Row(
            target,
            (floats("n", 3), floats("m", 3)),
            call=call,
            sizes=NONE_N + NONE_M,
            name="dynamic",
        )
        for target, call in (
            (
                aten.split_with_sizes.default,
                lambda x, y: aten.split_with_sizes.default(
                    torch.cat([x, y]), [x.shape[0], y.shape[0]]
                ),
            ),
            (
                aten.split.sizes,
                lambda x, y: aten.split.sizes(
                    torch.cat([x, y, x]), [x.shape[0], y.shape[0], x.shape[0]]
                ),
            ),
        )
    ),
    *(
        Row(aten.chunk.default, args, name=name)
        for name, args in (
            ("even", (floats("n", 6), 3, 1)),
            ("rest", (floats("n", 7), 3, -1)),
            ("fewer", (floats("n", 5), 4, 1)),
            ("more chunks than elements", (floats("n", 2), 5, 1)),
            ("one", (floats("n", 2), 1)),
            ("empty", (floats("n", 0), 3, 1)),
            ("bool", (bools(6), 2)),
        )
    ),
    Row(
        aten.chunk.default,
        (floats("n", 3),),
        call=lambda x: torch.cat([x, x]).chunk(2),
        sizes=NONE_N,
        name="dynamic",
    ),
    Row(
        aten.chunk.default,
        (floats(2, "n"),),
        call=lambda x: torch.cat([x, x, x, x], -1).chunk(4, -1),
        name="dynamic last",
    ),
    *(
        Row(aten.tensor_split.sections, args, sizes=REMAINDERS, name=name)
        for name, args in (
            ("", (floats("n", 7), 3)),
            ("static, negative dim", (floats("n", 7), 3, -1)),
            ("last", (floats(2, "n"), 4, 1)),
            ("more than elements", (floats(2, 2), 3)),
        )
    ),
    *(
        Row(aten.unbind.int, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats(3, "n"),), NONE_N),
            ("last", (floats("n", 3), -1), NONE_N),
            ("one", (ints("n", 1), 1), NONE_N),
            ("to rank0", (bools(3),), ()),
            ("int32", (ints(2, "n", 2, dtype=INT32), -1), ()),
        )
    ),
]

GRIDS = [
    Row(target, ([floats("n"), floats("m"), floats(2)],), kwargs, sizes=NONE_N, name=name)
    for target, kwargs, name in (
        (aten.meshgrid.default, {}, ""),
        (aten.meshgrid.indexing, {"indexing": "ij"}, "ij"),
        (aten.meshgrid.indexing, {"indexing": "xy"}, "xy"),
    )
] + [
    Row(aten.meshgrid.indexing, ([ints(), ints("n")],), {"indexing": "xy"}, name="rank0"),
    Row(aten.meshgrid.indexing, ([bools("n")],), {"indexing": "xy"}, name="one"),
]

ROWS = [*VIEWS, *ONES, *EXPANSIONS, *PERMUTATIONS, *JOINS, *SPLITS, *GRIDS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
