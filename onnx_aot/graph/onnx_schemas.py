"""Reads the signatures of ONNX operators from ``onnx.defs``, once each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import onnx
import onnx.defs
import onnx_ir as ir

from onnx_aot.errors import ConversionError, MissingInOpset, OpsetError, TranslationError
from onnx_aot.graph.opset_range import MAX_OPSET, built_opset

__all__ = [
    "OnnxOperator",
    "OutputType",
    "built_operator",
    "make_attribute_error",
    "make_inputs_error",
    "make_type_error",
    "onnx_operator",
    "refuse_type",
]

_PARAMETER = onnx.defs.OpSchema.FormalParameterOption


@dataclasses.dataclass(frozen=True)
class OutputType:
    """Source of an output's element type: an input, an attribute, or a fixed type."""

    input_index: int | None = None
    attribute: str | None = None
    fixed: ir.DataType | None = None


@dataclasses.dataclass(frozen=True)
class OnnxOperator:
    """One ONNX operator in one opset.

    Attributes:
        opset: The opset that errors name.
        form: The opset that defines the rest; another one only for ``built_operator``.
        input_types: Type variable of each formal input; None if the types of its repetitions may
            differ.
        input_dtypes: The only element type that each formal input takes, or None.
        accepted: Element types that each formal input takes; None if it takes no tensors.
        variadic: Whether the last formal input repeats.
        attributes: Attribute types by name.
        outputs: Source of each output's element type.
        deterministic: Whether equal inputs give equal outputs.
    """

    name: str
    opset: int
    form: int
    domain: str
    input_types: tuple[str | None, ...]
    input_dtypes: tuple[ir.DataType | None, ...]
    accepted: tuple[frozenset[ir.DataType] | None, ...]
    variadic: bool
    attributes: dict[str, ir.AttributeType]
    outputs: tuple[OutputType, ...]
    deterministic: bool

    def takes_inputs(self, count: int) -> bool:
        """True if the operator takes this many inputs."""
        return self.variadic or count <= len(self.input_types)


@functools.cache
def onnx_operator(name: str, opset: int, domain: str = "") -> OnnxOperator | None:
    """Returns the operator as an opset defines it; None for a domain unknown to ``onnx``.

    Raises:
        OpsetError: The domain is ONNX's own, or ``ai.onnx.ml``, and lacks the operator.
    """
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in ("", "ai.onnx.ml"):
            return None
        raise _make_missing_operator_error(name, opset, domain) from None
    if schema.deprecated:
        raise _make_missing_operator_error(name, opset, domain)
    allowed = {
        constraint.type_param_str: _parse_dtypes(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
    }
    concrete = {variable: _single_dtype(types) for variable, types in allowed.items()}
    formal = list(schema.inputs)
    accepted = tuple(
        allowed.get(parameter.type_str, _parse_dtypes([parameter.type_str])) for parameter in formal
    )
    input_dtypes = tuple(map(_single_dtype, accepted))
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
        name,
        opset,
        opset,
        domain,
        tuple(input_types),
        input_dtypes,
        accepted,
        variadic,
        attributes,
        outputs,
        deterministic,
    )


@functools.cache
def built_operator(name: str, asked: int, domain: str = "") -> OnnxOperator | None:
    """Returns the operator in the form that translations write for an opset.

    Before opset 17 that is its form in opset 17; errors name the opset that was asked for.

    Raises:
        OpsetError: The domain is ONNX's own, or ``ai.onnx.ml``, and lacks the operator.
    """
    built = built_opset(asked)
    if domain or built == asked:
        return onnx_operator(name, asked, domain)
    try:
        operator = onnx_operator(name, built)
    except OpsetError:
        raise _make_missing_operator_error(name, asked, domain) from None
    assert operator is not None
    return dataclasses.replace(operator, opset=asked)


def _parse_dtypes(types: Sequence[str]) -> frozenset[ir.DataType] | None:
    """``["tensor(int64)"]`` -> {INT64}; None if no tensor type is among them."""
    inner = [text[len("tensor(") : -1] for text in types if text.startswith("tensor(")]
    if not inner:
        return None
    names = ir.DataType.__members__
    return frozenset(names[name.upper()] for name in inner if name.upper() in names)


def _single_dtype(types: frozenset[ir.DataType] | None) -> ir.DataType | None:
    return next(iter(types)) if types is not None and len(types) == 1 else None


