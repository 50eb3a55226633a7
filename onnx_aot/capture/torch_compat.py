"""Private torch APIs that tell what a capture decides about sizes, and keep its failures quiet.

The other private APIs stand in ``onnx_aot/torch_compat.py``, under the same rules: each is looked
up guarded, and the docstring of the function that uses it says what is lost without it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from onnx_aot.torch_compat import _private

__all__ = [
    "creation_stack",
    "decided_at",
    "decision_symbols",
    "dynamo_stack",
    "is_question",
    "missing_fake_kernels",
    "observe_decisions",
    "python_expression",
    "quiet_failures",
    "without_log_file",
]


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


def is_question(expression: Any) -> bool:
    """Whether an expression is true or false, not a number."""
    from sympy.logic.boolalg import Boolean  # type: ignore[import-untyped]

    return isinstance(expression, Boolean) and not expression.is_Symbol


def decided_at(expression: Any, values: Mapping[str, int]) -> bool | None:
    """Whether a decision holds for other values of its symbols; None where that is not known."""
    import sympy  # type: ignore[import-untyped]

    symbols = getattr(expression, "free_symbols", ())
    known = {s: sympy.Integer(values[str(s)]) for s in symbols if str(s) in values}
    try:
        decided = expression.xreplace(known)
        return bool(decided) if getattr(decided, "is_Boolean", decided in (True, False)) else None
    except Exception:  # whatever sympy cannot evaluate
        return None


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
