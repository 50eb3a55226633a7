"""Makes captures hold for empty tensors too, and detects those that do not.

Torch assumes that symbols for sizes are positive, whatever their range says. So in a capture
``max(n, 1)`` is ``n``, ``n == 0`` is false, and the size of ``x[1:]`` is ``n - 1``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.symbolic_sizes import symbolic_expression

__all__ = [
    "FROM_ZERO",
    "SMALL_SIZES",
    "ZERO_IGNORED",
    "holds_for_example",
    "holds_when_empty",
    "may_be_zero",
]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


SMALL_SIZES = Patch(
    "torch.fx.experimental._config:backed_size_oblivious",
    lambda original, settings: True,
    "A dimension whose example size is 0 or 1 comes out static, which is an error.",
    when=lambda settings: settings.small_sizes,
    optional=False,
)


class _NextSymbol:
    """Flag: the symbol that torch makes next may be zero, according to the dimension's ``Dim``."""

    may_be_zero = False


def _make_nonnegative(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def make_symbol(*args: Any, **assumptions: Any) -> Any:
        if _NextSymbol.may_be_zero and assumptions.pop("positive", None):
            assumptions["nonnegative"] = True
        return original(*args, **assumptions)

    return make_symbol


def _from_zero(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    root = private("torch._dynamo.source:ConstantSource")

    def create_symbol(self: Any, val: int, source: Any, *args: Any, **kwargs: Any) -> Any:
        is_root = root is not None and isinstance(source, root)
        if is_root:  # the root of ``n + 1`` if no input has size ``n``; as torch does for inputs
            kwargs["do_not_specialize_zero_one"] = True
        limits = getattr(kwargs.get("constraint_dim"), "vr", None)
        _NextSymbol.may_be_zero = limits is None or limits.lower < 1
        try:
            symbol = original(self, val, source, *args, **kwargs)
        finally:
            _NextSymbol.may_be_zero = False
        if is_root and hasattr(self, "size_like"):
            self.size_like.add(symbol)
        return symbol

    return create_symbol


_WRONG_WHEN_EMPTY = "Models that ask for the larger of a size and 1 are wrong for empty tensors."

FROM_ZERO: tuple[Patch, ...] = (
    Patch(
        f"{_SHAPES}:make_symbol",
        _make_nonnegative,
        _WRONG_WHEN_EMPTY,
        when=lambda settings: settings.from_zero,
        parameters="prefix, idx, kwargs",
    ),
    Patch(
        f"{_SHAPES}:ShapeEnv.create_symbol",
        _from_zero,
        _WRONG_WHEN_EMPTY,
        when=lambda settings: settings.from_zero,
        parameters="self, val, source, dynamic_dim, constraint_dim",
    ),
)


_LARGER = {"__sym_max__": "Max", "__sym_min__": "Min"}
_COMPARED = {
    "__eq__": "Eq",
    "__ne__": "Ne",
    "__lt__": "Lt",
    "__le__": "Le",
    "__gt__": "Gt",
    "__ge__": "Ge",
}

# Modules of the frames between a user's line that asks for a maximum of sizes and the answer.
_BETWEEN = (
    "torch",
    "torch.overrides",
    "torch._export.non_strict_utils",
    "torch.fx.experimental.proxy_tensor",
    __name__,
    Patch.__module__,
)


def _larger_observed(name: str) -> Callable[[Any, Settings], Any]:
    """Reports a maximum or minimum of sizes whose answer differs if a size is 0.

    Torch's own operators ask for the maximum of a size and 0.
    """

    def make(original: Callable[[Any, Any], Any], settings: Settings) -> Callable[..., Any]:
        seen = settings.zero_ignored
        assert seen is not None

        def larger(self: Any, other: Any) -> Any:
            result = original(self, other)
            if may_be_zero(self, other) and not _is_same(self, other):
                if _is_asked_by_user(sys._getframe(1)):
                    seen(True)
                elif name == "__sym_max__" and other == 1:
                    pass  # max(n, 1) is common in strides, where it does not matter
                elif _is_answered_above_zero(_LARGER[name], self, other):
                    seen(_is_number(result))  # min(n, 1), the size of a diagonal, is 1
            return result

        return larger

    return make


def _comparison_observed(name: str) -> Callable[[Any, Settings], Any]:
    """Reports a comparison by a model, such as ``n == 0``, that is decided for sizes above zero."""

    def make(original: Callable[[Any, Any], Any], settings: Settings) -> Callable[..., Any]:
        seen = settings.zero_ignored
        assert seen is not None

        def compared(self: Any, other: Any) -> Any:
            result = original(self, other)
            if (
                _package(_find_asking_frame(sys._getframe(1))) != "torch"
                and _is_decided(result)
                and may_be_zero(self, other)
                and _is_answered_above_zero(_COMPARED[name], self, other)
            ):
                seen(True)
            return result

        return compared

    return make


def _find_asking_frame(frame: FrameType) -> FrameType:
    """Returns the frame that compares, outside of this package's and ``__bool__``."""
    while frame.f_back is not None and (
        frame.f_globals.get("__name__") in (__name__, Patch.__module__)
        or frame.f_code.co_name == "__bool__"
    ):
        frame = frame.f_back
    return frame


def _make_observer(method: str, make: Callable[[Any, Settings], Any]) -> Patch:
    return Patch(
        f"torch:SymInt.{method}",
        make,
        "Captures that are wrong for empty tensors are not made again, nor warned of.",
        when=lambda settings: settings.zero_ignored is not None,
        parameters="self, other",
    )


ZERO_IGNORED: tuple[Patch, ...] = (
    *(_make_observer(name, _larger_observed(name)) for name in _LARGER),
    *(_make_observer(name, _comparison_observed(name)) for name in _COMPARED),
)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_asked_by_user(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    return frame is not None and _package(frame) != "torch"


def _is_same(size: Any, other: Any) -> bool:
    return isinstance(other, torch.SymInt) and bool(
        symbolic_expression(size) == symbolic_expression(other)
    )


def _is_number(size: Any) -> bool:
    return isinstance(size, int) or not getattr(symbolic_expression(size), "free_symbols", ())


def _is_decided(result: Any) -> bool:
    if not isinstance(result, torch.SymBool):
        return isinstance(result, bool)
    return not getattr(symbolic_expression(result), "free_symbols", ())


def _is_answered_above_zero(function: str, *sizes: Any) -> bool:
    """True if a comparison, maximum or minimum is simplified only because symbols are positive.

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


def may_be_zero(*sizes: Any) -> bool:
    """True if one of the sizes has a symbol that the capture assumes positive but may be zero."""
    for size in sizes:
        if isinstance(size, torch.SymInt):
            ranges = private_attribute(size.node.shape_env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
            for symbol in getattr(symbolic_expression(size), "free_symbols", ()):
                known = ranges.get(symbol)
                if symbol.is_positive and known is not None and known.lower < 1:
                    return True
    return False


def holds_when_empty(whole: Any, part: Any, start: Any, end: Any, step: int) -> bool:
    """True if the recorded size of a slice is right with one symbol 0, others as in the example.

    Args:
        whole: The size of the operand along the sliced axis.
        part: The size of the slice.
        start: Start of the slice as in Python: an int, a SymInt or None.
        end: End of the slice, also an int, a SymInt or None.
        step: Step of the slice.
    """
    sizes = (whole, part, start, end)
    if not may_be_zero(*sizes):
        return True
    given = _example(sizes)
    return all(
        _holds(sizes, step, {**given, symbol: symbol * 0}) for symbol in _symbols(sizes) & {*given}
    )


def holds_for_example(whole: Any, part: Any, start: Any, end: Any, step: int) -> bool:
    """True if the recorded size of a slice is right for the example; arguments as above.

    If torch does not know whether ``n - 2`` is negative, it makes a new symbol for the size. It
    equates that with ``n`` when the slice meets a tensor of size ``n``, ignoring that it may be 1.
    """
    sizes = (whole, part, start, end)
    return _holds(sizes, step, _example(sizes))


def _symbols(sizes: tuple[Any, ...]) -> set[Any]:
    symbolic = (symbolic_expression(size) for size in sizes if isinstance(size, torch.SymInt))
    return {symbol for e in symbolic for symbol in getattr(e, "free_symbols", ())}


def _example(sizes: tuple[Any, ...]) -> dict[Any, Any]:
    """Returns the values of symbols in the example, as far as known."""
    env = next((size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)), None)
    return dict(private_attribute(env, f"{_SHAPES}:ShapeEnv.backed_var_to_val", {}))


def _holds(sizes: tuple[Any, ...], step: int, values: dict[Any, Any]) -> bool:
    """True if the size of a slice is right for some values of symbols, or if these are unknown."""
    if not _symbols(sizes) <= set(values):
        return True
    numbers = []
    for size in sizes:
        symbolic = isinstance(size, torch.SymInt)
        expression: Any = symbolic_expression(size) if symbolic else size
        try:
            numbers.append(int(expression.xreplace(values)) if symbolic else size)
        except ZeroDivisionError:  # the model refuses such a size
            return True
    length, recorded, first, last = numbers
    return bool(length >= 0 and recorded == len(range(length)[slice(first, last, step)]))
