"""Records ATen operators on fake tensors of known sizes without most of torch's way.

On that way a call goes through modes, autograd, composite kernels, and the shape functions of each
of their parts. What they find depends on the operator, its other arguments, and what the tensors
are like. So it is kept, for the process, as torch keeps the results of shape functions: an equal
call gets a new fake tensor at once. Its node is made as torch's tracer makes one, which is compared
for the first operator that a process records.

Autograd knows that such a tensor has a gradient, and of which tensors, but not the gradient.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat.lookup import FakeTensor, private
from onnx_aot.torch_compat.overloads import aten
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.places import find_place
from onnx_aot.torch_compat.short_results import (
    Fakes,
    Operator,
    Result,
    describe,
    describe_result,
    find_operator,
    is_plain,
)
from onnx_aot.torch_compat.trace_copies import last_node

__all__ = ["SHORT_PATHS", "ShortPathError", "refuse_gradients"]

_PROXIES = "torch.fx.experimental.proxy_tensor"
_HANDLERS = "torch._export.non_strict_utils"
_FAKES = "torch._subclasses.fake_tensor"


class ShortPathError(RuntimeError):
    """A gradient was to be computed that leads through an operator that took a short path.

    The capture is repeated without short paths.
    """


class _UnusualError(Exception):
    """An argument is one that torch has to record."""


# --- gradients -----------------------------------------------------------------------------------


class _WithoutGradient(torch.autograd.Function):
    """Makes a tensor that requires a gradient, which autograd cannot compute."""

    @staticmethod
    def forward(ctx: Any, path: weakref.ref[_ShortPath], made: list[Any], *_: Any) -> Any:
        """Takes the tensor out of a list, so that it is no input, whose memory results share."""
        ctx.path = path
        return made.pop()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Ends the capture."""
        _refuse(ctx.path)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Ends the capture."""
        _refuse(ctx.path)


class _WrittenWithoutGradient(_WithoutGradient):
    @staticmethod
    def forward(ctx: Any, path: weakref.ref[_ShortPath], written: Any, *_: Any) -> Any:
        """Marks a tensor as written to."""
        ctx.path = path
        ctx.mark_dirty(written)
        return written


def _apply(function: Any) -> Callable[..., Any]:
    """``function.apply`` without the questions of torch's own, which concern ``torch.func``."""
    found: Callable[..., Any] = torch._C._FunctionBase.__dict__["apply"].__get__(None, function)
    return found


def refuse_gradients(function: Any) -> None:
    """Ends a capture if a node of autograd stands for an operator that took a short path.

    Raises:
        ShortPathError: It does.
    """
    path = getattr(function, "path", None)
    if isinstance(path, weakref.ref) and isinstance(path(), _ShortPath):
        _refuse(path)


def _refuse(path: weakref.ref[_ShortPath]) -> None:
    """Ends the capture, which is repeated without short paths."""
    found = path()
    if found is not None:
        found.note_failure()
    raise ShortPathError("a gradient leads through an operator that was recorded at once")


# --- records -------------------------------------------------------------------------------------

_LITERALS = frozenset(
    (
        *(int, float, complex, bool, str, type(None)),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    )
)

_RESULTS: dict[Any, Result | None] = {}  # None for results that torch has to make
_MOST = 1 << 14

_AGREES: dict[Any, bool] = {}
"""Tells whether nodes made here are like torch's, by its function; empty before a comparison."""


