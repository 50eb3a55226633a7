"""Finds the size of what the steps of a loop make together, if their pieces differ in size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnx_aot.capture.loops.compare import expression_of
from onnx_aot.torch_compat import define_fresh

__all__ = ["find_total"]

MOST_STEPS = 100
"""Steps up to which pieces are added up."""


def find_total(size: Any, number: Any, count: Any) -> Any:
    """The sum of the sizes of all pieces, as a symbolic size; None if it is not a simple one.

    Pieces such as ``x[:, 4 * t : 4 * t + 4]`` have ``x.shape[1]`` elements together, and those
    such as ``x[:, 4 * t : 4 * t + 1]`` one for each step. So the sum is fitted as
    ``a * n + b * count + c``, where ``n`` is the only size on which it depends. Sums for all small
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
    sums = list(_add_up(piece, number, steps, symbol))
    found = _fit(sums)
    if found is None:
        return None
    of_size, of_count, rest = found
    return of_size * env.create_symintnode(symbol, hint=None) + of_count * count + rest


def _fit(sums: Sequence[tuple[int, int, int]]) -> tuple[int, int, int] | None:
    """The factors of the size and of the number of steps in the sum, and what is added to them.

    Args:
        sums: Sizes with the number of steps and the sum of all pieces for each.
    """
    if len(sums) < 5:
        return None
    (n, count, total), *others = sums
    lines = [(each[0] - n, each[1] - count, each[2] - total) for each in others]
    for (a, b, c), (d, e, f) in itertools.pairwise(lines):
        divisor = a * e - b * d
        if divisor:  # by Cramer's rule
            of_size, of_count = (c * e - b * f) // divisor, (a * f - c * d) // divisor
            break
    else:  # the number of steps is linear in the size itself
        of_size, of_count = lines[0][2] // lines[0][0], 0
    rest = total - of_size * n - of_count * count
    if any(of_size * a + of_count * b + rest != each for a, b, each in sums):
        return None
    return of_size, of_count, rest


def _add_up(piece: Any, number: Any, steps: Any, symbol: Any) -> Iterator[tuple[int, int, int]]:
    """Yields sizes with the number of steps and the sum of all pieces for each."""
    factors = {abs(int(c)) for e in (piece, steps) for c in e.atoms() if c.is_Integer}
    around = {m * f + d for f in factors for m in range(1, 5) for d in (-1, 0, 1)}
    for given in sorted(each for each in {*range(1, 25), *around} if each > 0):
        known = {symbol: expression_of(given)}
        count, at = int(steps.xreplace(known)), piece.xreplace(known)
        if 1 <= count <= MOST_STEPS:
            sizes = (int(at.xreplace({number: expression_of(t)})) for t in range(count))
            yield given, count, sum(sizes)
