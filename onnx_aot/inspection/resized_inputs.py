"""Makes inputs of other sizes from example inputs."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import Any

from onnx_aot.dimensions.resize import resize_leaf
from onnx_aot.pytrees.containers import unwrap_constants, wrap_constants
from onnx_aot.torch_compat import pytree

__all__ = ["Sample", "SizedInputs"]

ODD = (3, 5, 7, 11, 13, 17, 19, 23)
"""Sizes, one per dimension, of which no two are equal and none divides another."""

REACH = 64
"""Largest distance from a wanted size at which the search tries sizes that conditions accept."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Inputs of one set of sizes.

    Attributes:
        sizes: Sizes by name of the dimension in the ONNX model, or of an input that is a number.
        args: Positional inputs, and ``kwargs`` keyword inputs, made from the example's values.
    """

    sizes: dict[str, int]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class SizedInputs(abc.ABC):
    """The inputs of a program, with their sizes and limits by name of the dimension.

    Attributes:
        args: Positional inputs, and ``kwargs`` keyword inputs.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @abc.abstractmethod
    def sizes(self) -> dict[str, int]:
        """Sizes of the example."""

    @abc.abstractmethod
    def minima(self) -> dict[str, int]:
        """The smallest sizes that the ranges accept."""

    @abc.abstractmethod
    def accepts_sizes(self, sizes: dict[str, int]) -> bool:
        """True if ranges and conditions hold."""

    @abc.abstractmethod
    def shapes_at(self, sizes: dict[str, int]) -> list[Any]:
        """Shape of each leaf of the inputs; the number if it is a number, None if a constant."""

    def sizes_to_try(self) -> Iterator[dict[str, int]]:
        """Yields sizes to try, regardless of whether the model's conditions accept them."""
        example = self.sizes()
        larger = {name: n + n // 2 + 1 + i for i, (name, n) in enumerate(example.items())}
        yield self.minima()
        yield dict.fromkeys(example, 1)
        yield {name: ODD[i % len(ODD)] for i, name in enumerate(example)}
        yield larger
        if len(example) > 1:
            yield {name: (1, larger[name])[i % 2] for i, name in enumerate(example)}

    def find_nearest(self, wanted: dict[str, int]) -> dict[str, int]:
        """The wanted sizes if the conditions accept them, else nearby sizes, found one by one."""
        if self.accepts_sizes(wanted):
            return wanted
        found = self.sizes()
        for name, size in wanted.items():
            for candidate in _sizes_around(size):
                trial = {**found, name: candidate}
                if self.accepts_sizes(trial):
                    found = trial
                    break
        return found

    def make_samples(self) -> tuple[Sample, ...]:
        """Inputs of a few sizes other than the example's."""
        seen = [self.sizes()]
        for wanted in self.sizes_to_try() if seen[0] else ():
            found = self.find_nearest(wanted)
            if found not in seen:
                seen.append(found)
        return tuple(self.sample(sizes) for sizes in seen[1:])

    def sample(self, sizes: dict[str, int]) -> Sample:
        """Makes inputs of given sizes."""
        leaves, structure = pytree.tree_flatten(wrap_constants((self.args, self.kwargs)))
        resized = [
            resize_leaf(leaf, shape)
            for leaf, shape in zip(leaves, self.shapes_at(sizes), strict=True)
        ]
        args, kwargs = unwrap_constants(pytree.tree_unflatten(resized, structure))
        return Sample(sizes, args, kwargs)


def _sizes_around(size: int) -> Iterator[int]:
    yield size
    for distance in range(1, REACH + 1):
        yield size + distance
        if size >= distance:
            yield size - distance
