"""The only file that touches private torch APIs.

Each is looked up guarded. The docstring of the function that uses it says what is lost when a torch
release no longer has it. Public APIs are used directly where they are needed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "auto_functionalized",
    "cheap_recompilation",
    "condition_holds",
    "copy_node",
    "copy_program",
    "creation_stack",
    "decision_symbols",
    "decompositions",
    "dynamo_stack",
    "example_size",
    "fake_mode_of",
    "functionalized_by_torch",
    "is_symbol",
    "keep_frames_of",
    "keep_small_sizes_dynamic",
    "marked_as_onnx_export",
    "missing_fake_kernels",
    "observe_decisions",
    "overload_of",
    "override_composite_kernels",
    "override_module_function",
    "python_expression",
    "pytree",
    "quiet_failures",
    "refuse_fixed_sizes",
    "root_symbol",
    "set_graph_signature",
    "size_conditions",
    "size_function",
    "symbolic_expression",
    "trace_fake",
    "without_fake_mode",
    "without_log_file",
    "without_recording",
]


def _private(module: str, attribute: str) -> Any:
    """The attribute of a private module, or None where this torch does not have it."""
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


auto_functionalized: Any = getattr(torch.ops.higher_order, "auto_functionalized", None)
"""Torch's functional form of custom operators that write in place.

Where it is None, programs with such operators go through ``run_decompositions``, and errors about
them name torch's own replacement.
"""


def overload_of(target: Any) -> Any:
    """The operator that a function of ``torch.library.custom_op`` calls; else the target itself.

    Without ``CustomOpDef._opoverload`` such a function is no key of a table, ``torch.ops`` is.
    """
    return getattr(target, "_opoverload", target)


# --- capture -------------------------------------------------------------------------------------


def cheap_recompilation() -> contextlib.AbstractContextManager[Any]:
    """Makes FX generate a graph module's Python source when it is first run, not at every edit.

    Without ``torch.fx._lazy_graph_module`` captures are right but slower (7 to 31 % measured).
    """
    use_lazy = _private("torch.fx._lazy_graph_module", "_use_lazy_graph_module")
    return use_lazy(True) if use_lazy is not None else contextlib.nullcontext()


def keep_small_sizes_dynamic() -> contextlib.AbstractContextManager[Any]:
    """Lets a dimension whose example size is 0 or 1 stay dynamic.

    Without ``backed_size_oblivious`` such a dimension comes out static, which is reported as an
    error at the end of the export.
    """
    config = _private("torch.fx.experimental", "_config")
    if config is None or not hasattr(config, "backed_size_oblivious"):
        return contextlib.nullcontext()
    return config.patch(backed_size_oblivious=True)  # type: ignore[no-any-return]


@contextlib.contextmanager
def marked_as_onnx_export() -> Iterator[None]:
    """Makes ``torch.onnx.is_in_onnx_export()`` true, which models ask to pick an export path.

    Without ``torch.onnx._internal.exporter._flags`` such models take their eager path.
    """
    flags = None
    with contextlib.suppress(ImportError):
        flags = importlib.import_module("torch.onnx._internal.exporter._flags")
    if not hasattr(flags, "_is_onnx_exporting"):
        yield
        return
    before = flags._is_onnx_exporting  # type: ignore[union-attr]
    flags._is_onnx_exporting = True  # type: ignore[union-attr]
    try:
        yield
    finally:
        flags._is_onnx_exporting = before  # type: ignore[union-attr]


@contextlib.contextmanager
def keep_frames_of(function: Callable[..., Any]) -> Iterator[None]:
    """Makes stack traces of captured nodes show lines of a function that is not called forward.

    Without ``torch.fx.proxy._STACK_TRACE_ANCHORS`` errors and metadata of models that are functions
    or methods name no line.
    """
    anchors = _private("torch.fx.proxy", "_STACK_TRACE_ANCHORS")
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
def override_module_function(
    module: str, name: str, function: Callable[..., Any]
) -> Iterator[None]:
    """Replaces a private module-level function of torch, for the duration.

    Without that function nothing is replaced.
    """
    owner = importlib.import_module(module)
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


# --- ExportedProgram -----------------------------------------------------------------------------


def copy_program(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program with its own graph and signature that shares weights with the given one."""
    duplicate = copy.copy(program)
    duplicate._graph_module = _copy_graph_module(program.graph_module)
    return duplicate


