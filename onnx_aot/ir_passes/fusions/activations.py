"""Fuses activations that are written out, but for which ONNX has an operator.

``Swish`` (opset 24) is not included: ONNX Runtime computes its definition, which takes twice as
long as ``Mul(x, Sigmoid(x))``, which it recognizes.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.fusions.matching import (
    both_orders,
    is_close,
    match_product,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["HARD_SWISH", "MISH"]


def hard_swish(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses the hard swish function into one node.

    Before::

        y = Div(Mul(x, Clip(Add(x, 3), 0, 6)), 6)

    After::

        y = HardSwish(x)

    Matches every association of the product.
    """
    found = match_product(rewriter, node)
    if found is None or len(found.factors) != 2 or not is_close(found.number, 1.0 / 6.0):
        return False
    for x, clipped in (found.factors, reversed(found.factors)):
        clip = single_use(rewriter, clipped, "Clip")
        if clip is None or len(clip.inputs) != 3:
            continue
        if (
            scalar_constant(rewriter, clip.inputs[1]) != 0.0
            or scalar_constant(rewriter, clip.inputs[2]) != 6.0
        ):
            continue
        for summand, three in both_orders(single_use(rewriter, clip.inputs[0], "Add")):
            if summand is x and scalar_constant(rewriter, three) == 3.0:
                rewriter.replace(node.outputs[0], rewriter.emit("HardSwish", [x], like=node))
                return True
    return False


def mish(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses the mish function into one node.

    Before::

        y = Mul(x, Tanh(Softplus(x)))

    After::

        y = Mish(x)
    """
    for x, factor in both_orders(node):
        tanh = single_use(rewriter, factor, "Tanh")
        softplus = None if tanh is None else single_use(rewriter, tanh.inputs[0], "Softplus")
        if softplus is not None and softplus.inputs[0] is x:
            rewriter.replace(node.outputs[0], rewriter.emit("Mish", [x], like=node))
            return True
    return False


HARD_SWISH = Rule("hard_swish", ("Mul", "Div"), hard_swish, exact=False, since=14)
MISH = Rule("mish", ("Mul",), mish, exact=False, since=18, behind=frozenset({"Tanh"}))
