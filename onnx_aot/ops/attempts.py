"""Translations that may not fit a call: what they emitted before they said so is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_aot.ops.subgraphs import subgraphs

if TYPE_CHECKING:
    from onnx_aot.ops.builder import Builder

__all__ = ["Attempts", "DeclinedError"]


class DeclinedError(Exception):
    """A translation does not take a call, and the next one is to be tried; says why."""


class Attempts:
    """The part of the builder that takes back what was emitted."""

    _checked: ir.Value | None

    @contextmanager
    def attempt(self: Builder) -> Iterator[None]:  # type: ignore[misc]
        """What is emitted inside stays, unless the block ends with an exception."""
        outer, self.nodes = self.nodes, []
        before = dict(self._sizes), self._checked, dict(self.functions), self.domains()
        try:
            yield
            outer += self.nodes
        except BaseException:
            for node in self.nodes:
                _let_go(node)
            self._sizes, self._checked, self.functions, domains = before
            self.restore_domains(domains)
            raise
        finally:
            self.nodes = outer


def _let_go(node: ir.Node) -> None:
    """A node that is not used reads nothing, so that what it read is not kept for it."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for graph in subgraphs(node):
        for inner in graph:
            _let_go(inner)
