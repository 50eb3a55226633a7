"""Detects random numbers that an ONNX model does not draw as the model does.

Those of Python and numpy become constants of the graph. Those that ``forward`` draws after it has
set the seed are the same at each call in PyTorch, and not in the ONNX model.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from onnx_aot.capture.sizes.guards import Location
from onnx_aot.torch_compat import call_draws, pytree, state_of_generator

__all__ = ["SeededDraws", "draws_observed", "state_of_generators"]


class SeededDraws:
    """Collects the lines that draw from a generator of torch whose seed ``forward`` has set.

    While tensors are fake no operator draws, so a generator changes where ``forward`` sets its
    seed, or where another thread draws. The latter goes on with the same seed, and never from its
    beginning. If a generator that has not drawn yet gets the seed that it has, nothing changes:
    ``torch.manual_seed`` is watched for that, methods of generators are not.

    Args:
        locate: Returns the user's line that is running.

    Attributes:
        lines: The lines.
    """

    def __init__(self, locate: Callable[[], Location | None] = lambda: None) -> None:
        self._locate = locate
        self._before: list[_State] = []
        self._seeded: set[bytes] = set()  # states that torch.manual_seed has set
        self.lines: dict[Location, None] = {}

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Restores the generators whose seeds ``forward`` has set."""
        self._before = [
            _State(each, each.initial_seed(), each.get_state(), state_of_generator(each))
            for each in _find_all()
        ]
        try:
            yield
        finally:
            for state in self._before:
                if self._is_set(state):
                    state.generator.set_state(state.state)

    def note_seed(self) -> None:
        """Notes that ``forward`` has called ``torch.manual_seed``."""
        self._seeded.update(state_of_generator(each.generator) for each in self._before)

    def _is_set(self, state: _State) -> bool:
        now = state_of_generator(state.generator)
        return now in self._seeded or state.is_set_since()

    def note(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Notes the user's line if a recorded call of an operator draws after a new seed."""
        if not call_draws(func, args, kwargs):
            return
        leaves = pytree.tree_leaves(result)
        devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor)}
        of_devices = [each for each in self._before if each.generator.device.type in devices]
        line = self._locate() if any(map(self._is_set, of_devices)) else None
        if line is not None:
            self.lines[line] = None


class _State(NamedTuple):
    """A generator, with its seed and state before the capture, the latter as bytes too."""

    generator: torch.Generator
    seed: int
    state: torch.Tensor
    known: bytes

    def is_set_since(self) -> bool:
        """True if the generator has another seed, or is at the beginning of the same one again."""
        seed = self.generator.initial_seed()
        if seed != self.seed:
            return True
        first = state_of_generator(torch.Generator(self.generator.device).manual_seed(seed))
        return state_of_generator(self.generator) == first and self.known != first


def _find_all() -> list[torch.Generator]:
    """The global generators of torch; none of CUDA before it is in use."""
    return [torch.default_generator, *torch.cuda.default_generators]


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
