"""Detects random numbers that an ONNX model does not draw as the model does.

Those of Python and numpy become constants of the graph. Those that ``forward`` draws after it has
set the seed are the same at each call in PyTorch, and not in the ONNX model.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from onnx_aot.capture.sizes.guards import Location
from onnx_aot.torch_compat import call_draws, pytree

__all__ = ["SeededDraws", "draws_observed", "state_of_generators"]


class SeededDraws:
    """Collects the lines that draw from a generator of torch whose seed ``forward`` has set.

    While tensors are fake no operator draws, so only ``torch.manual_seed`` and the like change what
    ``initial_seed`` of a generator returns.

    Args:
        locate: Returns the user's line that is running.

    Attributes:
        lines: The lines.
    """

    def __init__(self, locate: Callable[[], Location | None] = lambda: None) -> None:
        self._locate = locate
        self._seeds: dict[str, int] = {}
        self.lines: dict[Location, None] = {}

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Gives the generators a seed that no model sets, and restores them afterwards."""
        generators = _find_generators()
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(_UNUSUAL)
            self._seeds = _seeds()
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)

    def note(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Notes the user's line if a recorded call of an operator draws after a new seed."""
        now = _seeds()
        if now == self._seeds or not call_draws(func, args, kwargs):
            return
        leaves = pytree.tree_leaves(result)
        devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor)}
        if any(now.get(device) != self._seeds.get(device) for device in devices):
            line = self._locate()
            if line is not None:
                self.lines[line] = None


_UNUSUAL = 0x5EED_0F_0A07


def _find_generators() -> list[torch.Generator]:
    """The global generators of torch, by device; none of CUDA before it is in use."""
    return [torch.default_generator, *torch.cuda.default_generators]


def _seeds() -> dict[str, int]:
    return {each.device.type: each.initial_seed() for each in reversed(_find_generators())}


@contextlib.contextmanager
def draws_observed() -> Iterator[list[str]]:
    """Collects the names of Python's and numpy's global generators that are used meanwhile.

    The list is filled on exit. Generators that the model creates itself are not noticed.
    """
    drawn: list[str] = []
    before = state_of_generators()
    yield drawn
    now = state_of_generators()
    drawn.extend(name for name in now if now[name] != before[name])


def state_of_generators() -> dict[str, Any]:
    """The states of Python's and numpy's global generators, by the name of the module."""
    name, keys, *rest = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy.random": (name, np.asarray(keys).tobytes(), *rest),
    }
