"""Fuses ``x Phi(x)`` into Gelu."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.ir_passes.fusions.matching import (
    Product,
    both_orders,
    is_close,
    match_product,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["GELU"]

# For other types ONNX Runtime has no kernel: a double would be computed in single precision.
TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
CUBIC = 0.044715


def gelu(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses the GELU function into one node.

    Before::

        y = Mul(Mul(x, 0.5), Add(Erf(Div(x, sqrt(2))), 1))
        y = Mul(Mul(x, 0.5), Add(Tanh(Mul(Add(x, Mul(Pow(x, 3), 0.044715)), sqrt(2 / pi))), 1))

    After::

        y = Gelu(x)
        y = Gelu(x, approximate="tanh")

    Matches every association of the products, and also ``x (1 + 0.044715 x^2)`` for the cubic.
    """
    found = match_product(rewriter, node)
    if found is None or len(found.factors) != 2 or not is_close(found.number, 0.5):
        return False
    for x, other in (found.factors, reversed(found.factors)):
        if x.dtype not in TYPES:
            continue
        approximate = _match_approximation(rewriter, x, other)
        if approximate is not None:
            attributes = {"approximate": approximate}
            emitted = rewriter.emit("Gelu", [x], attributes, like=node)
            rewriter.replace(node.outputs[0], emitted)
            return True
    return False


def _match_approximation(rewriter: Rewriter, x: ir.Value, factor: ir.Value) -> str | None:
    """Value of ``approximate`` for a factor ``1 + f(x)``, or None if ``f`` does not match."""
    for inner, one in both_orders(single_use(rewriter, factor, "Add")):
        if scalar_constant(rewriter, one) != 1.0:
            continue
        erf = single_use(rewriter, inner, "Erf")
        if erf is not None:
            argument = _match_single_use_product(rewriter, erf.inputs[0])
            if argument is not None and argument.factors == [x]:
                return "none" if is_close(argument.number, math.sqrt(0.5)) else None
        tanh = single_use(rewriter, inner, "Tanh")
        if tanh is not None:
            return (
                "tanh"
                if _is_tanh_argument(
                    rewriter, x, _match_single_use_product(rewriter, tanh.inputs[0])
                )
                else None
            )
    return None


def _match_single_use_product(rewriter: Rewriter, value: ir.Value | None) -> Product | None:
    node = None if value is None or not rewriter.only_use(value) else value.producer()
    if node is None or node.domain or node.op_type not in ("Mul", "Div"):
        return None
    return match_product(rewriter, node)


def _is_tanh_argument(rewriter: Rewriter, x: ir.Value, found: Product | None) -> bool:
    """True for ``sqrt(2 / pi) (x + 0.044715 x^3)``, also with ``x`` taken out of the sum."""
    if found is None or not is_close(found.number, math.sqrt(2.0 / math.pi)):
        return False
    rest = list(found.factors)
    outside = x in rest
    if outside:
        rest.remove(x)
    if len(rest) != 1:
        return False
    for linear, higher in both_orders(single_use(rewriter, rest[0], "Add")):
        node = higher.producer() if rewriter.only_use(higher) else None
        if node is None or node.domain or node.op_type not in ("Mul", "Div"):
            continue
        terms = match_product(rewriter, node)
        if terms is None or not is_close(terms.number, CUBIC):
            continue
        if outside and scalar_constant(rewriter, linear) == 1.0 and terms.factors == [x, x]:
            return True
        if not outside and linear is x and terms.factors == [x, x, x]:
            return True
    return False


GELU = Rule("gelu", ("Mul", "Div"), gelu, exact=False, since=20)
