"""Answers questions about data that only decide whether the user's code raises or writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from onnx_aot.torch_compat.behaviour import asserts_floats_of_data
from onnx_aot.torch_compat.lookup import private
from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["VALIDATIONS"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


def _answer_validations(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Lets a capture continue past code that only validates data, as if the data were valid.

    If the code raises an error, that it does not run becomes an assertion of the captured program.
    The answer itself is not kept, so that another line with the same question asks again: torch
    keeps those of ``_inner_evaluate_expr``, which this function calls.
    """
    error = private(f"{_SHAPES}:GuardOnDataDependentSymNode")

    @functools.wraps(original)
    def evaluate_expr(
        self: Any, orig_expr: Any, hint: Any = None, fx_node: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if error is None:
            return original(self, orig_expr, hint, fx_node, *args, **kwargs)
        try:
            return original(self, orig_expr, hint, fx_node, *args, **kwargs)
        except error:
            found = settings.validations.find() if _is_condition(orig_expr) else None
            if found is None:
                raise
            holds = orig_expr if found.answer else ~orig_expr
            others, found.others = found.others, None  # with the frame that asks
            if found.raises:
                conditions = _join(holds, others)
                found.asserted = conditions is not None
                if found.asserted and not _assert(self, conditions, fx_node):
                    raise
            settings.validations.append(found)
            if settings.decided is not None:
                settings.decided("validated", self, holds)
            return _sympy_bool(found.answer)

    return evaluate_expr


def _is_condition(expression: Any) -> bool:
    from sympy.logic.boolalg import Boolean

    return isinstance(expression, Boolean)


def _sympy_bool(value: bool) -> Any:
    import sympy

    return sympy.true if value else sympy.false


def _join(holds: Any, others: Callable[[], list[Any]]) -> Any:
    """Returns the condition that one of several holds; None if it cannot be asserted."""
    import sympy

    try:
        condition = sympy.Or(holds, *others())
    except Exception:  # the user's expressions may fail for values that they are not made for
        return None
    has_floats = any(map(_is_float, condition.free_symbols))
    return None if has_floats and not asserts_floats_of_data() else condition


def _assert(env: Any, condition: Any, fx_node: Any) -> bool:
    """Asserts a condition in the captured program; returns False if it is known to be false."""
    if condition.is_Boolean and not condition.free_symbols:
        return bool(condition)
    return bool(env.guard_or_defer_runtime_assert(condition, str(condition), fx_node))


def _leave_to_validations(
    original: Callable[[Any], bool], settings: Settings
) -> Callable[[Any], bool]:
    """Keeps torch from answering for ``assert`` itself, which it does without looking at callers.

    A caller may catch the error and go on in another way.
    """

    def is_python_assert(self: Any) -> bool:
        return not settings.validations.reads_source() and original(self)

    return is_python_assert


def _is_float(symbol: Any) -> bool:
    return str(symbol).startswith("zuf")


VALIDATIONS: tuple[Patch, ...] = (
    Patch(
        f"{_SHAPES}:ShapeEnv.evaluate_expr",
        _answer_validations,
        "Captures fail where the model checks its data, as in: if x.min() < 0: raise ValueError.",
        when=lambda settings: settings.validations is not None,
        parameters="self, orig_expr, hint, fx_node",
    ),
    Patch(
        f"{_SHAPES}:ShapeEnv._is_python_assert",
        _leave_to_validations,
        "Assertions of the model are left out without a warning, and an except that catches one "
        "is ignored.",
        when=lambda settings: settings.validations is not None,
        parameters="self",
    ),
)
