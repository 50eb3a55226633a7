"""Checks the model of a file before anything relies on what the file says about itself."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from onnx_aot.errors import InvalidOptionError
from onnx_aot.metadata.keys import DIMENSIONS
from onnx_aot.serialization.locations import lies_beside

__all__ = ["check_model"]

LARGEST = 2**62
"""Bytes of a tensor that no file has; beyond it, sizes do not fit 64 bits."""

DATA_FIELDS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)


def check_model(model: ir.Model, path: str) -> None:
    """Checks tensors, places of data, functions and metadata of a model from a file.

    Raises:
        InvalidOptionError: A text is not UTF-8; a tensor does not have the data that its shape
            needs, or has it outside the folder of the model; a function calls itself; or the
            metadata on dimensions does not have the form that a save gives it.
    """
    if not all(isinstance(text, str) for text in _texts(model)):
        raise InvalidOptionError(
            f"{path} is not a valid model: it has a text that is not UTF-8", code="OA504"
        )
    for tensor in _tensors(model):
        problem = _find_problem(tensor)
        if problem is not None:
            raise InvalidOptionError(
                f"{path} is not a valid model: tensor {tensor.name} {problem}", code="OA504"
            )
        if isinstance(tensor, ir.ExternalTensor):
            _check_location(str(tensor.location), path)
    _refuse_recursion(model, path)
    _check_dimensions(model.graph.metadata_props.get(DIMENSIONS), path)


# --- texts ---------------------------------------------------------------------------------------


def _texts(model: ir.Model) -> Iterator[Any]:
    """Yields names, kinds and metadata; where a file has other than UTF-8, protobuf gives bytes."""
    of_model = (model.producer_name, model.producer_version, model.domain, model.doc_string)
    yield from (text or "" for text in of_model)
    yield from _entries(model.metadata_props, model.opset_imports)
    holders: list[Any] = [*model.graphs(), *model.functions.values()]
    for graph in holders:
        yield from (graph.name or "", graph.doc_string or "")
        yield from _entries(graph.metadata_props)
        held = () if isinstance(graph, ir.Function) else graph.initializers.values()
        for value in (*graph.inputs, *held):
            yield from _texts_of_value(value)
        for node in graph:
            yield from (node.name or "", node.op_type, node.domain, node.doc_string or "")
            yield from (*node.attributes, *_entries(node.metadata_props))
            for value in node.outputs:
                yield from _texts_of_value(value)


def _texts_of_value(value: ir.Value) -> Iterator[Any]:
    yield from (value.name or "", value.doc_string or "")
    yield from _entries(value.metadata_props)
    for size in value.shape or ():
        yield (size.value or "") if isinstance(size, ir.SymbolicDim) else ""


def _entries(*tables: Mapping[str, Any]) -> Iterator[Any]:
    for table in tables:
        yield from table
        yield from (value for value in table.values() if not isinstance(value, int))


# --- tensors -------------------------------------------------------------------------------------


def _tensors(model: ir.Model) -> Iterator[Any]:
    """Yields every tensor, also those in attributes, bodies and functions."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
    for nodes in (*model.graphs(), *model.functions.values()):
        for node in nodes:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR:
                    yield attribute.value
                elif attribute.type == ir.AttributeType.TENSORS:
                    yield from attribute.value


def _find_problem(tensor: Any) -> str | None:
    """Description of the problem if a tensor's shape and data contradict each other."""
    shape = [int(size) for size in tensor.shape.numpy()]
    if min(shape, default=0) < 0 or math.prod(max(size, 1) for size in shape) * 16 > LARGEST:
        return f"has the impossible shape {shape}"
    if tensor.dtype == ir.DataType.UNDEFINED:
        return "has no type"
    if isinstance(tensor, ir.ExternalTensor):
        return "begins before its data file" if (tensor.offset or 0) < 0 else None
    if isinstance(tensor, ir.StringTensor):
        found = len(tensor.string_data())
        return None if found == math.prod(shape) else f"has {found:,} texts for {shape}"
    if isinstance(tensor, ir.TensorProtoTensor):
        return _find_problem_of_data(tensor.raw, tensor.dtype, math.prod(shape))
    return None


def _find_problem_of_data(proto: onnx.TensorProto, dtype: ir.DataType, elements: int) -> str | None:
    if proto.HasField("raw_data"):
        needed, found = -(-elements * dtype.bitwidth // 8), len(proto.raw_data)
        return None if needed == found else f"needs {needed:,} bytes of data and has {found:,}"
    field = onnx.helper.tensor_dtype_to_field(proto.data_type)
    if any(len(getattr(proto, other)) for other in DATA_FIELDS if other != field):
        return f"has data of another type than {dtype.name}"
    parts = 2 if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128) else 1
    packed = dtype.bitwidth if dtype.bitwidth < 8 else 8
    needed, found = -(-elements * parts * packed // 8), len(getattr(proto, field))
    return None if needed == found else f"needs {needed:,} numbers and has {found:,}"


def _check_location(location: str, model: str) -> None:
    """Refuses a data file outside the model's folder, and what is not a file."""
    if not lies_beside(location, model):
        raise InvalidOptionError(
            f"{model} refers to the file {location}, which is not in its folder. Copy the data "
            "into the folder of the model; a link to a file elsewhere is not followed",
            code="OA504",
        )
    path = os.path.join(os.path.dirname(os.path.abspath(model)), location)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise InvalidOptionError(
            f"{model} refers to {location}, which is not a regular file", code="OA504"
        )


# --- functions -----------------------------------------------------------------------------------


def _refuse_recursion(model: ir.Model, path: str) -> None:
    """Refuses functions that call themselves, also through others, which ONNX does not allow."""
    calls = {
        key: {node.op_identifier() for node in function.all_nodes()} & model.functions.keys()
        for key, function in model.functions.items()
    }
    while calls:
        leaves = [key for key, called in calls.items() if not called & calls.keys()]
        if not leaves:
            names = ", ".join(f"{domain}::{name}" for domain, name, _ in sorted(calls))
            raise InvalidOptionError(
                f"{path} is not a valid model: functions call themselves: {names}", code="OA504"
            )
        for key in leaves:
            del calls[key]


# --- metadata ------------------------------------------------------------------------------------


def _check_dimensions(written: str | None, path: str) -> None:
    if written is None:
        return
    try:
        known = json.loads(written)
    except (ValueError, RecursionError):
        known = None
    if not _is_table_of_dimensions(known):
        raise InvalidOptionError(
            f"{path}: the metadata {DIMENSIONS} of its graph does not have the form that a save "
            "gives it; remove the entry, or save the model again",
            code="OA504",
        )


def _is_table_of_dimensions(known: Any) -> bool:
    if not isinstance(known, dict):
        return False
    limits = known.get("dimensions")
    return (
        isinstance(limits, dict)
        and all(_is_table_of_numbers(limit) for limit in limits.values())
        and all(_is_list_of_texts(known.get(key)) for key in ("relations", "conditions"))
    )


def _is_table_of_numbers(found: Any) -> bool:
    return isinstance(found, dict) and all(type(number) is int for number in found.values())


def _is_list_of_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(text, str) for text in found)
