"""Instructions that take views of a tensor or move its elements."""

from __future__ import annotations

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, keeps

__all__ = ["MOVES", "VIEWS"]


def _slice(c: Choices) -> str:
    x = c.tensor(rank=1)
    axis = c.between(0, x.rank - 1)
    step = c.of("", "", ":2", ":3")
    return f"{x.name}[{':, ' * axis}{c.bound()}:{c.bound()}{step}]"


def _select(c: Choices) -> str:
    x = c.tensor(rank=1)
    return f"{x.name}.select({c.axis(x)}, {c.of('0', '-1', '1', c.size() + ' - 1')})"


def _subscript(c: Choices) -> str:
    """Basic indexing that combines numbers, slices, None and an ellipsis."""
    x = c.tensor(rank=1)
    parts = [
        c.of("0", "-1", ":", "1:", ":-1", "::2", f"{c.bound()}:")
        for _ in range(c.between(1, x.rank))
    ]
    if c.maybe():
        parts.insert(c.between(0, len(parts)), "None")
    if c.maybe():
        parts.insert(c.between(0, len(parts)), "...")
    return f"{x.name}[{', '.join(parts)}]"


def _narrow(c: Choices) -> str:
    x = c.tensor(rank=1)
    axis = c.axis(x)
    start = c.of("0", "1")
    return f"{x.name}.narrow({axis}, {start}, {x.name}.shape[{axis}] - {start})"


def _transpose(c: Choices) -> str:
    x = c.tensor(rank=2)
    return f"{x.name}.transpose({c.axis(x)}, {c.axis(x)})"


def _permute(c: Choices) -> str:
    x = c.tensor(rank=2)
    shift = c.between(1, x.rank - 1)
    order = [(axis + shift) % x.rank for axis in range(x.rank)]
    return c.of(f"{x.name}.permute({order})", f"{x.name}.movedim({c.axis(x)}, {c.axis(x)})")


def _unsqueeze(c: Choices) -> str:
    x = c.tensor(lambda v: v.rank < 4, unbacked=True)
    return f"{x.name}.unsqueeze({c.axis(x, beyond=1)})"


def _squeeze(c: Choices) -> str:
    x = c.tensor(lambda v: any(set(s) == {1} for s in v.shape()) and len(v.held) > 5)
    axes = [axis for axis, size in enumerate(x.shape()) if set(size) == {1}]
    return f"{x.name}.squeeze({c.of(*axes)})"


def _reshape(c: Choices) -> str:
    x = c.tensor(rank=1)
    sizes = [f"{x.name}.shape[{axis}]" for axis in range(x.rank)]
    form = c.between(0, 6)
    if form == 0:
        return f"{x.name}.reshape(-1)"
    if form == 1:
        return f"{x.name}.reshape({c.of(*sizes)}, -1)"
    if form == 2:
        return f"{x.name}.reshape(-1, {c.of(*sizes)})"
    if form == 3:
        return f"{x.name}.{c.of('reshape', 'view')}({' * '.join(sizes)})"
    if form == 4:
        return f"{x.name}.{c.of('reshape', 'view')}({', '.join([*reversed(sizes), '1'])})"
    if form == 5:
        return f"{x.name}.flatten({c.axis(x)}, {c.of(-1, c.axis(x))})"
    if x.rank < 2:
        raise DoesNotFitError
    return f"{x.name}.reshape({sizes[0]} * {sizes[1]}, {', '.join([*sizes[2:], '-1'])})"


def _unflatten(c: Choices) -> str:
    x = c.tensor(rank=1)
    axis = c.axis(x)
    sizes = c.of((1, -1), (-1, 1), (2, -1), (-1, 2))
    return f"{x.name}.unflatten({axis}, {sizes})"


def _expand(c: Choices) -> str:
    x = c.tensor(lambda v: v.rank < 4)
    form = c.between(0, 3)
    if form == 0:
        y = c.fitting(x, lambda v: v.rank >= x.rank)
        return f"{x.name}.expand_as({y.name})"
    if form == 1:
        y = c.fitting(x, lambda v: v.rank >= x.rank)
        return f"torch.broadcast_to({x.name}, {y.name}.shape)"
    sizes = ["-1" if set(size) != {1} else c.of(c.size(), "3", "-1") for size in x.shape()]
    if form == 2 or not sizes:
        sizes.insert(0, c.size())
    return f"{x.name}.expand({', '.join(sizes)})"


