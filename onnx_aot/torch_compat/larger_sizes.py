"""Answers guards on data-dependent sizes as for sizes from 2 on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnx_aot.torch_compat.fresh_sizes import define_fresh
from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.places import Members, Place
from onnx_aot.torch_compat.symbolic_sizes import is_data_symbol

__all__ = ["LARGER_SIZES", "UNINTERESTING"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


def _answer_for_larger(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Lets a capture continue if it asks about the number of elements that data selects.

    ``n > 0`` is true and ``n == 1`` false for every number from 2 on; ``n > 4`` has no such answer,
    and the capture fails. Each answer becomes an assertion in the captured program, unless
    ``Settings.decided`` is None: then the question has no consequence.
    """
    error = private(f"{_SHAPES}:GuardOnDataDependentSymNode")
    asked = getattr(original, "asks_torch", original)
    told = settings.decided

    @functools.wraps(asked)
    def evaluate(
        self: Any, expression: Any, hint: Any = None, node: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if error is None:
            return asked(self, expression, hint, node, *args, **kwargs)
        try:
            return asked(self, expression, hint, node, *args, **kwargs)
        except error:
            if settings.validations is not None and settings.validations.find() is not None:
                raise  # it is answered in evaluate_expr
            defined = define_fresh(self, expression)
            if defined is not None:
                return asked(self, defined, None, None)  # a guard on sizes of the inputs
            if settings.loops is not None and settings.loops.is_asked_about(expression):
                raise  # the answer for one step need not hold for others
            by_torch = _is_asked_by_torch(settings)
            known = {} if settings.branches is None else settings.branches.known
            if settings.both_sizes and settings.branches is not None and not by_torch:
                raise  # both ways are captured
            answer = _for_known_sizes(self, expression, known)
            if answer is not None:
                return answer
            if settings.validations is not None and settings.validations.decides_a_loop():
                raise  # a loop that goes on for 2 elements or more would never end
            answer = _for_larger_sizes(self, expression, by_torch)
            if answer is None:
                raise
            if told is not None:
                relied_on = expression if answer else ~expression
                self.guard_or_defer_runtime_assert(relied_on, str(relied_on), node)
                told("larger", self, relied_on)
            return answer

    evaluate.asks_torch = asked  # type: ignore[attr-defined]
    return evaluate


def _is_asked_by_torch(settings: Settings) -> bool:
    """True if a kernel of torch asks, which has questions about sizes, and not the model."""
    return settings.validations is not None and not settings.validations.is_asked_by_model()


def _for_known_sizes(env: Any, expression: Any, known: Mapping[Any, bool]) -> Any:
    """The answer that follows from what a path of the model holds for; None if none does."""
    bound = private("torch.utils._sympy.value_ranges:bound_sympy")
    limits = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
    symbols = expression.free_symbols
    if not known or bound is None or not symbols <= limits.keys():
        return None
    answer = bound(expression, {s: _narrow(limits[s], s, known) for s in symbols})
    return answer.lower if answer.is_singleton() else None


def _narrow(limits: Any, symbol: Any, known: Mapping[Any, bool]) -> Any:
    """The range of a symbol of which answers to comparisons with numbers are known."""
    import sympy

    lower, upper = limits.lower, limits.upper
    for asked, holds in known.items():
        if not holds or not isinstance(asked, sympy.core.relational.Relational):
            continue
        relation = asked if asked.lhs == symbol else asked.reversed
        if relation.lhs != symbol or not relation.rhs.is_Integer:
            continue
        number, kind = relation.rhs, relation.rel_op
        if kind in ("==", ">=", ">"):
            lower = max(lower, number + (kind == ">"))
        if kind in ("==", "<=", "<"):
            upper = min(upper, number - (kind == "<"))
        if kind == "!=" and number == lower:
            lower = lower + 1
    return type(limits)(lower, upper) if lower <= upper else limits


def _for_larger_sizes(env: Any, expression: Any, counts_all: bool) -> Any:
    """Returns ``sympy.true`` or ``sympy.false``, or None if the answer depends on the size.

    Args:
        env: Torch's ShapeEnv.
        expression: The question.
        counts_all: Whether each number of data that is not negative counts as a size, such as
            ``zeros(lengths.max())`` has. Otherwise only numbers of elements that data selects do.
    """
    import sympy

    bound = private("torch.utils._sympy.value_ranges:bound_sympy")
    ranges = private("torch.utils._sympy.value_ranges:ValueRanges")
    infinity = private("torch.utils._sympy.numbers:int_oo")
    if not isinstance(expression, sympy.logic.boolalg.Boolean) or None in (bound, ranges, infinity):
        return None
    of_data = private_attribute(env, f"{_SHAPES}:ShapeEnv.size_like", set())
    limits = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
    counts = of_data & expression.free_symbols
    if counts_all:
        asked = (s for s in expression.free_symbols if s.is_integer and is_data_symbol(s))
        # a bool is a number from 0 to 1
        counts |= {s for s in asked if s in limits and limits[s].lower >= 0 and limits[s].upper > 1}
    larger = {s: ranges(2, infinity) if s in counts else r for s, r in limits.items()}
    if not counts or not expression.free_symbols <= larger.keys():
        return None
    answer = bound(expression, {s: larger[s] for s in expression.free_symbols})
    return answer.lower if answer.is_singleton() else None


LARGER_SIZES = Patch(
    f"{_SHAPES}:ShapeEnv._evaluate_expr",
    _answer_for_larger,
    "Captures fail where they ask about the number of elements that data selects.",
    when=lambda settings: settings.larger_sizes,
    parameters="self, orig_expr, hint, fx_node",
)


@functools.cache
def _own_files() -> frozenset[str]:
    folder = Path(_answer_for_larger.__code__.co_filename).parent
    return frozenset(map(str, folder.glob("*.py")))


def _uninteresting(settings: Settings) -> Iterator[Place]:
    files = private(f"{_SHAPES}:uninteresting_files")
    if files is not None:
        yield Members(files(), _own_files())


UNINTERESTING = Patch(
    f"{_SHAPES}:uninteresting_files",
    lambda original, settings: _own_files(),
    "Torch's messages about sizes of data name lines of this package.",
    places=_uninteresting,
    exists=lambda: private(f"{_SHAPES}:uninteresting_files") is not None,
)
