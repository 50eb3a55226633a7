"""Stores weights as the products read them, even if that takes a second copy."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.cleanups.gemm import is_right_factor
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims

__all__ = ["STORED_FACTORS"]


def stored_factors(node: ir.Node, rewriter: Rewriter) -> bool:
    """``MatMul(x, Transpose(w))`` -> ``MatMul(x, w_folded)``, of any size, whoever reads ``w`` too.

    Tools that quantize products take stored matrices only. An embedding that is also the output
    layer, and weights that are too large to be folded otherwise, would be left out.
    """
    weight, sizes = node.inputs[0], dims(node.inputs[0])
    if weight is None or weight.dtype is None or sizes is None or len(sizes) != 2:
        return False
    if not is_right_factor(node) or not rewriter.is_foldable(weight):
        return False
    rows, columns = sizes
    if not isinstance(rows, int) or not isinstance(columns, int):
        return False
    folded = rewriter.fold(
        torch.t, [weight], dtype=weight.dtype, shape=[columns, rows], key="stored_factors"
    )
    rewriter.replace(node.outputs[0], folded)
    return True


STORED_FACTORS = Rule("stored_factors", ("Transpose",), stored_factors, exact=True)
