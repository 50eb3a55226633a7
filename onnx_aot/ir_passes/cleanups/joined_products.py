"""Joins products of one value with several weights into one product."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims

__all__ = ["JOINED_PRODUCTS"]


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product with a stored matrix ``[depth, columns]``, and the vector that is added to it."""

    weight: ir.Value
    depth: int
    columns: int
    bias: ir.Value | None
    result: ir.Value


def joined_products(node: ir.Node, rewriter: Rewriter) -> bool:
    """Multiplies a value with the weights of several layers at once.

    Before::

        a, b, c = MatMul(x, wa), Add(MatMul(x, wb), bias), MatMul(x, wc)

    After::

        a, b, c = Split(Add(MatMul(x, [wa, wb, wc]), [0, bias, 0]), axis=-1)

    Only the joined weights are stored, so products whose weights others read stay as they are.
    """
    x = node.inputs[0]
    if x is None or x.shape is None or x.dtype is None or len(x.uses()) < 2:
        return False
    found: dict[ir.Node, _Product] = {}
    for user, index in x.uses():
        product = _match_product(rewriter, user, x) if index == 0 else None
        if product is not None and user.graph is node.graph:
            found[user] = product
    if node not in found or len(found) < 2:
        return False
    if node is not next(other for other in node.graph or () if other in found):
        return False  # the results have to precede all that reads them
    products = list(found.values())
    widths = [product.columns for product in products]
    joined = _emit_joined(rewriter, node, products)
    sizes = rewriter.initializer(torch.tensor(widths, dtype=torch.int64))
    parts = rewriter.emit_many(
        "Split", [joined, sizes], {"axis": -1}, like=node, dtypes=[x.dtype] * len(products)
    )
    for part, product in zip(parts, products, strict=True):
        part.shape = product.result.shape
        rewriter.replace(product.result, part)
    return True


def _match_product(rewriter: Rewriter, node: ir.Node, x: ir.Value) -> _Product | None:
    if node.op_type != "MatMul" or node.domain:
        return None
    weight, result = node.inputs[1], node.outputs[0]
    sizes = dims(weight)
    if weight is None or sizes is None or len(sizes) != 2 or result.is_graph_output():
        return None
    depth, columns = sizes
    if not isinstance(depth, int) or not isinstance(columns, int) or weight.dtype != x.dtype:
        return None
    if not rewriter.is_foldable(weight) or not rewriter.only_use(weight):
        return None
    bias = _find_bias(rewriter, result, columns)
    if bias is None:
        return _Product(weight, depth, columns, None, result)
    (added,) = result.consumers()
    return _Product(weight, depth, columns, bias, added.outputs[0])


def _find_bias(rewriter: Rewriter, result: ir.Value, columns: int) -> ir.Value | None:
    """The stored vector that is added to a product, which nothing else reads."""
    if not rewriter.only_use(result):
        return None
    ((user, index),) = result.uses()
    if user.op_type != "Add" or user.domain or user.outputs[0].is_graph_output():
        return None
    bias = user.inputs[1 - index]
    fits = bias is not None and dims(bias) == [columns] and rewriter.is_foldable(bias)
    return bias if fits else None


def _emit_joined(rewriter: Rewriter, node: ir.Node, products: Sequence[_Product]) -> ir.Value:
    """The product of all weights, and what is added to it."""
    x, total = node.inputs[0], sum(product.columns for product in products)
    assert x is not None
    assert x.shape is not None
    assert x.dtype is not None
    shape = ir.Shape([*x.shape[:-1], total])
    weights = [product.weight for product in products]
    weight = rewriter.fold(
        _join_columns, weights, dtype=x.dtype, shape=[products[0].depth, total], key="join_columns"
    )
    made = rewriter.emit("MatMul", [x, weight], like=node, shape=shape)
    given = [product.bias for product in products if product.bias is not None]
    if not given:
        return made
    layout = [(product.columns, product.bias is not None) for product in products]
    bias = rewriter.fold(
        _make_bias(layout, x.dtype), given, dtype=x.dtype, shape=[total], key=tuple(layout)
    )
    return rewriter.emit("Add", [made, bias], like=node, shape=shape)


def _join_columns(*weights: torch.Tensor) -> torch.Tensor:
    rows = [weight.t() for weight in weights]
    if all(row.is_contiguous() for row in rows):  # as modules hold them: nothing is transposed
        return torch.cat(rows).t()
    return torch.cat(weights, -1)


def _make_bias(
    layout: Sequence[tuple[int, bool]], dtype: ir.DataType
) -> Callable[..., torch.Tensor]:
    """Returns a function that puts vectors in a row, with zeros where there is none."""

    def join(*given: torch.Tensor) -> torch.Tensor:
        left = iter(given)
        zeros = torch.zeros(sum(width for width, _ in layout), dtype=dtypes.to_torch(dtype))
        return torch.cat([next(left) if stored else zeros[:width] for width, stored in layout], -1)

    return join


JOINED_PRODUCTS = Rule("joined_products", ("MatMul",), joined_products, exact=False, since=13)
