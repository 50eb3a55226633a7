"""What the builder needs to know of an ONNX operator, read once from ``onnx.defs``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import onnx
import onnx.defs
import onnx_ir as ir

from onnx_aot.errors import OpsetError

__all__ = ["OnnxOperator", "OutputType", "onnx_operator"]

_PARAMETER = onnx.defs.OpSchema.FormalParameterOption


@dataclasses.dataclass(frozen=True)
class OutputType:
    """How an output's element type follows: from an input, from an attribute, or fixed."""

    input_index: int | None = None
    attribute: str | None = None
    fixed: ir.DataType | None = None


@dataclasses.dataclass(frozen=True)
class OnnxOperator:
    """One ONNX operator in one opset.

    Attributes:
        input_types: Per formal input its type variable, or None where any type may stand.
        input_dtypes: Per formal input the only element type it takes, or None.
        variadic: Whether the last formal input repeats; ``homogeneous`` whether with one type.
        attributes: Attribute types by name.
        outputs: How each output's element type follows.
        deterministic: Whether equal inputs give equal outputs.
    """

    name: str
    input_types: tuple[str | None, ...]
    input_dtypes: tuple[ir.DataType | None, ...]
    variadic: bool
    attributes: dict[str, ir.AttributeType]
    outputs: tuple[OutputType, ...]
    deterministic: bool


@functools.cache
def onnx_operator(name: str, opset: int, domain: str = "") -> OnnxOperator | None:
    """The operator as it stands in an opset; None for a domain that ``onnx`` does not know.

    Raises:
        OpsetError: The domain is ONNX's own and the opset does not have the operator.
    """
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in ("", "ai.onnx.ml"):
            return None
        raise OpsetError(_absent(name, opset, domain)) from None
    if schema.deprecated:
        raise OpsetError(_absent(name, opset, domain))
    concrete = {
        constraint.type_param_str: _only_dtype(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
    }
    formal = list(schema.inputs)
    input_dtypes = tuple(
        concrete.get(parameter.type_str, _only_dtype([parameter.type_str])) for parameter in formal
    )
    last = formal[-1] if formal else None
    variadic = last is not None and last.option == _PARAMETER.Variadic
    input_types: list[str | None] = [parameter.type_str for parameter in formal]
    if variadic and last is not None and not last.is_homogeneous:
        input_types[-1] = None
    attributes = {
        key: ir.AttributeType(attribute.type.value)  # type: ignore[attr-defined]
        for key, attribute in schema.attributes.items()
    }
    outputs = tuple(
        _output_type(parameter.type_str, input_types, concrete, attributes)
        for parameter in schema.outputs
    )
    determinism = getattr(schema, "node_determinism", None)
    nondeterministic = getattr(onnx.defs.OpSchema, "NodeDeterminism", None)
    deterministic = nondeterministic is None or determinism != nondeterministic.NonDeterministic
    return OnnxOperator(
        name, tuple(input_types), input_dtypes, variadic, attributes, outputs, deterministic
    )


def _only_dtype(types: Sequence[str]) -> ir.DataType | None:
    """``["tensor(int64)"]`` gives INT64; several types, or sequences, give None."""
    if len(types) != 1 or not types[0].startswith("tensor("):
        return None
    return _DTYPES.get(types[0][len("tensor(") : -1])


_DTYPES = {
    "bool": ir.DataType.BOOL,
    "int32": ir.DataType.INT32,
    "int64": ir.DataType.INT64,
    "float": ir.DataType.FLOAT,
    "double": ir.DataType.DOUBLE,
    "string": ir.DataType.STRING,
    "uint8": ir.DataType.UINT8,
    "int8": ir.DataType.INT8,
}


def _output_type(
    type_string: str,
    inputs: list[str | None],
    concrete: dict[str, ir.DataType | None],
    attributes: dict[str, ir.AttributeType],
) -> OutputType:
    if type_string in inputs:
        return OutputType(input_index=inputs.index(type_string))
    fixed = concrete.get(type_string, _only_dtype([type_string]))
    if fixed is not None:
        return OutputType(fixed=fixed)
    for name in ("to", "dtype"):
        if attributes.get(name) == ir.AttributeType.INT:
            return OutputType(attribute=name)
    return OutputType()


def _absent(name: str, opset: int, domain: str) -> str:
    versions = sorted(
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == name and schema.domain == domain and not schema.deprecated
    )
    known = f"it exists since opset {versions[0]}" if versions else "no opset has it"
    return f"ONNX operator {name} does not exist in opset {opset}: {known}"
