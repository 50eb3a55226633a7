"""Finds branches on sizes whose other side raises an error, by running the model there.

``if any(n % 32 > 0): raise`` need not be one line: a list, a NumPy array or a method of its own may
stand between. Such a condition is a limit of the model, and no second capture could lift it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.example_check import accepts
from onnx_aot.capture.sizes.guards import Decision
from onnx_aot.capture.sizes.other_examples import resize_inputs
from onnx_aot.capture.sizes.size_branches import RareBranch, find_rare_branches

__all__ = ["settle_own_limits"]

REACH = 192  # sizes after and before the example's that are considered


def settle_own_limits(
    decisions: Sequence[Decision],
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
) -> tuple[Decision, ...]:
    """Returns the decisions; rare branches whose other side the model refuses choose nothing.

    Args:
        decisions: The decisions of a capture.
        module: The model.
        inputs: The inputs of the capture.
        requested: The request.
    """
    settled = tuple(decisions)
    while True:
        limits = [
            branch.decision
            for branch in find_rare_branches(requested, settled)
            if branch.pieces is None and _is_own_limit(branch, settled, module, inputs, requested)
        ]
        if not limits:
            return settled
        settled = tuple(
            dataclasses.replace(d, chooses=False) if any(d is limit for limit in limits) else d
            for d in settled
        )


def _is_own_limit(
    branch: RareBranch,
    decisions: Sequence[Decision],
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
) -> bool:
    """True if the model runs at another size of the branch, and at no tried size of other sides.

    A model that fails at both needs other inputs of the same size, which tells nothing.
    """
    (symbol,) = branch.decision.symbols
    further = [
        d
        for d in decisions
        if d.kind == "guard" and symbol in d.symbols and d.expression != branch.decision.expression
    ]

    def fits_others(size: int) -> bool:
        """True if the other conditions of the capture hold, with its other sizes."""
        return all(decision.holds({symbol: size}) is not False for decision in further)

    near = [n for n in _list_near(branch) if fits_others(n)]
    alike = next(filter(branch.takes, near), None)
    apart = [n for n in near if not branch.takes(n)][:1]
    others = list(dict.fromkeys([*apart, *_list_others(branch)]))
    if alike is None or not others:
        return False
    # Other sides first: most models run there, which ends this at once.
    for size in (*others, alike):
        sample = resize_inputs(inputs, requested, {branch.dim: size})
        if accepts(module, sample) is not (size == alike):
            return False
    return True


def _list_near(branch: RareBranch) -> Iterator[int]:
    """Yields sizes around the example's, the nearest ones first."""
    for step in range(1, REACH + 1):
        for size in (branch.example + step, branch.example - step):
            if _is_asked(branch, size):
                yield size


def _list_others(branch: RareBranch) -> Iterator[int]:
    """Yields sizes that do not take the branch: the next ones, and some with large divisors."""
    parts = [branch.example // part for part in (2, 4, 8, 16, 32) if branch.example % part == 0]
    for step in (1, -1, *parts):
        size = branch.example + step
        if _is_asked(branch, size) and not branch.takes(size):
            yield size


def _is_asked(branch: RareBranch, size: int) -> bool:
    smallest, largest = branch.dim.limits
    return max(smallest, 2) <= size <= largest
