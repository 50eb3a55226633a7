"""Finds what an opset lacks of a node: the operator, an attribute, an input or a type."""

from __future__ import annotations

import functools

import onnx.defs
import onnx_ir as ir

from onnx_aot.errors import MissingInOpset, OpsetError
from onnx_aot.graph.onnx_schemas import make_attribute_error, make_inputs_error, onnx_operator
from onnx_aot.graph.opset_range import BUILT_OPSET, MAX_OPSET
from onnx_aot.targets.older_forms.rows import NoOlderFormError

__all__ = ["check_form"]


def check_form(node: ir.Node, opset: int, *, types: bool) -> None:
    """Checks that an opset has a node's operator, attributes and number of inputs.

    Attributes that the opset lacks are removed if they have their default.

    Args:
        node: A node of ONNX's own domain.
        opset: The opset.
        types: Whether to check the types too, for an operator that cannot run in others.

    Raises:
        NoOlderFormError: The opset lacks one of them.
    """
    try:
        operator = onnx_operator(node.op_type, opset)
        assert operator is not None
        for name in [name for name in node.attributes if name not in operator.attributes]:
            if not _is_default(node.op_type, node.attributes[name]):
                raise make_attribute_error(operator, name)
            del node.attributes[name]
        if not operator.takes_inputs(len(node.inputs)):
            raise make_inputs_error(operator, len(node.inputs))
    except OpsetError as error:
        raise NoOlderFormError(error.missing[0]) from error
    except TypeError as error:
        raise NoOlderFormError(MissingInOpset(node.op_type, str(error))) from error
    _check_values(node, opset, types=types)


def _is_default(op_type: str, attribute: ir.Attr) -> bool:
    declared = onnx.defs.get_schema(op_type, BUILT_OPSET).attributes.get(attribute.name)
    if declared is None:
        return False
    default = ir.serde.deserialize_attribute(declared.default_value)
    return bool(default.type == attribute.type and default.value == attribute.value)


def _check_values(node: ir.Node, opset: int, *, types: bool) -> None:
    """Checks that the operator takes and returns sequences, or tensors of these types."""
    for kind, values in (("takes", node.inputs), ("returns", node.outputs)):
        for index, value in enumerate(values):
            if value is None or value.type is None:
                continue
            text = _spell_type(value.type)
            is_tensor = isinstance(value.type, ir.TensorType)
            if text is None or (is_tensor and not types):
                continue
            if _is_accepted(node.op_type, opset, kind, index, text):
                continue
            later = range(opset + 1, MAX_OPSET + 1)
            accepting = (o for o in later if _is_accepted(node.op_type, o, kind, index, text))
            since = next(accepting, None)
            shown = value.type.dtype if is_tensor else "sequences"
            problem = f"ONNX {node.op_type} {kind} no {shown} in opset {opset}"
            problem += "" if since is None else f"; opset {since} has this form"
            raise NoOlderFormError(MissingInOpset(node.op_type, problem, since))


def _spell_type(type_: ir.TypeProtocol) -> str | None:
    """The type as schemas spell it, such as ``tensor(float16)``; None for optional values."""
    if isinstance(type_, ir.TensorType):
        return f"tensor({type_.dtype.name.lower()})"
    if isinstance(type_, ir.SequenceType):
        inner = _spell_type(type_.elem_type)
        return None if inner is None else f"seq({inner})"
    return None


@functools.cache
def _is_accepted(op_type: str, opset: int, kind: str, index: int, text: str) -> bool:
    schema = onnx.defs.get_schema(op_type, opset)
    formal = schema.inputs if kind == "takes" else schema.outputs
    types = formal[min(index, len(formal) - 1)].types if formal else ()
    return not types or text in types
