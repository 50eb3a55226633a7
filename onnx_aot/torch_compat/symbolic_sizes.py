"""Reads symbolic sizes and numbers, and observes what a capture decides about them."""

from __future__ import annotations

import contextlib
import math
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat.lookup import FakeTensorMode, private, private_attribute
from onnx_aot.torch_compat.patching import Patch, Settings, applied
from onnx_aot.torch_compat.texts import runs_fake_kernels

__all__ = [
    "DECISIONS",
    "EXAMPLES",
    "compute_float",
    "creation_stack",
    "decision_symbols",
    "example_size",
    "expression_key",
    "find_kernel_with_number",
    "has_symbols",
    "is_batched",
    "is_data_symbol",
    "is_symbol",
    "is_taken_for_data",
    "is_written_to",
    "known_number",
    "memory_keys",
    "named_expression",
    "new_symbol",
    "python_expression",
    "record_expression",
    "root_symbol",
    "size_function",
    "sizes_nearby",
    "storage_key",
    "symbolic_expression",
    "symbolic_truth",
    "symbols_of_its_own",
    "takes_data_for_sizes",
]

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_NODE = "torch.fx.experimental.sym_node:SymNode"


def symbolic_expression(value: Any) -> Any:
    """Returns the sympy expression of a SymInt, SymFloat or SymBool, with known equalities applied.

    Raises:
        CaptureError: This torch does not expose it.
    """
    for name in ("expr", "_expr"):  # the latter lacks equalities found later
        expression = private_attribute(value.node, f"{_NODE}.{name}")
        if expression is not None:
            return expression
    raise CaptureError(
        f"torch {torch.__version__} does not tell the expression of a symbolic size "
        "(SymNode.expr), so models with dynamic dimensions cannot be exported with it. Install a "
        "release that the README lists as tested, or leave dynamic_shapes out",
        code="OA016",
    )


def expression_key(value: torch.SymInt) -> Any:
    """Key that is equal for sizes with the same expression; cheaper than simplifying that."""
    key = private_attribute(value.node, f"{_NODE}._expr")
    return symbolic_expression(value) if key is None else key


def example_size(size: Any) -> int | None:
    """Returns the value of a size in the example; None if it is not recorded."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    hint = private_attribute(size.node, f"{_NODE}.hint")
    if hint is None:
        env = getattr(size.node, "shape_env", None)
        values = None if env is None else EXAMPLES.get(env)
        number: Any = symbolic_expression(size).xreplace(values) if values else None
        hint = int(number) if getattr(number, "is_Integer", False) else None
    return hint if isinstance(hint, int) else None


def sizes_nearby(sizes: Sequence[Any], numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yields sizes as numbers: those of the example, and those with other values of one symbol.

    Args:
        sizes: The sizes; nothing is yielded if one of them has no value in the example.
        numbers: The values; those outside of a symbol's range are left out.
    """
    example = [example_size(size) for size in sizes]
    if None in example:
        return
    yield [number for number in example if number is not None]
    values, ranges = {}, {}
    for size in sizes:
        if isinstance(size, torch.SymInt):
            env, expression = size.node.shape_env, symbolic_expression(size)
            limits = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
            hints = decision_symbols(env, expression)
            for symbol in expression.free_symbols & limits.keys():
                values[symbol], ranges[symbol] = hints[str(symbol)][1], limits[symbol]
    for symbol, limit in ranges.items():
        for number in numbers:
            if limit.lower <= number <= limit.upper:
                made = [_number_at(size, {**values, symbol: number}) for size in sizes]
                known = [one for one in made if one is not None and one >= 0]
                if len(known) == len(made):
                    yield known


def _number_at(size: Any, values: Mapping[Any, int | None]) -> int | None:
    if not isinstance(size, torch.SymInt):
        return int(size)
    number = symbolic_expression(size).xreplace(values)
    return int(number) if getattr(number, "is_Integer", type(number) is int) else None


