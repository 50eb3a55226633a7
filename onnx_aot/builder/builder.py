"""Defines ``op``, the first argument of every translation.

``op.CamelCase(...)`` emits an ONNX operator; ``op.snake_case(...)`` is a method of the builder.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.checks import emit_check
from onnx_aot.builder.graph_builder import GraphBuilder, Size
from onnx_aot.builder.local_functions import call_function
from onnx_aot.builder.rollback import attempt
from onnx_aot.builder.subgraphs import Body, emit_if, emit_loop, emit_scan

__all__ = ["Builder", "Size"]


class Builder(GraphBuilder):
    """Emits nodes, including subgraphs, local functions and checks."""

    def loop(
        self,
        count: int | ir.Value | None,
        carried: Sequence[Any],
        body: Body,
        *,
        condition: ir.Value | None = None,
    ) -> list[ir.Value]:
        """Emits ONNX Loop (version 16): runs the body ``count`` times, or while a condition holds.

        Args:
            count: Trip count, an int or a 0-d INT64 value; None runs while the condition holds.
            carried: Values before the first step (numbers become constants). They keep their rank;
                a dimension that differs between steps must not be static before the loop.
            body: ``body(i, *carried)`` with the 0-d INT64 step number. It returns the carried
                values after the step, in the same number and types, followed by any values to
                collect over the steps in a new first dimension. With ``condition`` it returns the
                next condition, a 0-d BOOL value, before them.
            condition: Whether to run the first step.

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
        """Emits ONNX Scan (version 16): steps through values along one axis.

        Args:
            carried: Values before the first step (numbers become constants); they keep their
                shapes.
            sequences: Values of which each step passes one slice to the body, without the axis.
                They must have the same size along it, at least 1.
            body: ``body(*carried, *slices)`` returns the carried values after the step, followed by
                any values to collect over the steps along the same axis.
            axis: Non-negative axis to step through and to collect along.
            reverse: Whether to step from the last slice to the first. Collected slices keep the
                positions of the slices that they were computed from.

        Returns:
            The carried values after the last step, then the collected ones.
        """
        return emit_scan(self, carried, sequences, body, axis=axis, reverse=reverse)

    def if_(self, condition: ir.Value, then: Body, otherwise: Body) -> list[ir.Value]:
        """Emits ONNX If (version 16): the results of one of two functions without arguments.

        Args:
            condition: A BOOL value with one element.
            then: Returns the results for a true condition.
            otherwise: Returns the results for a false condition: the same number, of the same types
                and ranks.

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
        """Calls a local function, and creates it at the first call.

        Args:
            name: Name of the function; a number is appended if another function has it.
            key: Identifies the function: calls with equal keys share one.
            operands: Arguments of the call.
            body: Emits the function's nodes. It receives values that stand for the operands, may
                read no other values except constants, and returns the results.

        Raises:
            TranslationError: The body reads another value.
        """
        return call_function(self, name, key, operands, body)

    def check(self, condition: Any, text: str) -> None:
        """Emits nodes that fail, with the text in the node's name, if a condition is false.

        Args:
            condition: A 0-d BOOL value, or a Python bool; True emits no nodes.
            text: The condition as the user would write it.
        """
        emit_check(self, condition, text)

    def attempt(self) -> AbstractContextManager[None]:
        """Undoes everything emitted inside the block if it ends with an exception."""
        return attempt(self)
