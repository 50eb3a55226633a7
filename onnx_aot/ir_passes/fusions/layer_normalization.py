"""Fuses ``(x - mean) / sqrt(variance + eps) * weight + bias``."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.fusions.matching import (
    both_orders,
    dimensions,
    is_close,
    reduced_axes,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["LAYER_NORMALIZATION"]


@dataclasses.dataclass(frozen=True)
class _Norm:
    x: ir.Value
    axis: int
    epsilon: float
    weight: ir.Value | None
    bias: ir.Value | None
    first: ir.Node

    @property
    def sizes(self) -> list[int | str]:
        """The sizes that a weight and a bias must have."""
        return (dimensions(self.x) or [])[self.axis :]


def layer_normalization(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses layer normalization into one node.

    Before::

        d = Sub(x, ReduceMean(x))
        n = Div(d, Sqrt(Add(ReduceMean(Mul(d, d)), eps)))
        y = Add(Mul(n, weight), bias)

    After::

        y = LayerNormalization(x, weight, bias, epsilon=eps)

    Normalizes over the last dimensions. Weight and bias may be missing, and have the shape of these
    dimensions; the square may be ``Pow(d, 2)``, the division ``Mul(d, Reciprocal(...))``.
    """
    found = _match_affine_normalization(rewriter, node)
    if found is None or _goes_on(rewriter, node.outputs[0], found):
        return False
    weight = found.weight
    if weight is None:
        if not all(isinstance(size, int) for size in found.sizes):
            return False
        weight = rewriter.initializer(torch.ones([int(size) for size in found.sizes]))
    assert found.x.shape is not None
    attributes = {"axis": found.axis - len(found.x.shape), "epsilon": found.epsilon}
    inputs = [found.x, weight] + ([] if found.bias is None else [found.bias])
    emitted = rewriter.emit("LayerNormalization", inputs, attributes, like=found.first)
    rewriter.replace(node.outputs[0], emitted)
    return True


def _match_affine_normalization(rewriter: Rewriter, node: ir.Node | None) -> _Norm | None:
    """The normalization that ends at a node, with the weight and bias applied so far, or None."""
    if node is None or node.domain:
        return None
    found = _match_normalization(rewriter, node)
    if found is not None or node.op_type not in ("Mul", "Add"):
        return found
    for inner, other in both_orders(node):
        producer = inner.producer()
        if producer is None or producer.op_type not in ("Div", "Mul"):
            continue  # does not follow a chain of sums
        if not rewriter.only_use(inner):
            continue
        found = _match_affine_normalization(rewriter, producer) if node.op_type == "Add" else None
        if node.op_type == "Mul":
            found = _match_normalization(rewriter, producer)
        if found is None or found.bias is not None or dimensions(other) != found.sizes:
            continue
        if node.op_type == "Mul":
            return dataclasses.replace(found, weight=other)
        return dataclasses.replace(found, bias=other)
    return None


def _match_normalization(rewriter: Rewriter, node: ir.Node | None) -> _Norm | None:
    if node is None or node.domain or node.op_type not in ("Div", "Mul"):
        return None
    if node.op_type == "Div":
        return _match_variance(
            rewriter, node.inputs[0], single_use(rewriter, node.inputs[1], "Sqrt")
        )
    for centred, scale in both_orders(node):
        reciprocal = single_use(rewriter, scale, "Reciprocal")
        if reciprocal is not None:
            return _match_variance(
                rewriter, centred, single_use(rewriter, reciprocal.inputs[0], "Sqrt")
            )
    return None


def _match_variance(
    rewriter: Rewriter, centred: ir.Value | None, sqrt: ir.Node | None
) -> _Norm | None:
    """Matches ``centred`` and the root of ``Add(ReduceMean(centred * centred), eps)``."""
    if centred is None or sqrt is None or centred.dtype != ir.DataType.FLOAT:
        return None
    for variance, added in both_orders(single_use(rewriter, sqrt.inputs[0], "Add")):
        epsilon = scalar_constant(rewriter, added)
        reduce = single_use(rewriter, variance, "ReduceMean")
        if epsilon is None or epsilon < 0 or reduce is None:  # ONNX Runtime refuses these
            continue
        axes = reduced_axes(rewriter, reduce)
        square = reduce.inputs[0].producer() if reduce.inputs[0] is not None else None
        if axes is None or not _is_square(rewriter, square, centred):
            return None
        return _match_centering(rewriter, centred, axes, epsilon)
    return None


def _is_square(rewriter: Rewriter, node: ir.Node | None, of: ir.Value) -> bool:
    if node is None or node.domain or not rewriter.only_use(node.outputs[0]):
        return False
    if node.op_type == "Mul":
        return list(node.inputs) == [of, of]
    return (
        node.op_type == "Pow"
        and node.inputs[0] is of
        and is_close(scalar_constant(rewriter, node.inputs[1]), 2.0)
    )


def _match_centering(
    rewriter: Rewriter, value: ir.Value, axes: list[int], epsilon: float
) -> _Norm | None:
    """Matches ``x - mean(x)``, which the square and the division both read."""
    sub = rewriter.producer(value, "Sub")
    if sub is None or value.is_graph_output():
        return None
    x = sub.inputs[0]
    mean = single_use(rewriter, sub.inputs[1], "ReduceMean")
    if x is None or x.shape is None or mean is None or mean.inputs[0] is not x:
        return None
    trailing = axes == list(range(axes[0], len(x.shape)))
    if not trailing or reduced_axes(rewriter, mean) != axes:
        return None
    return _Norm(x, axes[0], epsilon, None, None, mean)


def _goes_on(rewriter: Rewriter, value: ir.Value, found: _Norm) -> bool:
    """Returns True if the next node multiplies by the weight or adds the bias."""
    if found.bias is not None or not rewriter.only_use(value):
        return False
    (reader,) = value.consumers()
    if reader.domain or reader.op_type not in ("Mul", "Add"):
        return False
    if reader.op_type == "Mul" and found.weight is not None:
        return False
    others = [operand for operand in reader.inputs if operand is not value]
    return len(others) == 1 and dimensions(others[0]) == found.sizes


LAYER_NORMALIZATION = Rule(
    "layer_normalization",
    ("Div", "Mul", "Add"),
    layer_normalization,
    exact=False,
    since=17,
    behind=frozenset({"Sqrt", "Reciprocal", "Div", "Mul"}),
)
