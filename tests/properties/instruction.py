"""A kind of statement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.scope import Value

__all__ = ["Instruction", "always", "keeps", "never"]


def keeps(used: Sequence[Value]) -> bool:
    """The result is exact if the operands are."""
    return all(value.exact for value in used)


def always(used: Sequence[Value]) -> bool:
    """The result is exact."""
    return True


def never(used: Sequence[Value]) -> bool:
    """The result is rounded."""
    return False


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A kind of expression, or of a statement that writes.

    Attributes:
        name: Name shown in statistics.
        write: Function that makes the text from choices.
        exact: Whether the result is exact.
        unbacked: Whether the result's shape depends on data.
        several: Whether there are two results.
        computes: Whether it computes. Rounded half-precision values are not used then: errors of
            one unit in the last place would add up to more than the tolerance.
    """

    name: str
    write: Callable[[Choices], str]
    exact: Callable[[Sequence[Value]], bool] = keeps
    unbacked: bool = False
    several: bool = False
    computes: bool = False

    def apply(self, choices: Choices) -> bool:
        """Adds one to the program; returns False if none fits."""
        try:
            text = self.write(choices)
        except DoesNotFitError:
            return False
        used = choices.used
        if self.computes and any(_rounded_half(value) for value in used):
            return False
        unbacked = self.unbacked or any(value.unbacked for value in used)
        return choices.scope.assign(text, self.exact(used), unbacked, self.several)


def _rounded_half(value: Value) -> bool:
    halves = (torch.float16, torch.bfloat16)
    return value.is_tensor and not value.exact and value.dtype in halves
