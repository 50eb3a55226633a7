"""Interprets a TorchScript graph node by node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.capture.scripted.builtins import LISTS, NUMBERS
from onnx_aot.capture.scripted.control import Control, RaisesError, State, same_content
from onnx_aot.capture.scripted.recorder import Recorder
from onnx_aot.capture.scripted.specs import IncompatibleError
from onnx_aot.capture.scripted.values import (
    Cell,
    Leaf,
    Maybe,
    ModuleRef,
    Uninitialized,
    is_tensor,
)
from onnx_aot.errors import CaptureError, message_of
from onnx_aot.torch_compat import FRAME, OpOverload, aten, schema_of
from onnx_aot.torch_ops.scripted_ops import (
    SequenceVal,
    sequence_cat,
    sequence_split,
    sequence_stack,
)

__all__ = ["Interpreter", "location_of", "schema_name"]


_SCHEMA = re.compile(r"^([\w:]+)::(\w+)(?:\.(\w+))?\(")


def location_of(node: Any) -> str | None:
    """``file:line`` of the user's code for a node, or None if it is not known."""
    found = FRAME.search(node.sourceRange())
    return None if found is None else f"{found['file']}:{found['line']}"


def schema_name(node: Any) -> tuple[str, str, str] | None:
    """Namespace, name and overload of the operator that a node calls, or None without a schema."""
    if node.kind().startswith("prim::") and node.schema() == "(no schema)":
        return None
    found = _SCHEMA.match(node.schema())
    return None if found is None else (found[1], found[2], found[3] or "default")


