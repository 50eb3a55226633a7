"""Multiplies tensors of higher rank as they are, instead of as matrices of their rows."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.lazy_tensor import FoldedTensor
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import Dim, dims

__all__ = ["BIAS_BEFORE_TANH_GELU", "MATMUL_OF_ROWS"]


def matmul_of_rows(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Reshape(Gemm(Reshape(x, [-1, k]), w, b), [..., n])`` -> ``Add(MatMul(x, w), b)``.

    For a stored ``w``, as of the layers of GPT-2 in transformers. It takes as long in ONNX Runtime,
    whose quantizers to 4 bits read the weights of MatMul alone. ``x`` may also have its last
    dimension split, as the heads of attention are; these are joined before the product.
    """
    gemm = rewriter.producer(node.inputs[0], "Gemm")
    if gemm is None or not rewriter.only_use(gemm.outputs[0]) or _is_scaled(gemm):
        return False
    rows = rewriter.producer(gemm.inputs[0], "Reshape")
    weight, bias = gemm.inputs[1], gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if rows is None or weight is None or not weight.is_initializer():
        return False
    result, wanted, stored = node.outputs[0], dims(node.outputs[0]), dims(weight)
    if wanted is None or stored is None or len(wanted) < 3 or wanted[-1] != stored[1]:
        return False
    if bias is not None and dims(bias) not in ([stored[1]], [1, stored[1]]):
        return False
    x = _with_last_size(rows, [*wanted[:-1], stored[0]], rewriter)
    if x is None:
        return False
    new = rewriter.emit("MatMul", [x, weight], like=gemm, shape=result.shape)
    if bias is not None:
        new = rewriter.emit("Add", [new, bias], like=gemm)
    rewriter.replace(result, new)
    return True


def _with_last_size(rows: ir.Node, wanted: list[Dim], rewriter: Rewriter) -> ir.Value | None:
    """The value that a Reshape makes a matrix of, with the wanted sizes; None if it has others."""
    x, sizes, lead = rows.inputs[0], dims(rows.inputs[0]), len(wanted) - 1
    if x is None or sizes is None or None in wanted or sizes[:lead] != wanted[:lead]:
        return None
    if sizes == wanted:
        return x
    split = [size for size in sizes[lead:] if isinstance(size, int)]
    if len(split) < len(sizes) - lead or math.prod(split) != wanted[-1] or not wanted[-1]:
        return None
    shape = rewriter.initializer(torch.tensor([0] * lead + [-1]))
    sizes_of_result = [ir.SymbolicDim(d) if isinstance(d, str) else d for d in wanted]
    return rewriter.emit("Reshape", [x, shape], like=rows, shape=sizes_of_result)


def _is_scaled(gemm: ir.Node) -> bool:
    """Returns True if a product is transposed, or not added as it is."""
    factors = (gemm.attributes.get_float(name, 1.0) for name in ("alpha", "beta"))
    transposed = (gemm.attributes.get_int(name, 0) for name in ("transA", "transB"))
    return any(transposed) or any(factor != 1.0 for factor in factors)


def bias_before_tanh_gelu(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Gelu(Add(MatMul(x, w), b: [n]), "tanh")`` -> the same with ``b: [1, n]``.

    ONNX Runtime's optimizer for transformers would merge bias and Gelu to BiasGelu, which has no
    such approximation. A weight that was transposed for the product, as that of nn.Linear, keeps
    its bias: ONNX Runtime itself adds it in FastGelu, which saves a few percent of the product.
    """
    if node.attributes.get_string("approximate", "none") != "tanh":
        return False
    add = rewriter.producer(node.inputs[0], "Add")
    if add is None:
        return False
    for place in (0, 1):
        product = rewriter.producer(add.inputs[place], "MatMul")
        bias = add.inputs[1 - place]
        sizes = dims(bias)
        if product is None or bias is None or sizes is None or len(sizes) != 1:
            continue
        weight, count = product.inputs[1], sizes[0]
        if weight is None or not weight.is_initializer() or not isinstance(count, int):
            continue
        if isinstance(weight.const_value, FoldedTensor) or not rewriter.is_foldable(bias):
            continue
        assert bias.dtype is not None
        row = rewriter.fold(
            lambda given: given[None], [bias], dtype=bias.dtype, shape=[1, count], key="row"
        )
        shape, result = add.outputs[0].shape, node.outputs[0]
        total = rewriter.emit("Add", [product.outputs[0], row], like=add, shape=shape)
        rewriter.replace(result, rewriter.emit("Gelu", [total], node.attributes, like=node))
        return True
    return False


MATMUL_OF_ROWS = Rule(
    "matmul_of_rows",
    ("Reshape",),
    matmul_of_rows,
    exact=False,
    behind=frozenset({"Gemm"}),
)
BIAS_BEFORE_TANH_GELU = Rule(
    "bias_before_tanh_gelu",
    ("Gelu",),
    bias_before_tanh_gelu,
    exact=True,
    behind=frozenset({"Add"}),
)
