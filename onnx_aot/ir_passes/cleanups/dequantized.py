"""Lays out weights that are stored as integers in the form that runtimes multiply with.

ONNX Runtime computes a product with a dequantized weight on the integers (MatMulNBits) if the
weight has the layout that MatMul reads, which is the transpose of PyTorch's. Otherwise it would
dequantize the weight in every run.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = [
    "BIAS_OF_DEQUANTIZED",
    "GEMM_OF_DEQUANTIZED",
    "SCALED_PRODUCT",
    "TRANSPOSE_DEQUANTIZED",
    "dequantized_weight",
]

BYTES = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
INTEGERS = BYTES | {ir.DataType.INT4, ir.DataType.UINT4}

_ACTIVATIONS = "Elu HardSigmoid LeakyRelu Relu Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu"
FUSED_WITH_GEMM = frozenset(_ACTIVATIONS.split())
"""Activations that ONNX Runtime fuses into the kernel of a floating-point Gemm."""


def dequantized_weight(value: ir.Value | None, rewriter: Rewriter) -> ir.Node | None:
    """The DequantizeLinear that produces a value, if all its inputs are stored in the model."""
    node = rewriter.producer(value, "DequantizeLinear")
    if node is None or not all(x is None or x.const_value is not None for x in node.inputs):
        return None
    if node.inputs[0] is None or node.inputs[0].dtype not in INTEGERS:
        return None
    return node if all(x is None or not x.is_graph_input() for x in node.inputs) else None


def transpose_dequantized(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Transpose(DequantizeLinear(w, s))`` -> ``DequantizeLinear(Transpose(w), s)``.

    The transposed integers are folded; scales and zero points of blocks are transposed too.
    """
    inner = dequantized_weight(node.inputs[0], rewriter)
    if inner is None or not rewriter.only_use(inner.outputs[0]):
        return False
    source = inner.inputs[0]
    order = list(node.attributes.get_ints("perm") or range((rank(source) or 0) - 1, -1, -1))
    rewriter.replace(node.outputs[0], _emit_transposed_dequantize(inner, order, rewriter))
    return True


def gemm_of_dequantized(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Gemm(x, DequantizeLinear(w, s), c, transB=1)`` -> with ``Transpose(w)``, without transB."""
    inner = dequantized_weight(node.inputs[1], rewriter)
    if inner is None or not node.attributes.get_int("transB", 0):
        return False
    if not rewriter.only_use(inner.outputs[0]):
        return False
    inputs, attributes = list(node.inputs), dict(node.attributes)
    inputs[1] = _emit_transposed_dequantize(inner, [1, 0], rewriter)
    del attributes["transB"]
    rewriter.replace(node.outputs[0], rewriter.emit("Gemm", inputs, attributes, like=node))
    return True


def _emit_transposed_dequantize(inner: ir.Node, order: list[int], rewriter: Rewriter) -> ir.Value:
    """Emits the DequantizeLinear of the transposed weight."""
    attributes = dict(inner.attributes)
    axis = inner.attributes.get_int("axis", 1)
    first = inner.inputs[0]
    assert first is not None
    sizes = dims(first)
    inputs = []
    for value in inner.inputs:
        if value is None or rank(value) != len(order) or len(order) < 2:
            inputs.append(value)  # parameters per channel, or per tensor
            continue
        moved = None if (known := dims(value)) is None else [known[i] for i in order]
        inputs.append(
            rewriter.emit(
                "Transpose", [value], {"perm": order}, like=inner, shape=_make_shape(moved)
            )
        )
    if inner.inputs[1] is not None and rank(inner.inputs[1]) != 0:
        attributes["axis"] = ir.AttrInt64("axis", order.index(axis % len(order)))
    moved = None if sizes is None else [sizes[i] for i in order]
    return rewriter.emit(
        "DequantizeLinear",
        inputs,
        attributes,
        like=inner,
        dtype=inner.outputs[0].dtype,
        shape=_make_shape(moved),
    )


def _make_shape(sizes: list[int | str | None] | None) -> ir.Shape | None:
    return None if sizes is None else ir.Shape(sizes)


def bias_of_dequantized(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Gemm(x, DequantizeLinear(w), b)`` -> ``Add(Gemm(x, DequantizeLinear(w)), b)``.

    With a bias, ONNX Runtime would dequantize the weights in every run in two cases: if an
    activation follows, or, when ``x`` is dequantized too, if the result is not quantized.
    """
    if len(node.inputs) < 3 or dequantized_weight(node.inputs[1], rewriter) is None:
        return False
    bias, result = node.inputs[2], node.outputs[0]
    factors = node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0)
    if bias is None or factors != (1.0, 1.0):
        return False
    dequantized = rewriter.producer(node.inputs[0], "DequantizeLinear") is not None
    if _is_quantized(result) if dequantized else not _is_activated(result):
        return False
    product = rewriter.emit(
        "Gemm", node.inputs[:2], node.attributes, like=node, shape=result.shape, dtype=result.dtype
    )
    rewriter.replace(result, rewriter.emit("Add", [product, bias], like=node))
    return True


