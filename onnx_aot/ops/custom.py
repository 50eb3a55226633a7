"""Translations that users bring: ours, and functions written for ``torch.onnx``.

A function whose first parameter is ``op`` is one of ours. Any other function is called as
torch.onnx calls it: with the FX arguments in order, emitting nodes through ``onnxscript.opsetN``.
An ``@onnxscript.script()`` function becomes a local function of the model and a call of it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
import onnxscript.evaluator
import torch

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError, OpsetError
from onnx_aot.ops.builder import Builder
from onnx_aot.ops.onnx_schemas import onnx_operator
from onnx_aot.ops.registry import Translation, make_translation

__all__ = ["custom_translations"]


def custom_translations(table: Mapping[Any, Any]) -> dict[Any, tuple[Translation, ...]]:
    """A ``custom_translation_table`` as entries of the operator table.

    Raises:
        InvalidOptionError: A key is no operator, or a value no function written in Python.
    """
    if not isinstance(table, Mapping):
        raise InvalidOptionError(
            f"custom_translation_table is a {type(table).__name__}; it is a dict of functions by "
            "operator"
        )
    entries: dict[Any, tuple[Translation, ...]] = {}
    for target, function in table.items():
        if not callable(function):
            raise InvalidOptionError(
                f"custom_translation_table maps {target} to {function!r}; it maps operators to "
                "functions"
            )
        try:
            entries[target] = (_translation(target, function),)
        except (TypeError, ValueError) as error:  # ValueError: a builtin without a signature
            raise InvalidOptionError(f"custom_translation_table: {error}") from None
    return entries


def _translation(target: Any, function: Callable[..., Any]) -> Translation:
    if _is_ours(function):
        return make_translation(target, function)
    return Translation(target, _adapted(function))


def _is_ours(function: Callable[..., Any]) -> bool:
    if isinstance(function, (onnxscript.OnnxFunction, onnxscript.TracedOnnxFunction)):
        return False
    parameters = list(inspect.signature(function).parameters)
    return bool(parameters) and parameters[0] == "op"


def _adapted(function: Callable[..., Any]) -> Callable[..., Any]:
    def translation(op: Builder, *args: Any, **kwargs: Any) -> Any:
        with _recording(op):
            return function(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})

    translation.__name__ = getattr(function, "__name__", "custom")
    return translation


def _plain(argument: Any) -> Any:
    """Torch dtypes as ONNX's numbers, devices and layouts as text, as torch.onnx does it."""
    if isinstance(argument, torch.dtype):
        return int(dtypes.to_onnx(argument))
    if isinstance(argument, (torch.device, torch.layout, torch.memory_format)):
        return str(argument)
    return argument


@contextlib.contextmanager
def _recording(op: Builder) -> Iterator[None]:
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
        if schema is None:
            return self._op.call_op(
                op.name, args, dict(kwargs), domain=op.domain, version=op.opset.version
            )
        names = [parameter.name for parameter in schema.inputs]
        inputs: list[Any] = list(args)
        attributes = {name: value for name, value in kwargs.items() if name not in names}
        named = {name: value for name, value in kwargs.items() if name in names}
        if named:
            inputs += [None] * (1 + max(map(names.index, named)) - len(inputs))
            for name, value in named.items():
                inputs[names.index(name)] = value
        outputs = _output_count(schema, attributes)
        return self._op.call_op(
            op.name, inputs, attributes, domain=op.domain, version=op.opset.version, outputs=outputs
        )

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        proto = function.to_function_proto()
        local = ir.serde.deserialize_function(proto)
        _adopt_opset(local, self._op.opset)
        self._op.functions.setdefault(local.identifier(), local)
        names = [str(value.name) for value in local.inputs]
        inputs: list[Any] = list(args[: len(names)])
        attribute_names = [name for name in local.attributes if name not in kwargs]
        attributes = dict(zip(attribute_names, args[len(names) :], strict=False))
        for name, value in kwargs.items():
            if name in names:
                inputs += [None] * (1 + names.index(name) - len(inputs))
                inputs[names.index(name)] = value
            else:
                attributes[name] = value
        return self._op.call_op(
            local.name,
            inputs,
            attributes,
            domain=local.domain,
            version=function.opset.version,
            outputs=len(local.outputs),
        )


def _adopt_opset(function: ir.Function, opset: int) -> None:
    """Lets a function import the model's opset where all its operators exist there as they are.

    ``onnx.checker`` wants one version of ONNX's operators in a model. A function that uses a form
    which the opset no longer has keeps the version that it was written for.
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
    """As many outputs as the operator has, as onnxscript's eager functions return them."""
    if schema.name == "Split" and attributes.get("num_outputs") is not None:
        return int(attributes["num_outputs"])
    if schema.name == "BatchNormalization":
        return 3 if attributes.get("training_mode") else 1
    return max(len(schema.outputs), 1)
