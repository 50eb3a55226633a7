"""Merges additions and transposes around matrix products into ONNX's Gemm."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.cleanups.dequantized import dequantized_weight
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = ["GEMM_OF_TRANSPOSED", "MATMUL_ADD_TO_GEMM"]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})


def matmul_add_to_gemm(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Add(MatMul(x, w), c)`` -> ``Gemm(x, w, c)``.

    For matrices, if ``w`` is a weight and ``c`` has at most two dimensions, each of which is 1 or
    a constant equal to that of the product.
    """
    for place in (0, 1):
        product = rewriter.producer(node.inputs[place], "MatMul")
        term = node.inputs[1 - place]
        if product is not None and rewriter.only_use(product.outputs[0]):
            break
    else:
        return False
    left, weight = product.inputs
    if rank(left) != 2 or rank(weight) != 2 or node.outputs[0].dtype not in FLOATS:
        return False
    stored = weight is not None and weight.is_initializer()
    if not stored and dequantized_weight(weight, rewriter) is None:
        return False
    sizes, wide = dims(term), dims(product.outputs[0])
    if sizes is None or wide is None or len(sizes) > 2:
        return False
    wide = wide[len(wide) - len(sizes) :]
    if not all(a == 1 or (isinstance(a, int) and a == b) for a, b in zip(sizes, wide, strict=True)):
        return False
    new = rewriter.emit("Gemm", [left, weight, term], like=product)
    rewriter.replace(node.outputs[0], new)
    return True


def gemm_of_transposed(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Gemm(x, Transpose(w))`` -> ``Gemm(x, w, transB=1)``; also ``transA`` for ``x``."""
    inputs = list(node.inputs)
    attributes = dict(node.attributes)
    changed: ir.Node | None = None
    for place, name in ((0, "transA"), (1, "transB")):
        inner = rewriter.producer(inputs[place], "Transpose")
        if inner is None or rank(inner.inputs[0]) != 2:
            continue
        if list(inner.attributes.get_ints("perm") or (1, 0)) != [1, 0]:
            continue
        inputs[place], changed = inner.inputs[0], changed or inner
        attributes[name] = ir.AttrInt64(name, 1 - node.attributes.get_int(name, 0))
    if changed is None:
        return False
    rewriter.replace(node.outputs[0], rewriter.emit("Gemm", inputs, attributes, like=changed))
    return True


MATMUL_ADD_TO_GEMM = Rule(
    "matmul_add_to_gemm",
    ("Add",),
    matmul_add_to_gemm,
    exact=False,
    behind=frozenset({"MatMul"}),
)
GEMM_OF_TRANSPOSED = Rule(
    "gemm_of_transposed",
    ("Gemm",),
    gemm_of_transposed,
    exact=False,
    behind=frozenset({"Transpose"}),
)
