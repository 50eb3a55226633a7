"""Steps of a computation: calls, and branches between two sequences of steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import pytree

__all__ = [
    "Branch",
    "Call",
    "Choice",
    "Constant",
    "Input",
    "Raised",
    "Step",
    "Value",
    "Way",
    "ask",
    "check",
    "list_steps",
    "list_uses",
    "read_steps",
]


def ask(value: Any, answer: bool) -> None:
    """Marks a question about data in a recorded path."""


def check(value: Any, message: str, wanted: bool) -> None:
    """States for a recorded path that a condition about data has a truth value."""
    truth = value if wanted else torch.sym_not(value)  # type: ignore[no-untyped-call]
    torch._check(truth, lambda: message)  # type: ignore[no-untyped-call]


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the computation: its position, and the fake tensor or symbol."""

    position: int
    value: Any = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A tensor or a graph that the computation reads, such as a weight or a literal."""

    value: Any


@dataclasses.dataclass(eq=False)
class Call:
    """A call of an operator, or with ``target`` None the return of the results.

    Attributes:
        target: The function.
        leaves: Its arguments, flattened: values and Python objects.
        spec: Their structure, ``(args, kwargs)``.
        node: The recorded node.
        twins: The same call in other paths.
    """

    target: Callable[..., Any] | None
    leaves: list[Any]
    spec: Any
    node: torch.fx.Node
    twins: list[Call] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Way:
    """One way of a branch: its steps, and the values that later steps read."""

    steps: list[Step]
    results: list[Any]


@dataclasses.dataclass(eq=False)
class Branch:
    """Two ways, of which one is carried out.

    Attributes:
        leaves: The condition.
        node: The recorded node that asks.
        ways: The way if the condition is true, and the one if it is false.
    """

    leaves: list[Any]
    node: torch.fx.Node
    ways: tuple[Way, Way]


@dataclasses.dataclass(frozen=True)
class Choice:
    """The result at a position of the way that a branch takes."""

    branch: Branch
    position: int


@dataclasses.dataclass(frozen=True)
class Raised:
    """The end of a path at which the model raises an error."""

    error: BaseException


Step = Call | Branch
Value = Call | Choice | Input | Constant
"""A value. A call stands for its result."""


def read_steps(
    module: torch.fx.GraphModule, inputs: Sequence[Any], constants: dict[int, Constant]
) -> tuple[list[Step], dict[torch.fx.Node, Value]]:
    """Reads a recorded graph; the last step returns its results.

    Returns:
        The steps, and the value of each node.

    Args:
        module: The graph.
        inputs: Fake tensors and symbols that it was recorded for.
        constants: Those that are known, by the ``id`` of their values; gets those of the graph.
    """
    values: dict[torch.fx.Node, Value] = {}
    steps: list[Step] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = Input(len(values), inputs[len(values)])
        elif node.op == "get_attr":
            value = _find_attribute(module, node.target)
            values[node] = constants.setdefault(id(value), Constant(value))
        else:
            target = None if node.op == "output" else node.target
            flat, spec = pytree.tree_flatten((node.args, node.kwargs))
            leaves = [values[leaf] if isinstance(leaf, torch.fx.Node) else leaf for leaf in flat]
            call = Call(target, leaves, spec, node)
            values[node] = call
            steps.append(call)
    return steps, values


def _find_attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value


def list_uses(steps: Sequence[Step]) -> Iterator[tuple[list[Any], int]]:
    """Yields each place of an argument, or of a way's result: a list and a position in it."""
    for step in steps:
        yield from ((step.leaves, position) for position in range(len(step.leaves)))
        if isinstance(step, Branch):
            for way in step.ways:
                yield from list_uses(way.steps)
                yield from ((way.results, position) for position in range(len(way.results)))


def list_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Yields each step, with those inside of branches."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            for way in step.ways:
                yield from list_steps(way.steps)
