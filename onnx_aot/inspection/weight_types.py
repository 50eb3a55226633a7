"""In which types a model stores its weights, and what they would take as float32."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping

import onnx_ir as ir

__all__ = ["Storage", "storage_of"]

FLOAT32 = 4
"""Bytes of an element."""

NUMBERS = {
    "ConvInteger": (0, 1),
    "DequantizeLinear": (0,),
    "MatMulInteger": (0, 1),
}
"""Operators whose inputs at these places are integers that stand for floating point numbers."""

PARAMETERS = {
    "ConvInteger": (2, 3),
    "DequantizeLinear": (1, 2),
    "MatMulInteger": (2, 3),
    "QuantizeLinear": (1, 2),
}
"""Operators whose inputs at these places are scales and zero points, which float32 does without."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """The tensors of one element type.

    Attributes:
        dtype: The type.
        tensors: How many there are.
        elements: Of all of them.
        bytes: That they take.
        in_float32: Bytes that the same numbers would take as float32: none for scales and zero
            points of DequantizeLinear and its like, and as many as now for integers, such as
            sizes, that stand for no floating point numbers.
    """

    dtype: str
    tensors: int
    elements: int
    bytes: int
    in_float32: int


def storage_of(model: ir.Model) -> tuple[Storage, ...]:
    """A row per element type, the one with the most bytes first. Tensors are not read."""
    numbers, parameters = _roles(model)
    rows: dict[str, list[tuple[ir.TensorProtocol, int]]] = collections.defaultdict(list)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            continue
        wide = tensor.size * FLOAT32
        if not tensor.dtype.is_floating_point() and value not in numbers:
            wide = int(tensor.nbytes)
        rows[tensor.dtype.name].append((tensor, 0 if value in parameters else wide))
    found = [
        Storage(
            dtype,
            len(held),
            sum(int(tensor.size) for tensor, _ in held),
            sum(int(tensor.nbytes) for tensor, _ in held),
            sum(wide for _, wide in held),
        )
        for dtype, held in rows.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.bytes))


def _roles(model: ir.Model) -> tuple[set[ir.Value], set[ir.Value]]:
    """Values that are numbers of lower precision, and values that are parameters of these."""
    numbers: set[ir.Value] = set()
    parameters: set[ir.Value] = set()
    for node in model.graph.all_nodes():
        numbers.update(_inputs(node, NUMBERS))
        parameters.update(_inputs(node, PARAMETERS))
    return numbers, parameters - numbers


def _inputs(node: ir.Node, places: Mapping[str, tuple[int, ...]]) -> Iterator[ir.Value]:
    if node.domain:
        return
    for place in places.get(node.op_type, ()):
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None:
            yield value