class Interpreter(Control):
    """Runs a graph with recorded inputs.

    Attributes:
        env: The values of the graph by name.
        state: The current lists, dicts and attributes.
    """

    def __init__(
        self,
        recorder: Recorder,
        tensors: Mapping[str, Leaf],
        attributes: Mapping[tuple[str, str], Any],
    ) -> None:
        """Takes the model's tensors by path, and attributes whose values depend on inputs."""
        self.recorder = recorder
        self.env: dict[str, Any] = {}
        self.state = State([], dict(attributes))
        self._tensors = tensors
        self._lasting: dict[Cell, Any] = {}
        self._owners: dict[str, ModuleRef] = {}

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """The values of the graph's outputs.

        Raises:
            CaptureError: The graph does something that ONNX cannot express.
        """
        for parameter, value in zip(graph.inputs(), inputs, strict=True):
            self.env[parameter.debugName()] = value
            self._keep_cells([value])
        self._run_nodes(graph)
        return [self.env[output.debugName()] for output in graph.outputs()]

    def run_block(self, block: Any, inputs: Sequence[Any]) -> list[Any]:
        """Runs a block; returns the values of its outputs."""
        for parameter, value in zip(block.inputs(), inputs, strict=True):
            self.env[parameter.debugName()] = value
        self._run_nodes(block)
        return [self.env[output.debugName()] for output in block.outputs()]

    def _run_nodes(self, graph: Any) -> None:
        for node in graph.nodes():
            where = location_of(node)
            if where is not None:
                file, _, line = where.rpartition(":")
                self.recorder.stack_trace = f'  File "{file}", line {line}, in forward\n'
            try:
                self._run(node)
            except Exception as error:
                if getattr(error, "located", False):
                    raise
                raise _add_location(error, node, where) from error

    def _run(self, node: Any) -> None:
        kind = node.kind()
        if kind == "prim::If":
            self.run_if(node)
            return
        if kind == "prim::Loop":
            self.run_loop(node)
            return
        handler = PRIMITIVES.get(kind)
        if handler is not None:
            results = handler(self, node)
        else:
            results = [self._operator(node, self._inputs(node))]
            results = [] if node.outputsSize() == 0 else results
        if node.outputsSize() > 1 and len(results) == 1:
            results = list(results[0])
        self._bind(node, results)
        self._keep_cells(list(results))

    def _inputs(self, node: Any) -> list[Any]:
        return [self.env[value.debugName()] for value in node.inputs()]

    # --- attributes ------------------------------------------------------------------------------

    def attribute(self, key: tuple[str, str]) -> Any:
        """The current value of an attribute, by the module's path and the attribute's name."""
        return self.get_attribute(self._owners[key[0]], key[1], "")

    def get_attribute(self, module: Any, name: str, kind: str) -> Any:
        """``prim::GetAttr``."""
        if isinstance(module, Cell):  # an object that the model made
            return module.content[name]
        key = (module.path, name)
        if key in self.state.attributes:
            return self.state.attributes[key]
        path = f"{module.path}.{name}" if module.path else name
        value = getattr(module.owner, name)
        wrapped = self._wrap_attribute(path, value, kind)
        if isinstance(wrapped, Cell):
            self.state.attributes[key] = wrapped
            self._lasting[wrapped] = wrapped.copy_content()
        return wrapped

    def set_attribute(self, module: ModuleRef, name: str, value: Any) -> None:
        """``prim::SetAttr`` of a module."""
        self._owners[module.path] = module
        self.state.attributes[module.path, name] = value

    def was_written(self, cell: Cell) -> bool:
        """True if a list or dict of a module has changed since it was first read."""
        return cell not in self._lasting or not same_content(cell.content, self._lasting[cell])

    def _wrap_attribute(self, path: str, value: Any, kind: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensors[path]
        if isinstance(value, (list, dict)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            wrapped = {key: self._wrap_attribute(f"{path}.{key}", item, "") for key, item in items}
            element = kind[5:-1] if kind.startswith("List[") else kind.removesuffix("[]")
            cell = Cell(wrapped if isinstance(value, dict) else list(wrapped.values()), element)
            self.state.cells.append(cell)
            return cell
        if isinstance(value, tuple):
            return tuple(
                self._wrap_attribute(f"{path}.{index}", item, "")
                for index, item in enumerate(value)
            )
        if isinstance(value, (int, float, bool, str, type(None), torch.device, torch.dtype)):
            return value
        return ModuleRef(path, value)

    # --- operators -------------------------------------------------------------------------------

    def _operator(self, node: Any, args: list[Any]) -> Any:
        found = schema_name(node)
        name = node.kind().rpartition("::")[2] if found is None else found[1]
        first = args[0] if args else None
        args = [self._unwrap_optional(arg) for arg in args]
        if isinstance(first, (Cell, tuple, str)) and name in LISTS:
            return LISTS[name](self.recorder, *args)
        if isinstance(first, Cell) and isinstance(first.content, Leaf) and name in _SEQUENCES:
            return _SEQUENCES[name](self.recorder, *args)
        if args and name in NUMBERS and not any(map(is_tensor, args)):
            return NUMBERS[name](self.recorder, *args)
        if args and is_tensor(args[0]) and name in TENSORS:
            return TENSORS[name](self.recorder, *args)
        if found is None:
            raise CaptureError(f"{node.kind()} has no translation")
        return self._call(found, args)

    def _unwrap_optional(self, value: Any) -> Any:
        """Unwraps an optional value: one that is used is not None."""
        return value.value if isinstance(value, Maybe) else value

    def _call(self, found: tuple[str, str, str], args: list[Any]) -> Any:
        namespace, name, overload = found
        if name == "to" and overload.startswith("prim_"):
            return _cast_tensor(self.recorder, *args)
        packet = getattr(getattr(torch.ops, namespace), name)
        target: OpOverload = getattr(packet, overload)
        given = [self._argument(arg) for arg in args]
        arguments = schema_of(target).arguments
        positional = [a for a, s in zip(given, arguments, strict=True) if not s.kwarg_only]
        keywords = {s.name: a for a, s in zip(given, arguments, strict=True) if s.kwarg_only}
        split = _split_of(target, args)
        if split is not None:
            return split(self.recorder)
        keywords.pop("pin_memory", None)
        result = self.recorder.call(target, *positional, **keywords)
        return Cell(result) if isinstance(result, list) else result

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Cell):
            if isinstance(value.content, Leaf):
                if isinstance(value.content.val, SequenceVal):
                    raise IncompatibleError(
                        "an operator takes a list of tensors whose length depends on the inputs; "
                        "stack or cat it first"
                    )
                raise IncompatibleError(
                    "an operator takes a list of numbers whose length depends on the inputs"
                )
            return [self._argument(item) for item in value.content]
        if isinstance(value, Uninitialized):
            raise CaptureError("a value is read that no path has set")
        return value


def _add_location(error: Exception, node: Any, where: str | None) -> Exception:
    """The error with the line of the innermost node that raised it."""
    if not isinstance(error, CaptureError):
        described = CaptureError(f"{node.kind()}: {type(error).__name__}: {error}")
    else:
        described = error
    if where is not None:
        described = type(described)(f"{message_of(described)}\n  at {where}", code=described.code)
    described.located = True  # type: ignore[attr-defined]
    return described


# --- lists of tensors whose length is not known --------------------------------------------------


def _cat(recorder: Recorder, cell: Cell, dim: int = 0) -> Any:
    element = cell.content.val.element
    sizes = list(element.shape)
    sizes[dim] = recorder.new_size()
    val = recorder.empty(sizes, element.dtype)
    return recorder.record(sequence_cat, val, cell.content, dim % element.ndim)


def _stack(recorder: Recorder, cell: Cell, dim: int = 0) -> Any:
    element = cell.content.val.element
    dim %= element.ndim + 1
    sizes = list(element.shape)
    sizes.insert(dim, recorder.new_size())
    val = recorder.empty(sizes, element.dtype)
    return recorder.record(sequence_stack, val, cell.content, dim)


_SEQUENCES: dict[str, Callable[..., Any]] = {
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
}


def _split_of(target: OpOverload, args: list[Any]) -> Callable[[Recorder], Any] | None:
    """A function that records a split into an unknown number of pieces as a list, or None."""
    defaults = {aten.split.Tensor: 0, aten.unbind.int: 0}
    if target not in defaults:
        return None
    tensor = args[0].val
    dim = (args[-1] if len(args) > (2 if target is aten.split.Tensor else 1) else 0) % tensor.ndim
    size = args[1] if target is aten.split.Tensor else 1
    if type(tensor.shape[dim]) is int and not isinstance(size, Leaf):
        return None

    def split(recorder: Recorder) -> Cell:
        keep = target is aten.split.Tensor
        sizes = list(tensor.shape)
        if not keep:
            del sizes[dim]
        elif size != 1:
            sizes[dim] = recorder.new_size()  # the last piece may be smaller
        else:
            sizes[dim] = 1
        val = SequenceVal(recorder.empty(sizes, tensor.dtype))
        return Cell(recorder.record(sequence_split, val, args[0], size, dim, keep))

    return split


# --- queries on tensors --------------------------------------------------------------------------


def _size(recorder: Recorder, tensor: Leaf, dim: int | None = None) -> Any:
    if dim is not None:
        return _one_size(recorder, tensor, dim % tensor.val.ndim)
    return Cell([_one_size(recorder, tensor, axis) for axis in range(tensor.val.ndim)], "int")


def _one_size(recorder: Recorder, tensor: Leaf, axis: int) -> Any:
    size = tensor.val.shape[axis]
    return size if type(size) is int else recorder.call(aten.sym_size.int, tensor, axis)


def _item_of(recorder: Recorder, tensor: Leaf) -> Any:
    return recorder.item(tensor)


def _number_of(name: str) -> Callable[..., Any]:
    return lambda recorder, tensor: NUMBERS[name](recorder, _item_of(recorder, tensor))


def _as_list(recorder: Recorder, tensor: Leaf, *_: Any) -> Any:
    if tensor.val.ndim == 0:
        return _item_of(recorder, tensor)
    kind = "float" if tensor.val.is_floating_point() else "int"
    kind = "bool" if tensor.val.dtype == torch.bool else kind
    if tensor.val.ndim > 1:
        raise CaptureError("tolist() of a tensor of more than one dimension")
    size = tensor.val.shape[0]
    if type(size) is not int:
        return Cell(tensor, kind)
    rows = [recorder.call(aten.select.int, tensor, 0, index) for index in range(size)]
    return Cell([_item_of(recorder, row) for row in rows], kind)


def _numel(recorder: Recorder, tensor: Leaf) -> Any:
    size = tensor.val.numel()
    return size if type(size) is int else recorder.call(aten.sym_numel.default, tensor)


TENSORS: dict[str, Callable[..., Any]] = {
    "Bool": _number_of("Bool"),
    "Float": _number_of("Float"),
    "FloatImplicit": _number_of("Float"),
    "Int": _number_of("Int"),
    "IntImplicit": _number_of("Int"),
    "ScalarImplicit": _item_of,
    "dim": lambda recorder, tensor: tensor.val.ndim,
    "element_size": lambda recorder, tensor: tensor.val.element_size(),
    "is_complex": lambda recorder, tensor: tensor.val.is_complex(),
    "is_contiguous": lambda recorder, tensor, *_: True,
    "is_floating_point": lambda recorder, tensor: tensor.val.is_floating_point(),
    "item": _item_of,
    "len": lambda recorder, tensor: _size(recorder, tensor, 0),
    "numel": _numel,
    "requires_grad": lambda recorder, tensor: False,
    "size": _size,
    "tolist": _as_list,
}


# --- prim:: --------------------------------------------------------------------------------------


def _constant(interpreter: Interpreter, node: Any) -> list[Any]:
    output = node.output()
    value = output.toIValue()
    if isinstance(value, torch.Tensor):
        return [interpreter._tensors[f"constant {output.debugName()}"]]
    if isinstance(value, list):
        return [Cell(list(value), str(output.type().getElementType()))]
    return [value]


def _list(interpreter: Interpreter, node: Any) -> list[Any]:
    kind = str(node.output().type().getElementType())
    return [Cell(interpreter._inputs(node), kind)]


def _dict(interpreter: Interpreter, node: Any) -> list[Any]:
    values = iter(interpreter._inputs(node))
    return [Cell(dict(zip(values, values, strict=True)), "dict")]


def _unpack(interpreter: Interpreter, node: Any) -> list[Any]:
    (value,) = interpreter._inputs(node)
    if not isinstance(value, Cell):
        return list(value)
    if isinstance(value.content, list):
        return list(value.content)
    return [
        LISTS["__getitem__"](interpreter.recorder, value, index)
        for index in range(node.outputsSize())
    ]


def _tuple_index(interpreter: Interpreter, node: Any) -> list[Any]:
    value, index = interpreter._inputs(node)
    return [value[index]]


def _get_attribute(interpreter: Interpreter, node: Any) -> list[Any]:
    (module,) = interpreter._inputs(node)
    return [interpreter.get_attribute(module, node.s("name"), str(node.output().type()))]


def _set_attribute(interpreter: Interpreter, node: Any) -> list[Any]:
    module, value = interpreter._inputs(node)
    if isinstance(module, Cell):
        module.content = {**module.content, node.s("name"): value}
    else:
        interpreter.set_attribute(module, node.s("name"), value)
    return []


def _raise(interpreter: Interpreter, node: Any) -> list[Any]:
    inputs = [value for value in interpreter._inputs(node) if isinstance(value, str)]
    raise RaisesError(f"the model raises {': '.join(reversed(inputs)) or 'an exception'}")


def _cast(interpreter: Interpreter, node: Any) -> list[Any]:
    value = interpreter._inputs(node)[0]
    return [value.value if isinstance(value, Maybe) else value]


def _is_none(interpreter: Interpreter, value: Any) -> Any:
    if isinstance(value, Maybe):
        present = value.present
        if not isinstance(present, Leaf):
            return not present
        return interpreter.recorder.call(torch.sym_not, present)
    return value is None


def _is(interpreter: Interpreter, node: Any) -> list[Any]:
    left, right = interpreter._inputs(node)
    left, right = (right, left) if left is None else (left, right)
    return [_is_none(interpreter, left) if right is None else left is right]


def _is_not(interpreter: Interpreter, node: Any) -> list[Any]:
    (result,) = _is(interpreter, node)
    return [NUMBERS["__not__"](interpreter.recorder, result)]


def _isinstance(interpreter: Interpreter, node: Any) -> list[Any]:
    """TorchScript asks for the alternatives of ``Optional`` and ``Union`` only."""
    (value,) = interpreter._inputs(node)
    types = {str(each) for each in node.tys("types")}
    if types == {"Tensor"} and (value is None or is_tensor(value)):
        return [value is not None]
    if types == {"Tensor"} and isinstance(value, Maybe) and is_tensor(value.value):
        return [value.present]
    if types == {"NoneType"} and (value is None or isinstance(value, (Maybe, Leaf))):
        return [_is_none(interpreter, value)]
    raise CaptureError(
        f"isinstance() of a value whose type is not declared, for {', '.join(sorted(types))}"
    )


def _to_tensor(interpreter: Interpreter, node: Any) -> list[Any]:
    """``prim::NumToTensor``, ``aten::tensor`` and ``aten::as_tensor``."""
    value, *rest = interpreter._inputs(node)
    dtype = rest[0] if rest else None
    dtype = _dtype(dtype) if isinstance(dtype, int) else dtype
    if is_tensor(value):
        if dtype is None:
            return [value]
        return [interpreter.recorder.call(aten.to.dtype, value, dtype)]
    single = node.kind() == "prim::NumToTensor"
    return [_tensor_of(interpreter.recorder, value, dtype, single)]


def _cast_tensor(recorder: Recorder, tensor: Leaf, *rest: Any) -> Any:
    """The overloads of ``aten::to`` that only TorchScript has: a device, a dtype's code, flags."""
    code = next((argument for argument in rest if type(argument) is int), None)
    return recorder.call(aten.to.dtype, tensor, tensor.val.dtype if code is None else _dtype(code))


def _tensor_of(recorder: Recorder, value: Any, dtype: Any, double: bool) -> Leaf:
    if isinstance(value, Cell) and isinstance(value.content, list):
        parts = [_tensor_of(recorder, item, dtype, double) for item in value.content]
        if not parts:
            empty: Leaf = recorder.call(aten.zeros.default, [0], dtype=dtype or torch.float32)
            return empty
        stacked: Leaf = recorder.call(aten.stack.default, parts)
        return stacked
    if isinstance(value, Cell):
        wanted = dtype or (torch.float32 if value.element == "float" else value.content.val.dtype)
        converted: Leaf = recorder.call(aten.to.dtype, value.content, wanted)
        return converted
    number = value.val if isinstance(value, Leaf) else value
    if dtype is None:
        dtype = torch.int64
        if isinstance(number, (bool, torch.SymBool)):
            dtype = torch.bool
        elif isinstance(number, (float, torch.SymFloat)):
            dtype = torch.float64 if double else torch.float32
    if isinstance(number, torch.SymBool):
        value = NUMBERS["Int"](recorder, value)
    made: Leaf = recorder.call(aten.scalar_tensor.default, value, dtype=dtype)
    return made


def _dtype(code: int) -> torch.dtype:
    """The dtype for TorchScript's number of it."""
    return DTYPES[code]


DTYPES: dict[int, torch.dtype] = dict(
    enumerate(
        (
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.float32,
            torch.float64,
            torch.complex32,
            torch.complex64,
            torch.complex128,
            torch.bool,
            torch.qint8,
            torch.quint8,
            torch.qint32,
            torch.bfloat16,
        )
    )
)


def _create_object(interpreter: Interpreter, node: Any) -> list[Any]:
    return [Cell({}, "object")]


def _of_tensor(read: Callable[[torch.Tensor], Any]) -> Callable[..., list[Any]]:
    def run(interpreter: Interpreter, node: Any) -> list[Any]:
        return [read(interpreter._inputs(node)[0].val)]

    return run


def _data(interpreter: Interpreter, node: Any) -> list[Any]:
    """``tensor.data``: an alias of the tensor without gradients."""
    return [interpreter.recorder.call(aten.detach.default, interpreter._inputs(node)[0])]


def _code_of_dtype(dtype: torch.dtype) -> int:
    return next(code for code, known_dtype in DTYPES.items() if known_dtype == dtype)


def _ignore(interpreter: Interpreter, node: Any) -> list[Any]:
    return []


PRIMITIVES: dict[str, Callable[[Interpreter, Any], list[Any]]] = {
    "aten::__is__": _is,
    "aten::__isnot__": _is_not,
    "aten::as_tensor": _to_tensor,
    "aten::tensor": _to_tensor,
    "aten::warn": _ignore,
    "prim::Constant": _constant,
    "prim::CreateObject": _create_object,
    "prim::DictConstruct": _dict,
    "prim::GetAttr": _get_attribute,
    "prim::ListConstruct": _list,
    "prim::ListUnpack": _unpack,
    "prim::NumToTensor": _to_tensor,
    "prim::Print": _ignore,
    "prim::RaiseException": _raise,
    "prim::SetAttr": _set_attribute,
    "prim::TupleConstruct": lambda interpreter, node: [tuple(interpreter._inputs(node))],
    "prim::TupleIndex": _tuple_index,
    "prim::TupleUnpack": _unpack,
    "prim::Uninitialized": lambda interpreter, node: [Uninitialized()],
    "prim::data": _data,
    "prim::device": _of_tensor(lambda tensor: tensor.device),
    "prim::dtype": _of_tensor(lambda tensor: _code_of_dtype(tensor.dtype)),
    "prim::is_cuda": _of_tensor(lambda tensor: False),
    "prim::isinstance": _isinstance,
    "prim::layout": _of_tensor(lambda tensor: 0),
    "prim::requires_grad": _of_tensor(lambda tensor: False),
    "prim::unchecked_cast": _cast,
    "prim::unchecked_unwrap_optional": _cast,
}
