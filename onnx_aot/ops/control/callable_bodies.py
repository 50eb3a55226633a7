"""Functions passed to higher-order operators, in the form that translations receive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.pairs import Complex

__all__ = ["Body", "flatten_items", "rebuild_items"]


@dataclasses.dataclass(frozen=True, eq=False)
class Body:
    """Graph among an operator's arguments; calling it with values emits its nodes.

    A call always returns a list, even for a single result. Its items are values, ``Complex``,
    Python numbers and None.

    Attributes:
        module: The graph.
        emit: ``emit(module, operands)`` translates it with its parameters bound to the operands.
        trace: ``trace(function, examples)`` is the graph of a function of recorded values, or None
            if torch cannot trace it without fixing sizes.
    """

    module: torch.fx.GraphModule
    emit: Callable[[torch.fx.GraphModule, Sequence[Any]], list[Any]]
    trace: Callable[[Callable[..., Any], Sequence[Any]], torch.fx.GraphModule | None]

    def __call__(self, *operands: Any) -> list[Any]:
        """Emits the graph with its parameters bound to the operands."""
        return self.emit(self.module, operands)

    @property
    def parameters(self) -> list[Any]:
        """Values that the capture recorded for the parameters."""
        nodes = self.module.graph.nodes
        return [node.meta.get("val") for node in nodes if node.op == "placeholder"]

    @property
    def results(self) -> list[Any]:
        """Values that the capture recorded for the results; a constant stands for itself."""
        returned: Any = next(iter(reversed(self.module.graph.nodes))).args[0]
        items = returned if isinstance(returned, (list, tuple)) else [returned]
        return [item.meta.get("val") if isinstance(item, torch.fx.Node) else item for item in items]

    def run(self, *arguments: Any) -> Any:
        """Computes the graph with torch, for a trace."""
        return torch.fx.Interpreter(self.module).run(*arguments)

    def rewrite(self, function: Callable[..., Any], examples: Sequence[Any]) -> Body | None:
        """Returns a body made from this one, such as one under ``torch.vmap``.

        Args:
            function: Function that calls ``run``.
            examples: Values that the capture recorded for its arguments.

        Returns:
            The new body, or None if torch cannot trace it without fixing sizes.
        """
        module = self.trace(function, examples)
        return None if module is None else dataclasses.replace(self, module=module)


def flatten_items(op: Builder, items: Sequence[Any], recorded: Sequence[Any]) -> list[ir.Value]:
    """Flattens items to values: complex as two, Python numbers as constants, None left out.

    Args:
        op: The builder.
        items: Results or arguments of a body.
        recorded: Value that the capture recorded for each item.
    """
    values: list[ir.Value] = []
    for item, example in zip(items, recorded, strict=True):
        if isinstance(item, Complex):
            values += [item.real, item.imag]
        elif item is not None:
            values.append(op.cast(item, _onnx_dtype_of(example)))
    return values


def rebuild_items(values: Sequence[ir.Value], recorded: Sequence[Any]) -> list[Any]:
    """Inverse of ``flatten_items``: one item for each recorded one, None for None."""
    remaining: Iterator[ir.Value] = iter(values)
    items: list[Any] = []
    for example in recorded:
        if example is None:
            items.append(None)
        elif isinstance(example, torch.Tensor) and example.dtype.is_complex:
            items.append(Complex(next(remaining), next(remaining)))
        else:
            items.append(next(remaining))
    return items


def _onnx_dtype_of(recorded: Any) -> ir.DataType | None:
    if isinstance(recorded, torch.Tensor):
        return dtypes.to_onnx(recorded.dtype)
    return dtypes.of_number(recorded)
