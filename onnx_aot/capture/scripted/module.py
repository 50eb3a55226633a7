"""Wraps a scripted module or function in a module that ``torch.export`` accepts."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.error_hints import refuse_autocast
from onnx_aot.capture.scripted.attributes import all_nodes
from onnx_aot.capture.scripted.interpreter import Interpreter
from onnx_aot.capture.scripted.recorder import Recorder
from onnx_aot.capture.scripted.values import Cell, GivenInt, Leaf, ModuleRef
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import aten, symbols_of_its_own
from onnx_aot.torch_ops.scripted_model import RECORDED, SCRIPTED, During

__all__ = ["ScriptedModel"]

_NUMBERS = itertools.count()
_PLAIN = (bool, int, float)


class Observed:
    """Findings of a recording. Torch restores all attributes of a module that it captures.

    Attributes:
        left_out: A sentence for each attribute whose new value the recording does not keep.
    """

    left_out: Sequence[str] = ()


class ScriptedModel(torch.nn.Module):
    """Module that has the weights of a scripted model under their names and calls it.

    While ``torch.export`` traces it, the model's graph is recorded instead. Number attributes that
    the model writes to become buffers. If the graph needs their values, because the two ways of a
    branch on them do not fit together, they count as the numbers that they are at the export.

    Attributes:
        observed: Findings of the last recording.
    """

    _script: Any
    observed: Observed

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.__dict__["_script"] = script
        self.observed = Observed()
        self._name = _name_of(script)
        self._is_module = isinstance(script, torch.nn.Module)
        self._forward = script.forward if self._is_module else script
        self._paths: dict[str, str] = {}
        self._counted: dict[tuple[str, str], tuple[str, type]] = {}
        if self._is_module:
            for path, tensor in script.named_parameters(remove_duplicate=False):
                self._enter(path, path, tensor)
            for path, tensor in script.named_buffers(remove_duplicate=False):
                self._enter(path, path, tensor)
        self._find_attributes()
        self.training = bool(getattr(script, "training", False))

        self.__dict__["forward"] = self._make_method(self._forward)

    def __getattr__(self, name: str) -> Any:
        """Finds other methods of the script, which the model around it may call."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            method = getattr(self.__dict__.get("_script"), name, None)
            if not isinstance(method, torch.ScriptMethod):
                raise
            return self._make_method(method)

    def _make_method(self, method: Any) -> Callable[..., Any]:
        """A function that records a method of the script, or calls it."""
        signature = _signature(method, self._is_module)

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = list(bound.arguments.values())
            if torch.compiler.is_exporting():
                return self._record(method, values)
            return self._run_eagerly(method, values)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    def _get_name(self) -> str:
        return self._name

    def _enter(self, key: str, path: str, tensor: torch.Tensor) -> None:
        """Registers a tensor; ``key`` identifies it for the interpreter."""
        if key in self._paths:
            return
        *parents, name = path.split(".")
        owner: torch.nn.Module = self
        for parent in parents:
            if parent not in owner._modules:
                owner.add_module(parent, torch.nn.Module())
            owner = owner.get_submodule(parent)
        while hasattr(owner, name):  # such as a buffer called forward
            name += "_"
        if isinstance(tensor, torch.nn.Parameter):
            owner.register_parameter(name, tensor)
        else:
            owner.register_buffer(name, tensor.detach())
        self._paths[key] = ".".join([*parents, name])

    def _find_attributes(self) -> None:
        """Registers tensors among attributes and constants, and number attributes written to."""
        graph = self._forward.inlined_graph
        refs: dict[str, Any] = {}
        if self._is_module:
            refs[next(graph.inputs()).debugName()] = ModuleRef("", self._script)
        for key, value in _list_constants(graph).items():
            self._enter(key, f"constant_{len(self._paths)}", value)
        written: set[tuple[str, str]] = set()
        for node in all_nodes(graph):
            if node.kind() == "prim::GetAttr":
                self._find_attribute(node, refs)
            elif node.kind() == "prim::SetAttr":
                owner = refs.get(node.inputsAt(0).debugName())
                if owner is not None:
                    written.add((owner.path, node.s("name")))
        owners = {ref.path: ref.owner for ref in refs.values()}
        for path, name in sorted(written):
            value = getattr(owners[path], name)
            if isinstance(value, _PLAIN):
                full = f"{path}.{name}" if path else name
                kind = type(value)
                dtype = {int: torch.int64, float: torch.float64, bool: torch.bool}[kind]
                self._enter(full, full, torch.tensor(value, dtype=dtype))
                self._counted[path, name] = (full, kind)

    def _find_attribute(self, node: Any, refs: dict[str, Any]) -> None:
        owner = refs.get(node.inputsAt(0).debugName())
        if owner is None:
            return
        name = node.s("name")
        path = f"{owner.path}.{name}" if owner.path else name
        value = getattr(owner.owner, name)
        if isinstance(value, (torch.nn.Module, torch.ScriptObject)):
            refs[node.output().debugName()] = ModuleRef(path, value)
        for inner, tensor in _tensors_in(path, value):
            self._enter(inner, inner, tensor)

    # --- called by the user ----------------------------------------------------------------------

    def _run_eagerly(self, method: Any, values: list[Any]) -> Any:
        """Calls a method; buffers for its counters are read before and updated after the call."""
        for (path, name), (full, kind) in self._counted.items():
            setattr(self._owner(path), name, kind(self._tensor(full).item()))
        result = method(*values)
        for (path, name), (full, _) in self._counted.items():
            self._tensor(full).fill_(getattr(self._owner(path), name))
        return result

    def _owner(self, path: str) -> Any:
        """The scripted module at a path; scripted modules have no ``get_submodule``."""
        return operator.attrgetter(path)(self._script) if path else self._script

    def _tensor(self, key: str) -> torch.Tensor:
        parent, _, name = self._paths[key].rpartition(".")
        tensor: torch.Tensor = getattr(self.get_submodule(parent) if parent else self, name)
        return tensor

    # --- recorded --------------------------------------------------------------------------------

    def _record(self, method: Any, values: list[Any]) -> Any:
        number = next(_NUMBERS)
        weights = {key: self._tensor(key) for key in self._paths}
        if method is not self._forward:
            weights |= _list_constants(method.inlined_graph)
        tensors: list[torch.Tensor] = list(weights.values())
        sizes: list[Any] = []
        types = [str(a.type) for a in _arguments(method, self._is_module)]
        inputs = [
            _replace_by_places(v, t, tensors, sizes) for v, t in zip(values, types, strict=True)
        ]
        for device in {tensor.device.type for tensor in tensors}:
            refuse_autocast(device, "a scripted module")
        recording = _Recording(self, method.inlined_graph, list(weights), inputs, self._counted)
        try:
            with During(number, recording.run):
                results = SCRIPTED(tensors, sizes, number)
        except CaptureError as error:
            raise CaptureError(error.message, code="OA118") from error
        self.observed.left_out = recording.left_out
        RECORDED[number] = recording.module
        torch_compat.keep_until_restored(recording.module)
        leaves = [
            result.item() if is_number else result
            for result, is_number in zip(results, recording.numbers, strict=True)
        ]
        return recording.returned(leaves)


