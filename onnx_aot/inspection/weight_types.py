"""Lists the types in which a model stores its weights, and their size as float32."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping

import onnx_ir as ir

__all__ = ["Storage", "storage_of"]

FLOAT32 = 4
"""Bytes of a float32 element."""

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
"""Operators whose inputs at these places are scales and zero points, not needed in float32."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """The tensors of one element type.

    Attributes:
        dtype: The type.
        tensors: Number of tensors.
        elements: Number of elements of all tensors.
        bytes: Bytes of all tensors.
        in_float32: Bytes that the same numbers would take as float32: 0 for scales and zero points
            of DequantizeLinear and similar operators; unchanged for integers, such as sizes, that
            do not stand for floating point numbers.
    """

    dtype: str
    tensors: int
    elements: int
    bytes: int
    in_float32: int


def storage_of(model: ir.Model) -> tuple[Storage, ...]:
    """Returns a row per element type, the largest in bytes first, without reading tensors."""
    numbers, parameters = _find_roles(model)
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


def _find_roles(model: ir.Model) -> tuple[set[ir.Value], set[ir.Value]]:
    """Returns values that are quantized numbers, and values that are their parameters."""
    numbers: set[ir.Value] = set()
    parameters: set[ir.Value] = set()
    for node in model.graph.all_nodes():
        numbers.update(_inputs_at(node, NUMBERS))
        parameters.update(_inputs_at(node, PARAMETERS))
    return numbers, parameters - numbers


def _inputs_at(node: ir.Node, places: Mapping[str, tuple[int, ...]]) -> Iterator[ir.Value]:
    if node.domain:
        return
    for place in places.get(node.op_type, ()):
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None:
            yield value