EXAMPLES: weakref.WeakKeyDictionary[Any, dict[Any, int]] = weakref.WeakKeyDictionary()
"""Example values of the symbols that ``fresh_size`` made, by ShapeEnv."""


def known_number(size: Any) -> int | None:
    """Returns a size as a number if it is the same for all inputs; None if it depends on them."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = symbolic_expression(size)
    return int(expression) if getattr(expression, "is_Integer", False) else None


def is_symbol(size: torch.SymInt) -> bool:
    """True if a symbolic size is a single symbol, not an expression such as ``2*s0``."""
    return bool(getattr(symbolic_expression(size), "is_Symbol", False))


def is_data_symbol(symbol: Any) -> bool:
    """True if a symbol of an expression stands for a number of data, not for a size of an input."""
    return str(symbol).startswith(("u", "zu"))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Abs": operator.abs,
    "Add": operator.add,
    "CeilToInt": math.ceil,
    "FloorDiv": operator.floordiv,
    "FloorToInt": math.floor,
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "Mod": operator.mod,
    "Mul": operator.mul,
    "PowByNatural": operator.pow,
    "PythonMod": operator.mod,
    "RoundToInt": round,
    "ToFloat": torch.sym_float,
    "TruncToInt": math.trunc,
}
"""Operators in torch's expressions, as functions of Python numbers and symbolic sizes."""


def compute_float(value: torch.SymFloat, number: Callable[[Any], Any]) -> Any:
    """Computes a symbolic float in other arithmetic, such as that of fractions.

    Args:
        value: The symbolic float.
        number: Makes a number of that arithmetic from an int, a SymInt or a float; None if it has
            no such number. The numbers have ``+``, ``*`` and ``/``.

    Returns:
        The number; None if one is missing, or for operations that are not in the table.
    """

    def compute(expression: Any) -> Any:
        name = type(expression).__name__
        if name == "ToFloat":
            return compute(expression.args[0])
        if expression.is_Number or expression.is_integer:
            size = _compute_size(expression, value.node.shape_env)
            return None if size is None else number(size)
        if name not in ("Add", "FloatTrueDiv", "IntTrueDiv", "Mul"):
            return None
        return _apply(_OPERATIONS[name], [compute(part) for part in expression.args])

    return compute(symbolic_expression(value))


def _compute_size(expression: Any, env: Any) -> Any:
    """An expression as a symbolic size. A capture records how it is computed from the inputs."""
    if expression.is_Number:
        return int(expression) if expression.is_Integer else float(expression)
    if expression.is_Symbol:
        return env.create_symintnode(expression, hint=None)
    operation = _OPERATIONS.get(type(expression).__name__)
    parts = [_compute_size(part, env) for part in expression.args]
    return None if operation is None else _apply(operation, parts)


def _apply(operation: Callable[..., Any], operands: list[Any]) -> Any:
    """Applies an operator of one operand, or of two to any number; None if one is missing."""
    if any(operand is None for operand in operands):
        return None
    if len(operands) == 1:
        return operation(*operands)
    total = operands[0]
    for operand in operands[1:]:
        total = None if total is None else operation(total, operand)
    return total


_CONDITIONS: dict[str, Callable[..., Any]] = {
    "And": operator.and_,
    "Equality": operator.eq,
    "GreaterThan": operator.ge,
    "LessThan": operator.le,
    "Not": torch.sym_not,
    "Or": operator.or_,
    "StrictGreaterThan": operator.gt,
    "StrictLessThan": operator.lt,
    "Unequality": operator.ne,
}