class _Recording:
    """One pass through a scripted model.

    Attributes:
        counted: Buffers of the number attributes that are data, by path and name; none if the graph
            needs their values.
        left_out: A sentence for each attribute whose new value is not kept.
    """

    def __init__(
        self,
        model: ScriptedModel,
        graph: Any,
        weights: list[str],
        inputs: list[Any],
        counted: Mapping[tuple[str, str], tuple[str, type]],
    ) -> None:
        self.model = model
        self.graph = graph
        self.weights = weights
        self.inputs = inputs
        self.counted = counted
        self.left_out: list[str] = []
        self.numbers: list[bool] = []
        self.returned: Callable[[list[Any]], Any] = lambda leaves: None
        self.module: Any = None

    def run(self, tensors: list[torch.Tensor], sizes: list[Any], symbol: Any) -> list[Any]:
        """Records the model's graph; returns the results of the operator that stands for it."""
        try:
            return self._run(tensors, sizes, symbol)
        except CaptureError as error:
            if not self.counted:
                raise
            self.counted = {}
            try:
                return self._run(tensors, sizes, symbol)
            except CaptureError:
                raise error from None

    def _run(self, tensors: list[torch.Tensor], sizes: list[Any], symbol: Any) -> list[Any]:
        mode = torch_compat.fake_mode_of(tensors)
        if mode is None:
            raise CaptureError(
                "a scripted model without tensors among its inputs and weights", code="OA118"
            )
        recorder = Recorder(mode)
        with mode, symbols_of_its_own(mode):
            leaves = [recorder.scope.placeholder("tensor", tensor) for tensor in tensors]
            numbers = [recorder.scope.placeholder("size", size) for size in sizes]
            given = dict(zip(self.weights, leaves, strict=False))
            counted = {key: recorder.item(given[full]) for key, (full, _) in self.counted.items()}
            interpreter = Interpreter(recorder, given, counted)
            inputs = [_replace_places(value, leaves, numbers, recorder) for value in self.inputs]
            if self.model._is_module:
                inputs.insert(0, ModuleRef("", self.model._script))
            results = interpreter.run(self.graph, inputs)
            self._keep_state(interpreter, given)
            outputs: list[Leaf] = []
            self.numbers = []
            build = _collect_leaves(
                results[0] if len(results) == 1 else tuple(results), outputs, self
            )
            self.returned = build
            outputs = [
                recorder.call(aten.scalar_tensor.default, leaf, dtype=_dtype_of(leaf.val))
                if is_number
                else leaf
                for leaf, is_number in zip(outputs, self.numbers, strict=True)
            ]
        recorder.scope.graph.output([leaf.node for leaf in outputs])
        self.module = torch.fx.GraphModule(recorder.scope.modules, recorder.scope.graph)
        known = _symbols([*tensors, *sizes])
        return [_result(leaf.val, known, symbol, mode) for leaf in outputs]

    def _keep_state(self, interpreter: Interpreter, given: Mapping[str, Leaf]) -> None:
        """Records attributes that were set as writes to the tensors that they held before."""
        recorder = interpreter.recorder
        for (path, name), value in interpreter.state.attributes.items():
            full = f"{path}.{name}" if path else name
            before = given.get(full)
            if isinstance(value, Leaf) and isinstance(value.val, torch.Tensor):
                if before is None or not _fits(value.val, before.val):
                    held = "no tensor" if before is None else _describe(before.val)
                    self.left_out.append(
                        f"self.{full} is set to {_describe(value.val)}, and holds {held}"
                    )
                elif value.node is not before.node:
                    recorder.call(aten.copy_.default, before, value)
            elif (path, name) in self.model._counted and (path, name) not in self.counted:
                number = getattr(self.model._owner(path), name)
                if isinstance(value, Leaf) or value != number:
                    self.left_out.append(f"self.{full} counts as {number}, and is set anew")
            elif (path, name) in self.counted:
                number = recorder.call(
                    aten.scalar_tensor.default, value, dtype=given[full].val.dtype
                )
                recorder.call(aten.copy_.default, before, number)
            elif isinstance(value, Cell) and interpreter.was_written(value):
                raise CaptureError(
                    f"the model writes to the list or dict self.{full}, which lasts from call to "
                    "call. Keep it in a local variable, or a buffer",
                    code="OA118",
                )