class _ShortPath:
    """Records the operators of one capture.

    Args:
        original: Torch's function, for what takes no short path.
        settings: Settings of the capture.
    """

    def __init__(self, original: Callable[..., Any], settings: Settings) -> None:
        self._original, self._reuse = original, settings.reuse
        self._check = settings.check_time
        self._proxies: Any = sys.modules[_PROXIES]
        self._preserves = sys.modules["torch.fx.traceback"].has_preserved_node_meta
        self._stacks: Any = sys.modules["torch.fx.proxy"]
        self._new, self._written = _apply(_WithoutGradient), _apply(_WrittenWithoutGradient)
        # Weak, as autograd's nodes hold it, through which the garbage collector does not see.
        self._self = weakref.ref(self)
        self._fakes = Fakes()
        self._texts: dict[Any, tuple[Any, str]] = {}
        self._modules: tuple[Any, Any] = (None, None)

    def note_failure(self) -> None:
        """Has the capture repeated without short paths."""
        self._reuse.failed = True

    def record(self, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        """Records a call of an operator, and returns its result."""
        operator = find_operator(func)
        if operator is None or not pre_dispatch or self._is_unusual(mode, func):
            return self._original(mode, func, pre_dispatch, args, kwargs)
        tracer = mode.tracer
        tensors: list[Any] = []
        try:
            key, nodes = self._describe(args, tracer.tensor_tracker, tensors)
            own, named = self._describe(kwargs.values(), tracer.tensor_tracker, tensors)
        except _UnusualError:
            return self._original(mode, func, pre_dispatch, args, kwargs)
        if self._original not in _AGREES:
            return self._compare(operator, mode, func, args, kwargs)
        if self._check is not None:
            self._check()
        is_kept = bool(tensors) and not (operator.writes and _is_view_or_leaf(tensors[0]))
        key = (func, *_state(), key, tuple(kwargs), own)
        found = _RESULTS.get(key) if is_kept else None
        if found is not None and self._reuse.only_compares:
            found = None
        proxy = self._make_node(
            tracer, func, operator, tuple(nodes), dict(zip(kwargs, named, strict=True))
        )
        if found is None:
            before = [describe(tensor) for tensor in tensors] if is_kept else []
            with self._proxies._enable_thunkify(tracer):
                result = func(*args, **kwargs)
            if type(result) is not FakeTensor or result._has_symbolic_sizes_strides:
                self._proxies.track_tensor_tree(result, proxy, constant=None, tracer=tracer)
                return result
            if is_kept:
                self._keep(key, describe_result(operator, result, tensors, before))
            value = self._copy(result)
        else:
            result, value = self._make(found, operator, tensors)
        tracer.tensor_tracker[result] = self._proxies._ProxyTensor(proxy, None)
        meta = proxy.node.meta
        meta["val"] = value
        meta["tensor_meta"] = self._proxies._extract_tensor_metadata(result)
        return result

    def _is_unusual(self, mode: Any, func: Any) -> bool:
        return (
            not _AGREES.get(self._original, True)
            or func in mode.decomposition_table
            or torch._C._is_any_autocast_enabled()
            or torch.is_inference_mode_enabled()
            or torch._C._len_torch_dispatch_stack() != 1
            or type(mode.tracer) is not self._proxies._ModuleStackTracer
            or self._preserves()
            or torch._C._functorch.peek_interpreter_stack() is not None
        )

    def _describe(self, values: Iterable[Any], tracker: Any, tensors: list[Any]) -> Any:
        """A key for arguments, and what stands for them in a node; adds the tensors among them.

        Raises:
            _UnusualError: Torch has to record the call.
        """
        key: list[Any] = []
        nodes: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                entry = tracker.get(value)
                if entry is None or entry.constant is not None or not is_plain(value):
                    raise _UnusualError
                tensors.append(value)
                key.append((describe(value), torch._C._dispatch_keys(value).raw_repr()))
                nodes.append(entry.proxy.node)
            elif kind in _LITERALS:
                key.append((kind, value))
                nodes.append(value)
            elif kind is list or kind is tuple:
                own, inner = self._describe(value, tracker, tensors)
                key.append((kind, own))
                nodes.append(kind(inner))
            else:
                raise _UnusualError
        return tuple(key), nodes

    def _keep(self, key: Any, found: Result | None) -> None:
        """Keeps what a result is, or compares it with what is kept.

        Raises:
            CaptureError: It differs, and all calls are compared.
        """
        known = _RESULTS.get(key, found)
        if known != found and self._reuse.only_compares:
            raise CaptureError(
                f"{key[0]} returns {found}, and returned {known} before. Export with "
                'reuse="off", which traces all calls, and report this model',
                code="OA126",
            )
        if len(_RESULTS) >= _MOST:
            _RESULTS.clear()
        _RESULTS[key] = known

    def _make(self, found: Result, operator: Operator, tensors: list[Any]) -> tuple[Any, Any]:
        """Returns the result of a call, and the value of its node, which shares its memory."""
        gradients = [tensor for tensor in tensors if tensor.requires_grad]
        if found.argument is not None:
            result = tensors[found.argument]
            if operator.writes and result.requires_grad and torch.is_grad_enabled():
                self._written(self._self, result, *(t for t in gradients if t is not result))
            elif operator.writes:
                torch.autograd.graph.increment_version(result)
            return result, self._copy(result)
        dtype, size, stride, _, device, requires_grad = found.description
        mode = tensors[0].fake_mode
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            elements = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            result = self._fakes.make(mode, elements, device)
            value = self._fakes.make(mode, elements, device)
            if requires_grad:
                result = self._new(self._self, [result], *gradients)
        return result, value

    def _copy(self, tensor: Any) -> Any:
        if tensor.constant is not None or tensor.real_tensor is not None:
            return self._proxies.snapshot_fake(tensor)
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            return self._fakes.make(tensor.fake_mode, tensor, tensor._fake_device)

    # --- nodes ---

    def _make_node(self, tracer: Any, func: Any, operator: Operator, args: Any, kwargs: Any) -> Any:
        """Makes a node as the tracer does, and returns its proxy."""
        node = tracer.graph.create_node("call_function", func, args, kwargs, operator.name)
        scope = tracer.scope
        tracer.node_name_to_scope[node.name] = scope.module_path, scope.module_type
        node.meta.update(self._metadata(tracer))
        return tracer.proxy(node)

    def _metadata(self, tracer: Any) -> dict[str, Any]:
        """The metadata of a node that the tracer makes now."""
        stack = tracer.module_stack
        keys = tuple(stack)
        if keys != self._modules[0]:
            named = ((key, (fqn, _class_name(kind))) for key, (fqn, kind) in stack.items())
            self._modules = keys, type(stack)(named)
        meta = {"nn_module_stack": self._modules[1].copy()}
        lines = self._lines(tracer)
        if lines:
            meta["stack_trace"] = lines
        function = tracer.torch_fn_metadata
        if function is not None:
            name = function.__name__
            count = tracer.torch_fn_counts[function]
            meta["torch_fn"] = f"{name}_{count}", f"{function.__class__.__name__}.{name}"
        return meta

    def _lines(self, tracer: Any) -> str:
        if not tracer.record_stack_traces:
            return ""
        stack = self._stacks.CapturedTraceback.extract().summary()  # as patched
        frames = tracer._filter_traceback_frames(stack)
        key = tuple(map(id, frames))
        if key not in self._texts:
            self._texts[key] = frames, "".join(frames.format()).strip()  # with what the key is of
        return self._texts[key][1]

    def _compare(self, operator: Operator, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Lets torch record a call, and compares the node with what this class would have made."""
        result = self._original(mode, func, True, args, kwargs)
        if type(result) is not FakeTensor or not is_plain(result):
            return result
        node = last_node(mode.tracer.graph)
        assert node is not None
        expected = self._metadata(mode.tracer)
        copy, value = self._copy(result), node.meta.get("val")
        _AGREES[self._original] = (
            node.name.startswith(operator.name)
            and [*node.meta] == [*expected, "val", "tensor_meta"]
            and all(node.meta[key] == expected[key] for key in expected)
            and type(value) is FakeTensor
            and describe(value) == describe(copy)
            and vars(value) == vars(copy)
            and torch._C._dispatch_keys(value) == torch._C._dispatch_keys(copy)
            and value.untyped_storage()._cdata == copy.untyped_storage()._cdata
        )
        return result


def _state() -> tuple[Any, ...]:
    """Settings that results depend on; the last ones are for the strides of attention's."""
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_cudnn_enabled(),
        torch._C._get_cudnn_sdp_enabled(),
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
    )


def _is_view_or_leaf(tensor: Any) -> bool:
    """True if autograd does more about a write to a tensor than to note it, or refuses it."""
    return bool(tensor._is_view() or (tensor.requires_grad and tensor.is_leaf))


def _class_name(kind: Any) -> Any:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind


def _record_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    record = _ShortPath(original, settings).record

    def proxy_call(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        return record(mode, func, pre_dispatch, args, kwargs)

    return proxy_call


# --- ways to the record --------------------------------------------------------------------------


def _dispatch_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Goes from an operator to its record without lists of types, which nothing reads."""
    proxies: Any = sys.modules[_PROXIES]
    preserves = sys.modules["torch.fx.traceback"].has_preserved_node_meta
    kind = proxies.ProxyTorchDispatchMode

    def handle(curr_mode: Any, op_overload: Any, *args: Any, **kwargs: Any) -> Any:
        if type(curr_mode) is not kind or find_operator(op_overload) is None or preserves():
            return original(curr_mode, op_overload, *args, **kwargs)
        return proxies.proxy_call(curr_mode, op_overload, curr_mode.pre_dispatch, args, kwargs)

    return handle


def _call_modes_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Calls a function of torch once, and not once for each of torch's three modes for a trace.

    The outermost mode counts calls, the next one records functions that are no operators, and the
    innermost one redirects some.
    """
    proxies: Any = sys.modules[_PROXIES]
    handlers: Any = sys.modules[_HANDLERS]
    inner, middle = handlers._NonStrictTorchFunctionHandler, proxies.PreDispatchTorchFunctionMode
    ordinary: dict[Any, bool] = {}

    def torch_function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_ordinary = ordinary.get(func)
        if is_ordinary is None:
            is_ordinary = ordinary[func] = _is_ordinary(func)
        if not is_ordinary or torch._C._len_torch_function_stack() != 2:
            return original(self, func, types, args, kwargs)
        handler = torch._C._get_function_stack_at(0)
        if type(handler) is not inner or type(torch._C._get_function_stack_at(1)) is not middle:
            return original(self, func, types, args, kwargs)
        tracer = self.tracer
        tracer.torch_fn_metadata = func
        tracer.torch_fn_counts[func] = tracer.torch_fn_counts.get(func, 0) + 1
        modes = torch._C._pop_torch_function_stack(), torch._C._pop_torch_function_stack()
        try:  # functions of tensor subclasses are called as ever
            return handler.__torch_function__(func, types, args, kwargs)
        finally:
            torch._C._push_on_torch_function_stack(modes[1])
            torch._C._push_on_torch_function_stack(modes[0])

    return torch_function


_MODULES = frozenset(
    ("torch", "torch._C", "torch._C._nn", "torch._tensor", "torch.functional")
) | frozenset(("torch.nn.functional",))
_BUILTIN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_RECORDED = frozenset(("_set_grad_enabled", "_enter_autocast", "_exit_autocast"))


def _is_ordinary(func: Any) -> bool:
    """True for functions and methods of torch that compute, and getters of tensors."""
    if getattr(func, "__name__", None) in _RECORDED:
        return False
    if isinstance(func, types.MethodWrapperType):  # the getter of an attribute
        return getattr(func.__self__, "__objclass__", None) is torch._C.TensorBase
    owner = getattr(func, "__module__", None)
    if isinstance(func, types.FunctionType):
        return owner in _MODULES
    return isinstance(func, _BUILTIN) and (owner is None or owner in _MODULES)


_VIEWS = frozenset(
    (
        aten.alias.default,
        aten.as_strided.default,
        aten.expand.default,
        aten.permute.default,
        aten._reshape_alias.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    )
)


def _view_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Lets torch's C++ code make views of fake tensors, without shape functions in Python."""
    fakes = Fakes()
    in_kernel = private(f"{_FAKES}:in_kernel_invocation_manager")

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _VIEWS or kwargs or not _is_static_view(args):
            return original(self, func, types, args, kwargs or {})
        with in_kernel(self):
            view = func(*args)
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            return fakes.make(self, view, args[0]._fake_device)

    return dispatch


def _is_static_view(args: Any) -> bool:
    if type(args[0]) is not FakeTensor or not is_plain(args[0]):
        return False
    return all(
        type(arg) is int or arg is None or (type(arg) is list and all(type(i) is int for i in arg))
        for arg in args[1:]
    )


# --- rows ----------------------------------------------------------------------------------------

_NEEDED = (
    "torch:Tensor._make_subclass",
    "torch:_C.TensorBase._has_symbolic_sizes_strides",
    "torch:_C.TensorBase._is_view",
    "torch:_C.DispatchKeySet.raw_repr",
    "torch:_C._DisablePythonDispatcher",
    "torch:_C._DisableTorchDispatch",
    "torch:_C._FunctionBase.apply",
    "torch:_C._dispatch_keys",
    "torch:_C._functorch.peek_interpreter_stack",
    "torch:_C._get_cudnn_enabled",
    "torch:_C._get_cudnn_sdp_enabled",
    "torch:_C._get_flash_sdp_enabled",
    "torch:_C._get_function_stack_at",
    "torch:_C._get_math_sdp_enabled",
    "torch:_C._get_mem_efficient_sdp_enabled",
    "torch:_C._get_mkldnn_enabled",
    "torch:_C._is_any_autocast_enabled",
    "torch:_C._len_torch_dispatch_stack",
    "torch:_C._len_torch_function_stack",
    "torch:_C._pop_torch_function_stack",
    "torch:_C._push_on_torch_function_stack",
    "torch:_C._set_throw_on_mutable_data_ptr",
    "torch.fx.proxy:CapturedTraceback",
    "torch.fx.traceback:has_preserved_node_meta",
    f"{_FAKES}:in_kernel_invocation_manager",
    f"{_HANDLERS}:_NonStrictTorchFunctionHandler",
    f"{_PROXIES}:PreDispatchTorchFunctionMode",
    f"{_PROXIES}:ProxyTorchDispatchMode",
    f"{_PROXIES}:_ModuleStackTracer",
    f"{_PROXIES}:_ProxyTensor",
    f"{_PROXIES}:_enable_thunkify",
    f"{_PROXIES}:_extract_tensor_metadata",
    f"{_PROXIES}:proxy_call",
    f"{_PROXIES}:snapshot_fake",
    f"{_PROXIES}:track_tensor_tree",
)


def _has_needed(original: Any) -> bool:
    return all(find_place(name) is not None for name in _NEEDED)


def _counts_functions(original: Any) -> bool:
    """True if the mode does what ``_call_modes_at_once`` does in its place."""
    names = set(original.__code__.co_names)
    return _has_needed(original) and names <= _NAMES_IN_COUNT


_NAMES_IN_COUNT = frozenset(
    (
        *("tracer", "torch_fn_metadata", "torch_fn_counts", "get", "torch", "ops", "aten"),
        *("size", "default", "len", "isinstance", "Tensor", "any", "sym_size", "py_sym_types"),
    )
)


def _is_wanted(settings: Settings) -> bool:
    return settings.reuse is not None and not settings.dynamic


SHORT_PATHS: tuple[Patch, ...] = (
    Patch(
        f"{_PROXIES}:TorchFunctionMetadataMode.__torch_function__",
        _call_modes_at_once,
        "Captures with static sizes take up to a twentieth longer.",
        when=_is_wanted,
        parameters="self, func, types, args, kwargs",
        behaves=_counts_functions,
    ),
    Patch(
        "torch._library.utils:handle_dispatch_mode",
        _dispatch_at_once,
        "Captures with static sizes take a twentieth longer.",
        when=_is_wanted,
        parameters="curr_mode, op_overload, args, kwargs",
        behaves=_has_needed,
    ),
    Patch(
        f"{_FAKES}:FakeTensorMode.dispatch",
        _view_at_once,
        "Captures of transformers with static sizes take a twentieth longer.",
        when=_is_wanted,
        parameters="self, func, types, args, kwargs",
        behaves=_has_needed,
    ),
    Patch(
        f"{_PROXIES}:proxy_call",
        _record_at_once,
        "Captures with static sizes take half as long again.",
        when=_is_wanted,
        parameters="proxy_mode, func, pre_dispatch, args, kwargs",
        behaves=_has_needed,
    ),
)
"""Rows in order of application; that of ``proxy_call`` comes before those that wrap it."""
