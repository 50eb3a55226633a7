"""Makes inputs of other sizes from example inputs."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.pytrees.containers import unwrap_constants, wrap_constants
from onnx_aot.torch_compat import pytree

__all__ = ["Sample", "SizedInputs"]

ODD = (3, 5, 7, 11, 13, 17, 19, 23)
"""Sizes, one per dimension, of which no two are equal and none divides another."""

REACH = 64
"""Largest distance from a wanted size at which the search tries sizes that conditions accept."""

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
            _resize_leaf(leaf, shape)
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


def _resize_leaf(leaf: Any, shape: Any) -> Any:
    """Resizes a tensor to a shape, reusing its elements; returns the size itself for a number."""
    if isinstance(shape, int):
        return shape
    if shape is None or tuple(leaf.shape) == shape:
        return leaf
    for axis, size in enumerate(shape):
        leaf = _resize_axis(leaf.detach(), axis, size)
    return leaf


def _resize_axis(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Resizes one axis: takes elements in order, starting over if there are not enough.

    Repeated numbers become a little smaller each time: among equal ones it is undefined which one a
    sort or a maximum picks. Masks, indices and other whole numbers are repeated unchanged. Sorted
    vectors, such as boundaries, stay sorted.
    """
    before = tensor.shape[axis]
    if size == before:
        return tensor
    if before == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    positions = torch.arange(size, device=tensor.device)
    taken = tensor.index_select(axis, positions % before)
    if size > before and tensor.dtype in REAL and bool((tensor != tensor.round()).any()):
        factors = 1 - (positions // before).clamp(max=32).to(tensor.dtype) / 64
        taken = taken * factors.reshape([-1 if i == axis else 1 for i in range(tensor.dim())])
    if tensor.dim() == 1 and _is_sorted(tensor):
        taken = taken.sort().values
    return taken


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        return False
    return bool((tensor[1:] >= tensor[:-1]).all())
