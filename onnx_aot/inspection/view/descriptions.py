"""Describes types, attributes and formal parameter names as text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from onnx_aot import dtypes

__all__ = [
    "attribute_text",
    "dtype_text",
    "formal_names",
    "shape_of",
    "small_text",
    "type_text",
]

LONGEST = 400
"""Number of characters of an attribute that are shown."""

SMALL = 8
"""Weights of up to this many elements are shown in full."""


def dtype_text(dtype: ir.DataType | None) -> str:
    """Name of an element type, torch's if torch has it; empty if the type is unknown."""
    if dtype is None:
        return ""
    try:
        return str(dtypes.to_torch(dtype)).removeprefix("torch.")
    except TypeError:
        return dtype.name.lower()


def shape_of(shape: ir.Shape | None) -> list[int | str] | None:
    """Sizes as numbers, names, or ``"?"`` if unknown; None if the rank is unknown."""
    if shape is None:
        return None
    return [size if isinstance(size, int) else size.value or "?" for size in shape]


def type_text(value: Mapping[str, Any]) -> str:
    """Describes the type of a value, as in ``float32[batch, 3]``."""
    shape = value["shape"]
    sizes = "?" if shape is None else ", ".join(map(str, shape))
    return f"{value['type'] or '?'}[{sizes}]"


def small_text(tensor: ir.TensorProtocol) -> str | None:
    """Describes the elements of a small tensor; None for a larger one."""
    if tensor.size > SMALL:
        return None
    values = tensor.numpy()
    return _shorten(_nested_text(values.tolist()))


def attribute_text(attribute: ir.Attr) -> str:
    """Describes the value of an attribute."""
    if attribute.is_ref():
        return f"of the call: {attribute.ref_attr_name}"
    value = attribute.value
    if attribute.type == ir.AttributeType.GRAPH:
        return f"graph of {len(value)} nodes"
    if attribute.type == ir.AttributeType.GRAPHS:
        return f"{len(value)} graphs"
    if attribute.type == ir.AttributeType.TENSOR:
        kind = f"{dtype_text(value.dtype)}{list(value.shape)}"
        text = small_text(value)
        return kind if text is None else f"{kind} {text}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(map(_value_text, value[:LONGEST]))
        return _shorten(f"[{shown}]")
    return _shorten(_value_text(value))


def _nested_text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested_text, value))}]"
    return _value_text(value)


def _value_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    return repr(_decode_bytes(value)) if isinstance(value, (bytes, str)) else str(value)


def _decode_bytes(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


@functools.cache
def _get_schema(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # a damaged file has versions beyond 32 bits
        return None


def formal_names(node: ir.Node, opset: int | None) -> tuple[list[str], list[str]]:
    """Names of a node's inputs and outputs in the standard, ``X``, ``W``, ``B``; else numbers.

    Args:
        node: A node of any domain.
        opset: The version of its domain that the model uses; None if the model does not import it.
    """
    schema = None if opset is None else _get_schema(node.domain, node.op_type, opset)
    inputs = [] if schema is None else list(schema.inputs)
    outputs = [] if schema is None else list(schema.outputs)
    return _parameter_names(inputs, len(node.inputs)), _parameter_names(outputs, len(node.outputs))


def _parameter_names(formal: Sequence[onnx.defs.OpSchema.FormalParameter], count: int) -> list[str]:
    """Names of ``count`` parameters; a variadic last one is numbered, as in ``inputs[0]``."""
    names = []
    for place in range(count):
        last = formal[-1] if formal else None
        if place < len(formal) - 1 or (
            place == len(formal) - 1 and not _is_variadic(formal[place])
        ):
            names.append(formal[place].name)
        elif last is not None and _is_variadic(last):
            names.append(f"{last.name}[{place - len(formal) + 1}]")
        else:
            names.append(str(place))
    return names


def _is_variadic(formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    return formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