def _copy_graph_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in module.graph.nodes:
        copies[node] = copy_node(graph, node, lambda n: copies[n])
    duplicate = torch.fx.GraphModule(module, graph)
    duplicate.meta = dict(module.meta)
    for name, child in list(duplicate.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(duplicate, name, _copy_graph_module(child))
    return duplicate


def copy_node(
    graph: torch.fx.Graph, node: torch.fx.Node, mapping: Callable[[torch.fx.Node], Any]
) -> torch.fx.Node:
    """A node in another graph. Placeholders keep their names, also such as ``input``.

    ``Graph.node_copy`` renames what is called like a Python builtin, and the graph signature goes
    by names.
    """
    copied = graph.node_copy(node, mapping)
    if node.op == "placeholder":
        copied.name = node.name
    return copied


def functionalized_by_torch(
    program: torch.export.ExportedProgram,
) -> torch.export.ExportedProgram:
    """The program traced anew without in-place operators, composite operators taken apart.

    ``run_decompositions`` is public; it warns about torch's own use of a deprecated pytree form.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        functional: torch.export.ExportedProgram = copy_program(program).run_decompositions({})
    return functional


def size_conditions(program: torch.export.ExportedProgram) -> list[str]:
    """Conditions on the inputs' sizes under which the program was captured, as Python.

    ``L`` in them holds the arguments by name. Without ``ExportedProgram._guards_code`` they are
    neither reported nor checked.
    """
    return list(getattr(program, "_guards_code", ()))


def condition_holds(condition: str, names: Mapping[str, Any]) -> bool | None:
    """Evaluates one of ``size_conditions`` with other sizes; None where it uses unknown names."""
    try:
        return bool(eval(condition, {"math": math, "torch": torch, **names}))
    except Exception:  # whatever torch writes that cannot be evaluated here
        return None


def set_graph_signature(program: torch.export.ExportedProgram, signature: Any) -> None:
    """Replaces the signature of a program that the caller owns.

    ``ExportedProgram`` has no public way to do this. Without the attribute, a functionalized
    program could not say which outputs are mutated buffers.
    """
    program._graph_signature = signature


# --- fake tensors and tracing --------------------------------------------------------------------


def fake_mode_of(values: Any) -> FakeTensorMode | None:
    """The fake mode of the first FakeTensor in a nested structure."""
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return None


def without_fake_mode() -> contextlib.AbstractContextManager[Any]:
    """Suspends any active fake mode, so that tensors are real ones.

    Without ``unset_fake_temporarily`` weights must not be read inside a fake mode.
    """
    unset = _private("torch._subclasses.fake_tensor", "unset_fake_temporarily")
    return unset() if unset is not None else contextlib.nullcontext()


def trace_fake(
    function: Callable[..., Any], arguments: list[Any], mode: FakeTensorMode | None
) -> torch.fx.GraphModule:
    """Records the ATen calls that ``function(*arguments)`` makes on fake tensors.

    Without ``make_fx`` no operator can be decomposed; every operator that has no translation of
    its own becomes an unsupported operator.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with keep_small_sizes_dynamic(), mode or contextlib.nullcontext():
        return make_fx(function, _allow_non_fake_inputs=True)(*arguments)


def without_recording() -> contextlib.AbstractContextManager[Any]:
    """Runs on the fake tensors of a trace without adding to it.

    Without ``disable_proxy_modes_tracing`` calls are recorded, and nothing reads their results.
    """
    disable = _private("torch.fx.experimental.proxy_tensor", "disable_proxy_modes_tracing")
    return disable() if disable is not None else contextlib.nullcontext()


def decompositions(target: OpOverload) -> list[Callable[..., Any]]:
    """Torch's own rules that expand an operator into simpler ones, the preferred one first.

    Sources: ``torch._decomp.decomposition_table``, then the operator's CompositeImplicitAutograd
    kernel. Without them only operators with a translation can be exported.
    """
    table = _private("torch._decomp", "decomposition_table") or {}
    rules = [table[target]] if target in table else []
    can_decompose = getattr(target, "_can_decompose", None)
    with contextlib.suppress(RuntimeError):  # operators of TorchScript have no dispatch table
        if can_decompose is not None and can_decompose():
            rules.append(target.decompose)
    return rules


@contextlib.contextmanager
def refuse_fixed_sizes() -> Iterator[None]:
    """Raises ``ValueError`` where code reads a symbolic size as a number, which would fix it.

    Without ``SymNode.guard_int`` a decomposition that computes with an example's size goes
    unnoticed, and is wrong at other sizes.
    """
    node = _private("torch.fx.experimental.sym_node", "SymNode")
    names = [name for name in ("guard_int", "guard_float") if hasattr(node, name)]
    originals = {name: getattr(node, name) for name in names}

    def refusing(read: Callable[..., Any]) -> Callable[..., Any]:
        def guard(self: Any, *where: Any) -> Any:
            if getattr(self.expr, "free_symbols", ()):
                raise ValueError(f"the size {self.expr} is read as a number")
            return read(self, *where)

        return guard

    for name, read in originals.items():
        setattr(node, name, refusing(read))
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints what a kernel refuses
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled
        for name, read in originals.items():
            setattr(node, name, read)


# --- symbolic sizes ------------------------------------------------------------------------------


def symbolic_expression(value: Any) -> Any:
    """The sympy expression of a SymInt, SymFloat or SymBool, with known equalities applied.

    Without ``SymNode.expr`` the printed form is all there is, and symbols cannot be renamed.
    """
    node = value.node
    return node.expr if hasattr(node, "expr") else str(node)


def example_size(size: Any) -> int | None:
    """What a size measured in the example; None where that is not recorded.

    Without ``SymNode.hint`` only plain numbers are known, and dimensions of an ExportedProgram are
    not checked for sharing a name.
    """
    if isinstance(size, torch.SymInt):
        hint = getattr(size.node, "hint", None)
        return hint if isinstance(hint, int) else None
    return int(size)


def is_symbol(size: torch.SymInt) -> bool:
    """Whether a symbolic size is a symbol alone, not an expression such as ``2*s0``."""
    return bool(getattr(symbolic_expression(size), "is_Symbol", False))


def root_symbol(size: Any) -> str | None:
    """The name of the only symbol in a symbolic size such as ``s0`` or ``2*s0``, or None."""
    if not isinstance(size, torch.SymInt):
        return None
    symbols = getattr(symbolic_expression(size), "free_symbols", ())
    return str(next(iter(symbols))) if len(symbols) == 1 else None


_SIZE_FUNCTIONS = {"max": "Max", "min": "Min", "floordiv": "FloorDiv", "mod": "Mod"}


def size_function(name: str) -> Callable[[Any, Any], Any] | None:
    """Arithmetic on the sympy expressions of sizes: ``add``, ``sub``, ``mul``, ``max``, ...

    Without ``torch.utils._sympy.functions`` inner values whose size is a quotient, a maximum or a
    minimum have no expression for it.
    """
    torch_name = _SIZE_FUNCTIONS.get(name)
    if torch_name is None:
        return _private("operator", name)  # type: ignore[no-any-return]
    return _private("torch.utils._sympy.functions", torch_name)  # type: ignore[no-any-return]


# --- what a capture decides about sizes ----------------------------------------------------------


@contextlib.contextmanager
def observe_decisions(seen: Callable[[str, Any, Any], None]) -> Iterator[None]:
    """Calls ``seen(kind, shape_env, expression)`` where a capture decides on a symbolic value.

    Kinds are ``"guard"`` (it holds for the example and is relied on), ``"assumed"`` (it depends on
    data, and draft export takes what the example gives) and ``"undecided"`` (it depends on data,
    and the capture fails). Without these methods of ``ShapeEnv`` errors name no line.
    """
    env = _private("torch.fx.experimental.symbolic_shapes", "ShapeEnv")
    skipped = _private("torch.fx.experimental.symbolic_shapes", "uninteresting_files")
    kinds = {
        "_log_guard": ("guard", 1),
        "_log_real_tensor_propagation": ("assumed", 0),
        "_make_data_dependent_error": ("undecided", 1),
    }
    originals = {name: getattr(env, name) for name in kinds if hasattr(env, name)}

    def observing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        kind, position = kinds[name]

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            held = args[position]
            if kind == "assumed" and str(args[1]) == "False":
                held = ~held
            if kind == "undecided" and skipped is not None:
                skipped().add(__file__)  # torch's message names the first file that is not in it
            if "suppressed" not in str(args[0]):  # such a guard is not relied on
                seen(kind, self, held)
            return original(self, *args, **kwargs)

        return method

    for name, original in originals.items():
        setattr(env, name, observing(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(env, name, original)


def decision_symbols(env: Any, expression: Any) -> dict[str, tuple[tuple[str, ...], int | None]]:
    """Per symbol of an expression where it comes from, and its value in the example.

    Sources look like ``L['x'].size()[0]``. Without ``ShapeEnv.var_to_sources`` there are none.
    """
    hints = vars(env).get("backed_var_to_val", vars(env).get("var_to_val", {}))
    origins = getattr(env, "var_to_sources", {})
    found = {}
    for symbol in getattr(expression, "free_symbols", ()):
        names = [source.name for source in origins.get(symbol, ())]
        sources = tuple(str(name() if callable(name) else name) for name in names)
        hint = hints.get(symbol)
        if hint is not None and not getattr(hint, "is_Integer", isinstance(hint, int)):
            hint = None
        found[str(symbol)] = (sources, None if hint is None else int(hint))
    return found


def creation_stack(env: Any, symbol: str) -> list[Any]:
    """Frames in which a data-dependent symbol was made, the innermost last.

    Without ``ShapeEnv.var_to_stack`` it is not said which call gave a value.
    """
    for known, stack in getattr(env, "var_to_stack", {}).items():
        if str(known) == symbol:
            with contextlib.suppress(Exception):  # a stack that was cleaned up
                return list(stack.summary())
    return []


def python_expression(expression: Any, names: Mapping[str, str]) -> str:
    """An expression as Python, with the given names for its symbols.

    Without torch's ``PythonPrinter`` it looks like ``Eq(n, 4)``.
    """
    import sympy

    symbols = getattr(expression, "free_symbols", ())
    shown = {s: sympy.Symbol(names[str(s)], integer=True) for s in symbols if str(s) in names}
    with contextlib.suppress(Exception):
        expression = expression.xreplace(shown)
    printer = _private("torch.utils._sympy.printers", "PythonPrinter")
    with contextlib.suppress(Exception):
        return str(printer().doprint(expression))
    return str(expression)


def dynamo_stack() -> list[Any]:
    """The user's frames while bytecode is analysed, the innermost last.

    Without ``torch._guards.TracingContext`` errors of strict captures name no line.
    """
    context = _private("torch._guards", "TracingContext")
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
    handler = _private("torch._logging._internal", "LazyTraceHandler")
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


def missing_fake_kernels(program: torch.export.ExportedProgram) -> list[str]:
    """Custom operators without a fake kernel, of which draft export made do with the real one.

    Without ``ExportedProgram._report`` none are known.
    """
    failures = getattr(getattr(program, "_report", None), "failures", ())
    missing = [f for f in failures if str(f.failure_type) == "MISSING_FAKE_KERNEL"]
    return list(dict.fromkeys(str(failure.data.get("op")) for failure in missing))
