"""Records an ATen operator on fake tensors of known sizes without most of torch's way.

On that way a call goes through autograd, composite kernels and the shape functions of each of their
parts. What they find depends on the operator, its other arguments, and what tensors are like, so it
is kept: equal calls get new fake tensors at once. Their node is made as the tracer makes it.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import FakeTensor, OpOverload, private
from onnx_aot.torch_compat.overloads import schema_of
from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["SHORT_PATHS", "ShortPathError", "refuse_gradients"]

_PROXIES = "torch.fx.experimental.proxy_tensor"
_MOST = 1 << 14  # results that are kept


class ShortPathError(RuntimeError):
    """A gradient is computed from a tensor of which autograd knows no gradient.

    The capture is repeated without short paths.
    """


class _Unusual(Exception):
    """A call has something that torch has to record."""


# --- operators -----------------------------------------------------------------------------------

_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_LEFT_OUT = ("lift_fresh", "lift", "detach", "detach_", "is_nonzero", "set_", "resize_", "resize_as_")


@dataclasses.dataclass(frozen=True)
class _Operator:
    """What is known of an operator, ``writes`` for one that writes to its first argument."""

    name: str
    writes: bool


@functools.cache
def _operator(func: Any) -> _Operator | None:
    """The operator, or None if torch has to record it."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return None
    schema = schema_of(func)
    name = func.overloadpacket.__name__
    if name in _LEFT_OUT or any(tag in func.tags for tag in _TAGS):
        return None
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return None
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
    if schema.is_mutable and (written != [0] or schema.arguments[0].kwarg_only):
        return None
    return _Operator(torch.fx.Graph()._target_to_str(name), schema.is_mutable)


_LITERALS = frozenset(
    (
        *(int, float, bool, str, type(None), complex),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    )
)


# --- results -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Result:
    """The result of a call: the argument at a place, or a tensor."""

    argument: int | None
    dtype: Any = None
    size: Any = None
    stride: Any = None
    device: Any = None
    requires_grad: bool = False


_RESULTS: dict[Any, _Result | None] = {}


class _WithoutGradient(torch.autograd.Function):
    """Makes a tensor that requires a gradient, which autograd cannot compute."""

    @staticmethod
    def forward(ctx: Any, path: _ShortPath, made: list[Any], *inputs: Any) -> Any:
        ctx.path = path
        return made.pop()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.path.refuse()

    jvp = backward


class _WrittenWithoutGradient(_WithoutGradient):
    @staticmethod
    def forward(ctx: Any, path: _ShortPath, written: Any, *inputs: Any) -> Any:
        ctx.path = path
        ctx.mark_dirty(written)
        return written


def refuse_gradients(function: Any) -> None:
    """Ends a capture if a node of autograd stands for an operator that took a short path.

    Raises:
        ShortPathError: It does.
    """
    path = getattr(function, "path", None)
    if isinstance(path, _ShortPath):
        path.refuse()


def _apply(function: Any) -> Callable[..., Any]:
    base: Any = torch._C._FunctionBase.__dict__["apply"]
    return base.__get__(None, function)


