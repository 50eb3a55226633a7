"""Programs as data: inputs, Python statements, and the sizes at which they run."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

__all__ = ["OTHER_SIZES", "Input", "Program", "Sizes", "new_state"]

Sizes = Mapping[str, int]

OTHER_SIZES: tuple[Sizes, ...] = (
    {"n": 1, "m": 1},
    {"n": 1, "m": 6},
    {"n": 5, "m": 1},
    {"n": 7, "m": 9},
    {"n": 13, "m": 10},
    {"n": 0, "m": 4},
    {"n": 3, "m": 0},
)
"""Sizes at which every program runs, in addition to its example."""


@dataclasses.dataclass(frozen=True)
class Input:
    """One tensor input.

    Attributes:
        name: Name of the parameter.
        dtype: Name of the dtype, such as ``"float32"``.
        dims: Sizes: numbers, or expressions of ``n`` and ``m`` such as ``"n"`` and ``"2*n"``.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def shape(self, sizes: Sizes) -> list[int]:
        return [d if isinstance(d, int) else eval(d, {}, dict(sizes)) for d in self.dims]

    def make(self, sizes: Sizes) -> torch.Tensor:
        """Makes small whole numbers, so that floating-point sums and products are exact."""
        generator = torch.Generator().manual_seed(len(self.name) + sum(map(ord, self.name)))
        dtype = getattr(torch, self.dtype)
        shape = self.shape(sizes)
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) > 0.4
        return torch.randint(-4, 6, shape, generator=generator).to(dtype)


@dataclasses.dataclass(frozen=True)
class Program:
    """``forward`` of a module whose state is that of ``new_state``.

    Attributes:
        inputs: Parameters of ``forward``.
        example: Sizes for the export.
        body: Statements, one per line; each assigns a variable or writes in place.
        returned: Names that it returns.
        dims: Form of the dynamic dimensions: ``"strings"``, or ``"Dim"`` objects.
        passed_over: Sizes at which it is not run because eager may share memory differently:
            whether a reshape is a view or a copy depends on the sizes.
    """

    inputs: tuple[Input, ...]
    example: Sizes
    body: str
    returned: tuple[str, ...]
    dims: str = "strings"
    passed_over: tuple[Sizes, ...] = ()

    def source(self) -> str:
        parameters = ", ".join(["self", *(given.name for given in self.inputs)])
        lines = [line.strip() for line in self.body.strip().splitlines()]
        returned = "".join(f"{name}, " for name in self.returned)
        return "\n    ".join([f"def forward({parameters}):", *lines, f"return ({returned})\n"])

    def module(self) -> torch.nn.Module:
        namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source(), "<program>", "exec"), namespace)
        made: torch.nn.Module = type("Generated", (State,), {"forward": namespace["forward"]})()
        return made

    def example_inputs(self, sizes: Sizes) -> tuple[torch.Tensor, ...]:
        return tuple(given.make(sizes) for given in self.inputs)

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        dim = _dims() if self.dims == "Dim" else str
        return {
            given.name: {a: dim(d) for a, d in enumerate(given.dims) if isinstance(d, str)}
            for given in self.inputs
        }

    def every_size(self) -> Iterator[Sizes]:
        """Yields the example first, then the other sizes."""
        others = (sizes for sizes in OTHER_SIZES if sizes not in self.passed_over)
        return itertools.chain([self.example], others)


def _dims() -> Callable[[str], Any]:
    roots = {name: torch.export.Dim(name, min=0) for name in ("n", "m")}
    return functools.lru_cache(lambda expression: eval(expression, {}, roots))


class State(torch.nn.Module):
    """A parameter and buffers that a program may read and write."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.tensor([[1.0, -2.0], [3.0, 0.0], [-1.0, 2.0]])
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.register_buffer("memory", torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
        self.register_buffer("counter", torch.tensor(3))


def new_state() -> State:
    """Returns the state with which every program starts."""
    return State()