def _pieces(c: Choices) -> str:
    x = c.tensor(rank=1)
    axis = c.axis(x)
    form = c.between(0, 5)
    if form == 0:
        return f"{x.name}.chunk({c.between(1, 3)}, {axis})[{c.of(0, -1)}]"
    if form == 1:
        return f"{x.name}.split({c.between(1, 3)}, {axis})[{c.of(0, -1)}]"
    if form == 2:
        return f"{x.name}.tensor_split({c.between(1, 3)}, {axis})[{c.of(0, -1)}]"
    if form == 3:
        k = c.between(1, 2)
        rest = f"{x.name}.shape[{axis}] - {k}"
        return f"{x.name}.split([{k}, {rest}], {axis})[{c.of(0, 1)}]"
    if form == 4:
        half = f"{x.name}.shape[{axis}] // 2"
        return f"{x.name}.split([{half}, {x.name}.shape[{axis}] - {half}], {axis})[{c.of(0, 1)}]"
    static = [a for a, size in enumerate(x.shape()) if len(set(size)) == 1]
    if not static:
        raise DoesNotFitError
    return f"{x.name}.unbind({c.of(*static)})[{c.of(0, -1)}]"


def _diagonal(c: Choices) -> str:
    x = c.tensor(rank=2)
    return f"{x.name}.diagonal({c.between(-1, 1)}, {c.of('0, 1', '-2, -1', '1, 0')})"


def _windows(c: Choices) -> str:
    x = c.tensor(rank=1)
    return f"{x.name}.unfold({c.axis(x)}, {c.between(1, 3)}, {c.between(1, 2)})"


def _plain(c: Choices) -> str:
    x = c.tensor(unbacked=True)
    form = c.of("contiguous()", "detach()", "clone()", "view_as({0})", "alias", "mT", "T")
    if form == "alias":
        return x.name
    if form in ("mT", "T") and x.rank != 2:
        raise DoesNotFitError
    return f"{x.name}.{form.format(x.name)}"


def _cat(c: Choices) -> str:
    x = c.tensor(rank=1)
    axis = c.between(0, x.rank - 1)
    sizes = x.shape()

    def joins(v: object) -> bool:
        other = v.shape()  # type: ignore[attr-defined]
        return len(other) == len(sizes) and all(
            a == b for i, (a, b) in enumerate(zip(other, sizes, strict=True)) if i != axis
        )

    more = [c.tensor(joins).name for _ in range(c.between(1, 2))]
    return f"torch.cat([{', '.join([x.name, *more])}], {axis})"


def _stack(c: Choices) -> str:
    x = c.tensor()
    more = [c.alike(x).name for _ in range(c.between(1, 2))]
    return f"torch.stack([{', '.join([x.name, *more])}], {c.axis(x, beyond=1)})"


def _flip(c: Choices) -> str:
    x = c.tensor(rank=1)
    return f"{x.name}.flip({c.axis(x)})"


def _roll(c: Choices) -> str:
    x = c.tensor(rank=1)
    shift = c.of(str(c.between(-3, 3)), c.size())
    return f"{x.name}.roll({shift}, {c.axis(x)})"


def _repeat(c: Choices) -> str:
    x = c.tensor(lambda v: 1 <= v.rank < 4)
    form = c.between(0, 3)
    if form == 0:
        counts = [c.of("1", "2", c.size()) for _ in range(x.rank)]
        return f"{x.name}.{c.of('repeat', 'tile')}({', '.join(counts)})"
    if form == 1:
        return f"{x.name}.repeat({', '.join(['2', *['1'] * x.rank])})"
    count = c.of("2", c.size())
    return f"{x.name}.repeat_interleave({count}, {c.axis(x)})"


def _pad(c: Choices) -> str:
    x = c.tensor(rank=1)
    count = c.between(1, min(2, x.rank))
    amounts = [c.of("0", "1", "2", "-1", c.size()) for _ in range(2 * count)]
    value = c.of("0", "1", "-2")
    if str(x.dtype) == "torch.bool":
        value = c.of("0", "1")
    return f"F.pad({x.name}, [{', '.join(amounts)}], value={value})"


