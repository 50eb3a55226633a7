"""Defines the rows of the table of older forms, and what their functions share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from onnx_aot.errors import MissingInOpset
from onnx_aot.targets.emitter import Emitter

__all__ = ["Form", "NoOlderFormError", "Row", "find_axes", "read_integers"]

Form = Callable[[Emitter, ir.Node], Sequence[ir.Value] | None]
"""Writes a node's older form: returns the values that replace its outputs, or changes the node
itself, if anything, and returns None."""


@dataclasses.dataclass(frozen=True)
class Row:
    """An operator whose form an opset changed.

    Attributes:
        op_type: The operator.
        before: The first opset with the newer form; the function serves those before it.
        write: Writes the older form.
    """

    op_type: str
    before: int
    write: Form


class NoOlderFormError(Exception):
    """The opset has no operators that express a node."""

    def __init__(self, missing: MissingInOpset) -> None:
        super().__init__(missing.problem)
        self.missing = missing


def read_integers(value: ir.Value | None) -> list[int] | None:
    """The elements of a constant of the graph or of a function; None for other values."""
    if value is None:
        return None
    held = value.const_value
    if held is None:
        node = value.producer()
        if node is None or node.op_type != "Constant" or "value" not in node.attributes:
            return None
        held = node.attributes["value"].as_tensor()
    elif value.is_graph_input():
        return None
    raw = getattr(held, "raw", None)
    elements = raw if isinstance(raw, torch.Tensor) else torch.from_numpy(held.numpy())
    return [int(element) for element in elements.flatten().tolist()]


def find_axes(node: ir.Node, first: int, last: int | None = None) -> list[int]:
    """The non-negative axes of a node's first input from one axis up to another.

    Without a known shape, negative axes are returned as they are.

    Raises:
        NoOlderFormError: The rank is not known, and an axis is not negative.
    """
    value = node.inputs[0]
    if value is None or value.shape is None:
        if first < 0 and last is None:
            return list(range(first, 0))
        problem = f"ONNX {node.op_type} of a value of unknown rank has no form in this opset"
        raise NoOlderFormError(MissingInOpset(node.op_type, problem))
    rank = len(value.shape)
    start = first % max(rank, 1)
    return list(range(start, rank if last is None else last))
