"""Model to model, one pass per file, each linear in the number of nodes.

``IR_PASSES`` is the order; each entry says why it stands where it does.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from onnx_aot.ir_passes.remove_unused import remove_unused
from onnx_aot.ir_passes.share_initializers import share_initializers

__all__ = ["IR_PASSES", "run_passes"]

IR_PASSES = (
    remove_unused,  # first: less for the others to look at
    share_initializers,  # before CSE, which then sees equal inputs as one value
    eliminate_common_subexpressions,
)


def run_passes(model: ir.Model) -> None:
    """Runs every pass on the model in place."""
    for ir_pass in IR_PASSES:
        ir_pass(model)