def _triangle(c: Choices) -> str:
    x = c.tensor(rank=2)
    return f"{x.name}.{c.of('tril', 'triu')}({c.of('0', '1', '-1', c.size())})"


def _gather(c: Choices) -> str:
    """Advanced indexing with indices that are made to fit."""
    x = c.tensor(rank=1)
    axis = c.between(0, x.rank - 1)
    index = c.integers().name
    fits = f"({index}.long() % {x.name}.shape[{axis}])"
    form = c.between(0, 4)
    if form == 0:
        return f"{x.name}[{':, ' * axis}{fits}]"
    if form == 1:
        return f"{x.name}.index_select({axis}, {fits}.flatten())"
    if form == 2 and x.rank > 1:
        return f"{x.name}[{fits}, {c.of('0', '-1')}]" if axis == 0 else f"{x.name}[0, {fits}]"
    if form == 3 and x.rank > 1:
        other = f"({index}.long() % {x.name}.shape[{1 - axis if axis < 2 else 0}])"
        first, second = (fits, other) if axis == 0 else (other, fits)
        return f"{x.name}[{first}, {second}]"
    y = c.alike(x, lambda v: str(v.dtype) in ("torch.int64", "torch.int32") and v.exact)
    fits = f"({y.name}.long() % {x.name}.shape[{axis}])"
    return c.of(
        f"{x.name}.gather({axis}, {fits})", f"torch.take_along_dim({x.name}, {fits}, {axis})"
    )


def _compact(c: Choices) -> str:
    """Sizes that depend on data."""
    x = c.tensor(exact=True)
    form = c.between(0, 3)
    if form == 0:
        return f"torch.masked_select({x.name}, {c.mask(x, selects=True)})"
    if form == 1:
        return f"{x.name}[{c.mask(x, selects=True)}]"
    if form == 2:
        return f"{x.name}.nonzero()"
    if str(x.dtype) in ("torch.float16", "torch.bfloat16"):
        raise DoesNotFitError
    return f"torch.unique({x.name})"


def _two_views(c: Choices) -> str:
    """Two parts of a tensor, or two tensors side by side."""
    x = c.tensor(rank=1)
    axis, form = c.between(0, x.rank - 1), c.between(0, 4)
    if form == 0:
        return f"{x.name}.chunk(2, {axis})"
    if form == 1:
        return f"{x.name}.split([1, {x.name}.shape[{axis}] - 1], {axis})"
    if form == 2:
        return f"{x.name}.tensor_split([{c.of('1', '-1', c.size())}], {axis})"
    if form == 3:
        y = c.fitting(x)
        return f"torch.broadcast_tensors({x.name}, {y.name})"
    twos = [a for a, sizes in enumerate(x.shape()) if set(sizes) == {2}]
    if not twos:
        raise DoesNotFitError
    return f"{x.name}.unbind({c.of(*twos)})"


VIEWS = [
    *[Instruction("two views", _two_views, keeps, several=True)] * 2,
    Instruction("slice", _slice, keeps),
    Instruction("slice", _slice, keeps),
    Instruction("select", _select, keeps),
    Instruction("subscript", _subscript, keeps),
    Instruction("narrow", _narrow, keeps),
    Instruction("transpose", _transpose, keeps),
    Instruction("permute", _permute, keeps),
    Instruction("unsqueeze", _unsqueeze, keeps),
    Instruction("squeeze", _squeeze, keeps),
    Instruction("reshape", _reshape, keeps),
    Instruction("reshape", _reshape, keeps),
    Instruction("unflatten", _unflatten, keeps),
    Instruction("expand", _expand, keeps),
    Instruction("pieces", _pieces, keeps),
    Instruction("diagonal", _diagonal, keeps),
    Instruction("windows", _windows, keeps),
    Instruction("plain", _plain, keeps),
]
MOVES = [
    Instruction("cat", _cat, keeps),
    Instruction("stack", _stack, keeps),
    Instruction("flip", _flip, keeps),
    Instruction("roll", _roll, keeps),
    Instruction("repeat", _repeat, keeps),
    Instruction("pad", _pad, keeps),
    Instruction("triangle", _triangle, keeps),
    Instruction("gather", _gather, keeps),
    Instruction("gather", _gather, keeps),
    Instruction("compact", _compact, keeps, unbacked=True),
]
