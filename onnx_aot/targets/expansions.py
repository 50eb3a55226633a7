"""Operators written exactly with others, for types that a target has no kernel for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_aot.targets.emitter import Emitter

__all__ = ["EXPANSIONS"]

Expansion = Callable[["Emitter", ir.Node], Sequence[ir.Value] | None]

EXPANSIONS: dict[tuple[str, ir.DataType], Expansion] = {}
"""By operator and type; one that returns None cannot express the node, which is cast instead."""
