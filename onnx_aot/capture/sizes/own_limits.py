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

__all__ = ["OwnLimits"]

REACH = 192  # sizes after and before the example's that are considered


class OwnLimits:
    """Tells the limits of a model from its branches, and remembers them.

    Args:
        module: The model.
        requested: The request.
    """

    def __init__(self, module: torch.nn.Module, requested: DynamicShapes) -> None:
        self._module, self._requested = module, requested
        self._limits: set[object] = set()

    def settle(self, decisions: Sequence[Decision], inputs: Inputs) -> tuple[Decision, ...]:
        """Returns the decisions; rare branches whose other side the model refuses choose nothing.

        Args:
            decisions: The decisions of a capture.
            inputs: The inputs of the capture.
        """
        settled = tuple(decisions)
        accepted: dict[object, bool] = {}
        while True:
            limits = []
            for branch in find_rare_branches(self._requested, settled):
                key = branch.line, branch.dim, branch.condition
                # What is no limit may be one in a capture that fixes fewer dimensions.
                if key in self._limits or self._is_limit(branch, settled, inputs, accepted):
                    self._limits.add(key)
                    limits.append(branch.decision)
            if not limits:
                return settled
            settled = tuple(
                dataclasses.replace(d, chooses=False) if any(d is limit for limit in limits) else d
                for d in settled
            )

    def _is_limit(
        self,
        branch: RareBranch,
        decisions: Sequence[Decision],
        inputs: Inputs,
        accepted: dict[object, bool],
    ) -> bool:
        """True if the model runs at another size of the branch, and at no tried size beside it.

        The nearest sizes of the branch are tried, one below the example's and one above.

        A model that fails at both needs other inputs of the same size, which tells nothing.
        """
        if branch.pieces is not None:
            return False
        (symbol,) = branch.decision.symbols
        further = [
            d
            for d in decisions
            if d.kind == "guard"
            and symbol in d.symbols
            and d.expression != branch.decision.expression
        ]

        def fits_others(size: int) -> bool:
            """True if the other conditions of the capture hold, with its other sizes.

            The one that excluded the size before comes first: few exclude most of the sizes.
            """
            for index, decision in enumerate(further):
                if decision.holds({symbol: size}) is False:
                    further.insert(0, further.pop(index))
                    return False
            return True

        def runs(size: int) -> bool:
            key = branch.dim, size
            if key not in accepted:
                sample = resize_inputs(inputs, self._requested, {branch.dim: size})
                accepted[key] = accepts(self._module, sample)
            return accepted[key]

        nearest: dict[object, int] = {}
        for size in _list_near(branch):
            side = branch.takes(size) and (size < branch.example, size > branch.example)
            if side not in nearest and fits_others(size):
                nearest[side] = size
            if len(nearest) == 3:
                break
        apart = [nearest.pop(False)] if False in nearest else []
        alike = sorted(nearest.values())
        others = list(dict.fromkeys([*apart, *_list_others(branch)]))
        if not alike or not others:
            return False
        # Other sides first: most models run there, which ends this at once. A smaller size of the
        # same side comes before a larger one, which takes several times as long for pictures.
        return not any(map(runs, others)) and any(map(runs, alike))


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
