"""Adapts functions for ``torch.onnx``: over ``onnxscript.opsetN``, and ``@onnxscript.script()``.

They are called as torch.onnx calls them, with the FX arguments in order, and emit their nodes
through ``op``. A script function becomes a local function of the model and a call of it.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
import onnxscript.evaluator
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.builder.rollback import DeclinedError
from onnx_aot.errors import OpsetError
from onnx_aot.graph.onnx_schemas import onnx_operator
from onnx_aot.graph.opset_range import built_opset
from onnx_aot.ops.registry import MEMORY_ARGUMENTS
from onnx_aot.torch_compat import OpOverload, schema_of

__all__ = ["SCRIPTS", "adapt_function"]

SCRIPTS = (onnxscript.OnnxFunction, onnxscript.TracedOnnxFunction)
"""Functions in torch.onnx's form whatever their first parameter is called."""

_MISSING = inspect.Parameter.empty


def adapt_function(target: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function`` as a translation, ``translation(op, *args, **kwargs)``.

    Raises:
        ValueError: The function is a builtin without a signature.
    """
    python = _python_function(function)
    signature = inspect.signature(python)
    declared = _declared_types(python)

    def translate_call(op: Builder, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _fit_arguments(target, signature, args, kwargs)
        _refuse_other_types(signature, declared, args, kwargs)
        with _record_nodes(op):
            return function(
                *map(_convert_argument, args),
                **{k: _convert_argument(v) for k, v in kwargs.items()},
            )

    translate_call.__name__ = getattr(function, "__name__", "custom")
    return translate_call


def _python_function(function: Any) -> Callable[..., Any]:
    if isinstance(function, onnxscript.OnnxFunction):
        return function.function
    if isinstance(function, onnxscript.TracedOnnxFunction):
        return function.func
    return function


# --- arguments -----------------------------------------------------------------------------------


def _fit_arguments(
    target: Any, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments that a function can take.

    Arguments about the place and layout of a tensor in memory are left out if the function has no
    parameter for them; a required argument that FX left out gets the schema's default.
    """
    given, named = list(args), dict(kwargs)
    if not isinstance(target, OpOverload):
        return tuple(given), named
    schema = schema_of(target).arguments
    parameters = list(signature.parameters.values())
    kinds = {parameter.kind for parameter in parameters}
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        while len(given) > len(places) and schema[len(given) - 1].name in MEMORY_ARGUMENTS:
            given.pop()
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in MEMORY_ARGUMENTS & named.keys() - signature.parameters.keys():
            del named[name]
    by_name = {argument.name: argument for argument in schema}
    for index, parameter in enumerate(places[len(given) :], len(given)):
        argument = by_name.get(parameter.name)
        if argument is None and index < len(schema) and not schema[index].kwarg_only:
            argument = schema[index]
        wanted = parameter.default is _MISSING and parameter.name not in named
        if wanted and argument is not None and argument.has_default_value():
            named[parameter.name] = argument.default_value
    for parameter in parameters:
        argument = by_name.get(parameter.name)
        wanted = parameter.kind == parameter.KEYWORD_ONLY and parameter.default is _MISSING
        if wanted and argument is not None and argument.has_default_value():
            named.setdefault(parameter.name, argument.default_value)
    return tuple(given), named


def _declared_types(function: Callable[..., Any]) -> dict[str, frozenset[ir.DataType] | type]:
    """Returns the element types that each parameter's annotation allows, or a Python type."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # unresolvable annotations say nothing
        return {}
    declared: dict[str, frozenset[ir.DataType] | type] = {}
    for name, hint in hints.items():
        if hint in (int, float, str, bool):
            declared[name] = hint
            continue
        allowed = {getattr(option, "dtype", None) for option in _expand_union(hint)}
        types_ = frozenset(dtype for dtype in allowed if isinstance(dtype, ir.DataType))
        if types_:
            declared[name] = types_
    return declared


def _expand_union(hint: Any) -> list[Any]:
    """Returns the members of a union, the constraints of a type variable, or the hint itself."""
    if isinstance(hint, typing.TypeVar):
        bound = [hint.__bound__] if hint.__bound__ is not None else []
        return [
            inner for option in (*hint.__constraints__, *bound) for inner in _expand_union(option)
        ]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [inner for option in typing.get_args(hint) for inner in _expand_union(option)]
    return [hint]


def _refuse_other_types(
    signature: inspect.Signature,
    declared: Mapping[str, frozenset[ir.DataType] | type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Checks the arguments against the annotations.

    Raises:
        DeclinedError: A tensor has a type that its annotation does not allow, or is given where the
            annotation wants a Python number or string.
    """
    if not declared:
        return
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return  # the call itself gives a better message
    for name, allowed in declared.items():
        value = bound.get(name)
        if not isinstance(value, ir.Value):
            continue
        if isinstance(allowed, type):
            raise DeclinedError(
                f"{name} is a value of the graph, and declared as {allowed.__name__}"
            )
        if value.dtype is not None and value.dtype not in allowed:
            shown = ", ".join(sorted(dtype.name for dtype in allowed))
            raise DeclinedError(f"{name} is {value.dtype.name}, and declared as {shown}")


def _convert_argument(argument: Any) -> Any:
    """Converts torch dtypes to ONNX's numbers, devices and layouts to text, as torch.onnx does."""
    if isinstance(argument, torch.dtype):
        return int(dtypes.to_onnx(argument))
    if isinstance(argument, (torch.device, torch.layout, torch.memory_format)):
        return str(argument)
    return argument


# --- emission ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _record_nodes(op: Builder) -> Iterator[None]:
    """Makes onnxscript operators, and arithmetic on values, emit through ``op``."""
    before = ir.set_value_magic_handler(op)
    try:
        with onnxscript.evaluator.default_as(_Recorder(op)):
            yield
    finally:
        ir.set_value_magic_handler(before)


class _Recorder(onnxscript.evaluator.Evaluator):
    """The evaluator that onnxscript calls for each operator and function."""

    def __init__(self, op: Builder) -> None:
        self._op = op

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        schema = op.op_schema
        args = [self._join_sizes(value) for value in args]
        if schema is None:
            return self._op.call_op(
                op.name, args, dict(kwargs), domain=op.domain, version=op.opset.version
            )
        names = [parameter.name for parameter in schema.inputs]
        attributes = {name: value for name, value in kwargs.items() if name not in names}
        named = {name: self._join_sizes(value) for name, value in kwargs.items() if name in names}
        inputs = _order_inputs(args, named, names)
        outputs = _output_count(schema, attributes)
        return self._op.call_op(
            op.name, inputs, attributes, domain=op.domain, version=op.opset.version, outputs=outputs
        )

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        local = self._add_local_function(function)
        names = [str(value.name) for value in local.inputs]
        attribute_names = [name for name in local.attributes if name not in kwargs]
        rest = args[len(names) :]
        if len(rest) > len(attribute_names):
            raise TypeError(
                f"{local.name} takes {len(names) + len(attribute_names)} arguments, "
                f"{len(args)} were given"
            )
        attributes = dict(zip(attribute_names, rest, strict=False))
        attributes |= {name: value for name, value in kwargs.items() if name not in names}
        named = {name: self._join_sizes(value) for name, value in kwargs.items() if name in names}
        return self._op.call_op(
            local.name,
            _order_inputs([self._join_sizes(value) for value in args[: len(names)]], named, names),
            {name: self._make_attribute(local, name, value) for name, value in attributes.items()},
            domain=local.domain,
            version=function.opset.version,
            outputs=len(local.outputs),
        )

    def _make_attribute(self, local: ir.Function, name: str, value: Any) -> ir.Attr | None:
        declared = local.attributes.get(name)
        if declared is None:
            raise TypeError(f"{local.name} takes no argument {name!r}")
        if isinstance(value, ir.Value):
            raise TypeError(
                f"{local.name} takes {name} as an attribute, and a value of the graph was given"
            )
        return None if value is None else self._op.attributes.make(name, value, declared.type)

    def _add_local_function(self, function: Any) -> ir.Function:
        """Returns the model's local function for a function; adds it and those that it calls."""
        local = ir.serde.deserialize_function(function.to_function_proto())
        known = self._op.functions.get(local.identifier())
        if known is not None:
            return known
        _adopt_opset(local, built_opset(self._op.opset))
        self._op.functions[local.identifier()] = local
        for domain, version in local.opset_imports.items():
            self._op.state.domains.use(domain, version)
        for called in function.function_ir.get_called_functions().values():
            self._add_local_function(called)
        return local

    def _join_sizes(self, value: Any) -> Any:
        """Converts a list of sizes, some of them known only at run time, to one value."""
        if not isinstance(value, (list, tuple)):
            return value
        symbolic = [item for item in value if isinstance(item, ir.Value)]
        scalars = all(item.shape is not None and not len(item.shape) for item in symbolic)
        return self._op.sizes(value) if symbolic and scalars else value


def _order_inputs(given: list[Any], named: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Returns the inputs in order, those given by name at their positions."""
    inputs = list(given)
    for name, value in named.items():
        place = names.index(name)
        inputs += [None] * (1 + place - len(inputs))
        inputs[place] = value
    return inputs


def _adopt_opset(function: ir.Function, opset: int) -> None:
    """Makes a function import the model's opset if all its operators have the same form there.

    ``onnx.checker`` wants one version of ONNX's operators in a model. A function that uses a form
    that the opset no longer has keeps the version that it was written for.
    """
    for node in function:
        if node.domain:
            continue
        try:
            operator = onnx_operator(node.op_type, opset)
        except OpsetError:
            return
        assert operator is not None
        takes_inputs = operator.takes_inputs(len(node.inputs))
        if not takes_inputs or not node.attributes.keys() <= operator.attributes.keys():
            return
    function.opset_imports[""] = opset


def _output_count(schema: Any, attributes: Mapping[str, Any]) -> int:
    """Returns the number of outputs that onnxscript's eager functions return."""
    if schema.name == "Split" and attributes.get("num_outputs") is not None:
        return int(attributes["num_outputs"])
    if schema.name == "BatchNormalization":
        return 3 if attributes.get("training_mode") else 1
    return max(len(schema.outputs), 1)
