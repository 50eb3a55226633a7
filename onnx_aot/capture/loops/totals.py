"""Finds the size of what the steps of a loop make together, if their pieces differ in size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.capture.loops.compare import expression_of
from onnx_aot.torch_compat import define_fresh

__all__ = ["find_total"]

MOST_STEPS = 100
"""Steps up to which pieces are added up."""


def find_total(size: Any, number: Any, count: Any) -> Any:
    """The sum of the sizes of all pieces, as a symbolic size; None if it is not a simple one.

    Pieces such as ``x[:, 4 * t : 4 * t + 4]`` have ``x.shape[1]`` elements together. So the sum is
    fitted as ``a * n + b``, where ``n`` is the only size on which it depends. Sums for all small
    sizes, and for those around multiples of the numbers that occur, confirm this.

    Args:
        size: The size of the piece of a step.
        number: The symbol of the number of the step.
        count: The number of steps.
    """
    env = (size if isinstance(size, torch.SymInt) else count).node.shape_env
    given = [expression_of(each) for each in (size, count)]
    piece, steps = [define_fresh(env, each) or each for each in given]
    symbols = (piece.free_symbols | steps.free_symbols) - {number}
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    sums = dict(_add_up(piece, number, steps, symbol))
    if len(sums) < 4:
        return None
    (one, first), (two, second) = itertools.islice(sums.items(), 2)
    factor, rest = divmod(second - first, two - one)
    start = first - factor * one
    if rest or any(total != factor * given + start for given, total in sums.items()):
        return None
    return factor * env.create_symintnode(symbol, hint=None) + start


def _add_up(piece: Any, number: Any, steps: Any, symbol: Any) -> Iterator[tuple[int, int]]:
    """Yields sizes with the sum of all pieces for each."""
    factors = {abs(int(c)) for e in (piece, steps) for c in e.atoms() if c.is_Integer}
    around = {m * f + d for f in factors for m in range(1, 5) for d in (-1, 0, 1)}
    for given in sorted(each for each in {*range(1, 25), *around} if each > 0):
        known = {symbol: expression_of(given)}
        count, at = int(steps.xreplace(known)), piece.xreplace(known)
        if 1 <= count <= MOST_STEPS:
            yield given, sum(int(at.xreplace({number: expression_of(t)})) for t in range(count))
