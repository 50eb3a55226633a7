"""Patches of torch for the duration of a capture: how it traces, and what it logs and prints."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import importlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.autocast_marks import AUTOCAST_BODIES, AUTOCAST_MARKS
from onnx_aot.torch_compat.differentiation import is_differentiating
from onnx_aot.torch_compat.lookup import private
from onnx_aot.torch_compat.patching import Patch, Settings, in_capturing_thread
from onnx_aot.torch_compat.places import Added, Contents, Entry, Place, find_place
from onnx_aot.torch_compat.real_tensors import is_computing_real_tensors

__all__ = [
    "CAPTURE",
    "EXPRESSION_LOG",
    "IN_EXPORT",
    "LOG_FILE",
    "OPERATOR_LIST",
    "PROXY_NODES",
    "QUIET",
    "SILENT",
    "dynamo_stack",
    "kernel_patches",
    "without_gradients",
]


# --- tracing -------------------------------------------------------------------------------------


def _make_lazy(original: Callable[[], Any], settings: Settings) -> Callable[[], Any]:
    lazy = private("torch.fx._lazy_graph_module:_LazyGraphModule")
    return original if lazy is None else lambda: lazy


def _leave_module(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves a module on the tracer's stack no longer than its call, also if that raises.

    Models may catch the exception: ``try: x = layer(x, lengths)``, ``except TypeError: ...``.
    """

    def call_module(self: Any, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        depth = len(self.module_stack)
        try:
            return original(self, m, forward, args, kwargs)
        finally:
            while len(self.module_stack) > depth:
                self.module_stack.popitem()

    return call_module


def _find_submodule(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Finds a submodule too whose name is that of a method of ``nn.Module``: ``parameters``."""

    def get_submodule(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except TypeError:
            parent, _, last = name.rpartition(".")
            return get_submodule(self, parent)._modules[last]

    return get_submodule


def _ignore_solver_errors(
    original: Callable[[Any], None], settings: Settings
) -> Callable[[Any], None]:
    """Suppresses errors of the solver: this package finds static dimensions itself.

    Sympy raises NotImplementedError, and torch ValueError for ``(n*n + n + 1) % 3``, since it
    expects sums of two terms.
    """

    def solve(self: Any) -> None:
        with contextlib.suppress(NotImplementedError, ValueError):
            original(self)

    return solve


def _unbacked_from_zero(original: Any, settings: Settings) -> Callable[..., Any]:
    """Lets unbacked sizes start at 0 in older fake kernels, such as that of ``torchvision.nms``."""

    def create_unbacked_symint(self: Any, *, min: int = 0, max: int | None = None) -> Any:
        return self.new_dynamic_size(min=min, max=max)

    return create_unbacked_symint


def _without_memory_format(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves out of a node's ``tensor_meta`` whether the tensor is contiguous, and in which format.

    ``val`` beside it has the strides. Torch answers three questions about products of all sizes for
    it, per node.
    """

    def extract(result: torch.Tensor, include_contiguity: bool = True) -> Any:
        return original(result, include_contiguity=False)

    return extract


# --- output of torch -----------------------------------------------------------------------------

_LOGGERS = (
    "torch._dynamo.utils",
    "torch._guards",
    "torch._subclasses.fake_tensor",
    "torch.export._draft_export",
    "torch.export._trace",
    "torch.fx.experimental.symbolic_shapes",
)


def _quiet_loggers(settings: Settings) -> Iterator[Place]:
    """Loggers that the user has not turned on, for example with ``TORCH_LOGS``."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not logger.isEnabledFor(logging.INFO):
            yield Added(logger.addFilter, logger.removeFilter)


def _print(settings: Settings) -> Iterator[Place]:
    with contextlib.suppress(ImportError):
        module = importlib.import_module("torch.export._trace")
        yield Entry(vars(module), "print", default=builtins.print)


class _Nowhere(io.StringIO):
    """A stream with a name, like a log file."""

    name = ""


def _without_file(original: Any, settings: Settings) -> Callable[..., None]:
    def emit(self: Any, record: Any) -> None:
        if getattr(self, "stream", None) is None:
            self.stream = _Nowhere()  # draft export asks for its name

    return emit


LOG_FILE = Patch(
    "torch._logging._internal:LazyTraceHandler.emit",
    _without_file,
    "Draft export leaves its log in the temporary folder.",
    when=lambda settings: not settings.keeps_log,
    parameters="self, record",
)

EXPRESSION_LOG = Patch(
    "torch.fx.experimental.sym_node:dtrace_structured",
    lambda original, settings: lambda *args, **kwargs: None,
    "Draft export logs every expression of sizes, with stacks, and takes many times as long.",
    when=lambda settings: not settings.keeps_log,
)

QUIET = Patch(
    "loggers of torch",
    lambda original, settings: lambda record: not in_capturing_thread(),
    "Torch logs failures that this package explains.",
    places=_quiet_loggers,
)

_GLOBAL_HOOKS = (
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)


def _global_hooks(settings: Settings) -> Iterator[Place]:
    """Global module hooks: a failed capture of torch 2.12 leaves one that refuses all buffers."""
    for name in _GLOBAL_HOOKS:
        place = find_place(f"torch.nn.modules.module:{name}")
        if place is not None:
            yield Contents(place.value())


class _DispatchKeys:
    """The dispatch keys that are included and excluded in this thread."""

    def own(self) -> Any:
        """The sets of included and of excluded keys."""
        return (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )

    value = own

    def put(self, value: Any) -> None:
        """Switches the keys that differ."""
        setters = (
            torch._C._dispatch_tls_set_dispatch_key_included,
            torch._C._dispatch_tls_set_dispatch_key_excluded,
        )
        for present, wanted, change in zip(self.own(), value, setters, strict=True):
            if present != wanted:
                for key in torch._C.DispatchKey.__members__.values():
                    if present.has(key) != wanted.has(key):
                        change(key, wanted.has(key))


_KEY_SETS = (
    "_dispatch_tls_local_include_set",
    "_dispatch_tls_local_exclude_set",
    "_dispatch_tls_set_dispatch_key_included",
    "_dispatch_tls_set_dispatch_key_excluded",
)


def _dispatch_keys(settings: Settings) -> Iterator[Place]:
    if all(hasattr(torch._C, name) for name in _KEY_SETS):
        yield _DispatchKeys()


DISPATCH_KEYS = Patch(
    "dispatch keys of the thread",
    lambda original, settings: original,
    "After a second Ctrl-C during a capture, the thread may call other kernels for good.",
    places=_dispatch_keys,
    exists=lambda: bool(list(_dispatch_keys(Settings()))),
)

# For each stack of modes: the function for its length, and the one that pops the innermost mode.
_STACKS = (
    ("torch:_C._len_torch_dispatch_stack", "torch.utils._python_dispatch:_pop_mode"),
    ("torch:_C._len_torch_function_stack", "torch:_C._pop_torch_function_stack"),
    (
        "torch._ops:_len_torch_dispatch_stack_pre_dispatch",
        "torch._ops:_pop_mode_from_pre_dispatch",
    ),
)


@dataclasses.dataclass(frozen=True)
class _Modes:
    """A stack of the modes that are active in this thread."""

    length: Callable[[], int]
    pop: Callable[[], Any]

    def own(self) -> int:
        """The number of modes."""
        return self.length()

    value = own

    def put(self, value: int) -> None:
        """Pops the modes that were left on the stack."""
        while self.length() > value:
            self.pop()


def _mode_stacks(settings: Settings) -> Iterator[Place]:
    for names in _STACKS:
        length, pop = map(find_place, names)
        if length is not None and pop is not None:
            yield _Modes(length.value(), pop.value())


MODES = Patch(
    "modes of the thread",
    lambda original, settings: original,
    "After a second Ctrl-C during a capture, new tensors may be without values for good.",
    places=_mode_stacks,
    exists=lambda: len(list(_mode_stacks(Settings()))) == len(_STACKS),
)

# Functions for the number of levels, and for leaving the innermost one.
_LEVELS = (
    "torch:_C._functorch.get_dynamic_layer_stack_depth",
    "torch:_C._functorch.pop_dynamic_layer_stack",
)
# Functions that enter and leave the level of forward-mode differentiation; there is only one.
_DUAL = ("torch:_C._enter_dual_level", "torch:_C._exit_dual_level")
_NESTED = "torch._functorch.eager_transforms:JVP_NESTING"


def _transform_levels(settings: Settings) -> Iterator[Place]:
    """Yields the stack of ``torch.func``, and the level of forward-mode differentiation."""
    length, pop, enter, leave = map(find_place, (*_LEVELS, *_DUAL))
    nested = find_place(_NESTED)
    if length is not None and pop is not None:
        yield _Modes(length.value(), pop.value())
    if enter is not None and leave is not None:
        yield _Modes(
            functools.partial(_count_dual_levels, enter.value(), leave.value()),
            functools.partial(leave.value(), level=0),
        )
    if nested is not None:
        yield nested


def _count_dual_levels(enter: Callable[[], int], leave: Callable[..., None]) -> int:
    """Tries to enter a level, which fails inside of one: torch has no function that tells."""
    try:
        leave(level=enter())
    except RuntimeError:
        return 1
    return 0


TRANSFORMS = Patch(
    "levels of torch.func in the thread",
    lambda original, settings: original,
    "After a failed capture of torch.func.hessian, operators fail in the whole process.",
    places=_transform_levels,
    exists=lambda: len(list(_transform_levels(Settings()))) == 3,
)

_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")


def _export_flags(settings: Settings) -> Iterator[Place]:
    places = (find_place(f"torch.compiler:{name}") for name in _FLAGS)
    return (place for place in places if place is not None)


FLAGS = Patch(
    "torch.compiler.is_compiling() and is_exporting()",
    lambda original, settings: original,
    "After a second Ctrl-C during a capture, models may be told for good that they are compiled.",
    places=_export_flags,
    exists=lambda: len(list(_export_flags(Settings()))) == len(_FLAGS),
)

GLOBAL_HOOKS = Patch(
    "hooks for all modules",
    lambda original, settings: original,
    "A capture that fails may leave hooks of torch's for all modules.",
    places=_global_hooks,
    exists=lambda: len(list(_global_hooks(Settings()))) == len(_GLOBAL_HOOKS),
)

_PROXY_NODES = "torch.fx.experimental.proxy_tensor:_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT"


def _proxy_nodes(settings: Settings) -> Iterator[Place]:
    place = find_place(_PROXY_NODES)
    if place is not None:
        yield Contents(place.value())


PROXY_NODES = Patch(
    _PROXY_NODES,
    lambda original, settings: original,
    "Torch keeps the graph of the last capture alive.",
    places=_proxy_nodes,
    exists=lambda: find_place(_PROXY_NODES) is not None,
)

SILENT = (
    QUIET,
    Patch(
        "torch.export._trace:print",
        lambda original, settings: lambda *args, **kwargs: None,
        "Torch prints the graph of a capture that fails.",
        places=_print,
        exists=lambda: bool(list(_print(Settings()))),
    ),
)
"""Rows that only keep torch from logging and printing failures."""

IN_EXPORT = Patch(
    "torch.onnx._internal.exporter._flags:_is_onnx_exporting",
    lambda original, settings: True,
    "torch.onnx.is_in_onnx_export() is false, so models that ask take their eager path.",
    optional=False,
)

CAPTURE: tuple[Patch, ...] = (
    IN_EXPORT,
    Patch(
        "torch.fx._lazy_graph_module:_get_graph_module_cls",
        _make_lazy,
        "Captures take 7 to 31 % longer, because FX generates source at every edit.",
        when=lambda settings: settings.lazy,
        behaves=lambda original: issubclass(original(), torch.fx.GraphModule),
    ),
    Patch(
        "torch.fx._symbolic_trace:Tracer.call_module",
        _leave_module,
        "Models that catch an exception of a submodule are refused.",
        parameters="self, m, forward, args, kwargs",
    ),
    Patch(
        "torch.nn.utils._named_member_accessor:NamedMemberAccessor.get_submodule",
        _find_submodule,
        "Models with a submodule named as a method of nn.Module, self.parameters, are refused.",
        parameters="self, name",
    ),
    Patch(
        "torch.fx.experimental.symbolic_shapes:DimConstraints.solve",
        _ignore_solver_errors,
        "Captures fail with sympy's NotImplementedError where it cannot solve a condition.",
        parameters="self",
    ),
    Patch(
        "torch._library.fake_impl:FakeImplCtx.create_unbacked_symint",
        _unbacked_from_zero,
        "Custom operators are taken to return at least two elements; fewer may be wrong.",
        parameters="self, min, max",
        behaves=lambda original: hasattr(
            importlib.import_module("torch._library.fake_impl").FakeImplCtx, "new_dynamic_size"
        ),
    ),
    Patch(
        "torch.fx.experimental.proxy_tensor:_extract_tensor_metadata",
        _without_memory_format,
        "Captures with long expressions of sizes, such as those of windows in 3-D images, take "
        "minutes, because torch asks at each node in which order its elements are.",
        parameters="result, include_contiguity",
    ),
    AUTOCAST_BODIES,
    AUTOCAST_MARKS,
    *SILENT,
    PROXY_NODES,
    GLOBAL_HOOKS,
    DISPATCH_KEYS,
    MODES,
    TRANSFORMS,
    FLAGS,
)


# --- kernels of composite operators --------------------------------------------------------------

_KEYS = ("CompositeImplicitAutograd", "Autograd")


def kernel_patches(
    kernels: Mapping[Any, tuple[Callable[..., Any], str, bool]],
) -> tuple[Patch, ...]:
    """Makes rows that replace the Python kernels by which composite operators are expanded.

    Args:
        kernels: By operator, the kernel, what happens if it cannot be replaced, and whether torch
            expands the operator into others.
    """

    def patch(operator: Any, kernel: Callable[..., Any], without: str, composite: bool) -> Patch:
        return Patch(
            f"kernel of {operator}",
            lambda original, settings: _for_fake_tensors(kernel, original, composite),
            without,
            places=lambda settings: _kernel_entries(operator),
            exists=lambda: bool(_kernel_entries(operator)),
        )

    return tuple(patch(operator, *row) for operator, row in kernels.items())


def _for_fake_tensors(
    kernel: Callable[..., Any], original: Any, composite: bool
) -> Callable[..., Any]:
    """A kernel that gives only shapes.

    Real tensors, as known values have, get torch's own, as does what is differentiated, and what
    the kernel answers with NotImplemented.
    """

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        is_followed = composite and is_differentiating()
        if not is_followed and not is_computing_real_tensors():
            result = kernel(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return original(*args, **kwargs)

    return run


def _kernel_entries(operator: Any) -> Sequence[Place]:
    """The places of an operator's kernels, which are found once."""
    if operator not in _KERNELS:
        _KERNELS[operator] = list(_find_kernel_entries(operator))
    return _KERNELS[operator]


_KERNELS: dict[Any, Sequence[Place]] = {}


def _find_kernel_entries(operator: Any) -> Iterator[Place]:
    table = getattr(operator, "py_kernels", None)
    cache = getattr(operator, "_dispatch_cache", None)
    keys = getattr(torch._C, "DispatchKey", None)
    if table is None or cache is None:
        return
    for name in _KEYS:
        key = getattr(keys, name, None)
        if key is not None:
            # If there is no Python kernel, other threads get the C++ one.
            yield Entry(table, key, _native_kernel(operator, key), cache.clear)


def _native_kernel(operator: Any, key: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return operator._op_dk(key, *args, **kwargs)

    return kernel


OPERATOR_LIST = Patch(
    "torch._export.utils:_collect_all_valid_cia_ops_for_aten_namespace",
    lambda original, settings: original.__wrapped__,
    "After the export of a model with a function transform, torch.compile fails: torch keeps a "
    "list of its composite operators, in which those with replaced kernels remain.",
    behaves=lambda original: hasattr(original, "__wrapped__"),  # the function without its cache
)


# --- others --------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """Disables gradients without recording that in the trace."""
    disabled = private("torch._C:DisableTorchFunction") or contextlib.nullcontext
    before = torch.is_grad_enabled()
    try:
        with disabled():
            torch._C._set_grad_enabled(False)
        yield
    finally:
        with disabled():
            torch._C._set_grad_enabled(before)


def dynamo_stack() -> list[Any]:
    """Returns the user's frames while Dynamo analyses bytecode, the innermost last."""
    extract = private("torch._guards:TracingContext.extract_stack")
    with contextlib.suppress(Exception):
        return list(extract())
    return []
