"""Model to model: passes, one per file, each linear in the number of nodes, and rules.

A rule rewrites what is around one node (``rules.py`` says how to add one); ``apply_rules`` tries
all of them, after the passes. ``IR_PASSES`` is the order; each entry says why it stands where it
does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx_ir as ir

from onnx_aot.ir_passes.apply_rules import Outcome, apply_rules
from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from onnx_aot.ir_passes.remove_unused import remove_unused
from onnx_aot.ir_passes.rules import CONTRIB_RULES, RULES
from onnx_aot.ir_passes.share_initializers import share_initializers
from onnx_aot.ir_passes.snapshot import Snapshot

__all__ = ["CONTRIB_RULES", "IR_PASSES", "RULES", "Outcome", "names_of_passes", "run_passes"]

IR_PASSES: tuple[Callable[[ir.Model], int], ...] = (
    remove_unused,  # first: less for the others to look at
    share_initializers,  # before CSE, which then sees equal inputs as one value
    eliminate_common_subexpressions,  # before the rules, to which equal values are then one
)


def names_of_passes() -> list[str]:
    """What ``optimize={...}`` takes: passes, then rules, in the order in which they run."""
    return [
        *(ir_pass.__name__ for ir_pass in IR_PASSES),
        *(rule.name for rule in (*RULES, *CONTRIB_RULES)),
    ]


def run_passes(
    model: ir.Model, optimize: bool | str | Collection[str] = True, contrib_ops: bool = False
) -> Outcome:
    """Runs passes and rules on the model in place.

    One that raises is undone: a rule at the node where it did; a pass, by making the model what it
    was and running the others again.

    Args:
        model: Is changed.
        optimize: True: all; ``"safe"``: those that keep every value as it is; names: these.
            False: none.
        contrib_ops: Whether rules that emit operators of ONNX Runtime run too.

    Returns:
        How often each changed something, and what was undone.
    """
    undone: dict[str, str] = {}
    if not optimize:
        return Outcome()
    before = Snapshot(model)
    while True:
        outcome = Outcome(undone=dict(undone))
        failed = _run_all(model, optimize, contrib_ops, outcome)
        if failed is None:
            return outcome
        before.restore()
        undone.update(outcome.undone)


def _run_all(
    model: ir.Model, optimize: bool | str | Collection[str], contrib_ops: bool, done: Outcome
) -> str | None:
    """Runs what is wanted and has not failed yet; the name of what fails half-way."""
    wanted = [ir_pass for ir_pass in IR_PASSES if _wants(optimize, ir_pass.__name__, exact=True)]
    known = (*CONTRIB_RULES, *RULES) if contrib_ops else RULES
    rules = [rule for rule in known if _wants(optimize, rule.name, rule.exact)]
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
    failed = apply_rules(model, rules, done) if rules else None
    if failed is None and done.counts and eliminate_common_subexpressions in wanted:
        # what a rule made for every layer anew, such as a mask or a cosine, is one value again
        eliminate_common_subexpressions(model)
    return failed


def _wants(optimize: bool | str | Collection[str], name: str, exact: bool) -> bool:
    if isinstance(optimize, bool):
        return optimize
    if optimize == "safe":
        return exact
    return name in optimize
