"""Names the user's line in assertions about data; their messages become names of ONNX checks."""

from __future__ import annotations

import collections
import linecache
import re

import torch
import torch.fx

from onnx_aot.errors import SourceLocation
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import (
    CONTENT_SIZE,
    asserted_condition,
    aten,
    python_expression,
    symbolic_expression,
)

__all__ = ["label_assertions"]

LABELLED = frozenset({aten._assert_async.msg, aten._assert_scalar.default})

# Strict capture writes the first for every assertion, scripted models have the second.
SAYING_NOTHING = frozenset({"assertion error", "the model would raise an exception"})


def label_assertions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Writes condition and line into torch's messages about data, and makes messages unique.

    Messages of the user stay as they are, and so do torch's about sizes of inputs.

    Before::

        _assert_scalar(eq, "Runtime assertion failed for expression Eq(u0, 1) on node 'eq'")

    After::

        _assert_scalar(eq, "Eq(u0, 1) (assert x.min() >= 0)")
    """
    seen: collections.Counter[str] = collections.Counter()
    for module in (*every_body(program.graph_module), program.graph_module):
        for node in module.graph.nodes:
            if node.target in LABELLED:
                message = _describe(node, str(node.args[1]))
                seen[message] += 1
                again = f" #{seen[message]}" if seen[message] > 1 else ""
                node.args = (node.args[0], message + again)
    return program


def _describe(node: torch.fx.Node, message: str) -> str:
    condition = asserted_condition(message)
    if condition is None and message not in SAYING_NOTHING:
        return message
    if condition is not None:
        symbols = re.findall(r"\b[a-z]+\d+\b", condition)
        if not symbols or not all(map(CONTENT_SIZE.fullmatch, symbols)):
            return message
        condition = _write_condition(node, condition)
    place = _find_place(node)
    code = "" if place is None else place.code or linecache.getline(place.file, place.line)
    return f"{condition or message} ({code.strip()})" if code.strip() else condition or message


def _find_place(node: torch.fx.Node) -> SourceLocation | None:
    """The user's line of an assertion, or of what it asserts: torch 2.12 records no line for it."""
    place = location(node)
    while place is None and node.all_input_nodes:
        node = node.all_input_nodes[-1]
        place = location(node)
    return place


def _write_condition(node: torch.fx.Node, condition: str) -> str:
    """The condition as Python if the recorded value still has it, else as torch wrote it."""
    import sympy

    asserted = node.args[0]
    recorded = asserted.meta.get("val") if isinstance(asserted, torch.fx.Node) else None
    if not isinstance(recorded, torch.SymBool):
        return condition
    expression = symbolic_expression(recorded)
    plain = expression.is_Relational and not expression.has(sympy.Piecewise)
    return python_expression(expression, {}) if plain else condition
