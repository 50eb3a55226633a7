"""Makes tensors of lists of numbers that the steps of a loop compute from their own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.capture.loops.compare import expression_of
from onnx_aot.capture.loops.history import Loop

__all__ = ["make_tensor"]


def make_tensor(items: Any, symbols: dict[Any, Loop]) -> torch.Tensor | None:
    """The tensor of a list such as ``[2 * t for t in range(n)]``, and of one that joins such lists.

    The list holds the numbers of three steps, which stand for those of all.

    Args:
        items: A list, or a list of lists of one length.
        symbols: Loops by the symbols of the numbers of their steps.

    Returns:
        A tensor of integers; None unless each step adds as many numbers, and each number grows
        evenly from step to step.
    """
    if not isinstance(items, (list, tuple)) or not items:
        return None
    rows = [item for item in items if isinstance(item, (list, tuple))]
    if not rows:
        return _make_flat(items, symbols)
    lengths = {len(row) for row in rows}
    if len(rows) != len(items) or len(lengths) != 1:
        return None
    flat = _make_flat([number for row in rows for number in row], symbols)
    return None if flat is None else flat.reshape(-1, *lengths)


def _make_flat(items: Sequence[Any], symbols: dict[Any, Loop]) -> torch.Tensor | None:
    if not all(type(item) in (int, torch.SymInt) for item in items):
        return None
    terms = [expression_of(item) for item in items]
    numbers = [term.free_symbols & symbols.keys() for term in terms]
    both = list(dict.fromkeys(symbol for each in numbers for symbol in each))  # steps 2 and 3
    if len(both) != 2 or symbols[both[0]] is not symbols[both[1]]:
        return None
    loop, at = symbols[both[0]], [numbers.index({symbol}) for symbol in both]
    width = at[1] - at[0]
    for begin in range(max(at[0] - 2 * width + 1, 0), at[0] - width + 1):
        first, second, third = (terms[begin + k * width :][:width] for k in range(3))
        if first == _at(0, second, both[0]) and third == _at(both[1], second, both[0]):
            break
    else:
        return None
    before, after = items[:begin], items[begin + 3 * width :]
    growths = [term.coeff(both[0]) for term in second]
    shifts = [term - first[0] for term in first]
    linear = [growth * both[0] + one for growth, one in zip(growths, first, strict=True)]
    if linear != second or not all(number.is_Integer for number in (*growths, *shifts)):
        return None
    if not loop.is_complete or any(numbers[:begin]) or any(numbers[begin + 3 * width :]):
        return None
    steps = torch.arange(loop.count)[:, None]
    whole = steps * torch.tensor(list(map(int, growths))) + torch.tensor(list(map(int, shifts)))
    ends = [[torch.full((1,), number) for number in part] for part in (before, after)]
    parts = [*ends[0], (whole + items[begin]).flatten(), *ends[1]]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _at(number: Any, terms: Sequence[Any], symbol: Any) -> list[Any]:
    return [term.xreplace({symbol: expression_of(number)}) for term in terms]
