"""Helpers shared by patterns: numbers, factors of a product, axes, sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_aot.ir_passes.rewriter import Rewriter

__all__ = [
    "Product",
    "both_orders",
    "dimensions",
    "emit_extent",
    "is_close",
    "is_vector",
    "match_product",
    "permutation",
    "reduced_axes",
    "scalar_constant",
    "single_use",
]


class Product:
    """A product of a number and values.

    Attributes:
        number: The product of all constants.
        factors: The values, each repeated as often as it occurs.
    """

    def __init__(self) -> None:
        self.number = 1.0
        self.factors: list[ir.Value] = []


MOST_FACTORS = 8
PRODUCTS = ("Mul", "Div", "Pow")


def scalar_constant(rewriter: Rewriter, value: ir.Value | None) -> float | None:
    """The element of a constant with one element; None for other values."""
    tensor = rewriter.constant(value, limit=1)
    if tensor is None or tensor.numel() != 1 or tensor.is_complex():
        return None
    return float(tensor.item())


def is_close(found: float | None, wanted: float) -> bool:
    """Returns True if a constant equals the wanted one within a relative error of 2e-6."""
    return found is not None and math.isclose(found, wanted, rel_tol=2e-6)


def both_orders(node: ir.Node | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yields the operands of a node with two inputs, in both orders."""
    if node is not None and len(node.inputs) == 2:
        first, second = node.inputs
        if first is not None and second is not None:
            yield first, second
            yield second, first


def single_use(rewriter: Rewriter, value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that produces a value, if it has that operator and the value has one reader."""
    node = rewriter.producer(value, op_type)
    return node if node is not None and value is not None and rewriter.only_use(value) else None


def match_product(rewriter: Rewriter, root: ir.Node) -> Product | None:
    """The factors of a product in any association; None if there are more than ``MOST_FACTORS``.

    Products that other nodes read too are factors themselves. ``Div`` by a number, and ``Pow`` with
    exponent 2 or 3, are products too.
    """
    found = Product()
    pending: list[ir.Value | ir.Node] = [root]
    while pending:
        entry = pending.pop()
        if isinstance(entry, ir.Value):
            constant = scalar_constant(rewriter, entry)
            if constant is not None:
                found.number *= constant
                continue
            node = entry.producer()
            # checks the uses last: a value that all layers read has very many
            is_product = node is not None and node.op_type in PRODUCTS and not node.domain
            if is_product and node is not None and rewriter.only_use(entry):
                pending.append(node)
            else:
                found.factors.append(entry)
        elif not _unfold_product(rewriter, entry, found, pending):
            found.factors.append(entry.outputs[0])
        if len(found.factors) + len(pending) > MOST_FACTORS:
            return None
    return found


def _unfold_product(
    rewriter: Rewriter, node: ir.Node, found: Product, pending: list[ir.Value | ir.Node]
) -> bool:
    left, right = node.inputs
    assert left is not None
    assert right is not None
    if node.op_type == "Mul":
        pending += [left, right]
        return True
    constant = scalar_constant(rewriter, right)
    if node.op_type == "Div" and constant:
        found.number /= constant
        pending.append(left)
        return True
    if node.op_type == "Pow" and constant in (2.0, 3.0):
        found.factors += [left] * int(constant)
        return True
    return False


def reduced_axes(rewriter: Rewriter, node: ir.Node) -> list[int] | None:
    """The axes, none negative, that a Reduce operator with ``keepdims=1`` reduces; else None."""
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is None or node.attributes.get_int("keepdims", 1) != 1:
        return None
    axes: Sequence[int]
    if len(node.inputs) > 1:
        tensor = rewriter.constant(node.inputs[1])
        if tensor is None:
            return None
        axes = tensor.tolist()
    else:
        axes = node.attributes.get_ints("axes", ())
    return sorted(axis % len(shape) for axis in axes) or None


def dimensions(value: ir.Value | None) -> list[int | str] | None:
    """Sizes, or names of dynamic ones; equal names are equal sizes. None if one is unknown."""
    if value is None or value.shape is None:
        return None
    sizes: list[int | str] = []
    for size in value.shape.dims:
        known = size if isinstance(size, int) else size.value
        if known is None:
            return None
        sizes.append(known)
    return sizes


def is_vector(value: ir.Value, width: int | str) -> bool:
    """Returns True if a value has one dimension, of that size."""
    return dimensions(value) == [width]


def permutation(node: ir.Node | None) -> list[int] | None:
    """The ``perm`` of a Transpose, or None if there is none."""
    return None if node is None else list(node.attributes.get_ints("perm", ())) or None


MOST_INPUTS = 16


def emit_extent(rewriter: Rewriter, value: ir.Value, axis: int, like: ir.Node) -> ir.Value:
    """Emits a dimension as a vector with one element, read from a graph input if one has it.

    This makes it the same value wherever it is requested.
    """
    known = dimensions(value)
    source, name = value, None if known is None else known[axis]
    inputs = like.graph.inputs if like.graph is not None else ()
    for candidate in inputs[:MOST_INPUTS] if isinstance(name, str) else ():
        sizes = dimensions(candidate)
        if sizes is not None and name in sizes:
            source, axis = candidate, sizes.index(name)
            break
    attributes = {"start": axis, "end": axis + 1}
    return rewriter.emit(
        "Shape", [source], attributes, like=like, dtype=ir.DataType.INT64, shape=[1]
    )