def _output_type(
    type_string: str,
    inputs: list[str | None],
    concrete: dict[str, ir.DataType | None],
    attributes: dict[str, ir.AttributeType],
) -> OutputType:
    if type_string in inputs:
        return OutputType(input_index=inputs.index(type_string))
    fixed = concrete.get(type_string, _single_dtype(_parse_dtypes([type_string])))
    if fixed is not None:
        return OutputType(fixed=fixed)
    for name in ("to", "dtype"):
        if attributes.get(name) == ir.AttributeType.INT:
            return OutputType(attribute=name)
    return OutputType()


def refuse_type(operator: OnnxOperator | None, position: int, dtype: ir.DataType) -> None:
    """Checks that an operator takes an element type as the input at a position.

    Raises:
        OpsetError: It does not, but a later opset does.
        TranslationError: Neither it nor a later opset does.
    """
    accepted = None if operator is None else operator.accepted[position]
    if operator is not None and accepted is not None and dtype not in accepted:
        raise make_type_error(operator, position, dtype)


def make_type_error(operator: OnnxOperator, position: int, dtype: ir.DataType) -> ConversionError:
    """Returns the error for an input of an element type that the operator does not take."""
    name, opset, domain = operator.name, operator.opset, operator.domain
    parameter = onnx.defs.get_schema(name, operator.form, domain).inputs[position].name
    accepted = sorted(map(str, operator.accepted[position] or ()))
    message = (
        f"ONNX {name} does not take {dtype} in opset {opset}: its input {parameter} takes "
        f"{', '.join(accepted)}. "
    )
    for later in () if domain else range(operator.form + 1, MAX_OPSET + 1):
        if _takes_dtype(name, later, position, dtype):
            return OpsetError(MissingInOpset(name, f"{message}Opset {later} takes it", later))
    advice = "Convert the operand where the model computes this, for instance with x.float()"
    return TranslationError(message + advice)


def _takes_dtype(name: str, opset: int, position: int, dtype: ir.DataType) -> bool:
    operator = _in_opset(name, opset)
    types = operator.accepted[position : position + 1] if operator is not None else ()
    return any(dtype in accepted for accepted in types if accepted is not None)


def make_inputs_error(operator: OnnxOperator, count: int) -> Exception:
    """Returns the error for more inputs than the operator takes."""
    most = len(operator.input_types)
    problem = f"takes {most} inputs in opset {operator.opset}, {count} were given"
    return _make_form_error(operator, problem, lambda form: form.takes_inputs(count))


def make_attribute_error(operator: OnnxOperator, name: str) -> Exception:
    """Returns the error for an attribute that the operator does not have."""
    problem = f"has no attribute {name!r} in opset {operator.opset}"
    return _make_form_error(operator, problem, lambda form: name in form.attributes)


def _make_form_error(
    operator: OnnxOperator, problem: str, has_form: Callable[[OnnxOperator], bool]
) -> Exception:
    """Returns the error for a form that only a later opset, or no opset, has."""
    problem = f"ONNX {operator.name} {problem}"
    for later in () if operator.domain else range(operator.form + 1, MAX_OPSET + 1):
        other = _in_opset(operator.name, later)
        if other is not None and has_form(other):
            problem = f"{problem}; opset {later} has this form"
            return OpsetError(MissingInOpset(operator.name, problem, later))
    return TypeError(problem)


def _in_opset(name: str, opset: int) -> OnnxOperator | None:
    try:
        return onnx_operator(name, opset)
    except OpsetError:
        return None


def _make_missing_operator_error(name: str, opset: int, domain: str) -> OpsetError:
    history = {
        schema.since_version: schema.deprecated
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == name and schema.domain == domain
    }
    since = min((v for v, gone in history.items() if v > opset and not gone), default=None)
    gone = min((version for version, deprecated in history.items() if deprecated), default=None)
    problem = f"ONNX operator {name} does not exist in opset {opset}: "
    if domain:
        problem = f"operator {name} of {domain} does not exist in its version {opset}: "
    if since is not None:
        problem += f"it exists since opset {since}"
    else:
        problem += f"it was removed in opset {gone}" if gone is not None else "no opset has it"
    if since is not None and not domain and since > MAX_OPSET:
        problem += f", which is later than {MAX_OPSET}, the last that is emitted"
    if domain or since is None or since > MAX_OPSET:
        since = None
    return OpsetError(MissingInOpset(name, problem, since))
