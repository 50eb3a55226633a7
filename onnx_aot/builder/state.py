"""Holds everything that emission changes, in one object that can be copied."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import onnx_ir as ir

from onnx_aot.builder.domains import Domains
from onnx_aot.builder.size_table import SizeTable

__all__ = ["BuilderState"]


@dataclasses.dataclass
class BuilderState:
    """Everything that a translation changes by emitting nodes.

    If a translation declines a call, the next one must find the state as it was before.

    Attributes:
        sizes: Sizes that values hold.
        domains: Versions of the domains in use.
        nodes: Nodes emitted so far, in order.
        functions: Local functions of the model.
        functions_by_key: Local functions that a call with an equal key reuses.
        last_check: Output of the last check; None before the first.
        conditions: Texts of the conditions checked already.
    """

    sizes: SizeTable
    domains: Domains
    nodes: list[ir.Node] = dataclasses.field(default_factory=list)
    functions: dict[ir.OperatorIdentifier, ir.Function] = dataclasses.field(default_factory=dict)
    functions_by_key: dict[Hashable, ir.Function] = dataclasses.field(default_factory=dict)
    last_check: ir.Value | None = None
    conditions: set[str] = dataclasses.field(default_factory=set)

    @property
    def has_checks(self) -> bool:
        """True if there is a check that later values must wait for."""
        return self.last_check is not None

    def copy(self) -> BuilderState:
        """Returns an independent copy, which shares nodes and values."""
        return BuilderState(
            sizes=self.sizes.copy(),
            domains=self.domains.copy(),
            nodes=list(self.nodes),
            functions=dict(self.functions),
            functions_by_key=dict(self.functions_by_key),
            last_check=self.last_check,
            conditions=set(self.conditions),
        )

    def restore(self, before: BuilderState) -> None:
        """Resets the state to ``before``, a copy made earlier; the object stays the same.

        Callers up the stack, such as the one that makes a subgraph, hold references to it.
        """
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(before, field.name))