def record_expression(
    graph: torch.fx.Graph, expression: Any, symbols: Mapping[str, torch.fx.Node], env: Any
) -> Any:
    """Adds nodes to a graph that compute a condition, or a size, from others.

    Args:
        graph: The graph, at whose position they are inserted.
        expression: The condition or size.
        symbols: Nodes for the symbols in it, by name.
        env: Torch's ShapeEnv, for the recorded values.

    Returns:
        A node or a number; None for operations that are not in the tables.
    """
    import sympy

    def add(function: Callable[..., Any], recorded: Any, *operands: Any) -> Any:
        if any(operand is None for operand in operands):
            return None
        node = graph.call_function(function, operands)
        if isinstance(recorded, sympy.logic.boolalg.Boolean):
            node.meta["val"] = env.create_symboolnode(recorded)
        elif recorded.is_integer:
            node.meta["val"] = env.create_symintnode(recorded, hint=None)
        else:
            node.meta["val"] = env.create_symfloatnode(recorded, hint=None)
        return node

    def record(part: Any) -> Any:
        if part.is_Number:
            return int(part) if part.is_Integer else float(part)
        if part.is_Symbol:
            return symbols.get(str(part))
        name = type(part).__name__
        quotient = _as_integer_division(part) if name in ("CeilToInt", "FloorToInt") else None
        if quotient is not None:
            return record(quotient)
        function = _CONDITIONS.get(name) or _OPERATIONS.get(name)
        if function is None:
            return None
        operands = [record(argument) for argument in part.args]
        if len(operands) == 1:
            return add(function, part, *operands)
        found = operands[0]
        for count, operand in enumerate(operands[1:], 2):
            found = add(function, part.func(*part.args[:count]), found, operand)
        return found

    return record(expression)


def _as_integer_division(part: Any) -> Any:
    """``ceil(a / b)`` and ``floor(a / b)`` of integers without floats; None for other numbers."""
    floor_div = private("torch.utils._sympy.functions:FloorDiv")
    (quotient,) = part.args
    if floor_div is None or type(quotient).__name__ != "IntTrueDiv":
        return None
    sign = 1 if type(part).__name__ == "FloorToInt" else -1
    return sign * floor_div(sign * quotient.args[0], quotient.args[1])


def root_symbol(size: Any) -> str | None:
    """The name of the only symbol in a symbolic size such as ``s0`` or ``2*s0``, or None."""
    if not isinstance(size, torch.SymInt):
        return None
    symbols = getattr(symbolic_expression(size), "free_symbols", ())
    return str(next(iter(symbols))) if len(symbols) == 1 else None


_SIZE_FUNCTIONS = {"max": "Max", "min": "Min", "floordiv": "FloorDiv", "mod": "Mod"}


def size_function(name: str) -> Callable[[Any, Any], Any] | None:
    """Returns a function on sympy expressions of sizes: ``add``, ``sub``, ``mul``, ``max``, ...

    None if there is no such function.
    """
    torch_name = _SIZE_FUNCTIONS.get(name)
    if torch_name is None:
        return getattr(operator, name, None)
    return private(f"torch.utils._sympy.functions:{torch_name}")  # type: ignore[no-any-return]


# By method: the kind of decision, the position of the condition, and the method's parameters.
_DECISIONS = {
    "_log_guard": ("guard", 1, "self, prefix, g, forcing_spec"),
    "_log_real_tensor_propagation": ("assumed", 0, "self, orig_expr, unsound_result"),
    "_make_data_dependent_error": ("undecided", 1, "self, expr, unhinted_expr"),
}


