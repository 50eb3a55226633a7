"""Checks that the model itself makes: ``torch._check`` and ``torch._assert_async``.

Without ``runtime_checks=True`` they are dropped before translation, so these translations are not
part of the operator table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import Translation, make_translation
from onnx_aot.torch_compat import asserted_condition, aten, symbolic_expression

__all__ = ["assertions"]


def assertions() -> dict[Any, tuple[Translation, ...]]:
    """Operator table entries that turn assertions into checks."""
    return {target: (make_translation(target, function),) for target, function in _TABLE.items()}


def _assert_scalar(op: Builder, self: Any, assert_msg: str) -> None:
    """Checks ``torch._check`` on symbolic numbers; sizes of inputs are named by dimension."""
    recorded = op.recorded[0] if op.recorded else None
    text, of_sizes = assert_msg, asserted_condition(assert_msg) is not None
    if of_sizes and isinstance(recorded, torch.SymBool) and op.state.sizes.algebra is not None:
        text = op.state.sizes.algebra.text(symbolic_expression(recorded))
    op.check(self if isinstance(self, ir.Value) else bool(self), text)


def _assert_message(op: Builder, self: ir.Value, assert_msg: str) -> None:
    """Checks that a tensor with one element is not zero."""
    true = op.cast(self, ir.DataType.BOOL)
    if op.rank(true):
        true = op.Squeeze(true, list(range(op.rank(true))))
    op.check(true, assert_msg)


def _assert_async(op: Builder, self: ir.Value) -> None:
    _assert_message(op, self, "an assertion without a message")


def _ignore_constraint(op: Builder, size: Any, min: int | None, max: int | None) -> None:
    """Emits nothing: an assertion next to it says the same."""


def _assert_metadata(
    op: Builder,
    a: ir.Value,
    size: Any,
    stride: Any,
    dtype: Any,
) -> None:
    """Emits nothing: the type of a value is fixed in the model."""


_TABLE: dict[Any, Callable[..., Any]] = {
    aten._assert_async.default: _assert_async,
    aten._assert_async.msg: _assert_message,
    aten._assert_scalar.default: _assert_scalar,
    aten._assert_tensor_metadata.default: _assert_metadata,
    aten.sym_constrain_range.default: _ignore_constraint,
    aten.sym_constrain_range_for_size.default: _ignore_constraint,
}
