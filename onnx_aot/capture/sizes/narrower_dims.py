"""Suggests the ``Dim`` that a model accepts, where it accepts less than the one that was given."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence

from onnx_aot.capture.sizes.dimension_requests import RequestedDim
from onnx_aot.dimensions.conditions import holds, select_fulfilling

__all__ = ["suggest_narrower_dim"]


def _find_even_end(sizes: Sequence[int], example: int) -> Sequence[int]:
    """Returns the last sizes, all with the same distance from the next, if the example is there."""
    first = max(len(sizes) - 2, 0)
    while first > 0 and sizes[first] - sizes[first - 1] == sizes[first + 1] - sizes[first]:
        first -= 1
    inside = sizes[first:]  # gaps may be below the example, as at 0, 1 and 4
    if len(inside) < 2 or (first and sizes[first - 1] >= example):
        return ()
    even = inside[1] - inside[0] == 1 or len(inside) > 2  # 0 and 4 alone say nothing
    return inside if even else ()


def _find_multiples(sizes: Sequence[int], example: int) -> Sequence[int]:
    """Returns the multiples of the smallest number that are all among the sizes, as the example.

    A chain of strided convolutions that is added to a resized one takes 29 to 32 and 61 to 64.
    """
    accepted = set(sizes)
    for step in (number for number in range(2, example + 1) if example % number == 0):
        inside: list[int] = []
        for size in range(0, max(sizes, default=0) + 1, step):
            inside = [*inside, size] if size in accepted else []
        if len(inside) > 2 and inside[0] <= example:
            return inside
    return ()


def _find_end(conditions: Sequence[str], first: int, step: int, largest: float) -> int | None:
    """Returns the last of the sizes ``first``, ``first + step``, ... that fulfil the conditions.

    None if there is none up to the largest that is asked for, or a million: tables of positions
    have a few thousand rows.
    """

    def is_fulfilled(count: int) -> bool:
        size = {"n": first + step * count}
        return all(holds(condition, size) is not False for condition in conditions)

    most = int(min(largest, 2**20) - first) // step
    steps = [2**power for power in range(most.bit_length())] if most > 0 else []
    beyond = next((count for count in [*steps, most] if not is_fulfilled(count)), None)
    if beyond is None:
        return None
    counts = range(beyond // 2, beyond)
    return first + step * (
        bisect.bisect(counts, False, key=lambda n: not is_fulfilled(n)) - 1 + counts.start
    )


def suggest_narrower_dim(dim: RequestedDim, conditions: Sequence[str], example: int) -> str:
    """Suggests the ``Dim`` that the model accepts, or an empty string if there is none."""
    smallest, largest = dim.limits
    far = 4 * example + 256
    sizes = range(smallest, int(min(largest, far)) + 1)
    given = [n for n in sizes if dim.root_at(n) is not None]
    fulfilling: Iterable[int] = given
    for condition in conditions:
        fulfilling = select_fulfilling(condition, "n", fulfilling)
    found = list(fulfilling)
    inside = _find_even_end(found, example) or _find_multiples(found, example)
    if not inside:
        return ""
    step = inside[1] - inside[0]
    rest = inside[0] % step
    name = dim.name or "n"
    limits = []
    if inside[0] > rest:
        limits.append(f"min={inside[0] // step}")
    is_inside = inside[-1] + step <= min(largest, far)
    last = inside[-1] if is_inside else _find_end(conditions, inside[-1], step, largest)
    if last is not None:
        limits.append(f"max={last // step}")
    elif found == given:  # the conditions exclude no size that was tested
        return ""
    elif largest != math.inf:
        limits.append(f"max={(int(largest) - rest) // step}")
    arguments = ", ".join([repr(name if step == 1 else f"_{name}"), *limits])
    shown = f"torch.export.Dim({arguments})"
    if step > 1:
        shown = f"{step}*{shown}" + (f" + {rest}" if rest else "")
    return f"write {shown} for it, which is what the model accepts"
