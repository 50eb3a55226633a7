"""``op``, the first argument of every translation.

``op.CamelCase(...)`` emits an ONNX operator; ``op.snake_case`` is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.checks import emit_check
from onnx_aot.builder.graph_builder import GraphBuilder, Size
from onnx_aot.builder.local_functions import call_function
from onnx_aot.builder.rollback import attempt
from onnx_aot.builder.subgraphs import Body, emit_if, emit_loop, emit_scan

__all__ = ["Builder", "Size"]


class Builder(GraphBuilder):
    """Emits nodes, with subgraphs, local functions and checks among them."""

    def loop(
        self,
        count: int | ir.Value | None,
        carried: Sequence[Any],
        body: Body,
        *,
        condition: ir.Value | None = None,
    ) -> list[ir.Value]:
        """ONNX Loop (version 16): runs the body ``count`` times, or while a condition holds.

        Args:
            count: Trip count, an int or a 0-d INT64 value; None runs while the condition holds.
            carried: Values before the first step (numbers become constants).
            body: ``body(i, *carried)`` with the 0-d INT64 step number; returns the carried values
                after the step, in the same number and types, and then any values that are collected
                over the steps in a new first dimension. With ``condition`` it returns the next
                condition, a 0-d BOOL value, before them.
            condition: Whether to run the first step. Carried values keep their rank; a dimension
                that differs between steps must not be known as a number before the loop.

        Returns:
            The carried values after the last step, then the collected ones.
        """
        return emit_loop(self, count, carried, body, condition=condition)

    def scan(
        self,
        carried: Sequence[Any],
        sequences: Sequence[ir.Value],
        body: Body,
        *,
        axis: int = 0,
        reverse: bool = False,
    ) -> list[ir.Value]:
        """ONNX Scan (version 16): steps through values along one axis.

        Args:
            carried: Values before the first step (numbers become constants); they keep their
                shapes.
            sequences: Values that the body sees one slice of in each step, the axis removed. They
                must have the same size along it, at least 1.
            body: ``body(*carried, *slices)`` returns the carried values after the step, and then
                values that are collected over the steps along the same axis.
            axis: Non-negative axis that is stepped through and collected along.
            reverse: From the last slice to the first; what is collected keeps the places.

        Returns:
            The carried values after the last step, then the collected ones.
        """
        return emit_scan(self, carried, sequences, body, axis=axis, reverse=reverse)

    def if_(self, condition: ir.Value, then: Body, otherwise: Body) -> list[ir.Value]:
        """ONNX If (version 16): the results of one of two functions without arguments.

        Args:
            condition: A BOOL value with one element.
            then: Called for the values when the condition holds.
            otherwise: Likewise when it does not; the same number of results, of the same types and
                ranks.

        Returns:
            The results.
        """
        return emit_if(self, condition, then, otherwise)

    def function(
        self,
        name: str,
        key: Hashable,
        operands: Sequence[ir.Value],
        body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Calls a local function, which is made the first time.

        Args:
            name: What it is called, with a number behind it where another one is called so.
            key: Equal for calls of one function.
            operands: What it is called with.
            body: Emits it; gets values that stand for the operands, may read no other values but
                constants, and returns the results.

        Raises:
            TranslationError: The body reads something else.
        """
        return call_function(self, name, key, operands, body)

    def check(self, condition: Any, text: str) -> None:
        """Emits nodes that fail, with the text in the node's name, where a condition is false.

        Args:
            condition: A 0-d BOOL value, or a Python bool, of which only False makes nodes.
            text: The condition as the user would write it.
        """
        emit_check(self, condition, text)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is emitted inside stays, unless the block ends with an exception."""
        with attempt(self):
            yield