def _is_activated(value: ir.Value) -> bool:
    return any(user.op_type in FUSED_WITH_GEMM and not user.domain for user in value.consumers())


def _is_quantized(value: ir.Value) -> bool:
    """Returns True if all readers of a value, or of its ReLU, quantize it."""
    users = list(value.consumers())
    if len(users) == 1 and users[0].op_type == "Relu":
        users = list(users[0].outputs[0].consumers())
    return bool(users) and all(user.op_type == "QuantizeLinear" for user in users)


def scaled_product(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Mul(MatMul(x, Cast(w)), s)`` -> ``MatMul(x, DequantizeLinear(w, s))``.

    Applies if ``w`` holds 8-bit integers, and ``s`` one number per column.
    """
    for place in (0, 1):
        product = rewriter.producer(node.inputs[place], "MatMul")
        scale = node.inputs[1 - place]
        if product is not None and rewriter.only_use(product.outputs[0]):
            break
    else:
        return False
    wide = rewriter.producer(product.inputs[1], "Cast")
    if wide is None or scale is None or scale.const_value is None or scale.is_graph_input():
        return False
    weight = wide.inputs[0]
    if weight is None or weight.const_value is None or weight.is_graph_input():
        return False
    sizes, columns = dims(weight), dims(scale)
    if weight.dtype not in BYTES or sizes is None or len(sizes) != 2 or columns != sizes[1:]:
        return False
    if scale.dtype != ir.DataType.FLOAT or product.outputs[0].dtype != scale.dtype:
        return False
    numbers = rewriter.emit(
        "DequantizeLinear",
        [weight, scale],
        {"axis": 1},
        like=wide,
        dtype=scale.dtype,
        shape=weight.shape,
    )
    new = rewriter.emit("MatMul", [product.inputs[0], numbers], like=product)
    rewriter.replace(node.outputs[0], new)
    return True


TRANSPOSE_DEQUANTIZED = Rule(
    "transpose_dequantized",
    ("Transpose",),
    transpose_dequantized,
    exact=True,
    since=13,
    behind=frozenset({"DequantizeLinear"}),
)
GEMM_OF_DEQUANTIZED = Rule(
    "gemm_of_dequantized",
    ("Gemm",),
    gemm_of_dequantized,
    exact=False,
    since=13,
    behind=frozenset({"DequantizeLinear"}),
)
BIAS_OF_DEQUANTIZED = Rule(
    "bias_of_dequantized",
    ("Gemm",),
    bias_of_dequantized,
    exact=False,
    since=13,
    behind=frozenset({"DequantizeLinear"}),
)
SCALED_PRODUCT = Rule(
    "scaled_product",
    ("Mul",),
    scaled_product,
    exact=False,
    since=13,
    behind=frozenset({"MatMul"}),
)
