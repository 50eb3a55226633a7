"""Slices, windows, repeating, rolling and padding: ``onnx_aot/ops/core/movement.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, ints, parametrize

Tensor = torch.Tensor

INT32 = torch.int32
NONE_N = ({"n": 0},)
NONE_M = ({"m": 0},)

SLICES = [
    *(
        Row(aten.slice.Tensor, (values, dim, *bounds), sizes=sizes, name=f"{name} {bounds}")
        for name, values, dim, sizes in (
            ("static", floats("n", 6), 1, NONE_N),
            ("dynamic", ints("h", 3), -2, ({"h": 7}, {"h": 20})),
        )
        for bounds in (
            (2, 4),
            (0, 3),
            (1, None),
            (None, 4),
            (-3, -1),
            (0, -2),
            (-2, None),
            (-100, 3),
            (3, 100),
            (0, 100),
            (4, 2),
            (0, 0),
            (100, 200),
            (0, None),
            (None, None, 2),
            (1, None, 3),
            (-5, -1, 2),
            (1, 100, 4),
        )
    ),
    Row(aten.slice.Tensor, (bools("n", 6), 1, 1, 4), name="bool"),
    Row(aten.slice.Tensor, (ints("n", 6, dtype=INT32), 1, 1, 4), name="int32"),
    *(
        Row(
            aten.slice.Tensor,
            (floats("h", 3), floats("n", 2)),
            call=call,
            sizes=NONE_N,
            name=f"symbolic {name}",
        )
        for name, call in (
            ("end", lambda x, y: x[: y.shape[0]]),
            ("start", lambda x, y: x[y.shape[0] :]),
            ("both", lambda x, y: x[y.shape[0] : y.shape[0] + 1]),
            ("negative end", lambda x, y: x[: -1 - y.shape[0]]),
            ("step", lambda x, y: x[y.shape[0] :: 2]),
            ("own size", lambda x, y: x[: x.shape[0]]),
            ("before own size", lambda x, y: x[: x.shape[0] - 1]),
            ("half", lambda x, y: x[x.shape[0] // 2 :]),
        )
    ),
    *(
        Row(aten.narrow.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats(6, "n"), 0, 1, 3), NONE_N),
            ("negative", (floats("n", 6), -1, -3, 2), NONE_N),
            ("negative to the end", (floats("n", 6), 1, -2, 2), NONE_N),
            ("nothing", (floats("n", 6), 1, 2, 0), NONE_N),
            ("all", (ints("n", 6), 1, 0, 6), NONE_N),
            ("from the end", (floats("n", 6), 1, 6, 0), NONE_N),
        )
    ),
    *(
        Row(
            aten.narrow.default,
            (floats("h", 3), floats("n", 2)),
            call=call,
            sizes=NONE_N,
            name=f"symbolic {name}",
        )
        for name, call in (
            ("length", lambda x, y: x.narrow(0, 1, y.shape[0])),
            ("start", lambda x, y: x.narrow(0, y.shape[0], 1)),
            ("both", lambda x, y: x.narrow(0, x.shape[0] - y.shape[0], y.shape[0])),
        )
    ),
    Row(
        aten.narrow.default,
        (floats("h", 3), floats("n")),
        call=lambda x, y: torch.cat([x, x, y[:, None].expand(-1, 3)]).narrow(0, -8, y.shape[0]),
        name="negative start, symbolic length",
    ),
    *(
        Row(aten.unfold.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 7), 1, 3, 2), NONE_N),
            ("first", (floats(7, "n"), 0, 3, 1), NONE_N),
            ("negative dim", (floats("n", 6, 2), -2, 2, 2), NONE_N),
            ("dynamic", (ints(2, "h", 3), 1, 4, 3), ()),
            ("whole", (bools("n", 4), 1, 4, 1), ()),
            ("one", (floats("n", 4), 1, 1, 1), ()),
        )
    ),
    *(
        Row(aten.select.int, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats(3, "n"), 0, 1), NONE_N),
            ("negative", (floats("n", 3), -1, -2), NONE_N),
            ("dynamic", (floats("n", 3), 0, 0), ()),
            ("dynamic last", (floats("n", 3), 0, -1), ()),
            ("to rank0", (ints(3), 0, 2), ()),
            ("bool", (bools("n", 3), 1, 2), NONE_N),
        )
    ),
    Row(aten.select_copy.int, (floats("n", 3), -1, 1), sizes=NONE_N),
    Row(
        aten.select.int,
        (floats("h", 3), floats("n", 2)),
        call=lambda x, y: x[y.shape[0]],
        sizes=NONE_N,
        name="symbolic",
    ),
]

REPEATS = [
    *(
        Row(aten.repeat.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("twice", (floats("n", 3), [2, 1]), NONE_N),
            ("adds", (floats("n", 3), [4, 2, 1]), NONE_N),
            ("adds two", (ints("n"), [2, 3, 2]), NONE_N),
            ("only adds", (floats("n", 3), [1, 1, 1]), ()),
            ("nothing", (floats("n", 3), [1, 1]), ()),
            ("zero", (floats("n", 3), [1, 0]), NONE_N),
            ("rank0", (floats(), [3]), ()),
            ("rank0 no repeats", (floats(), []), ()),
            ("int32", (ints("n", dtype=INT32), [2]), ()),
            ("bool", (bools("n", 3), [2, 2]), ()),
        )
    ),
    Row(
        aten.repeat.default,
        (floats("n", 3), floats("m")),
        call=lambda x, y: x.repeat(y.shape[0], 1, 2),
        sizes=NONE_N + NONE_M,
        name="symbolic",
    ),
    *(
        Row(aten.tile.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("same rank", (floats("n", 3), [2, 3]), NONE_N),
            ("fewer", (floats("n", 3, "m"), [2]), NONE_N),
            ("more", (floats("n", 3), [2, 1, 2]), NONE_N),
            ("none", (floats("n", 3), []), ()),
            ("rank0", (ints(), [2, 2]), ()),
        )
    ),
    *(
        Row(aten.flip.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats("n", 3), [0]), NONE_N),
            ("two", (floats("n", 3, "m"), [0, -1]), NONE_N + NONE_M),
            ("none", (floats("n", 3), []), ()),
            ("rank0", (floats(), [0]), ()),
            ("rank0 none", (floats(), []), ()),
            ("int", (ints("n", 3), [1]), ()),
            ("int32", (ints("n", dtype=INT32), [0]), ()),
            ("bool", (bools("n", 3), [1, 0]), ()),
            ("empty", (floats(0, 3), [0, 1]), ()),
        )
    ),
    *(
        Row(aten.roll.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("static", (floats("n", 5), [2], [1]), NONE_N),
            ("static larger", (floats("n", 5), [12], [1]), NONE_N),
            ("static negative", (floats("n", 5), [-8], [-1]), NONE_N),
            ("static whole", (floats("n", 5), [10], [1]), NONE_N),
            ("dynamic", (floats("n", 5), [2], [0]), NONE_N),
            ("dynamic one", (floats("n", 5), [1], [0]), NONE_N),
            ("dynamic larger", (floats("n", 5), [29], [0]), NONE_N),
            ("dynamic negative", (ints("n", 5), [-13], [0]), NONE_N),
            ("two dims", (floats("n", 3, "m"), [1, -2], [0, 2]), NONE_N + NONE_M),
            ("one dim twice", (floats("n", 3), [1, 1], [0, 0]), NONE_N),
            ("zero", (floats("n", 3), [0, 1], [0, 1]), NONE_N),
            ("no dims", (floats("n", 3), [4]), NONE_N),
            ("no dims static", (floats(2, 3), [4]), ()),
            ("no dims whole", (floats(2, 3), [6]), ()),
            ("no dims empty", (floats(2, 0), [4]), ()),
            ("no dims rank0", (floats(), [3]), ()),
            ("empty", (floats("n", 0), [3], [1]), NONE_N),
            ("bool", (bools("n", 5), [2], [1]), ()),
            ("int32", (ints("n", 5, dtype=INT32), [2], [1]), ()),
        )
    ),
    Row(
        aten.roll.default,
        (floats("n", 5), floats("m")),
        call=lambda x, y: torch.roll(x, y.shape[0], 1),
        sizes=NONE_N,
        name="symbolic shift",
    ),
    Row(
        aten.roll.default,
        (floats("n", 5), floats("m")),
        call=lambda x, y: torch.roll(x, (-y.shape[0], 1), (0, 1)),
        sizes=NONE_N,
        name="symbolic negative shift",
    ),
]


def pad(x: Tensor, amounts: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """The operator that ``torch.nn.functional.pad`` is captured as."""
    return torch.nn.functional.pad(x, amounts, mode, value)


PADS = [
    *(
        Row(aten.constant_pad_nd.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 3), [1, 2]), NONE_N),
            ("two", (floats("n", 3, "m"), [1, 2, 0, 3], 1.5), NONE_N + NONE_M),
            ("all", (floats("n", 3), [0, 0, 2, 1], -1), NONE_N),
            ("negative", (floats("n", 6), [-1, -2]), NONE_N),
            ("mixed", (floats("n", 6), [-1, 2, 1, 0], 0.5), NONE_N),
            ("negative dynamic", (floats("h", 3), [1, 0, -2, -1], 2.0), ()),
            ("nothing", (floats("n", 3), [0, 0]), ()),
            ("no amounts", (floats("n", 3), []), ()),
            ("rank0", (floats(), []), ()),
            ("empty", (floats(0, 3), [0, 0, 1, 1], 4.0), ()),
            ("to empty", (floats("n", 3), [-1, -2]), NONE_N),
            ("int", (ints("n", 3), [1, 1], 7), NONE_N),
            ("int, float value", (ints("n", 3), [1, 1], 7.9), ()),
            ("int32", (ints("n", 3, dtype=INT32), [1, 1]), ()),
            ("bool", (bools("n", 3), [1, 1]), ()),
            ("bool true", (bools("n", 3), [1, 1], True), ()),
            ("infinite", (floats("n", 3), [1, 1], float("-inf")), ()),
        )
    ),
    Row(
        aten.constant_pad_nd.default,
        (floats("n", 3), floats("m")),
        call=lambda x, y: aten.constant_pad_nd.default(x, [0, y.shape[0], y.shape[0] - 1, 0], 2.0),
        name="symbolic",
    ),
    *(
        Row(
            aten.pad.default,
            (values, amounts, mode),
            call=pad,
            sizes=({"n": 0},) if mode == "constant" else (),
            name=f"{mode} {len(amounts) // 2}d {name}",
        )
        for mode in ("constant", "reflect", "replicate", "circular")
        for name, values, amounts in (
            ("batched", floats("n", 2, "h"), [2, 3]),
            ("unbatched", floats(2, "h"), [3, 1]),
            ("one side", floats("n", 2, "h"), [0, 3]),
            ("shorter", floats("n", 2, "h"), [-1, 2]),
            ("cut", floats("n", 2, "h"), [-1, -2]),
            ("batched", floats("n", 2, "h", "w"), [1, 2, 3, 0]),
            ("unbatched", floats(2, "h", "w"), [0, 2, 1, 1]),
            ("mixed", floats("n", 2, "h", 5), [2, -1, -2, 3]),
            ("batched", floats("n", 2, "h", 4, "w"), [1, 2, 2, 0, 3, 1]),
            ("unbatched", floats(2, "h", 4, "w"), [1, 2, 2, 0, 0, 0]),
        )
    ),
    Row(aten.pad.default, (floats("n", 3), [1, 2], "constant", 0.5), call=pad, name="value"),
    Row(aten.pad.default, (floats("n", 2, "h"), [0, 0], "reflect"), call=pad, name="nothing"),
    Row(aten.pad.default, (floats("n", 2, "h"), [0, 0], "circular"), call=pad, name="no circle"),
    Row(aten.pad.default, (ints("n", 2, "h"), [2, 1], "circular"), call=pad, name="circular int"),
    Row(
        aten.pad.default,
        (floats("n", 2, "h"), floats("m")),
        call=lambda x, y: torch.nn.functional.pad(x, (y.shape[0] - 1, 0), "circular"),
        name="circular symbolic",
    ),
    Row(
        aten.pad.default,
        (floats("n", 2, "h"), floats("n")),
        call=lambda x, y: torch.nn.functional.pad(x, (y.shape[0], 1), "reflect"),
        name="reflect symbolic",
    ),
    *(
        Row(target, (values, amounts), name=name)
        for targets, inputs, amounts in (
            (
                (aten.reflection_pad1d.default, aten.replication_pad1d.default),
                (floats("n", 2, "h"), floats(2, "h")),
                [3, 2],
            ),
            (
                (aten.reflection_pad2d.default, aten.replication_pad2d.default),
                (floats("n", 2, "h", "w"), floats(2, "h", "w")),
                [1, 2, 3, 0],
            ),
            (
                (aten.reflection_pad3d.default, aten.replication_pad3d.default),
                (floats("n", 2, "h", 4, "w"), floats(2, "h", 4, "w")),
                [1, 2, 2, 0, 3, 1],
            ),
        )
        for target in targets
        for name, values in zip(("batched", "unbatched"), inputs, strict=True)
    ),
    Row(aten.replication_pad1d.default, (floats(2, 3), [7, 5]), name="beyond the size"),
    Row(aten.reflection_pad1d.default, (floats(2, 3), [2, 2]), name="up to the size"),
]

EDGES = [
    Row(aten.pad.default, (values, amounts, mode), sizes=sizes, name=f"{name} {mode}")
    for mode in ("reflect", "replicate")
    for name, values, amounts, sizes in (
        ("cut off and added", floats("n", 4, 6), (-2, 3), ()),
        ("added and cut off", floats("n", 4, 6), (1, -5, 0, 0), ()),
        ("dynamic, cut off", floats(2, 3, "h"), (-1, 2), ()),
    )
] + [
    Row(aten.pad.default, (floats(2, 4, 6), (-4, 5), "replicate"), name="all but the edge"),
    Row(aten.pad.default, (floats(0, 3, 3), (1, 2), "circular"), name="circular, nothing"),
    Row(aten.unfold.default, (floats(), 0, 1, 1), name="rank0"),
    Row(aten.unfold.default, (floats(), 0, 0, 1), name="rank0 none"),
]


ROWS = [*SLICES, *REPEATS, *PADS, *EDGES]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
