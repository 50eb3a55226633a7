"""Fuses a sum and its normalization into an operator that only ONNX Runtime has."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.fusions.matching import dimensions
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["SKIP_NORMALIZATION"]

MICROSOFT = "com.microsoft"
RANKS = (2, 3)
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def skip_normalization(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses a sum and its normalization into one node, which saves time for a single token.

    Before::

        y = Add(x, skip)
        z = RMSNormalization(y, weight)

    After::

        z, _, _, y = com.microsoft.SkipSimplifiedLayerNormalization(x, skip, weight)
    """
    total = node.outputs[0]
    sizes = dimensions(total)
    if sizes is None or len(sizes) not in RANKS or total.dtype not in FLOATS:
        return False
    if any(dimensions(term) != sizes for term in node.inputs):
        return False
    norm = next((user for user in total.consumers() if _fits(user, node)), None)
    if norm is None:
        return False
    made = rewriter.emit_many(
        "SkipSimplifiedLayerNormalization",
        [*node.inputs, norm.inputs[1]],
        {"epsilon": norm.attributes.get_float("epsilon", 1e-5)},
        like=node,
        dtypes=[total.dtype, ir.DataType.FLOAT, ir.DataType.FLOAT, total.dtype],
        domain=MICROSOFT,
    )
    rewriter.replace(norm.outputs[0], made[0])
    rewriter.replace(total, made[3])
    return True


def _fits(norm: ir.Node, node: ir.Node) -> bool:
    """Returns True for a normalization of each row of a sum, times a stored vector."""
    if norm.op_type != "RMSNormalization" or norm.domain or norm.graph is not node.graph:
        return False
    total, weight = norm.inputs
    sizes = dimensions(total)
    if total is not node.outputs[0] or weight is None or weight.const_value is None or not sizes:
        return False
    is_last = norm.attributes.get_int("axis", -1) in (-1, len(sizes) - 1)
    return is_last and dimensions(weight) == sizes[-1:] and weight.dtype == total.dtype


SKIP_NORMALIZATION = Rule("skip_normalization", ("Add",), skip_normalization, exact=False, since=23)
