"""How many elements are how far from what they should be, in decades of what is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["bars", "histogram"]

WITHIN = (1e-3, 1e-2, 1e-1)
BEYOND = (10.0, 100.0, 1000.0)
LABELS = (
    "equal",
    *(f"up to {edge:g}" for edge in WITHIN),
    "up to 1",
    *(f"up to {edge:g}" for edge in BEYOND),
    "above 1000",
    "not finite",
)
ACCEPTED = 5
"""The first so many labels are of elements that are close enough."""

WIDTH = 40


def histogram(
    same: torch.Tensor, close: torch.Tensor, ratio: torch.Tensor
) -> tuple[tuple[str, int], ...]:
    """Counts elements.

    Args:
        same: Per element whether it is equal.
        close: Whether it is within the tolerance.
        ratio: How large its difference is in multiples of the tolerance; of types that have to be
            equal, the difference itself.

    Returns:
        Labels with counts, from equal to not finite; those of 0 too.
    """
    near, far = ratio[close & ~same], ratio[~close]
    finite = far.isfinite()
    counts = [
        int(same.sum()),
        *_counts(near, WITHIN),
        *_counts(far[finite], BEYOND),
        int((~finite).sum()),
    ]
    return tuple(zip(LABELS, counts, strict=True))


def _counts(values: torch.Tensor, edges: Sequence[float]) -> list[int]:
    bins = torch.bucketize(values, torch.tensor(edges, dtype=values.dtype))
    return [int(count) for count in torch.bincount(bins, minlength=len(edges) + 1)]


def bars(counted: Sequence[tuple[str, int]], unit: str) -> str:
    """The histogram as text: a line with a bar per label that occurs.

    Args:
        counted: Labels with counts.
        unit: What the numbers in the labels are multiples of.
    """
    shown = [(index, entry) for index, entry in enumerate(counted) if entry[1]]
    if not shown:
        return ""
    largest = max(count for _, (_, count) in shown)
    wide = max(len(label) for _, (label, _) in shown)
    digits = len(f"{largest:,}")
    lines = [f"elements by difference, in multiples of {unit}:"]
    for index, (label, count) in shown:
        mark = "#" if index < ACCEPTED else "!"
        bar = mark * max(round(WIDTH * count / largest), 1)
        lines.append(f"  {label:<{wide}} {count:>{digits},} {bar}")
    return "\n".join(lines)
