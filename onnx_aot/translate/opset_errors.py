"""Collects everything that the requested opset lacks, so that one error lists all of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir
import torch.fx

from onnx_aot.builder.builder import Builder
from onnx_aot.errors import MissingInOpset, OpsetError
from onnx_aot.metadata.keys import FX_NODE
from onnx_aot.metadata.provenance import location, place, target_name

__all__ = ["MissingForms", "add_node", "list_locations", "make_opset_error"]

SHOWN = 5  # lines of the user's code per entry


class MissingForms:
    """Operators and forms that the opset lacks, with the nodes that need them.

    A node that cannot be emitted in the opset is translated in the lowest opset that supports it,
    so that the walk goes on and finds the others. The resulting model is not used.
    """

    def __init__(self, op: Builder) -> None:
        self._op = op
        self._nodes: dict[MissingInOpset, list[torch.fx.Node]] = {}

    def collect(
        self, error: OpsetError, node: torch.fx.Node, translate: Callable[[torch.fx.Node], None]
    ) -> None:
        """Records what a node needs, and translates it in a later opset.

        Raises:
            OpsetError: No opset has it; the error also lists what was collected before.
        """
        asked = self._op.opset
        refused: OpsetError | None = error
        try:
            while refused is not None:
                for entry in refused.missing:
                    self._nodes.setdefault(entry, []).append(node)
                if refused.lowest is None or refused.lowest <= self._op.opset:
                    raise self._make_error() from refused
                self._op.opset = refused.lowest
                refused = self._try_translation(node, translate)
        finally:
            self._op.opset = asked

    def _try_translation(
        self, node: torch.fx.Node, translate: Callable[[torch.fx.Node], None]
    ) -> OpsetError | None:
        try:
            translate(node)
        except OpsetError as error:
            return error
        except Exception as error:
            raise self._make_error() from error
        return None

    def check(self) -> None:
        """Checks that nothing is missing.

        Raises:
            OpsetError: Something is missing.
        """
        if self._nodes:
            raise self._make_error()

    def _make_error(self) -> OpsetError:
        return OpsetError(*(_make_entry(missing, nodes) for missing, nodes in self._nodes.items()))


def make_opset_error(
    missing: Mapping[MissingInOpset, Sequence[ir.Node]], captured: torch.fx.Graph
) -> OpsetError:
    """Returns the error for ONNX nodes that the opset lacks, which come from captured nodes."""
    by_name = {node.name: node for node in captured.nodes}
    entries = []
    for entry, nodes in missing.items():
        names = dict.fromkeys(str(node.meta.get(FX_NODE)) for node in nodes)
        entries.append(_make_entry(entry, [by_name[name] for name in names if name in by_name]))
    return OpsetError(*entries)


def add_node(error: OpsetError, node: torch.fx.Node | None) -> OpsetError:
    """Returns the error with the captured node, if there is one, and its line."""
    if node is None:
        return error
    return OpsetError(*(_make_entry(missing, [node]) for missing in error.missing))


def _make_entry(missing: MissingInOpset, nodes: list[torch.fx.Node]) -> MissingInOpset:
    targets = collections.Counter(target_name(node.target) for node in nodes)
    return MissingInOpset(
        missing.operator,
        missing.problem,
        missing.since,
        tuple(targets.most_common()),
        list_locations(nodes),
        tuple(found for node in nodes if (found := place(node)) is not None),
    )


def list_locations(nodes: Sequence[torch.fx.Node]) -> tuple[str, ...]:
    """Returns the lines of the user's code that nodes come from, at most ``SHOWN`` of them."""
    found = dict.fromkeys(where.with_code for where in map(location, nodes) if where is not None)
    lines = list(found)
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and {len(lines) - SHOWN} more lines"]
    return tuple(lines)
