"""Optimizes ONNX models: passes, one per file, each linear in the number of nodes, and rules.

A rule rewrites the nodes around one node (``rules.py`` explains how to add one); ``apply_rules``
tries all rules after the passes. ``IR_PASSES`` defines the order of the passes; a comment on each
entry gives the reason for its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx_ir as ir

from onnx_aot.ir_passes.apply_rules import Outcome, apply_rules
from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from onnx_aot.ir_passes.remove_unused import remove_unused
from onnx_aot.ir_passes.rewriter import HasKernel, any_kernel
from onnx_aot.ir_passes.rules import CONTRIB_RULES, LATE_RULES, RULES, RULES_ON_REQUEST
from onnx_aot.ir_passes.share_initializers import share_initializers
from onnx_aot.ir_passes.snapshot import Snapshot

__all__ = [
    "CONTRIB_RULES",
    "IR_PASSES",
    "LATE_RULES",
    "RULES",
    "RULES_ON_REQUEST",
    "Outcome",
    "names_of_passes",
    "run_passes",
]

IR_PASSES: tuple[Callable[[ir.Model], int], ...] = (
    remove_unused,  # first: fewer nodes for the others to visit
    share_initializers,  # before CSE, which then sees equal inputs as one value
    eliminate_common_subexpressions,  # before the rules, which then see equal values as one
)


def names_of_passes() -> list[str]:
    """Names of passes, then of rules, in the order in which they run.

    ``optimize={...}`` accepts these, and the names of ``RULES_ON_REQUEST``.
    """
    rules = (*RULES, *LATE_RULES, *CONTRIB_RULES)
    return [*(ir_pass.__name__ for ir_pass in IR_PASSES), *dict.fromkeys(r.name for r in rules)]


def run_passes(
    model: ir.Model,
    optimize: bool | str | Collection[str] = True,
    contrib_ops: bool = False,
    has_kernel: HasKernel = any_kernel,
) -> Outcome:
    """Runs passes and rules on the model in place.

    A pass or rule that raises is undone: a rule at the node where it raised; a pass by restoring
    the model and running the others again.

    Args:
        model: Changed in place.
        optimize: True: all; ``"safe"``: those that keep every value as it is; a collection of
            names: only these; False: none.
        contrib_ops: Whether rules that emit operators specific to ONNX Runtime run too.
        has_kernel: Tells for which operators, in which opset, the runtime has kernels. Attention,
            for example, becomes one node only where it has.

    Returns:
        How often each one changed something, and which ones were undone.
    """
    undone: dict[str, str] = {}
    if not optimize:
        return Outcome()
    before = Snapshot(model)
    while True:
        outcome = Outcome(undone=dict(undone))
        failed = _run_all(model, optimize, contrib_ops, has_kernel, outcome)
        if failed is None:
            return outcome
        before.restore()
        undone.update(outcome.undone)


def _run_all(
    model: ir.Model,
    optimize: bool | str | Collection[str],
    contrib_ops: bool,
    has_kernel: HasKernel,
    done: Outcome,
) -> str | None:
    """Runs the wanted passes and rules that have not failed; returns the one that fails midway."""
    wanted = [
        ir_pass for ir_pass in IR_PASSES if _is_wanted(optimize, ir_pass.__name__, exact=True)
    ]
    known = (*CONTRIB_RULES, *RULES) if contrib_ops else RULES
    rules = [rule for rule in known if _is_wanted(optimize, rule.name, rule.exact)]
    if not isinstance(optimize, (bool, str)):
        rules = [*(rule for rule in RULES_ON_REQUEST if rule.name in optimize), *rules]
    for ir_pass in wanted:
        name = ir_pass.__name__
        if name in done.undone:
            continue
        try:
            count = ir_pass(model)
        except Exception as error:
            done.undone[name] = f"{type(error).__name__}: {error}"
            return name
        if count:
            done.counts[name] += count
    failed = apply_rules(model, rules, done, has_kernel) if rules else None
    late = [rule for rule in LATE_RULES if _is_wanted(optimize, rule.name, rule.exact)]
    if failed is None and late:
        failed = apply_rules(model, late, done, has_kernel)
    if failed is None and done.counts and eliminate_common_subexpressions in wanted:
        # merge values that a rule emitted once per layer, such as a mask or a cosine
        eliminate_common_subexpressions(model)
    return failed


def _is_wanted(optimize: bool | str | Collection[str], name: str, exact: bool) -> bool:
    if isinstance(optimize, bool):
        return optimize
    if optimize == "safe":
        return exact
    return name in optimize
