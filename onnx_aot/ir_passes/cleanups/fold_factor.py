"""Folds a factor into the weights of the preceding layer, or into its attributes."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = ["FACTOR_OF_GEMM", "FOLD_FACTOR"]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
SMALLEST, LARGEST = 1e-6, 1e6
"""Bounds of a known factor, within which scaled weights neither overflow nor lose digits."""


def fold_factor(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Mul(Conv(x, weight, bias), c)`` -> ``Conv(x, weight * c, bias * c)``.

    Also for a product with a matrix, with or without a bias: ``Mul(Add(MatMul(x, weight), bias),
    c)``. ``c`` is one number, or one per channel; nothing else reads the values in between, or the
    weight.
    """
    for place in (0, 1):
        value, factor = node.inputs[place], node.inputs[1 - place]
        layer = _find_layer(value, rewriter)
        if (
            layer is not None
            and value is not None
            and _fits_channels(factor, value, layer, rewriter)
        ):
            break
    else:
        return False
    assert factor is not None
    weight, total = layer.inputs[1], value.producer()
    assert weight is not None
    assert total is not None
    bias = _find_bias(total, layer)
    terms = [] if bias is None else [bias]
    if not all(_is_own(v, factor, rewriter) for v in (weight, *terms)):
        return False
    if bias is not None and dims(bias) != [_count_channels(weight, layer)]:
        return False
    scaled = [_fold_into_weight(weight, factor, layer, rewriter)]
    scaled.extend(
        rewriter.fold(_scale_channels, [v, factor], dtype=v.dtype, shape=_static_sizes(v))
        for v in terms
        if v.dtype is not None
    )
    if total is layer:
        inputs = [layer.inputs[0], *scaled]
        new = rewriter.emit(layer.op_type, inputs, layer.attributes, like=layer)
    else:
        inputs = [layer.inputs[0], scaled[0]]
        product = rewriter.emit("MatMul", inputs, like=layer, shape=layer.outputs[0].shape)
        new = rewriter.emit("Add", [product, scaled[1]], like=total)
    rewriter.replace(node.outputs[0], new)
    return True


def _find_layer(value: ir.Value | None, rewriter: Rewriter) -> ir.Node | None:
    """The node with the weight, whose result is the value itself or the value minus a bias."""
    if value is None or value.dtype not in FLOATS or not rewriter.only_use(value):
        return None
    conv = rewriter.producer(value, "Conv")
    if conv is not None:
        return conv
    total = rewriter.producer(value, "Add")
    for operand in (value,) if total is None else total.inputs:
        product = rewriter.producer(operand, "MatMul")
        if product is not None and rewriter.only_use(product.outputs[0]):
            return product if rank(product.inputs[1]) == 2 else None
    return None


def _find_bias(total: ir.Node, layer: ir.Node) -> ir.Value | None:
    if total is layer:
        return layer.inputs[2] if len(layer.inputs) > 2 else None
    place = 1 if total.inputs[0] is layer.outputs[0] else 0
    return total.inputs[place]


def _count_channels(weight: ir.Value, layer: ir.Node) -> int:
    return _static_sizes(weight)[1 if layer.op_type == "MatMul" else 0]


def _static_sizes(value: ir.Value) -> list[int]:
    return [int(size) for size in value.shape.numpy()] if value.shape is not None else []


def _fits_channels(
    factor: ir.Value | None, value: ir.Value, layer: ir.Node, rewriter: Rewriter
) -> bool:
    """Returns True if a constant is one number, or one number per channel."""
    sizes, known = dims(factor), rank(value)
    if sizes is None or known is None or len(sizes) > known or not rewriter.is_foldable(factor):
        return False
    number = rewriter.constant(factor, limit=1)
    if number is not None and not SMALLEST <= abs(number.item()) <= LARGEST:
        return False
    weight = layer.inputs[1]
    if weight is None or weight.shape is None or not weight.shape.is_static():
        return False
    channels = _count_channels(weight, layer)
    axis = known - 1 if layer.op_type == "MatMul" else 1
    wide = [1] * (known - len(sizes)) + sizes
    return (
        wide[axis] in (1, channels)
        and math.prod(size if isinstance(size, int) else 0 for size in wide) == wide[axis]
    )


def _is_own(value: ir.Value, factor: ir.Value, rewriter: Rewriter) -> bool:
    """Returns True if a weight can be folded and nothing else reads it."""
    return len(value.uses()) == 1 and value.dtype == factor.dtype and rewriter.is_foldable(value)


def _fold_into_weight(
    weight: ir.Value, factor: ir.Value, layer: ir.Node, rewriter: Rewriter
) -> ir.Value:
    behind = 0 if layer.op_type == "MatMul" else len(_static_sizes(weight)) - 1
    compute = functools.partial(_scale_channels, behind=behind)
    assert weight.dtype is not None
    return rewriter.fold(compute, [weight, factor], dtype=weight.dtype, shape=_static_sizes(weight))


def _scale_channels(weight: torch.Tensor, factor: torch.Tensor, behind: int = 0) -> torch.Tensor:
    """Scales a weight in which ``behind`` axes follow the channel axis."""
    return weight * factor.reshape(-1, *[1] * behind)


FOLD_FACTOR = Rule(
    "fold_factor",
    ("Mul",),
    fold_factor,
    exact=False,
    behind=frozenset({"Add", "Conv", "MatMul"}),
)


def factor_of_gemm(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Mul(Gemm(x, weight, bias), c)`` -> ``Gemm(x, weight, bias, alpha=c, beta=c)``.

    For one number ``c``, also behind a ``Reshape``; the weight may have other readers.
    """
    for place in (0, 1):
        value, number = node.inputs[place], rewriter.constant(node.inputs[1 - place], limit=1)
        reshape = rewriter.producer(value, "Reshape")
        product = rewriter.producer(value if reshape is None else reshape.inputs[0], "Gemm")
        if product is not None and number is not None and number.numel() == 1:
            break
    else:
        return False
    between = [v for v in (value, product.outputs[0]) if v is not None]
    known = rank(value)
    if known is None or number.ndim > known or number.dtype != torch.float32:
        return False  # the attributes are of this type
    if not all(map(rewriter.only_use, between)):
        return False
    attributes = dict(product.attributes)
    for name in ("alpha", "beta"):
        scaled = product.attributes.get_float(name, 1.0) * number.item()
        if not SMALLEST <= abs(scaled) <= LARGEST:
            return False
        attributes[name] = ir.AttrFloat32(name, scaled)
    shape = product.outputs[0].shape
    new = rewriter.emit("Gemm", product.inputs, attributes, like=product, shape=shape)
    if reshape is not None:
        new = rewriter.emit("Reshape", [new, reshape.inputs[1]], reshape.attributes, like=reshape)
    rewriter.replace(node.outputs[0], new)
    return True


FACTOR_OF_GEMM = Rule(
    "factor_of_gemm",
    ("Mul",),
    factor_of_gemm,
    exact=False,
    behind=frozenset({"Gemm", "Reshape"}),
)
