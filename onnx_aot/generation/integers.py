"""Stores the matrices of products as integers, which are computed when the model is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from onnx_aot.errors import warn
from onnx_aot.ir_passes.apply_rules import Outcome, apply_rules
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["BLOCK", "to_int4", "to_int8"]

BLOCK = 32
"""Elements of a column that share a scale in int4."""

LARGEST = 127
"""Largest integer of a weight in int8; the smallest is its negative."""

IN_INT8 = 4
"""Level of accuracy at which ``MatMulNBits`` quantizes activations to int8 as well."""

PART = 1 << 24
"""Elements of a weight that are quantized at a time."""


def to_int8(program: ONNXProgram) -> int:
    """Quantizes stored factors to int8; activations are quantized when the model runs.

    Before::

        y = MatMul(x, w)

    After::

        integers, scale, zero = DynamicQuantizeLinear(x)
        y = Mul(Cast(MatMulInteger(integers, w_int8, zero)), Mul(scale, w_scale))

    A weight has one scale: its largest magnitude / 127.

    Args:
        program: The program, changed in place. Its weights may still be replaced.

    Returns:
        The number of products.
    """
    return _apply(program, Rule("int8_products", ("MatMul",), _Int8Products(), exact=False))


def to_int4(program: ONNXProgram) -> int:
    """Quantizes stored matrices to int4, in blocks of 32 elements of a column.

    Before::

        y = MatMul(x, w)

    After::

        y = com.microsoft.MatMulNBits(x, w_int4, w_scales)

    A block's scale is its element with the largest magnitude / -8. Integers from 0 to 15, two in a
    byte, stand for -8 to 7 times the scale.

    Args:
        program: The program, changed in place. Its weights may still be replaced.

    Returns:
        The number of products.
    """
    return _apply(program, Rule("int4_products", ("MatMul",), _int4_products, exact=False))


def _apply(program: ONNXProgram, rule: Rule) -> int:
    outcome = Outcome()
    apply_rules(program.model, [rule], outcome)
    program.release()
    for name, reason in outcome.undone.items():
        warn(f"the optimization {name} failed and was undone: {reason}", "OA407")
    return outcome.counts[rule.name]


def _stored_sizes(node: ir.Node, rewriter: Rewriter) -> list[int]:
    """Sizes of the second factor of a product; none if it is not a stored one in float32."""
    weight = node.inputs[1]
    if weight is None or weight.dtype != ir.DataType.FLOAT or not rewriter.is_foldable(weight):
        return []
    sizes = [size for size in dims(weight) or () if isinstance(size, int)]
    return sizes if len(sizes) > 1 and 0 not in sizes else []


# --- int8 ----------------------------------------------------------------------------------------


class _Int8Products:
    """A rule that quantizes an activation once for all its readers."""

    def __init__(self) -> None:
        self._quantized: dict[tuple[ir.Value, object], tuple[ir.Value, ...]] = {}

    def __call__(self, node: ir.Node, rewriter: Rewriter) -> bool:
        (x, weight), sizes = node.inputs, _stored_sizes(node, rewriter)
        if not sizes or x is None or weight is None:
            return False
        int8, float32 = ir.DataType.INT8, ir.DataType.FLOAT
        factor = rewriter.fold(
            _int8_of, [weight], dtype=int8, shape=sizes, key="int8", suffix="int8"
        )
        weight_scale = rewriter.fold(
            _int8_scale, [weight], dtype=float32, shape=(), key="int8_scale", suffix="scale"
        )
        integers, scale, zero = self._quantize(x, node, rewriter)
        given, shape = [integers, factor, zero], node.outputs[0].shape
        product = rewriter.emit(
            "MatMulInteger", given, like=node, dtype=ir.DataType.INT32, shape=shape
        )
        cast = rewriter.emit(
            "Cast", [product], {"to": float32}, like=node, dtype=float32, shape=shape
        )
        both = rewriter.emit("Mul", [scale, weight_scale], like=node, shape=())
        rewriter.replace(node.outputs[0], rewriter.emit("Mul", [cast, both], like=node))
        return True

    def _quantize(self, x: ir.Value, node: ir.Node, rewriter: Rewriter) -> tuple[ir.Value, ...]:
        known = self._quantized.get((x, node.graph))
        if known is not None and known[0].producer() is not None:
            return known
        uint8 = ir.DataType.UINT8
        made = rewriter.emit_many(
            "DynamicQuantizeLinear", [x], like=node, dtypes=[uint8, ir.DataType.FLOAT, uint8]
        )
        for value, shape in zip(made, (x.shape, (), ()), strict=True):
            value.shape = None if shape is None else ir.Shape(shape)
        self._quantized[x, node.graph] = made
        return made


def _int8_scale(weight: torch.Tensor) -> torch.Tensor:
    least, largest = weight.amin(), weight.amax()
    scale = torch.maximum(-least, largest) / LARGEST
    return torch.where(scale == 0, 1.0, scale)


def _int8_of(weight: torch.Tensor) -> torch.Tensor:
    scale, integers = _int8_scale(weight), torch.empty_like(weight, dtype=torch.int8)
    outer = max(range(weight.ndim), key=weight.stride)  # parts are contiguous, if transposed too
    step = max(1, PART * weight.shape[outer] // weight.numel())
    parts = (torch.split(tensor, step, outer) for tensor in (weight, integers))
    for part, made in zip(*parts, strict=True):
        made.copy_((part / scale).round_().clamp_(-LARGEST, LARGEST))
    return integers


# --- int4 ----------------------------------------------------------------------------------------


def _int4_products(node: ir.Node, rewriter: Rewriter) -> bool:
    (x, weight), sizes = node.inputs, _stored_sizes(node, rewriter)
    if len(sizes) != 2 or weight is None:
        return False
    depth, columns = sizes
    count = -(-depth // BLOCK)
    integers = rewriter.fold(
        _int4_of,
        [weight],
        dtype=ir.DataType.UINT8,
        shape=[columns, count, BLOCK // 2],
        key="int4",
        suffix="int4",
    )
    scales = rewriter.fold(
        _int4_scales,
        [weight],
        dtype=ir.DataType.FLOAT,
        shape=[columns, count],
        key="int4_scales",
        suffix="scales",
    )
    attributes = {
        "K": depth,
        "N": columns,
        "bits": 4,
        "block_size": BLOCK,
        "accuracy_level": IN_INT8,
    }
    product = rewriter.emit(
        "MatMulNBits", [x, integers, scales], attributes, like=node, domain="com.microsoft"
    )
    rewriter.replace(node.outputs[0], product)
    return True


def _int4_scales(weight: torch.Tensor) -> torch.Tensor:
    step = max(1, PART // weight.shape[0])
    return torch.cat([_scales_of(_blocks_of(part)) for part in torch.split(weight.t(), step)])


def _int4_of(weight: torch.Tensor) -> torch.Tensor:
    step = max(1, PART // weight.shape[0])
    return torch.cat([_pack(_blocks_of(part)) for part in torch.split(weight.t(), step)])


def _blocks_of(columns: torch.Tensor) -> torch.Tensor:
    """Splits columns ``[n, depth]`` into blocks ``[n, blocks, 32]``, the last one with zeros."""
    padded = torch.nn.functional.pad(columns, (0, -columns.shape[1] % BLOCK))
    return padded.reshape(len(padded), -1, BLOCK)


def _scales_of(blocks: torch.Tensor) -> torch.Tensor:
    least, largest = blocks.amin(2), blocks.amax(2)  # a fifth of the time of aminmax
    return torch.where(largest > -least, largest, least) / -8


def _pack(blocks: torch.Tensor) -> torch.Tensor:
    """Returns the integers of blocks ``[n, blocks, 32]``, two in each of ``[n, blocks, 16]``."""
    scales = _scales_of(blocks).unsqueeze(2)
    inverse = torch.where(scales == 0, 0.0, scales.reciprocal())
    integers = (blocks * inverse + 8).add_(0.5).floor_().clamp_(0, 15).to(torch.uint8)
    return integers[..., 0::2] | (integers[..., 1::2] << 4)