class _ShortPath:
    """Records the operators of one capture."""

    def __init__(self, original: Callable[..., Any], settings: Settings) -> None:
        self._original, self._reuse = original, settings.reuse
        self._fakes = _Fakes()
        self._check = settings.check_time
        self._stack: tuple[Any, Any] = (None, None)
        self._new, self._written = _apply(_WithoutGradient), _apply(_WrittenWithoutGradient)
        module = __import__(_PROXIES, fromlist=["_"])
        self._module = module
        self._stacks = sys.modules["torch.fx.proxy"]
        self._texts: dict[Any, tuple[Any, str]] = {}
        self._entry = module._ProxyTensor

    def refuse(self) -> None:
        """Ends the capture, which is repeated without short paths."""
        self._reuse.failed = True
        raise ShortPathError("a gradient leads through an operator that was recorded at once")

    def record(self, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        """Records a call of an operator, and returns its result."""
        operator = _operator(func)
        if (
            operator is None
            or not pre_dispatch
            or func in mode.decomposition_table
            or torch._C._is_any_autocast_enabled()
            or torch.is_inference_mode_enabled()
            or torch._C._len_torch_dispatch_stack() != 1
            or type(mode.tracer) is not self._module._ModuleStackTracer
            or torch.fx.traceback.has_preserved_node_meta()
            or torch._C._functorch.peek_interpreter_stack() is not None
        ):
            return self._original(mode, func, pre_dispatch, args, kwargs)
        if self._check is not None:
            self._check()
        tracer = mode.tracer
        tensors: list[Any] = []
        try:
            key, nodes = self._describe(args, tracer.tensor_tracker, tensors)
            if kwargs:
                own, named = self._describe(kwargs.values(), tracer.tensor_tracker, tensors)
                key = key, tuple(kwargs), own
                named = dict(zip(kwargs, named, strict=True))
            else:
                named = {}
        except _Unusual:
            return self._original(mode, func, pre_dispatch, args, kwargs)
        grad = torch.is_grad_enabled()
        found = None
        if not tensors:
            key = None
        elif operator.writes and (tensors[0]._is_view() or not _may_be_written(tensors[0])):
            key = None
        else:
            key = func, grad, torch.get_default_dtype(), key
            found = _RESULTS.get(key)
        if found is None and key is not None and key not in _RESULTS:
            before = [_description(tensor) for tensor in tensors]
        proxy = self._make_node(tracer, func, operator, tuple(nodes), named)
        if found is None:
            with self._module._enable_thunkify(tracer):
                result = func(*args, **kwargs)
            if type(result) is not FakeTensor or result._has_symbolic_sizes_strides:
                self._module.track_tensor_tree(result, proxy, constant=None, tracer=tracer)
                return result
            if key is not None and key not in _RESULTS:
                if len(_RESULTS) >= _MOST:
                    _RESULTS.clear()
                _RESULTS[key] = _describe_result(operator, result, tensors, before)
            value = self._copy(result)
        else:
            result, value = self._make(found, operator, tensors, grad)
        tracer.tensor_tracker[result] = self._entry(proxy, None)
        meta = proxy.node.meta
        meta["val"] = value
        meta["tensor_meta"] = self._module._extract_tensor_metadata(result)
        return result

    def _describe(self, values: Any, tracker: Any, tensors: list[Any]) -> tuple[Any, Any]:
        key: list[Any] = []
        nodes: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value._has_symbolic_sizes_strides:
                    raise _Unusual
                entry = tracker.get(value)
                if entry is None or entry.constant is not None or value.constant is not None:
                    raise _Unusual
                tensors.append(value)
                key.append(_description(value))
                nodes.append(entry.proxy.node)
            elif kind in _LITERALS:
                key.append((kind, value))
                nodes.append(value)
            elif kind is list or kind is tuple:
                own, inner = self._describe(value, tracker, tensors)
                key.append((kind, own))
                nodes.append(inner if kind is list else tuple(inner))
            else:
                raise _Unusual
        return tuple(key), nodes

    def _make_node(self, tracer: Any, func: Any, operator: _Operator, args: Any, kwargs: Any) -> Any:
        """Makes a node with the metadata that the tracer would give it, and returns its proxy."""
        node = tracer.graph.create_node("call_function", func, args, kwargs, operator.name)
        scope = tracer.scope
        tracer.node_name_to_scope[node.name] = scope.module_path, scope.module_type
        meta = node.meta
        meta["nn_module_stack"] = self._modules(tracer.module_stack)
        lines = self._text(tracer)
        if lines:
            meta["stack_trace"] = lines
        function = tracer.torch_fn_metadata
        if function is not None:
            name = function.__name__
            count = tracer.torch_fn_counts[function]
            meta["torch_fn"] = f"{name}_{count}", f"{function.__class__.__name__}.{name}"
        return tracer.proxy(node)

    def _text(self, tracer: Any) -> str:
        """The stack trace of a node."""
        if not tracer.record_stack_traces:
            return ""
        frames = tracer._filter_traceback_frames(self._stacks.CapturedTraceback.extract().summary())
        key = tuple(map(id, frames))
        found = self._texts.get(key)
        if found is None:
            found = self._texts[key] = frames, "".join(frames.format()).strip()
        return found[1]

    def _modules(self, stack: Any) -> Any:
        """The calls of modules around a node, as nodes record them."""
        keys = tuple(stack)
        if keys != self._stack[0]:
            named = ((key, (fqn, _class_name(kind))) for key, (fqn, kind) in stack.items())
            self._stack = keys, type(stack)(named)
        return self._stack[1].copy()

    def _make(self, found: _Result, operator: _Operator, tensors: list[Any], grad: bool) -> Any:
        """Returns the result of a call, and the value that its node gets."""
        if found.argument is not None:
            result = tensors[found.argument]
            if operator.writes:
                if grad and result.requires_grad:
                    others = [t for t in tensors[1:] if t.requires_grad]
                    self._written(self, result, *others)
                else:
                    torch.autograd.graph.increment_version(result)
            return result, self._copy(result)
        mode = tensors[0].fake_mode
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            elements = torch.empty_strided(
                found.size, found.stride, dtype=found.dtype, device="meta"
            )
            result = self._fakes.make(mode, elements, found.device)
            value = self._fakes.make(mode, elements, found.device)
            if found.requires_grad:
                result = self._new(self, [result], *(t for t in tensors if t.requires_grad))
        return result, value

    def _copy(self, tensor: Any) -> Any:
        """A tensor with the same memory, as the value of a node."""
        if tensor.constant is not None or tensor.real_tensor is not None:
            return self._module.snapshot_fake(tensor)
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            return self._fakes.make(tensor.fake_mode, tensor, tensor._fake_device)


class _Fakes:
    """Makes fake tensors of tensors without elements, as their class does in five times the time.

    It is used while torch dispatches to no Python code.
    """

    def __init__(self) -> None:
        self._templates: dict[Any, dict[str, Any]] = {}

    def make(self, mode: Any, elements: Any, device: Any) -> Any:
        """A fake tensor with the memory of ``elements``, which may be a fake tensor."""
        template = self._templates.get((id(mode), device))
        if template is None:
            plain = torch.empty(0, device="meta")
            template = dict(vars(FakeTensor(mode, plain, device)))
            self._templates[id(mode), device] = template
        made = torch.Tensor._make_subclass(
            FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(template)
        return made


def _may_be_written(tensor: Any) -> bool:
    return not (tensor.requires_grad and tensor.is_leaf)


def _class_name(kind: Any) -> Any:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind


def _description(tensor: Any) -> Any:
    size = tensor.size()
    return (
        tensor.dtype,
        size,
        tensor.stride(),
        tensor.storage_offset(),
        tensor._fake_device,
        tensor.requires_grad,
    )


def _describe_result(
    operator: _Operator, made: Any, tensors: list[Any], before: list[Any]
) -> _Result | None:
    if type(made) is not FakeTensor:
        return None
    place = next((i for i, tensor in enumerate(tensors) if tensor is made), None)
    if place is not None:
        is_same = _description(made) == before[place]
        return _Result(place) if is_same else None
    storage = made.untyped_storage()
    if operator.writes or any(t.untyped_storage()._cdata == storage._cdata for t in tensors):
        return None
    size, stride = made.size(), made.stride()
    if not all(type(each) is int for each in (*size, *stride, made.storage_offset())):
        return None
    if made.storage_offset() != 0 or made.is_conj() or made.is_neg():
        return None
    if made.layout != torch.strided or made.is_quantized or made.constant is not None:
        return None
    plain = torch.empty_strided(size, stride, dtype=made.dtype, device="meta")
    if plain.untyped_storage().nbytes() != storage.nbytes():
        return None
    return _Result(None, made.dtype, size, stride, made._fake_device, made.requires_grad)


def _record_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    return _ShortPath(original, settings).record


_VIEWS = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("view", "default"),
        ("_reshape_alias", "default"),
        ("transpose", "int"),
        ("permute", "default"),
        ("t", "default"),
        ("slice", "Tensor"),
        ("select", "int"),
        ("unsqueeze", "default"),
        ("squeeze", "default"),
        ("squeeze", "dim"),
        ("expand", "default"),
        ("alias", "default"),
        ("as_strided", "default"),
    )
)


