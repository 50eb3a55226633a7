"""Defines the row of a model in the zoo."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.models.case import ModelCase, spread_weights

__all__ = ["ZooCase"]


@dataclasses.dataclass(frozen=True)
class ZooCase(ModelCase):
    """A model with its inputs at two sizes; ``sizes`` has a key per dynamic dimension.

    Attributes:
        group: Name of the group that the row is counted in.
    """

    group: str = ""

    def make(self) -> torch.nn.Module:
        """Returns the module in eval mode with reproducible weights that all matter."""
        torch.manual_seed(0)
        model = self.build().eval()
        spread_weights(model)
        _fill_running_statistics(model, self)
        return model

    def sample(self, index: int, fixed: Sequence[str] = ()) -> tuple[tuple[Any, ...], Any]:
        """Inputs at ``sizes[index]``, except that ``fixed`` dimensions are as in the example."""
        torch.manual_seed(index + 1)
        kept = {name: size for name, size in self.sizes[0].items() if name in fixed}
        return self.inputs(**{**self.sizes[index], **kept})


def _fill_running_statistics(model: torch.nn.Module, case: ZooCase) -> None:
    """Takes statistics of a larger batch, so that activations keep their size.

    Only the normalizations are in training mode: other modules would drop out or require targets.
    """
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # cumulative average instead of an exponential one
        norm.train()
    torch.manual_seed(0)
    with torch.no_grad():
        args, kwargs = case.inputs(**_larger_sizes(case))
        model(*args, **kwargs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _larger_sizes(case: ZooCase) -> dict[str, int]:
    """Sizes with a larger batch; rows with lists of images call it ``images``."""
    lists = inspect.signature(case.inputs).parameters.keys() & {"images"}
    return {**case.sizes[0], **dict.fromkeys(lists | case.sizes[0].keys() & {"batch"}, 8)}
