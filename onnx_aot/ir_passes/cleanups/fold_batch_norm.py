"""Folds batch normalization in inference mode into the weights of the preceding layer."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = ["FOLD_BATCH_NORM"]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
DEFAULT_EPSILON = 1e-5

PART = 1 << 17
"""Elements of a weight that are scaled at a time."""


def fold_batch_norm(node: ir.Node, rewriter: Rewriter) -> bool:
    """Folds the factor and the term per channel into the preceding layer.

    Before::

        y = Conv(x, weight, bias)            or ConvTranspose, Gemm, MatMul
        z = BatchNormalization(y, scale, shift, mean, var)

    After::

        z = Conv(x, weight * s, (bias - mean) * s + shift)      s = scale / sqrt(var + epsilon)

    Applies if nothing else reads ``y`` and ``weight``, and all weights are in memory. A product may
    be reshaped to a matrix in between; its term becomes an Add.
    """
    source, parameters = node.inputs[0], node.inputs[1:]
    view = _as_matrix(source, rewriter)
    if view is not None:
        source = view.inputs[0]
    layer = None if source is None else source.producer()
    if source is None or layer is None or layer.domain or layer.op_type not in _SCALED:
        return False
    if len(node.outputs) != 1 or node.attributes.get_int("training_mode"):
        return False
    if not rewriter.only_use(source) or not _is_plain(layer, view is not None):
        return False
    found = _find_foldable_weights(layer, parameters, source.dtype, rewriter)
    if found is None:
        return False
    weight, known, bias = found
    assert weight.dtype is not None
    epsilon = node.attributes.get_float("epsilon", DEFAULT_EPSILON)
    scaled = functools.partial(
        _SCALED[layer.op_type], layer.attributes.get_int("group", 1), epsilon
    )
    sizes = [int(size) for size in dims(weight) or () if isinstance(size, int)]
    channels = [int(size) for size in dims(known[0]) or () if isinstance(size, int)]
    folded = rewriter.fold(scaled, [weight, known[0], known[3]], dtype=weight.dtype, shape=sizes)
    shifted = functools.partial(_fold_bias, epsilon)
    terms = known if bias is None else [*known, bias]
    total = rewriter.fold(shifted, terms, dtype=weight.dtype, shape=channels)
    if layer.op_type == "MatMul":
        product = rewriter.emit("MatMul", [layer.inputs[0], folded], like=layer, shape=source.shape)
        new = rewriter.emit("Add", [product, total], like=node, shape=source.shape)
    else:
        inputs = [layer.inputs[0], folded, total]
        new = rewriter.emit(layer.op_type, inputs, layer.attributes, like=layer)
    if view is not None:
        new = rewriter.emit(view.op_type, [new, *view.inputs[1:]], view.attributes, like=view)
    rewriter.replace(node.outputs[0], new)
    return True


def _as_matrix(value: ir.Value | None, rewriter: Rewriter) -> ir.Node | None:
    """The node that reshapes a tensor to a matrix and keeps the last axis, or None."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.domain or node.op_type not in ("Flatten", "Reshape"):
        return None
    before, after = dims(node.inputs[0]), dims(value)
    if before is None or after is None or len(after) != 2 or not rewriter.only_use(value):
        return None
    return node if before and isinstance(after[1], int) and before[-1] == after[1] else None


def _find_foldable_weights(
    layer: ir.Node,
    parameters: Sequence[ir.Value | None],
    dtype: ir.DataType | None,
    rewriter: Rewriter,
) -> tuple[ir.Value, list[ir.Value], ir.Value | None] | None:
    """The layer's weight, the normalization's parameters and the layer's bias, if foldable."""
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    known = [value for value in parameters if value is not None]
    if weight is None or dtype not in FLOATS or len(known) != 4:
        return None
    if any(value.dtype != dtype for value in (weight, *known)):
        return None
    if not all(map(rewriter.is_foldable, [weight, *known, *([] if bias is None else [bias])])):
        return None
    channels = known[0].shape
    if channels is None or weight.shape is None or len(weight.uses()) != 1:
        return None
    if bias is not None and bias.shape != channels:
        return None
    return weight, known, bias


def _is_plain(layer: ir.Node, reshaped: bool) -> bool:
    """Returns True for a foldable layer.

    Gemm must have the form of ``nn.Linear``; MatMul must multiply by a matrix, with channels along
    axis 1 of its result, which may be reshaped to a matrix.
    """
    if layer.op_type == "MatMul":
        return rank(layer.inputs[1]) == 2 and (reshaped or rank(layer.outputs[0]) == 2)
    if layer.op_type != "Gemm" or reshaped:
        return not reshaped
    attributes = layer.attributes
    plain = attributes.get_float("alpha", 1.0) == attributes.get_float("beta", 1.0) == 1.0
    return plain and attributes.get_int("transB", 0) == 1 and not attributes.get_int("transA", 0)


def _compute_factor(epsilon: float, scale: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return scale.double() / torch.sqrt(var.double() + epsilon)


def _multiply(weight: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Multiplies in float64 and rounds once, in parts whose intermediate results fit in the cache.

    Fresh memory for all of a large weight at once takes twice as long as the computation.
    """
    if weight.numel() <= PART:
        return (weight.double() * factor).to(weight.dtype)
    product = torch.empty_like(weight)
    rows = max(1, PART * weight.shape[0] // weight.numel())
    factors = factor.expand_as(weight)
    for start in range(0, weight.shape[0], rows):
        part = slice(start, start + rows)
        product[part] = weight[part].double() * factors[part]
    return product


def _scale_outputs(
    group: int, epsilon: float, weight: torch.Tensor, scale: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """Scales the weight of a convolution or Gemm: [outputs, ...]."""
    factor = _compute_factor(epsilon, scale, var).reshape(-1, *[1] * (weight.ndim - 1))
    return _multiply(weight, factor)


def _scale_columns(
    group: int, epsilon: float, weight: torch.Tensor, scale: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """Scales the right matrix of a product: [inputs, outputs]."""
    return _multiply(weight, _compute_factor(epsilon, scale, var))


def _scale_transposed(
    group: int, epsilon: float, weight: torch.Tensor, scale: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """Scales the weight of a transposed convolution: [inputs, outputs / groups, ...]."""
    of_group = _compute_factor(epsilon, scale, var).reshape(group, -1)
    of_input = of_group.repeat_interleave(weight.shape[0] // group, 0)
    return _multiply(weight, of_input.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2)))


def _fold_bias(
    epsilon: float,
    scale: torch.Tensor,
    shift: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    before = -mean.double() if bias is None else bias.double() - mean.double()
    return (before * _compute_factor(epsilon, scale, var) + shift.double()).to(shift.dtype)


_SCALED = {
    "Conv": _scale_outputs,
    "ConvTranspose": _scale_transposed,
    "Gemm": _scale_outputs,
    "MatMul": _scale_columns,
}

FOLD_BATCH_NORM = Rule(
    "fold_batch_norm",
    ("BatchNormalization",),
    fold_batch_norm,
    exact=False,
    behind=frozenset({"Conv", "ConvTranspose", "Flatten", "Gemm", "MatMul", "Reshape"}),
)
