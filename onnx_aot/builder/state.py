"""What emitting changes, as one object that can be copied."""

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

    A translation that declines a call gives way to another, which must find the state as it was.

    Attributes:
        sizes: Which values hold which sizes.
        domains: Versions of the domains in use.
        nodes: Emitted so far, in order.
        functions: Local functions of the model.
        functions_by_key: Those that another equal call would use again.
        last_check: Output of the last check; None before the first.
        conditions: Texts of the conditions that are checked already.
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
        """Whether there is a check that later values must wait for."""
        return self.last_check is not None

    def copy(self) -> BuilderState:
        """A state that changes by itself; nodes and values are shared."""
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
        """Makes the state what it was when ``before`` was copied from it.

        It stays the same object, with the same list of nodes, because callers up the stack, such as
        the one that makes a subgraph, hold on to them.
        """
        del self.nodes[len(before.nodes) :]
        self.sizes, self.domains = before.sizes, before.domains
        self.functions, self.functions_by_key = before.functions, before.functions_by_key
        self.last_check, self.conditions = before.last_check, before.conditions
