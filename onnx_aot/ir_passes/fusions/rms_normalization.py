"""Fuses ``x / sqrt(mean(x^2) + eps) * weight``."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.fusions.matching import (
    both_orders,
    dimensions,
    is_close,
    reduced_axes,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["RMS_NORMALIZATION", "ROOT_MEAN_SQUARE"]

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class _Norm:
    """A division of ``x`` by the root mean square of its elements."""

    x: ir.Value
    epsilon: float
    axes: list[int]
    root: ir.Value  # the square root
    first: ir.Node
    canonical: bool  # Pow, ReduceMean, Add, Sqrt, Div


def _match_norm(rewriter: Rewriter, node: ir.Node) -> _Norm | None:
    if node.op_type == "Div":
        x, root = node.inputs
        sqrt = single_use(rewriter, root, "Sqrt")
        return _match_root(rewriter, x, sqrt, canonical=True)
    for x, scale in both_orders(node):
        reciprocal = single_use(rewriter, scale, "Reciprocal")
        if reciprocal is not None:
            sqrt = single_use(rewriter, reciprocal.inputs[0], "Sqrt")
            return _match_root(rewriter, x, sqrt, canonical=False)
    return None


def _match_root(
    rewriter: Rewriter, x: ir.Value | None, sqrt: ir.Node | None, canonical: bool
) -> _Norm | None:
    if x is None or sqrt is None:
        return None
    for mean, added in both_orders(single_use(rewriter, sqrt.inputs[0], "Add")):
        epsilon = scalar_constant(rewriter, added)
        reduce = single_use(rewriter, mean, "ReduceMean")
        if epsilon is None or reduce is None:
            continue
        square = reduce.inputs[0].producer() if reduce.inputs[0] is not None else None
        axes = reduced_axes(rewriter, reduce)
        if square is None or axes is None or not rewriter.only_use(square.outputs[0]):
            return None
        if square.inputs[0] is not x or len(square.inputs) != 2:
            return None
        power = square.op_type == "Pow" and is_close(
            scalar_constant(rewriter, square.inputs[1]), 2.0
        )
        if not power and not (square.op_type == "Mul" and square.inputs[1] is x):
            return None
        return _Norm(x, epsilon, axes, sqrt.outputs[0], square, canonical and power)
    return None


def root_mean_square(node: ir.Node, rewriter: Rewriter) -> bool:
    """Rewrites to the form that ONNX Runtime fuses if a weight follows; saves one node.

    Before::

        r = Reciprocal(Sqrt(Add(ReduceMean(Pow(x, 2)), eps)))
        y = Mul(x, r)

    After::

        r = Sqrt(Add(ReduceMean(Pow(x, 2)), eps))
        y = Div(x, r)

    The square may be ``Mul(x, x)``.
    """
    norm = _match_norm(rewriter, node)
    if norm is None or norm.canonical or norm.x.dtype == ir.DataType.DOUBLE:
        return False  # ONNX Runtime's kernel is less precise than double
    if rewriter.opset >= 23 and _fits_rms_normalization(norm):
        return False  # left to ``rms_normalization``, here or at the product with the weight
    mean = norm.first.outputs[0].consumers()[0]
    added = mean.outputs[0].consumers()[0]
    root = norm.root
    if norm.first.op_type != "Pow":
        two = rewriter.initializer(torch.tensor(2.0, dtype=dtypes.to_torch(norm.x.dtype)))
        square = rewriter.emit("Pow", [norm.x, two], like=norm.first, shape=norm.x.shape)
        small = mean.outputs[0].shape
        mean_inputs = [square, *mean.inputs[1:]]
        total = rewriter.emit("ReduceMean", mean_inputs, mean.attributes, like=mean, shape=small)
        operands = [total if v is mean.outputs[0] else v for v in added.inputs]
        total = rewriter.emit("Add", operands, like=added, shape=small)
        root = rewriter.emit("Sqrt", [total], like=added, shape=small)
    rewriter.replace(node.outputs[0], rewriter.emit("Div", [norm.x, root], like=node))
    return True


def rms_normalization(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses the normalization, the weight and a cast before it into one node.

    Before::

        r = Reciprocal(Sqrt(Add(ReduceMean(Pow(x, 2)), eps)))
        y = Mul(Mul(x, r), weight)

    After::

        y = RMSNormalization(x, weight, epsilon=eps)

    In half precision, with ``Cast(x)`` for ``x`` and ``Cast(Mul(x, r))`` in the product: the
    operator computes in float32 too, and casts before the product. The division may be ``Div``.
    """
    norm = _match_norm(rewriter, node)
    if norm is not None:
        if _weight_follows(rewriter, norm, node.outputs[0]):
            return False
        sizes = (dimensions(norm.x) or [])[norm.axes[0] :]
        if not _fits_rms_normalization(norm) or not all(isinstance(size, int) for size in sizes):
            return False
        dtype = dtypes.to_torch(norm.x.dtype)
        ones = rewriter.initializer(torch.ones([int(size) for size in sizes], dtype=dtype))
        rewriter.replace(node.outputs[0], _emit_rms_normalization(rewriter, norm, norm.x, ones))
        return True
    for normalized, weight in both_orders(node):
        cast = single_use(rewriter, normalized, "Cast")
        inner = cast.inputs[0] if cast is not None else normalized
        producer = None if inner is None else inner.producer()
        if producer is None or producer.domain or producer.op_type not in ("Mul", "Div"):
            continue
        if not rewriter.only_use(producer.outputs[0]):
            continue
        norm = _match_norm(rewriter, producer)
        if norm is None or not _is_weight(norm, weight):
            continue
        x = norm.x if cast is None else _operand_of_upcast(rewriter, norm.x, weight.dtype)
        if x is not None:
            rewriter.replace(node.outputs[0], _emit_rms_normalization(rewriter, norm, x, weight))
            return True
    return False


