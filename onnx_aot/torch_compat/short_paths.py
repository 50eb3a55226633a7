"""Records ATen operators on fake tensors of known sizes without most of torch's way.

On that way a call goes through modes, autograd, composite kernels, and the shape functions of each
of their parts. What they find depends on the operator, its other arguments, and what the tensors
are like. So it is kept, for the process, as torch keeps the results of shape functions: an equal
call gets a new fake tensor at once. Its node is made as torch's tracer makes one, which is compared
for the first operator that a process records.

Autograd knows that such a tensor has a gradient, and of which tensors, but not the gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat.lookup import FakeTensor, OpOverload, private
from onnx_aot.torch_compat.overloads import aten, schema_of
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.places import find_place
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


# --- operators -----------------------------------------------------------------------------------

_DATA_TAGS = ("data_dependent_output", "dynamic_output_shape")
_LEFT_OUT = frozenset(
    ("detach", "detach_", "is_nonzero", "lift", "lift_fresh", "resize_", "resize_as_", "set_")
)


@dataclasses.dataclass(frozen=True)
class _Operator:
    """An operator that returns one tensor.

    Attributes:
        name: The beginning of its nodes' names.
        writes: Whether it writes to its first argument.
    """

    name: str
    writes: bool


def _operator(func: Any) -> _Operator | None:
    """The operator, or None if torch has to record it."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return None
    return _describe_operator(func)


@functools.cache
def _describe_operator(func: Any) -> _Operator | None:
    schema = schema_of(func)
    name = func.overloadpacket.__name__
    if name in _LEFT_OUT or any(getattr(tag, "name", "") in _DATA_TAGS for tag in func.tags):
        return None
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return None
    given = schema.arguments
    written = [i for i, a in enumerate(given) if a.alias_info and a.alias_info.is_write]
    if schema.is_mutable and (written != [0] or given[0].kwarg_only):
        return None
    return _Operator(torch.fx.Graph()._target_to_str(name), schema.is_mutable)


# --- results -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Result:
    """What the result of a call is.

    Attributes:
        argument: The number of the tensor among the arguments that it is; None for a new tensor.
        description: What a new tensor is like, see ``_description``.
    """

    argument: int | None
    description: tuple[Any, ...] = ()


_RESULTS: dict[Any, _Result | None] = {}  # None for results that torch has to make
_MOST = 1 << 14


def _description(tensor: Any) -> tuple[Any, ...]:
    """What the results of operators depend on, except for elements."""
    return (
        tensor.dtype,
        tensor.size(),
        tensor.stride(),
        tensor.storage_offset(),
        tensor._fake_device,
        tensor.requires_grad,
    )


def _describe_result(
    operator: _Operator, made: Any, tensors: list[Any], before: list[Any]
) -> _Result | None:
    """What a result is, given the arguments and what they were like before the call."""
    place = next((i for i, tensor in enumerate(tensors) if tensor is made), None)
    if place is not None:
        return _Result(place) if _description(made) == before[place] else None
    storage = made.untyped_storage()
    if operator.writes or any(t.untyped_storage()._cdata == storage._cdata for t in tensors):
        return None
    if made.layout != torch.strided or made.is_quantized or made.is_conj() or made.is_neg():
        return None
    if made.storage_offset() != 0 or made.constant is not None or made.real_tensor is not None:
        return None
    plain = torch.empty_strided(made.size(), made.stride(), dtype=made.dtype, device="meta")
    if plain.untyped_storage().nbytes() != storage.nbytes():
        return None
    return _Result(None, _description(made))


class _Fakes:
    """Makes fake tensors in a quarter of the time that their class takes.

    It is used while torch dispatches to no Python code.
    """

    def __init__(self) -> None:
        self._attributes: dict[Any, dict[str, Any]] = {}

    def make(self, mode: Any, elements: Any, device: Any) -> Any:
        """A fake tensor with the memory of ``elements``, which may be a fake tensor."""
        key = id(mode), device  # the attributes keep the mode
        if key not in self._attributes:
            plain = FakeTensor(mode, torch.empty(0, device="meta"), device)
            self._attributes[key] = dict(vars(plain))
        made = torch.Tensor._make_subclass(
            FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(self._attributes[key])
        return made


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

_AGREES: dict[Any, bool] = {}
"""Whether nodes of this module are those of torch, by torch's function; none if not compared."""


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
        self._fakes = _Fakes()
        self._texts: dict[Any, tuple[Any, str]] = {}
        self._modules: tuple[Any, Any] = (None, None)

    def note_failure(self) -> None:
        """Has the capture repeated without short paths."""
        self._reuse.failed = True

    def record(self, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        """Records a call of an operator, and returns its result."""
        operator = _operator(func)
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
            before = [_description(tensor) for tensor in tensors] if is_kept else []
            with self._proxies._enable_thunkify(tracer):
                result = func(*args, **kwargs)
            if type(result) is not FakeTensor or result._has_symbolic_sizes_strides:
                self._proxies.track_tensor_tree(result, proxy, constant=None, tracer=tracer)
                return result
            if is_kept:
                self._keep(key, _describe_result(operator, result, tensors, before))
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
                if entry is None or entry.constant is not None or not _is_plain(value):
                    raise _UnusualError
                tensors.append(value)
                key.append(_description(value))
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

    def _keep(self, key: Any, found: _Result | None) -> None:
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

    def _make(self, found: _Result, operator: _Operator, tensors: list[Any]) -> tuple[Any, Any]:
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

    def _make_node(
        self, tracer: Any, func: Any, operator: _Operator, args: Any, kwargs: Any
    ) -> Any:
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

    def _compare(self, operator: _Operator, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Lets torch record a call, and compares the node with what this class would have made."""
        result = self._original(mode, func, True, args, kwargs)
        if type(result) is not FakeTensor or not _is_plain(result):
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
            and _description(value) == _description(copy)
            and vars(value) == vars(copy)
            and torch._C._dispatch_keys(value) == torch._C._dispatch_keys(copy)
            and value.untyped_storage()._cdata == copy.untyped_storage()._cdata
        )
        return result


def _state() -> tuple[Any, ...]:
    """Settings that results depend on."""
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_cudnn_enabled(),
    )


def _is_plain(tensor: Any) -> bool:
    """True for a fake tensor of sizes that are numbers, without elements."""
    return not (
        tensor._has_symbolic_sizes_strides
        or tensor.constant is not None
        or tensor.real_tensor is not None
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
        if type(curr_mode) is not kind or _operator(op_overload) is None or preserves():
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
    fakes = _Fakes()
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
    if type(args[0]) is not FakeTensor or not _is_plain(args[0]):
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
    "torch:_C._DisablePythonDispatcher",
    "torch:_C._DisableTorchDispatch",
    "torch:_C._FunctionBase.apply",
    "torch:_C._dispatch_keys",
    "torch:_C._functorch.peek_interpreter_stack",
    "torch:_C._get_cudnn_enabled",
    "torch:_C._get_function_stack_at",
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
