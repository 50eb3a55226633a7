"""Captures that hold for empty tensors too.

Torch's symbols for sizes are positive numbers, whatever their range says. So ``max(n, 1)`` is
``n`` for a capture, ``n == 0`` is false, and the size of ``x[1:]`` is ``n - 1``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from onnx_aot.torch_compat.names import private
from onnx_aot.torch_compat.sizes import symbolic_expression

__all__ = [
    "holds_for_example",
    "holds_when_empty",
    "keep_small_sizes_dynamic",
    "observe_zero_ignored",
]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


@contextlib.contextmanager
def keep_small_sizes_dynamic(from_zero: bool = False) -> Iterator[None]:
    """Lets a dimension whose example size is 0 or 1 stay dynamic.

    Args:
        from_zero: Also makes what the capture works out hold for size 0, where the dimension's
            ``Dim`` allows that. Captures take a tenth longer then.

    Without ``backed_size_oblivious`` such a dimension comes out static, which is reported as an
    error at the end of the export. Without ``make_symbol`` and ``ShapeEnv.create_symbol``, models
    that ask for the larger of a size and 1 are wrong for empty tensors.
    """
    config = private("torch.fx.experimental", "_config")
    with contextlib.ExitStack() as stack:
        if hasattr(config, "backed_size_oblivious"):
            stack.enter_context(config.patch(backed_size_oblivious=True))
        if from_zero:
            stack.enter_context(_symbols_from_zero())
        yield


@contextlib.contextmanager
def _symbols_from_zero() -> Iterator[None]:
    env = private(_SHAPES, "ShapeEnv")
    make = private(_SHAPES, "make_symbol")
    root = private("torch._dynamo.source", "ConstantSource")
    create = getattr(env, "create_symbol", None)
    if create is None or make is None or root is None:
        yield
        return
    shapes = sys.modules[_SHAPES]
    may_be_zero = False

    def make_symbol(*args: Any, **assumptions: Any) -> Any:
        if may_be_zero and assumptions.pop("positive", None):
            assumptions["nonnegative"] = True
        return make(*args, **assumptions)

    def create_symbol(self: Any, val: int, source: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal may_be_zero
        is_root = isinstance(source, root)  # of ``n + 1``, where no input has ``n``
        if is_root:  # as torch does it for dimensions of inputs
            kwargs["do_not_specialize_zero_one"] = True
        limits = getattr(kwargs.get("constraint_dim"), "vr", None)
        may_be_zero = limits is None or limits.lower < 1
        try:
            symbol = create(self, val, source, *args, **kwargs)
        finally:
            may_be_zero = False
        if is_root and hasattr(self, "size_like"):
            self.size_like.add(symbol)
        return symbol

    shapes.make_symbol = make_symbol  # type: ignore[attr-defined]
    env.create_symbol = create_symbol
    try:
        yield
    finally:
        shapes.make_symbol = make  # type: ignore[attr-defined]
        env.create_symbol = create


_LARGER = {"__sym_max__": "Max", "__sym_min__": "Min"}
_COMPARED = {
    "__eq__": "Eq",
    "__ne__": "Ne",
    "__lt__": "Lt",
    "__le__": "Le",
    "__gt__": "Gt",
    "__ge__": "Ge",
}

# Between a line of the user's that asks for the larger of two sizes and the answer lie only these.
_BETWEEN = (
    "torch",
    "torch.overrides",
    "torch._export.non_strict_utils",
    "torch.fx.experimental.proxy_tensor",
    __name__,
)


@contextlib.contextmanager
def observe_zero_ignored(seen: Callable[[bool], None]) -> Iterator[None]:
    """Calls ``seen(fixed)`` where a capture asks what it answers for sizes above zero only.

    A model asks for the larger or smaller of two sizes, or compares, as in ``n == 0``, which came
    out the same for all sizes. Torch's operators ask for the larger of a size and 0; only there,
    where the answer is another size, ``fixed`` is False. What is asked while bytecode is analysed
    is passed over. Without the methods of ``SymInt`` nothing is seen.
    """
    originals = {
        name: getattr(torch.SymInt, name)
        for name in (*_LARGER, *_COMPARED)
        if hasattr(torch.SymInt, name)
    }

    def observing(name: str, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def larger(self: Any, other: Any) -> Any:
            result = original(self, other)
            if _may_be_zero(self, other):
                if _is_asked_by_user(sys._getframe(1)):
                    seen(True)
                elif name == "__sym_max__" and other == 1:
                    pass  # strides are full of max(n, 1), and do not matter
                elif _is_answered_above_zero(_LARGER[name], self, other):
                    seen(_is_number(result))  # min(n, 1), the size of a diagonal, is 1
            return result

        def compared(self: Any, other: Any) -> Any:
            result = original(self, other)
            caller = sys._getframe(1)
            if caller.f_code.co_name == "__bool__" and caller.f_back is not None:
                caller = caller.f_back
            if (
                _package(caller) != "torch"
                and _is_decided(result)
                and _may_be_zero(self, other)
                and _is_answered_above_zero(_COMPARED[name], self, other)
            ):
                seen(True)
            return result

        return larger if name in _LARGER else compared

    for name, original in originals.items():
        setattr(torch.SymInt, name, observing(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.SymInt, name, original)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_asked_by_user(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    return frame is not None and _package(frame) != "torch"


def _is_number(size: Any) -> bool:
    return isinstance(size, int) or not getattr(symbolic_expression(size), "free_symbols", ())


def _is_decided(result: Any) -> bool:
    if not isinstance(result, torch.SymBool):
        return isinstance(result, bool)
    return not getattr(symbolic_expression(result), "free_symbols", ())


def _is_answered_above_zero(function: str, *sizes: Any) -> bool:
    """Whether a comparison or maximum is simplified, and would not be if symbols could be zero.

    ``n > 0`` and ``max(n - 1, 0)`` are; ``n > n``, ``max(n, 0)`` and ``n > 5`` are not.
    """
    import sympy

    expressions: list[Any] = [
        symbolic_expression(size) if isinstance(size, torch.SymInt) else sympy.sympify(size)
        for size in sizes
    ]
    from_zero = {
        symbol: sympy.Symbol(symbol.name, integer=True, nonnegative=True)
        for expression in expressions
        for symbol in expression.free_symbols
    }
    kind = getattr(sympy, function)
    answer, at_zero = kind(*expressions), kind(*(e.xreplace(from_zero) for e in expressions))
    return not isinstance(answer, kind) and isinstance(at_zero, kind)


def _may_be_zero(*sizes: Any) -> bool:
    """Whether a size among these has a symbol that is positive for the capture, and may be zero."""
    for size in sizes:
        if isinstance(size, torch.SymInt):
            ranges = getattr(size.node.shape_env, "var_to_range", {})
            for symbol in getattr(symbolic_expression(size), "free_symbols", ()):
                known = ranges.get(symbol)
                if symbol.is_positive and known is not None and known.lower < 1:
                    return True
    return False


def holds_when_empty(whole: Any, part: Any, start: Any, end: Any, step: int) -> bool:
    """Whether the recorded size of a slice is right where a symbol is 0 and the others as given.

    Args:
        whole: The size of the operand along the sliced axis.
        part: The size of the slice.
        start: Where it starts, an int, a SymInt or None, as in Python; ``end`` likewise.
        end: Where it ends.
        step: Every which element is taken.
    """
    sizes = (whole, part, start, end)
    if not _may_be_zero(*sizes):
        return True
    given = _example(sizes)
    return all(
        _holds(sizes, step, {**given, symbol: symbol * 0}) for symbol in _symbols(sizes) & {*given}
    )


def holds_for_example(whole: Any, part: Any, start: Any, end: Any, step: int) -> bool:
    """Whether the recorded size of a slice is that which the example has; as above.

    Where torch does not know whether ``n - 2`` is negative it makes a new symbol for the size, and
    takes it for ``n`` when the slice meets something of that size, as if 1 were no size for it.
    """
    sizes = (whole, part, start, end)
    return _holds(sizes, step, _example(sizes))


def _symbols(sizes: tuple[Any, ...]) -> set[Any]:
    symbolic = (symbolic_expression(size) for size in sizes if isinstance(size, torch.SymInt))
    return {symbol for e in symbolic for symbol in getattr(e, "free_symbols", ())}


def _example(sizes: tuple[Any, ...]) -> dict[Any, Any]:
    """What the example has for symbols, but for those of which that is not known."""
    env = next((size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)), None)
    return {} if env is None else dict(vars(env).get("backed_var_to_val", {}))


def _holds(sizes: tuple[Any, ...], step: int, values: dict[Any, Any]) -> bool:
    """Whether the size of a slice is right for some sizes; True where they are not known."""
    if not _symbols(sizes) <= set(values):
        return True
    numbers = []
    for size in sizes:
        symbolic = isinstance(size, torch.SymInt)
        expression: Any = symbolic_expression(size) if symbolic else size
        try:
            numbers.append(int(expression.xreplace(values)) if symbolic else size)
        except ZeroDivisionError:  # such a size is refused
            return True
    length, recorded, first, last = numbers
    return bool(length >= 0 and recorded == len(range(length)[slice(first, last, step)]))