def _view_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    fakes = _Fakes()
    in_kernel = private("torch._subclasses.fake_tensor:in_kernel_invocation_manager")

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _VIEWS or kwargs or not _is_plain(args):
            return original(self, func, types, args, kwargs or {})
        tensor = args[0]
        with in_kernel(self):
            view = func(*args)
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            return fakes.make(self, view, tensor._fake_device)

    return dispatch


def _is_plain(args: Any) -> bool:
    tensor = args[0]
    if type(tensor) is not FakeTensor or tensor._has_symbolic_sizes_strides:
        return False
    if tensor.constant is not None or tensor.real_tensor is not None:
        return False
    return all(
        type(arg) is int or arg is None or (type(arg) is list and all(type(i) is int for i in arg))
        for arg in args[1:]
    )


def _call_modes_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Calls a function of torch once, and not once for each of torch's three modes for a trace.

    The outermost one counts functions, the next one only records some that are no operators, and
    the innermost one redirects some.
    """
    proxies, handlers = sys.modules[_PROXIES], sys.modules["torch._export.non_strict_utils"]
    kinds = handlers._NonStrictTorchFunctionHandler, proxies.PreDispatchTorchFunctionMode
    ordinary: dict[Any, bool] = {}

    def torch_function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_ordinary = ordinary.get(func)
        if is_ordinary is None:
            is_ordinary = ordinary[func] = _is_ordinary(func)
        if not is_ordinary or torch._C._len_torch_function_stack() != 2:
            return original(self, func, types, args, kwargs)
        handler, other = torch._C._get_function_stack_at(0), torch._C._get_function_stack_at(1)
        if type(handler) is not kinds[0] or type(other) is not kinds[1]:
            return original(self, func, types, args, kwargs)
        tracer = self.tracer
        tracer.torch_fn_metadata = func
        tracer.torch_fn_counts[func] = tracer.torch_fn_counts.get(func, 0) + 1
        with torch._C.DisableTorchFunction():
            return handler.__torch_function__(func, types, args, kwargs)

    return torch_function


_MODULES = ("torch", "torch._C", "torch._C._nn", "torch._tensor", "torch.functional")
_MODULES += ("torch.nn.functional",)
_METHODS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)
_RECORDED = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast")


def _is_ordinary(func: Any) -> bool:
    """True for functions and methods of torch that compute, and getters of tensors."""
    if getattr(func, "__name__", None) in _RECORDED:
        return False
    owner = getattr(func, "__module__", None)
    if isinstance(func, types.MethodWrapperType):  # the getter of an attribute
        place = getattr(func, "__self__", None)
        return getattr(place, "__objclass__", None) is torch._C.TensorBase
    if isinstance(func, types.FunctionType):
        return owner in _MODULES
    return isinstance(func, _METHODS) and (owner is None or owner in _MODULES)


def _dispatch_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Goes from an operator to its record without lists of types, and metadata that is kept."""
    proxies = sys.modules[_PROXIES]
    kind = proxies.ProxyTorchDispatchMode

    def handle(curr_mode: Any, op_overload: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            type(curr_mode) is not kind
            or _operator(op_overload) is None
            or torch.fx.traceback.has_preserved_node_meta()
        ):
            return original(curr_mode, op_overload, *args, **kwargs)
        return proxies.proxy_call(curr_mode, op_overload, curr_mode.pre_dispatch, args, kwargs)

    return handle


SHORT_PATHS = (
    Patch(
        f"{_PROXIES}:TorchFunctionMetadataMode.__torch_function__",
        _call_modes_at_once,
        "Captures with static sizes take a twentieth longer.",
        when=lambda settings: settings.reuse is not None and not settings.dynamic,
        parameters="self, func, types, args, kwargs",
    ),
    Patch(
        "torch._library.utils:handle_dispatch_mode",
        _dispatch_at_once,
        "Captures with static sizes take a twentieth longer.",
        when=lambda settings: settings.reuse is not None and not settings.dynamic,
        parameters="curr_mode, op_overload, args, kwargs",
    ),
    Patch(
        "torch._subclasses.fake_tensor:FakeTensorMode.dispatch",
        _view_at_once,
        "Captures with static sizes take a twentieth longer.",
        when=lambda settings: settings.reuse is not None and not settings.dynamic,
        parameters="self, func, types, args, kwargs",
    ),
    Patch(
        f"{_PROXIES}:proxy_call",
        _record_at_once,
        "Captures with static sizes take half as long again.",
        when=lambda settings: settings.reuse is not None and not settings.dynamic,
        parameters="proxy_mode, func, pre_dispatch, args, kwargs",
    ),
)
