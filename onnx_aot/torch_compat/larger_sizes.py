"""Questions about sizes that depend on data, answered as for sizes from 2 on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from onnx_aot.torch_compat.names import private

__all__ = ["answer_for_larger_sizes"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


@contextlib.contextmanager
def answer_for_larger_sizes(seen: Callable[[Any, Any], None] | None) -> Iterator[None]:
    """Lets a capture go on where it asks about the number of elements that data selects.

    ``n > 0`` is true and ``n == 1`` false for every number from 2 on; ``n > 4`` has no such answer,
    and the capture fails. What was answered becomes an assertion of the captured program.

    Args:
        seen: Called with the ``ShapeEnv`` and the condition that is relied on. None: the question
            is of no consequence for what is captured, and nothing is asserted.

    Without ``ShapeEnv._evaluate_expr`` captures fail at these questions.
    """
    env = private(_SHAPES, "ShapeEnv")
    error = private(_SHAPES, "GuardOnDataDependentSymNode")
    before = getattr(env, "_evaluate_expr", None)
    if before is None or error is None:
        yield
        return
    plain = getattr(before, "asks_torch", before)
    skipped = private(_SHAPES, "uninteresting_files")
    if skipped is not None:
        skipped().add(__file__)  # torch's messages name the first file that is not in it

    def evaluate(
        self: Any, expression: Any, hint: Any = None, node: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return plain(self, expression, hint, node, *args, **kwargs)
        except error:
            answer = _for_larger_sizes(self, expression)
            if answer is None:
                raise
            if seen is not None:
                relied_on = expression if answer else ~expression
                self.guard_or_defer_runtime_assert(relied_on, str(relied_on), node)
                seen(self, relied_on)
            return answer

    evaluate.asks_torch = plain  # type: ignore[attr-defined]
    env._evaluate_expr = evaluate
    try:
        yield
    finally:
        env._evaluate_expr = before
        if seen is None:  # the same question may be of consequence elsewhere
            with contextlib.suppress(AttributeError):
                env._inner_evaluate_expr.cache_clear()


def _for_larger_sizes(env: Any, expression: Any) -> Any:
    """``sympy.true`` or ``sympy.false``, or None where that depends."""
    import sympy

    bound = private("torch.utils._sympy.value_ranges", "bound_sympy")
    ranges = private("torch.utils._sympy.value_ranges", "ValueRanges")
    infinity = private("torch.utils._sympy.numbers", "int_oo")
    if not isinstance(expression, sympy.logic.boolalg.Boolean) or None in (bound, ranges, infinity):
        return None
    counts = getattr(env, "size_like", set()) & expression.free_symbols
    larger = {s: ranges(2, infinity) if s in counts else r for s, r in env.var_to_range.items()}
    answer = bound(expression, {s: larger[s] for s in expression.free_symbols})
    return answer.lower if counts and answer.is_singleton() else None
