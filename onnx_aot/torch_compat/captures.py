"""What goes on while ``torch.export`` runs, and what it writes."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.names import private

__all__ = [
    "cheap_recompilation",
    "dynamo_stack",
    "keep_frames_of",
    "marked_as_onnx_export",
    "override_composite_kernels",
    "override_module_function",
    "pass_over_unsolved",
    "quiet_failures",
    "sizes_of_kernels_from_zero",
    "without_gradients",
    "without_log_file",
]


def cheap_recompilation() -> contextlib.AbstractContextManager[Any]:
    """Makes FX generate a graph module's Python source when it is first run, not at every edit.

    Without ``torch.fx._lazy_graph_module`` captures are right but slower (7 to 31 % measured).
    """
    use_lazy = private("torch.fx._lazy_graph_module", "_use_lazy_graph_module")
    return use_lazy(True) if use_lazy is not None else contextlib.nullcontext()


def marked_as_onnx_export() -> contextlib.AbstractContextManager[None]:
    """Makes ``torch.onnx.is_in_onnx_export()`` true, which models ask to pick an export path.

    Without ``torch.onnx._internal.exporter._flags`` such models take their eager path.
    """
    flags = "torch.onnx._internal.exporter._flags"
    return override_module_function(flags, "_is_onnx_exporting", True)


@contextlib.contextmanager
def keep_frames_of(function: Callable[..., Any]) -> Iterator[None]:
    """Makes stack traces of captured nodes show lines of a function that is not called forward.

    Without ``torch.fx.proxy._STACK_TRACE_ANCHORS`` errors and metadata of models that are functions
    or methods name no line.
    """
    anchors = private("torch.fx.proxy", "_STACK_TRACE_ANCHORS")
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not isinstance(anchors, set) or code.co_name == "forward":
        yield
        return
    anchor = (code.co_filename, code.co_name)
    known = anchor in anchors
    anchors.add(anchor)
    try:
        yield
    finally:
        if not known:
            anchors.discard(anchor)


@contextlib.contextmanager
def override_composite_kernels(kernels: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Replaces the Python kernels that expand composite operators, for the duration.

    Without ``OpOverload.py_kernels`` the operators are expanded as torch does it: ``aten.lstm``
    unrolls over time, and a dynamic time dimension is refused by the capture.
    """
    keys = (
        torch._C.DispatchKey.CompositeImplicitAutograd,
        torch._C.DispatchKey.Autograd,
    )
    saved = []
    for operator, kernel in kernels.items():
        table = getattr(operator, "py_kernels", None)
        cache = getattr(operator, "_dispatch_cache", None)
        if table is None or cache is None:
            continue
        saved.append((table, cache, dict(table)))
        table.update(dict.fromkeys(keys, kernel))
        cache.clear()
    try:
        yield
    finally:
        for table, cache, before in saved:
            table.clear()
            table.update(before)
            cache.clear()


@contextlib.contextmanager
def pass_over_unsolved() -> Iterator[None]:
    """Lets a capture go on where sympy cannot solve for the sizes that a condition leaves.

    Torch only asks to find dimensions that conditions fix, which this package finds itself.
    Without ``DimConstraints.solve`` such captures fail with sympy's NotImplementedError.
    """
    constraints = private("torch.fx.experimental.symbolic_shapes", "DimConstraints")
    solve = getattr(constraints, "solve", None)
    if solve is None:
        yield
        return

    def solve_what_can_be(self: Any) -> None:
        with contextlib.suppress(NotImplementedError):
            solve(self)

    constraints.solve = solve_what_can_be
    try:
        yield
    finally:
        constraints.solve = solve


@contextlib.contextmanager
def override_module_function(module: str, name: str, function: Any) -> Iterator[None]:
    """Replaces a private function, or an option, of a module of torch, for the duration.

    Without it nothing is replaced.
    """
    before = private(module, name)
    if before is None:
        yield
        return
    owner = importlib.import_module(module)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def sizes_of_kernels_from_zero() -> Iterator[None]:
    """Lets custom operators return nothing and one element.

    ``create_unbacked_symint``, by which older fake kernels such as that of ``torchvision.nms`` make
    a size that depends on data, takes it to be 2 at least. Without the class captures do so too,
    and fewer elements may get the answer for more.
    """
    context = private("torch._library.fake_impl", "FakeImplCtx")
    before = getattr(context, "create_unbacked_symint", None)
    if before is None or not hasattr(context, "new_dynamic_size"):
        yield
        return

    def create(self: Any, *, min: int = 0, max: int | None = None) -> Any:
        return self.new_dynamic_size(min=min, max=max)

    context.create_unbacked_symint = create
    try:
        yield
    finally:
        context.create_unbacked_symint = before


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """Traces without gradients. Without ``DisableTorchFunction`` the switch itself is recorded."""
    before = torch.is_grad_enabled()
    try:
        with torch._C.DisableTorchFunction():
            torch._C._set_grad_enabled(False)
        yield
    finally:
        with torch._C.DisableTorchFunction():
            torch._C._set_grad_enabled(before)


def dynamo_stack() -> list[Any]:
    """The user's frames while bytecode is analysed, the innermost last.

    Without ``torch._guards.TracingContext`` errors of strict captures name no line.
    """
    context = private("torch._guards", "TracingContext")
    with contextlib.suppress(Exception):
        return list(context.extract_stack())
    return []


@contextlib.contextmanager
def quiet_failures() -> Iterator[None]:
    """Keeps torch from printing graphs and tracebacks of captures that fail.

    A logger that the user turned on, for example with ``TORCH_LOGS``, is left on. Without
    ``torch.export._trace.print`` being looked up in its module, the graph is printed.
    """
    loggers = [
        logging.getLogger(name)
        for name in (
            "torch._guards",
            "torch.fx.experimental.symbolic_shapes",
            "torch.export._draft_export",
            "torch.export._trace",
            "torch._dynamo.utils",
            "torch._subclasses.fake_tensor",
        )
    ]
    silenced = [log for log in loggers if not log.isEnabledFor(logging.INFO) and not log.disabled]
    trace: Any = None
    with contextlib.suppress(ImportError):
        trace = importlib.import_module("torch.export._trace")
    prints = trace is not None and "print" not in vars(trace)
    if prints:
        trace.print = lambda *args, **kwargs: None
    for log in silenced:
        log.disabled = True
    try:
        yield
    finally:
        for log in silenced:
            log.disabled = False
        if prints:
            del trace.print


class _Nowhere(io.StringIO):
    """A stream with a name, as a log file has."""

    name = ""


@contextlib.contextmanager
def without_log_file() -> Iterator[None]:
    """Keeps draft export from leaving its log in the temporary folder.

    Without ``LazyTraceHandler`` it does.
    """
    handler = private("torch._logging._internal", "LazyTraceHandler")
    if handler is None or not hasattr(handler, "emit"):
        yield
        return
    original = handler.emit

    def emit(self: Any, record: Any) -> None:
        if getattr(self, "stream", None) is None:
            self.stream = _Nowhere()  # draft export asks for its name

    handler.emit = emit
    try:
        yield
    finally:
        handler.emit = original
