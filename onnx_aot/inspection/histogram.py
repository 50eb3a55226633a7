"""Counts elements by their difference from the expected value, in decades of the tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["format_bars", "histogram"]

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
"""Number of leading labels whose elements are within the tolerance."""

WIDTH = 40


def histogram(
    same: torch.Tensor, close: torch.Tensor, ratio: torch.Tensor
) -> tuple[tuple[str, int], ...]:
    """Counts elements by difference.

    Args:
        same: True for each element that is equal.
        close: True for each element that is within the tolerance.
        ratio: Difference of each element in multiples of the tolerance; for types that must be
            equal, the difference itself.

    Returns:
        Labels with counts, from equal to not finite, including counts of 0.
    """
    near, far = ratio[close & ~same], ratio[~close]
    finite = far.isfinite()
    counts = [
        int(same.sum()),
        *_count_per_bin(near, WITHIN),
        *_count_per_bin(far[finite], BEYOND),
        int((~finite).sum()),
    ]
    return tuple(zip(LABELS, counts, strict=True))


def _count_per_bin(values: torch.Tensor, edges: Sequence[float]) -> list[int]:
    bins = torch.bucketize(values, torch.tensor(edges, dtype=values.dtype))
    return [int(count) for count in torch.bincount(bins, minlength=len(edges) + 1)]


def format_bars(counted: Sequence[tuple[str, int]], unit: str) -> str:
    """Formats a histogram as text: a line with a bar per label that occurs.

    Args:
        counted: Labels with counts.
        unit: The quantity that the numbers in the labels are multiples of.
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