def _emit_rms_normalization(
    rewriter: Rewriter, norm: _Norm, x: ir.Value, weight: ir.Value
) -> ir.Value:
    attributes = {"axis": norm.axes[0] - _rank(norm.x), "epsilon": norm.epsilon}
    return rewriter.emit("RMSNormalization", [x, weight], attributes, like=norm.first)


def _rank(value: ir.Value) -> int:
    assert value.shape is not None
    return len(value.shape)


def _fits_rms_normalization(norm: _Norm) -> bool:
    rank = _rank(norm.x)
    # the operator computes wider types in float32
    fits = norm.x.dtype == ir.DataType.FLOAT
    return fits and norm.axes == list(range(norm.axes[0], rank))


def _is_weight(norm: _Norm, value: ir.Value) -> bool:
    sizes = dimensions(norm.x)
    return (
        _fits_rms_normalization(norm)
        and sizes is not None
        and dimensions(value) == sizes[norm.axes[0] :]
    )


def _operand_of_upcast(
    rewriter: Rewriter, x: ir.Value, dtype: ir.DataType | None
) -> ir.Value | None:
    """The operand of the cast to ``x``, if it has the half-precision ``dtype``; else None."""
    cast = rewriter.producer(x, "Cast")
    inner = None if cast is None else cast.inputs[0]
    return inner if inner is not None and inner.dtype == dtype and dtype in HALVES else None


def _weight_follows(rewriter: Rewriter, norm: _Norm, value: ir.Value) -> bool:
    """Returns True if a product with the weight follows, at which everything is fused."""
    for _ in range(2):  # a cast may come first
        if not rewriter.only_use(value):
            return False
        (reader,) = value.consumers()
        if reader.domain or reader.op_type not in ("Cast", "Mul"):
            return False
        if reader.op_type == "Mul":
            others = [operand for operand in reader.inputs if operand is not value]
            return len(others) == 1 and others[0] is not None and _is_weight(norm, others[0])
        if (
            reader.outputs[0].dtype not in HALVES
            or _operand_of_upcast(rewriter, norm.x, reader.outputs[0].dtype) is None
        ):
            return False
        value = reader.outputs[0]
    return False


RMS_NORMALIZATION = Rule(
    "rms_normalization", ("Mul", "Div"), rms_normalization, exact=False, since=23
)
ROOT_MEAN_SQUARE = Rule("root_mean_square", ("Mul",), root_mean_square, exact=False)