def _describe(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, tensor.shape))}]"


def _fits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.dtype == other.dtype and tuple(tensor.shape) == tuple(other.shape)


def _dtype_of(number: Any) -> torch.dtype:
    kinds = {torch.SymInt: torch.int64, torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
    return kinds[type(number)]


def _result(
    val: torch.Tensor, known: set[str], symbol: Any, mode: torch_compat.FakeTensorMode
) -> torch.Tensor:
    """A tensor of the same dtype and shape, with new symbols for sizes unknown outside."""
    sizes = [
        size if type(size) is int or _symbols([size]) <= known else symbol() for size in val.shape
    ]
    with mode:
        return torch.empty(sizes, dtype=val.dtype)


def _symbols(values: list[Any]) -> set[str]:
    return {
        str(symbol)
        for value in values
        for size in (value.shape if isinstance(value, torch.Tensor) else [value])
        if isinstance(size, torch.SymInt)
        for symbol in getattr(torch_compat.symbolic_expression(size), "free_symbols", ())
    }


# --- inputs and outputs --------------------------------------------------------------------------


class _Place:
    """The position of an input among the tensors or sizes; a float is in a tensor."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index


def _replace_by_places(value: Any, type_name: str, tensors: list[Any], sizes: list[Any]) -> Any:
    """Replaces tensors and symbolic numbers in an input by their places."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place("tensor", len(tensors) - 1)
    if isinstance(value, torch.SymInt):
        sizes.append(value)
        return _Place("size", len(sizes) - 1)
    if isinstance(value, torch.SymFloat):
        tensors.append(torch.scalar_tensor(value, dtype=torch.float64))  # type: ignore[arg-type]
        return _Place("float", len(tensors) - 1)
    if isinstance(value, tuple):
        return tuple(_replace_by_places(item, "", tensors, sizes) for item in value)
    if isinstance(value, list):
        element = type_name.partition("List[")[2].removesuffix("]") or _type_of_element(value)
        return Cell([_replace_by_places(item, element, tensors, sizes) for item in value], element)
    if isinstance(value, dict):
        return Cell(
            {k: _replace_by_places(item, "", tensors, sizes) for k, item in value.items()}, "dict"
        )
    return GivenInt(value) if type(value) is int else value


def _type_of_element(value: list[Any]) -> str:
    first = value[0] if value else None
    return type(first).__name__ if isinstance(first, _PLAIN) else "Tensor"


def _replace_places(value: Any, tensors: list[Leaf], sizes: list[Leaf], recorder: Recorder) -> Any:
    """Inverse of ``_replace_by_places``: replaces places by the interpreter's values."""
    if isinstance(value, _Place):
        if value.kind == "float":
            return recorder.item(tensors[value.index])
        return (tensors if value.kind == "tensor" else sizes)[value.index]
    if isinstance(value, tuple):
        return tuple(_replace_places(item, tensors, sizes, recorder) for item in value)
    if isinstance(value, Cell):
        content = value.content
        if isinstance(content, dict):
            entered: Any = {
                key: _replace_places(item, tensors, sizes, recorder)
                for key, item in content.items()
            }
        else:
            entered = [_replace_places(item, tensors, sizes, recorder) for item in content]
        return Cell(entered, value.element)
    return value


def _collect_leaves(
    value: Any, outputs: list[Leaf], recording: _Recording
) -> Callable[[list[Any]], Any]:
    """Collects the leaves of a result; returns a function that rebuilds it from other leaves."""
    if isinstance(value, Leaf):
        outputs.append(value)
        recording.numbers.append(not isinstance(value.val, torch.Tensor))
        index = len(outputs) - 1
        return lambda leaves: leaves[index]
    if isinstance(value, Cell) and isinstance(value.content, Leaf):
        raise CaptureError(
            "the model returns a list whose length depends on the inputs; an ONNX model returns "
            "tensors. Return torch.stack or torch.cat of it",
            code="OA118",
        )
    if isinstance(value, Cell) and isinstance(value.content, dict):
        parts = {
            key: _collect_leaves(item, outputs, recording) for key, item in value.content.items()
        }
        return lambda leaves: {key: part(leaves) for key, part in parts.items()}
    if isinstance(value, (tuple, Cell)):
        items = value if isinstance(value, tuple) else value.content
        inner = [_collect_leaves(item, outputs, recording) for item in items]
        kind = tuple if isinstance(value, tuple) else list
        return lambda leaves: kind(part(leaves) for part in inner)
    if value is None or isinstance(value, (str, *_PLAIN)):
        plain = int(value) if isinstance(value, GivenInt) else value
        return lambda leaves: plain
    raise CaptureError(
        "the model returns a value that is there for some inputs and None for others; return a "
        "tensor in both cases, and a flag",
        code="OA118",
    )


# --- the script ----------------------------------------------------------------------------------


def _name_of(script: Any) -> str:
    return str(getattr(script, "original_name", None) or getattr(script, "name", "function"))


def _list_constants(graph: Any) -> dict[str, torch.Tensor]:
    """The constant tensors of a graph, by the keys that identify them for the interpreter."""
    found = {}
    for node in all_nodes(graph):
        value = node.output().toIValue() if node.kind() == "prim::Constant" else None
        if isinstance(value, torch.Tensor):
            found[f"constant {node.output().debugName()}"] = value
    return found


def _arguments(method: Any, is_module: bool) -> list[Any]:
    return list(method.schema.arguments)[1 if is_module else 0 :]


def _signature(method: Any, is_module: bool) -> inspect.Signature:
    parameters = []
    for argument in _arguments(method, is_module):
        has_default = argument.has_default_value()
        default = argument.default_value if has_default else inspect.Parameter.empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(argument.name, kind, default=default))
    return inspect.Signature(parameters)


def _tensors_in(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors_in(f"{path}.{index}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors_in(f"{path}.{key}", item)
