"""Symbolic sizes and numbers, and what a capture decides about them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from onnx_aot.torch_compat.larger_sizes import answer_for_larger_sizes
from onnx_aot.torch_compat.names import private

__all__ = [
    "creation_stack",
    "decision_symbols",
    "example_size",
    "expression_key",
    "fresh_size",
    "is_symbol",
    "known_number",
    "new_symbol",
    "observe_decisions",
    "python_expression",
    "root_symbol",
    "size_function",
    "storage_key",
    "symbolic_expression",
    "symbolic_truth",
    "symbols_of_its_own",
]


def symbolic_expression(value: Any) -> Any:
    """The sympy expression of a SymInt, SymFloat or SymBool, with known equalities applied.

    Without ``SymNode.expr`` the printed form is all there is, and symbols cannot be renamed.
    """
    node = value.node
    return node.expr if hasattr(node, "expr") else str(node)


def expression_key(value: torch.SymInt) -> Any:
    """Equal for sizes of one program that are one expression; found without working it out.

    Without ``SymNode._expr`` it is the expression itself.
    """
    key = getattr(value.node, "_expr", None)
    return symbolic_expression(value) if key is None else key


def example_size(size: Any) -> int | None:
    """What a size measured in the example; None where that is not recorded.

    Without ``SymNode.hint`` only plain numbers are known, and dimensions of an ExportedProgram are
    not checked for sharing a name.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    hint = getattr(size.node, "hint", None)
    if hint is None:
        values = getattr(getattr(size.node, "shape_env", None), _EXAMPLES, None)
        number: Any = symbolic_expression(size).xreplace(values) if values else None
        hint = int(number) if getattr(number, "is_Integer", False) else None
    return hint if isinstance(hint, int) else None


_EXAMPLES = "onnx_aot_examples"


def fresh_size(size: Any) -> Any:
    """A size of at least 1 as a symbol of its own, of whose origin the capture knows nothing more.

    Captures take minutes where all sizes follow from one long expression. The symbol is recorded as
    the content of a tensor, and its value in the example is kept for ``example_size``.
    """
    example = example_size(size)
    fresh: Any = torch.scalar_tensor(size, dtype=torch.int64).item()
    torch._check(fresh >= 1)  # type: ignore[no-untyped-call]
    if isinstance(fresh, torch.SymInt) and example is not None:
        values = vars(fresh.node.shape_env).setdefault(_EXAMPLES, {})
        values[symbolic_expression(fresh)] = example
    return fresh


def known_number(size: Any) -> int | None:
    """The number that a size is whatever the inputs are; None where it depends on these."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = symbolic_expression(size)
    return int(expression) if getattr(expression, "is_Integer", False) else None


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
        return private("operator", name)  # type: ignore[no-any-return]
    return private("torch.utils._sympy.functions", torch_name)  # type: ignore[no-any-return]


@contextlib.contextmanager
def observe_decisions(
    seen: Callable[[str, Any, Any], None], for_larger_sizes: bool = False
) -> Iterator[None]:
    """Calls ``seen(kind, shape_env, expression)`` where a capture decides on a symbolic value.

    Kinds are ``"guard"`` (it holds for the example and is relied on), ``"assumed"`` (it depends on
    data, and draft export takes what the example gives), ``"undecided"`` (it depends on data, and
    the capture fails) and, with ``for_larger_sizes``, ``"larger"`` behind an undecided one (it
    holds for sizes from 2 on, and is relied on). Without these methods of ``ShapeEnv`` errors name
    no line.
    """
    env = private("torch.fx.experimental.symbolic_shapes", "ShapeEnv")
    skipped = private("torch.fx.experimental.symbolic_shapes", "uninteresting_files")
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
    answered = (
        answer_for_larger_sizes(lambda env, held: seen("larger", env, held))
        if for_larger_sizes
        else contextlib.nullcontext()
    )
    try:
        with answered:
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
    printer = private("torch.utils._sympy.printers", "PythonPrinter")
    with contextlib.suppress(Exception):
        return str(printer().doprint(expression))
    return str(expression)


def storage_key(tensor: torch.Tensor) -> int:
    """A number that tensors which share memory have in common, fake ones too.

    Without ``UntypedStorage._cdata`` scripted models that write in place are refused.
    """
    return int(tensor.untyped_storage()._cdata)


def symbolic_truth(value: Any) -> bool | None:
    """Whether a symbolic bool is known to hold, or not to, for all sizes; None where it depends.

    Without ``statically_known_true`` nothing is known, and scripted models have more branches.
    """
    test = private("torch.fx.experimental.symbolic_shapes", "statically_known_true")
    config = private("torch.fx.experimental", "_config")
    if test is None:
        return None
    patched = hasattr(config, "backed_size_oblivious")  # as if no size were 0 or 1
    with config.patch(backed_size_oblivious=False) if patched else contextlib.nullcontext():
        if test(value):
            return True
        negated = torch.sym_not(value)  # type: ignore[no-untyped-call]
        return False if test(negated) else None


def new_symbol(mode: FakeTensorMode, kind: type, size: bool = False) -> Any:
    """A symbolic int, float or bool of which nothing is known, or that it is a size.

    Without ``create_unbacked_symint`` and its like loops and branches that depend on inputs cannot
    be captured; without ``_constrain_range_for_size`` some operators refuse a size.
    """
    env: Any = mode.shape_env
    makers: dict[type, Callable[[], Any]] = {
        int: env.create_unbacked_symint,
        float: env.create_unbacked_symfloat,
        bool: env.create_unbacked_symbool,
    }
    symbol = makers[kind]()
    constrain = private("torch.fx.experimental.symbolic_shapes", "_constrain_range_for_size")
    if size and constrain is not None:
        constrain(symbol)
    return symbol


def symbols_of_its_own(mode: FakeTensorMode) -> contextlib.AbstractContextManager[Any]:
    """Lets sizes that depend on data be made which no result of the traced operator has.

    Without ``ignore_fresh_unbacked_symbols`` scripted models with such sizes are refused.
    """
    ignore = getattr(mode.shape_env, "ignore_fresh_unbacked_symbols", None)
    return ignore() if ignore is not None else contextlib.nullcontext()