def _decision_observed(method: str) -> Callable[[Any, Settings], Any]:
    kind, position, _ = _DECISIONS[method]

    def make(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
        seen = settings.decided
        assert seen is not None

        def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
            held = args[position]
            if kind == "assumed" and _compares_with_example(sys._getframe(1)):
                return original(self, *args, **kwargs)
            if kind == "assumed" and str(args[1]) == "False":
                held = ~held
            if "suppressed" not in str(args[0]):  # the capture does not rely on such a guard
                seen(kind, self, held)
            return original(self, *args, **kwargs)

        return observed

    return make


def _compares_with_example(frame: FrameType | None) -> bool:
    """True if draft export compares a size with the one in the example, which no model asks for."""
    while frame is not None:
        if frame.f_code.co_name == "_check_fake_real_tensors":
            return True
        frame = frame.f_back
    return False


DECISIONS: tuple[Patch, ...] = tuple(
    Patch(
        f"{_SHAPES}:ShapeEnv.{method}",
        _decision_observed(method),
        "Errors and the report do not say which line decides about a size.",
        when=lambda settings: settings.decided is not None,
        parameters=parameters,
    )
    for method, (_, _, parameters) in _DECISIONS.items()
)
"""Rows that report the decisions of a capture on symbolic values to ``Settings.decided``.

Kinds are ``"guard"`` (it holds for the example and the capture relies on it), ``"assumed"`` (it
depends on data, and draft export uses the example's answer), ``"undecided"`` (it depends on data,
and the capture fails). After an undecided one, ``"larger"`` says that it holds for sizes from 2 on
and the capture relies on that (``Settings.larger_sizes``), and ``"validated"`` that otherwise the
model would raise an error or write a message (``Settings.validations``).
"""


def decision_symbols(env: Any, expression: Any) -> dict[str, tuple[tuple[str, ...], int | None]]:
    """Returns the sources of each symbol of an expression and its value in the example.

    A source is, for example, ``L['x'].size()[0]``.
    """
    hints = private_attribute(env, f"{_SHAPES}:ShapeEnv.backed_var_to_val")
    if hints is None:  # the name before torch 2.12
        hints = vars(env).get("var_to_val", {})
    origins = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_sources", {})
    found = {}
    for symbol in getattr(expression, "free_symbols", ()):
        names = [source.name for source in origins.get(symbol, ())]
        sources = tuple(str(name() if callable(name) else name) for name in names)
        hint = hints.get(symbol)
        if hint is not None and not getattr(hint, "is_Integer", isinstance(hint, int)):
            hint = None
        found[str(symbol)] = (sources, None if hint is None else int(hint))
    return found


def is_taken_for_data(size: Any) -> bool:
    """True if a size is a number of the data that the capture takes to be equal to other sizes.

    Where two sizes meet, torch takes them for equal unless it knows that one of them is 1, and the
    size of data may be.
    """
    if not isinstance(size, torch.SymInt):
        return False
    own: set[Any] = getattr(expression_key(size), "free_symbols", set())
    now: set[Any] = getattr(symbolic_expression(size), "free_symbols", set())
    return any(map(is_data_symbol, own - now))


def takes_data_for_sizes(size: Any) -> bool:
    """True if the capture that a size is of takes a number of the data to be equal to others."""
    env = getattr(getattr(size, "node", None), "shape_env", None)
    equalities = private_attribute(env, f"{_SHAPES}:ShapeEnv.replacements", {})
    return any(map(is_data_symbol, equalities))


def find_kernel_with_number(frame: FrameType | None, outside: FrameType) -> OpOverload | None:
    """Returns the operator whose kernel for shapes asks for the number of a size.

    Args:
        frame: The frame that answers.
        outside: The frame at which the search ends.

    Returns:
        None if other code asks, or asks for a truth.
    """
    is_number = False
    while frame is not None and frame is not outside:
        is_number = is_number or frame.f_code.co_name == "guard_int"
        if is_number and runs_fake_kernels(frame.f_code.co_filename):
            operator = frame.f_locals.get("func")
            if isinstance(operator, OpOverload):
                return operator
        frame = frame.f_back
    return None


def creation_stack(env: Any, symbol: str) -> list[Any]:
    """Returns the frames in which a data-dependent symbol was made, the innermost last."""
    stacks = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_stack", {})
    for known, stack in stacks.items():
        if str(known) == symbol:
            with contextlib.suppress(Exception):  # the stack was cleaned up
                return list(stack.summary())
    return []


def python_expression(expression: Any, names: Mapping[str, str]) -> str:
    """Prints an expression as Python, with the given names for its symbols."""
    import sympy

    symbols = getattr(expression, "free_symbols", ())
    shown = {s: sympy.Symbol(names[str(s)], integer=True) for s in symbols if str(s) in names}
    with contextlib.suppress(Exception):
        expression = expression.xreplace(shown)
    printer = private("torch.utils._sympy.printers:PythonPrinter")
    with contextlib.suppress(Exception):
        return str(printer().doprint(expression))
    return str(expression)


def named_expression(expression: Any, names: Mapping[str, str]) -> str | None:
    """Prints an expression as Python by the names of its parts; None if a symbol has none.

    Args:
        expression: The expression.
        names: Names of expressions, as text.
    """
    import sympy

    named = {
        part: sympy.Symbol(names[str(part)], integer=True)
        for part in sympy.preorder_traversal(expression)
        if part.free_symbols and str(part) in names
    }
    expression = expression.xreplace(named)
    has_names = expression.free_symbols <= {*named.values()}
    return python_expression(expression, {}) if has_names else None


def storage_key(tensor: torch.Tensor) -> int:
    """Key that is equal for tensors that share memory, including fake tensors."""
    storage = tensor.untyped_storage()
    key = private_attribute(storage, "torch:UntypedStorage._cdata")
    if key is None:
        key = StorageWeakRef(storage).cdata  # type: ignore[no-untyped-call]
    return int(key)


_NO_SMALL_SIZES = Patch(
    "torch.fx.experimental._config:backed_size_oblivious",
    lambda original, settings: False,
    "Conditions that hold for all sizes but 0 and 1 count as undecided in scripted models.",
)


def symbolic_truth(value: Any) -> bool | None:
    """True or False if a symbolic bool is known to be so for all sizes; None if it depends."""
    test = private(f"{_SHAPES}:statically_known_true")
    if test is None:
        return None
    with applied((_NO_SMALL_SIZES,), Settings()):
        if test(value):
            return True
        negated = torch.sym_not(value)  # type: ignore[no-untyped-call]
        return False if test(negated) else None


def is_written_to(tensor: torch.Tensor) -> bool:
    """False if no operator has written to a tensor, or to a view of it, since it was made."""
    return bool(private_attribute(tensor, "torch:Tensor._version", default=1))


def memory_keys(tensor: torch.Tensor) -> list[int]:
    """``storage_key`` of a tensor, or of the one that a value of ``torch.vmap`` stands for.

    Empty for a tensor that has no single memory, such as a sparse one.
    """
    unwrap = private("torch._C._functorch:get_unwrapped")
    try:
        return [storage_key(tensor)]
    except NotImplementedError:
        pass
    try:
        return [] if unwrap is None else memory_keys(unwrap(tensor))
    except RuntimeError:  # it stands for no other tensor
        return []


def is_batched(tensor: torch.Tensor) -> bool:
    """True for a value inside of ``torch.vmap``, which stands for one per element of the batch."""
    test = private("torch._C._functorch:is_batchedtensor")
    return test is not None and bool(test(tensor))


def new_symbol(mode: FakeTensorMode, kind: type) -> Any:
    """Makes an unbacked symbolic int, float or bool."""
    env: Any = mode.shape_env
    makers: dict[type, Callable[[], Any]] = {
        int: env.create_unbacked_symint,
        float: env.create_unbacked_symfloat,
        bool: env.create_unbacked_symbool,
    }
    return makers[kind]()


def has_symbols(mode: FakeTensorMode) -> bool:
    """False if a capture has met no symbolic size yet."""
    return bool(private_attribute(mode.shape_env, f"{_SHAPES}:ShapeEnv.var_to_range") != {})


def symbols_of_its_own(mode: FakeTensorMode) -> contextlib.AbstractContextManager[Any]:
    """Allows new unbacked symbols that do not occur in the traced operator's results."""
    path = f"{_SHAPES}:ShapeEnv.ignore_fresh_unbacked_symbols"
    ignore = private_attribute(mode.shape_env, path)
    return ignore() if ignore is not None else contextlib.nullcontext()
