"""Drives the rules: visits every node once, and again only if something around it changed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.graph.traversal import all_nodes
from onnx_aot.ir_passes.rewriter import HasKernel, RefusedError, Rewriter, Rule, any_kernel

__all__ = ["Outcome", "apply_rules"]

VISITS_PER_NODE = 10
"""Limit for rules that undo each other's work and would otherwise run forever."""


@dataclasses.dataclass
class Outcome:
    """The effect of passes and rules on a model.

    Attributes:
        counts: How often each one changed something, by name.
        undone: Those that failed and were undone, with the reason.
        visits: Number of visits to nodes at which rules were tried, including repeated visits.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    undone: dict[str, str] = dataclasses.field(default_factory=dict)
    visits: int = 0


def apply_rules(
    model: ir.Model,
    rules: Sequence[Rule],
    outcome: Outcome,
    has_kernel: HasKernel = any_kernel,
) -> str | None:
    """Tries rules at every node of the graph, its subgraphs and the local functions, in order.

    Functions with attributes are skipped, because the effect of their nodes depends on the call.

    At a node only the rules of its operator are tried, in the order of ``rules``, until one
    applies. Then the nodes that it made, and those around the change, are visited again. A rule
    that raises is not tried again; the model stays as it was before that rule.

    Args:
        model: Changed in place.
        rules: The rules in order of precedence.
        outcome: Updated in place. Rules in its ``undone`` are skipped.
        has_kernel: Tells for which operators the runtime has kernels.

    Returns:
        The name of a rule whose change failed midway, which leaves the model unusable; else None.
    """
    rewriter = Rewriter(model, has_kernel)
    roots: list[tuple[ir.Graph, ir.Function | None]] = [(model.graph, None)]
    roots += [(f.graph, f) for f in model.functions.values() if not f.attributes]
    for graph, function in roots:
        rewriter.enter(graph, function)
        fitting = [rule for rule in rules if rule.fits(rewriter.opset, has_kernel)]
        driver = _Driver(rewriter, fitting, outcome, graph)
        try:
            driver.run()
        except Exception as error:
            if driver.applying is None:
                raise
            outcome.undone[driver.applying] = f"{type(error).__name__}: {error}"
            return driver.applying
    return None


class _Driver:
    """Applies rules to one graph and its subgraphs."""

    def __init__(
        self, rewriter: Rewriter, rules: Sequence[Rule], outcome: Outcome, graph: ir.Graph
    ) -> None:
        self._rewriter = rewriter
        self._outcome = outcome
        self._graph = graph
        self._by_operator: dict[str, list[Rule]] = {}
        for rule in rules:
            if rule.name not in outcome.undone:
                for root in rule.roots:
                    self._by_operator.setdefault(root, []).append(rule)
        self._seen: set[ir.Node] = set()
        self._again: dict[ir.Node, None] = {}
        self._left = 100
        self.applying: str | None = None

    def run(self) -> None:
        for node in all_nodes(self._graph):
            self._seen.add(node)
            self._left += VISITS_PER_NODE
            self._visit(node)
            while self._again:
                following = next(iter(self._again))
                del self._again[following]
                self._visit(following)

    def _visit(self, node: ir.Node) -> None:
        rules = self._by_operator.get(node.op_type)
        if rules is None or node.domain or node.graph is None or self._left <= 0:
            return
        self._left -= 1
        self._outcome.visits += 1
        behind: set[str] | None = None
        for rule in rules:
            if rule.behind is not None:
                if behind is None:
                    producers = [value.producer() for value in node.inputs if value is not None]
                    behind = {producer.op_type for producer in producers if producer is not None}
                if rule.behind.isdisjoint(behind):
                    continue
            if self._try_rule(rule, node):
                return

    def _try_rule(self, rule: Rule, node: ir.Node) -> bool:
        rewriter, outcome = self._rewriter, self._outcome
        rewriter.begin()
        try:
            if not rule.apply(node, rewriter):
                return False
        except RefusedError:
            return False
        except Exception as error:  # nothing has been changed yet, so the model is intact
            outcome.undone[rule.name] = f"{type(error).__name__}: {error}"
            for root in rule.roots:
                self._by_operator[root] = [r for r in self._by_operator[root] if r is not rule]
            return False
        self.applying = rule.name
        try:
            made, around = rewriter.commit(node)
        except RefusedError:
            self.applying = None
            return False
        self.applying = None
        outcome.counts[rule.name] += 1
        self._seen.update(made)
        for other in (*made, *around):
            if other in self._seen and other.graph is not None:
                self._again[other] = None
        if self._left == 0:
            outcome.undone[rule.name] = "it and others repeat forever; the rules were stopped"
        return True
