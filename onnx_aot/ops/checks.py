"""``op.check``: nodes that fail in any runtime when a condition does not hold.

ONNX has no assertion. A check reshapes one element to a shape of one element, or of two where the
condition is false, which no runtime does. Each check reshapes the result of the one before, so that
they run in order; what is handed on depends on the last of them (``op.guarded``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_aot.metadata_keys import CHECK

if TYPE_CHECKING:
    from onnx_aot.ops.builder import Builder

__all__ = ["Checks"]


class Checks:
    """The part of the builder that makes checks."""

    _checked: ir.Value | None
    _conditions: set[str]

    def __init__(self) -> None:
        super().__init__()
        self._checked = None
        self._conditions = set()

    def check(self: Builder, condition: Any, text: str) -> None:  # type: ignore[misc]
        """Emits nodes that fail, with the text in the node's name, where a condition is false.

        Args:
            condition: A 0-d BOOL value, or a Python bool, of which only False makes nodes.
            text: The condition as the user would write it.
        """
        if text in self._conditions or condition is True:
            return
        self._conditions.add(text)
        value = self.cast(condition, ir.DataType.BOOL)
        broken = self.Cast(self.Not(value), to=ir.DataType.INT64)
        length = self.Unsqueeze(self.Add(broken, 1), [0])
        before = self.constant([0]) if self._checked is None else self._checked
        # By hand: two reshapes in a row would be made one. Without the size: ONNX Runtime removes
        # a reshape that is known to change nothing.
        after = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None]))
        self._add_node(
            ir.Node("", "Reshape", [before, length], outputs=[after], name=f"{CHECK}{text}")
        )
        self._checked = after

    @property
    def has_checks(self) -> bool:
        """Whether there was a check since the last ``forget_checks``."""
        return self._checked is not None

    def forget_checks(self) -> None:
        """Values that are guarded from now on depend on later checks only."""
        self._checked = None

    def guarded(self: Builder, value: ir.Value, *, copied: bool) -> ir.Value:  # type: ignore[misc]
        """The same tensor, which is there only when all checks so far have passed.

        Args:
            value: A tensor of any type and rank.
            copied: False reshapes it to its own shape, which costs nothing. Its dimensions stay
                unknown, because ONNX Runtime removes a reshape that is known to change nothing; a
                reshape of the result may be joined with it. True broadcasts the tensor to a shape
                of ones, which copies it, and which nothing removes.
        """
        assert self._checked is not None
        rank = self.rank(value)
        if not rank:
            # No reshape: ONNX Runtime makes one of it and the next, which reads no check.
            one = ir.Value(type=value.type, shape=ir.Shape([1]))
            self._add_node(
                ir.Node("", "Expand", [value, self.Add(self._checked, 1)], outputs=[one])
            )
            kept = ir.Value(type=value.type, shape=ir.Shape([]))
            node = ir.Node("", "Squeeze", [one, self.constant([0])], outputs=[kept])
        elif copied:
            ones = self.Expand(self.Add(self._checked, 1), self.constant([rank]))
            kept = ir.Value(type=value.type, shape=value.shape)
            node = ir.Node("", "Expand", [value, ones], outputs=[kept])
        else:  # a size of 0 stands for the one that the tensor has
            zeros = self.Expand(self._checked, self.constant([rank]))
            kept = ir.Value(type=value.type, shape=ir.Shape([None] * rank))
            node = ir.Node("", "Reshape", [value, zeros], outputs=[kept])
        self._add_node(node)
        return kept
