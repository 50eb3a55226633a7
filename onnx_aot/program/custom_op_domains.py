"""Finds operators of a model that ONNX Runtime does not provide."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.metadata.keys import PLACEHOLDER_DOMAIN

__all__ = ["foreign_operators"]

RUNTIME_DOMAINS = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
)


def foreign_operators(model: ir.Model) -> list[str]:
    """Operators of foreign domains without an implementation in the model, as ``domain::name``."""
    if len(model.opset_imports) == 1:
        return []
    found = {
        f"{node.domain}::{node.op_type}"
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        if node.domain not in RUNTIME_DOMAINS and node.op_identifier() not in model.functions
    }
    for function in model.functions.values():
        for node in ir.traversal.RecursiveGraphIterator(function):
            if node.domain == PLACEHOLDER_DOMAIN:
                found.add(f"{function.domain}::{function.name}")
            elif node.domain not in RUNTIME_DOMAINS and node.op_identifier() not in model.functions:
                found.add(f"{node.domain}::{node.op_type}")
    return sorted(found)
