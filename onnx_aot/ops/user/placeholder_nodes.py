"""Emits operators without a translation as nodes of the same name, to be implemented elsewhere.

``mylib::gadget(Tensor x, int n=1, *, Tensor? bias=None) -> Tensor`` becomes the node ``gadget`` of
the domain ``mylib`` with the inputs ``x`` and ``bias`` and the attribute ``n``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.errors import TranslationError
from onnx_aot.metadata.keys import ARGUMENTS, PLACEHOLDER_DOMAIN
from onnx_aot.ops.complex.pairs import Complex, join
from onnx_aot.ops.registry import MEMORY_ARGUMENTS
from onnx_aot.torch_compat import OpOverload, pytree, schema_of

__all__ = ["emit_unsupported"]

OVERLOAD = "overload_name"


def emit_unsupported(
    op: Builder, target: OpOverload, given: Mapping[str, Any], recorded: Any, as_function: bool
) -> Any:
    """Emits an operator that has no translation.

    Args:
        op: The builder.
        target: The operator. The domain is its namespace.
        given: Its arguments by name. Tensors are inputs in the schema's order, the items of lists
            one by one, with an empty input for one that is None. Numbers known only at run time are
            inputs after the tensors. Other arguments are attributes, booleans as ints and types as
            ONNX's numbers; None and arguments about memory are left out. The node's metadata names
            its inputs, under ``pkg.onnx_aot.arguments``. The attribute ``overload_name`` names an
            overload.
        recorded: The recorded result; every tensor and symbolic number in it is an output.
        as_function: Whether the node calls a local function that stands for the operator.

    Returns:
        The outputs as a translation returns them; complex tensors as one value with a last
        dimension of two.

    Raises:
        TranslationError: An argument cannot be an attribute.
    """
    names, inputs, attributes = _split_arguments(op, target, given)
    domain, _, name = schema_of(target).name.partition("::")
    leaves, structure = pytree.tree_flatten(recorded)
    tensors = [leaf for leaf in leaves if _is_output(leaf)]
    if not tensors:  # no part of it can be in a model
        return recorded
    if as_function:
        name = _add_placeholder_function(op, domain, name, names, attributes, len(tensors))
    returned = op.call_op(name, inputs, attributes, domain=domain, outputs=len(tensors))
    values = list(returned) if isinstance(returned, tuple) else [returned]
    values[0].producer().metadata_props[ARGUMENTS] = json.dumps(names)
    rest = iter(values)
    filled = [next(rest) if _is_output(leaf) else leaf for leaf in leaves]
    result = pytree.tree_unflatten(filled, structure)
    return list(result) if isinstance(result, tuple) else result


def _is_output(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def _split_arguments(
    op: Builder, target: OpOverload, given: Mapping[str, Any]
) -> tuple[list[str], list[Any], dict[str, ir.Attr]]:
    """Returns the names of the inputs, the inputs, and the attributes."""
    inputs: list[tuple[str, Any]] = []
    numbers: list[tuple[str, Any]] = []
    attributes: dict[str, ir.Attr] = {}
    for argument in schema_of(target).arguments:
        name, value = argument.name, given.get(argument.name)
        if name in MEMORY_ARGUMENTS:
            continue
        if "Tensor" in str(argument.type):
            items = value if isinstance(value, list) else None
            named = [(f"{name}[{i}]", item) for i, item in enumerate(items or ())]
            inputs += named if items is not None else [(name, value)]
        elif isinstance(value, ir.Value):
            numbers.append((name, value))
        elif isinstance(value, list) and any(isinstance(item, ir.Value) for item in value):
            numbers.append((name, op.sizes(value)))
        elif value is not None:
            attributes[name] = _make_attribute(target, name, str(argument.type), value)
    inputs += numbers
    while inputs and inputs[-1][1] is None:
        inputs.pop()
    if schema_of(target).overload_name:
        attributes[OVERLOAD] = ir.AttrString(OVERLOAD, schema_of(target).overload_name)
    values = [join(op, value) if isinstance(value, Complex) else value for _, value in inputs]
    return [name for name, _ in inputs], values, attributes


def _make_attribute(target: OpOverload, name: str, kind: str, value: Any) -> ir.Attr:
    if isinstance(value, torch.dtype):
        value = int(dtypes.to_onnx(value))
    if "List[" in kind and not isinstance(value, list):
        value = [value]
    items = value if isinstance(value, list) else [value]
    many = isinstance(value, list)
    if "str" in kind and all(isinstance(item, str) for item in items):
        return ir.AttrStrings(name, items) if many else ir.AttrString(name, value)
    if all(isinstance(item, (bool, int)) for item in items) and "float" not in kind:
        whole = [int(item) for item in items]
        return ir.AttrInt64s(name, whole) if many else ir.AttrInt64(name, whole[0])
    if all(isinstance(item, (bool, int, float)) for item in items):
        numbers = [float(item) for item in items]
        return ir.AttrFloat32s(name, numbers) if many else ir.AttrFloat32(name, numbers[0])
    raise TranslationError(
        f"{target} has no translation, and its argument {name}={value!r} cannot be an attribute of "
        "a node: ints, floats, strings, bools, types and lists of these can. Give a translation in "
        "custom_translation_table",
        code="OA404",
    )


# --- local functions -----------------------------------------------------------------------------


def _add_placeholder_function(
    op: Builder,
    domain: str,
    name: str,
    inputs: list[str],
    attributes: Mapping[str, ir.Attr],
    outputs: int,
) -> str:
    """Returns the name of a local function for the call, and makes the function if necessary.

    Calls with other numbers of inputs or outputs, or with an attribute of another type, get their
    own function. Its body is one node of a domain that no runtime has.
    """
    number, free = 1, name
    while (known := op.functions.get((domain, free, ""))) is not None:
        if _fits_call(known, len(inputs), attributes, outputs):
            _extend_attributes(known, attributes)
            return free
        number += 1
        free = f"{name}_{number}"
    formal = [ir.Value(name=_make_identifier(text)) for text in inputs]
    returned = [ir.Value(name=f"result_{index}") for index in range(outputs)]
    body = ir.Node(PLACEHOLDER_DOMAIN, name, formal, outputs=returned)
    imports = {PLACEHOLDER_DOMAIN: 1, domain: op.state.domains.version_of(domain)}
    graph = ir.Graph(formal, returned, nodes=[body], opset_imports=imports)
    function = ir.Function(domain, free, "", graph=graph, attributes=[])
    _extend_attributes(function, attributes)
    op.state.domains.use(PLACEHOLDER_DOMAIN, 1)  # runtimes inline the function
    op.functions[domain, free, ""] = function
    return free


def _fits_call(
    function: ir.Function, inputs: int, attributes: Mapping[str, ir.Attr], outputs: int
) -> bool:
    known = function.attributes
    return (
        len(function.inputs) == inputs
        and len(function.outputs) == outputs
        and all(known[k].type == a.type for k, a in attributes.items() if k in known)
    )


def _extend_attributes(function: ir.Function, attributes: Mapping[str, ir.Attr]) -> None:
    """Adds the attributes of a call to the function, which passes them to the node in its body."""
    (body,) = function
    for name, attribute in attributes.items():
        if name not in function.attributes:
            function.attributes[name] = ir.Attr(name, attribute.type, None)
            body.attributes[name] = ir.RefAttr(name, name, attribute.type)


def _make_identifier(text: str) -> str:
    return text.replace("[", "_").replace("]", "")
