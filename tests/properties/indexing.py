"""Instructions that index with any combination of numbers, slices, tensors, masks and lists."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, keeps
from tests.properties.scope import Value

__all__ = ["INDEXING", "write_indexed"]


def _index(c: Choices, x: Value, axis: int, rank: int) -> str:
    """An index of one dimension that is valid at every size but 0.

    Args:
        c: Choices.
        x: The tensor to index.
        axis: The dimension.
        rank: Minimal rank of computed indices. The capture needs the value of a scalar to write
            there.
    """
    size = f"{x.name}.shape[{axis}]"
    form = c.between(0, 12)
    if form == 0:
        return f"{c.integers(rank=rank).name}.long() % {size}"
    if form == 1:
        return f"{c.integers(rank=1).name}.flatten().long() % {size}"
    return c.of(
        ":",
        "0",
        "-1",
        "1:",
        ":-1",
        "::2",
        f"{c.bound()}:{c.bound()}",
        "[0, -1]",
        "[0]",
        "torch.tensor([0, -1, 0])",
        "torch.tensor([[0], [-1]])",
        "torch.tensor(0)",
        f"torch.arange({size})",
        f"torch.arange({size} - 1, -1, -1)",
        f"torch.arange(-{size}, 0)",
        f"torch.arange(0, {size}, 2)",
        f"torch.arange({size}) // 2",
        f"torch.arange({size}).flip(0)[:, None]",
        f"slice(0, {size} // 2)",
    )


def _subscript(c: Choices, x: Value, rank: int = 0) -> str:
    count = c.between(1, x.rank)
    parts = [_index(c, x, axis, rank) for axis in range(count)]
    if count < x.rank and c.between(0, 3) == 0:
        parts = ["...", *[_index(c, x, x.rank - count + i, rank) for i in range(count)]]
    if c.between(0, 3) == 0:
        parts.insert(c.between(0, len(parts)), "None")
    return ", ".join(parts)


def _read(c: Choices) -> str:
    x = c.tensor(rank=1)
    return f"{x.name}[{_subscript(c, x)}]"


def _select_by_mask(c: Choices) -> str:
    """A mask over one dimension, or over the first dimensions, beside other indices."""
    x = c.tensor(rank=1, exact=True)
    axis = c.between(0, x.rank - 1)
    mask = f"(torch.arange({x.name}.shape[{axis}]) % 2 == {c.between(0, 1)})"
    before = ":, " * axis
    return c.of(
        f"{x.name}[{before}{mask}]",
        f"{x.name}[{before}{mask}.nonzero()[:, 0]]",
        f"{x.name}[{before}torch.where({mask})[0]]",
        f"{x.name}[{x.name}.bool()]",
        f"{x.name}.flatten()[{x.name}.flatten() != 0]",
    )


def _rows(c: Choices) -> str:
    """Rows by several indices that broadcast against each other."""
    x = c.tensor(rank=2)
    rows, columns = f"torch.arange({x.name}.shape[0])", f"torch.arange({x.name}.shape[1])"
    return c.of(
        f"{x.name}[{rows}[:, None], {columns}]",
        f"{x.name}[{rows}[:, None], {columns}.flip(0)[None]]",
        f"{x.name}[{rows}, {rows} % {x.name}.shape[1]]",
        f"{x.name}[{columns} % {x.name}.shape[0], {columns}]",
        f"{x.name}[torch.tensor([[0], [-1]]), torch.tensor([0, -1, 0])]",
        f"torch.take_along_dim({x.name}, {rows}[:, None] % {x.name}.shape[1], 1)",
    )


def write_indexed(c: Choices, x: Value) -> str:
    """Writes one number, so that repeated indices do not matter."""
    if x.rank == 0:
        raise DoesNotFitError
    k = c.between(0, 3) if x.dtype != torch.bool else c.of("True", "False")
    return f"{x.name}[{_subscript(c, x, rank=1)}] = {k}"


INDEXING = [
    *[Instruction("index", _read, keeps)] * 3,
    Instruction("rows", _rows, keeps),
    Instruction("select by mask", _select_by_mask, keeps, unbacked=True),
]
