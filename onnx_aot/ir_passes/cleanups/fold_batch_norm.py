"""Batch normalization, in inference, becomes part of the weights before it."""

from __future__ import annotations

import functools

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["FOLD_BATCH_NORM"]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
DEFAULT_EPSILON = 1e-5


def fold_batch_norm(node: ir.Node, rewriter: Rewriter) -> bool:
    """A factor and a term per channel.

    Before::

        y = Conv(x, weight, bias)            or ConvTranspose, or Gemm
        z = BatchNormalization(y, scale, shift, mean, var)

    After::

        z = Conv(x, weight * s, (bias - mean) * s + shift)      s = scale / sqrt(var + epsilon)

    Where nothing else reads ``y`` and ``weight``, and all weights are in memory.
    """
    source, parameters = node.inputs[0], node.inputs[1:]
    layer = None if source is None else source.producer()
    if source is None or layer is None or layer.domain or layer.op_type not in _SCALED:
        return False
    if len(node.outputs) != 1 or node.attributes.get_int("training_mode"):
        return False
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    dtype = source.dtype
    if dtype not in FLOATS or not rewriter.only_use(source) or not _is_plain(layer):
        return False
    known = [value for value in (weight, *parameters) if value is not None]
    if len(known) != 5 or any(value.dtype != dtype for value in known):
        return False
    if not all(map(rewriter.foldable, known if bias is None else (*known, bias))):
        return False
    assert weight is not None
    assert dtype is not None
    channels = known[1].shape
    if channels is None or weight.shape is None or len(weight.uses()) != 1:
        return False
    if bias is not None and bias.shape != channels:
        return False
    epsilon = node.attributes.get_float("epsilon", DEFAULT_EPSILON)
    scaled = functools.partial(
        _SCALED[layer.op_type], layer.attributes.get_int("group", 1), epsilon
    )
    sizes = [int(size) for size in weight.shape.numpy()]
    folded = rewriter.folded(scaled, [weight, known[1], known[4]], dtype=dtype, shape=sizes)
    shifted = functools.partial(_shifted, epsilon)
    terms = known[1:] if bias is None else [*known[1:], bias]
    total = rewriter.folded(shifted, terms, dtype=dtype, shape=[int(channels.numpy()[0])])
    inputs = [layer.inputs[0], folded, total]
    new = rewriter.emit(layer.op_type, inputs, layer.attributes, like=layer)
    rewriter.replace(node.outputs[0], new)
    return True


def _is_plain(layer: ir.Node) -> bool:
    """Of Gemm: what ``nn.Linear`` is."""
    if layer.op_type != "Gemm":
        return True
    attributes = layer.attributes
    plain = attributes.get_float("alpha", 1.0) == attributes.get_float("beta", 1.0) == 1.0
    return plain and attributes.get_int("transB", 0) == 1 and not attributes.get_int("transA", 0)


def _factor(epsilon: float, scale: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return scale.double() / torch.sqrt(var.double() + epsilon)


def _scale_outputs(
    group: int, epsilon: float, weight: torch.Tensor, scale: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """Weights of a convolution, or of Gemm: [outputs, ...]."""
    factor = _factor(epsilon, scale, var).reshape(-1, *[1] * (weight.ndim - 1))
    return (weight.double() * factor).to(weight.dtype)  # rounded once


def _scale_transposed(
    group: int, epsilon: float, weight: torch.Tensor, scale: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """Weights of a transposed convolution: [inputs, outputs / groups, ...]."""
    by_group = weight.double().reshape(group, -1, *weight.shape[1:])
    factor = _factor(epsilon, scale, var).reshape(group, 1, -1, *[1] * (weight.ndim - 2))
    return (by_group * factor).reshape(weight.shape).to(weight.dtype)


def _shifted(
    epsilon: float,
    scale: torch.Tensor,
    shift: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    before = -mean.double() if bias is None else bias.double() - mean.double()
    return (before * _factor(epsilon, scale, var) + shift.double()).to(shift.dtype)


_SCALED = {
    "Conv": _scale_outputs,
    "ConvTranspose": _scale_transposed,
    "Gemm": _scale_outputs,
}

FOLD_BATCH_NORM = Rule("fold_batch_norm", ("BatchNormalization",), fold_batch_norm, exact=False)
