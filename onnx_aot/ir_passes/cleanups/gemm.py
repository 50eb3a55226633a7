"""Merges additions and transposes around matrix products into ONNX's Gemm."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.cleanups.dequantized import dequantized_weight
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import Dim, dims, rank

__all__ = [
    "GEMM_OF_SHARED_WEIGHT",
    "GEMM_OF_TRANSPOSED",
    "MATMUL_ADD_TO_GEMM",
    "is_right_factor",
    "transposes_shared_weight",
]

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})


def matmul_add_to_gemm(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Add(MatMul(x, w), c)`` -> ``Gemm(x, w, c)``.

    For matrices, if ``w`` is a weight and ``c`` has at most two dimensions, each of which is 1 or
    a constant equal to that of the product.
    """
    for place in (0, 1):
        product = rewriter.producer(node.inputs[place], "MatMul")
        term = node.inputs[1 - place]
        if product is not None and rewriter.only_use(product.outputs[0]):
            break
    else:
        return False
    left, weight = product.inputs
    if rank(left) != 2 or rank(weight) != 2 or node.outputs[0].dtype not in FLOATS:
        return False
    stored = weight is not None and weight.is_initializer()
    if not stored and dequantized_weight(weight, rewriter) is None:
        return False
    sizes, wide = dims(term), dims(product.outputs[0])
    if sizes is None or wide is None or len(sizes) > 2:
        return False
    wide = wide[len(wide) - len(sizes) :]
    if not all(a == 1 or (isinstance(a, int) and a == b) for a, b in zip(sizes, wide, strict=True)):
        return False
    new = rewriter.emit("Gemm", [left, weight, term], like=product)
    rewriter.replace(node.outputs[0], new)
    return True


def gemm_of_transposed(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Gemm(x, Transpose(w))`` -> ``Gemm(x, w, transB=1)``; also ``transA`` for ``x``."""
    inputs = list(node.inputs)
    attributes = dict(node.attributes)
    changed: ir.Node | None = None
    for place, name in ((0, "transA"), (1, "transB")):
        inner = rewriter.producer(inputs[place], "Transpose")
        if inner is None or rank(inner.inputs[0]) != 2:
            continue
        if list(inner.attributes.get_ints("perm") or (1, 0)) != [1, 0]:
            continue
        inputs[place], changed = inner.inputs[0], changed or inner
        attributes[name] = ir.AttrInt64(name, 1 - node.attributes.get_int(name, 0))
    if changed is None:
        return False
    rewriter.replace(node.outputs[0], rewriter.emit("Gemm", inputs, attributes, like=changed))
    return True


def gemm_of_shared_weight(node: ir.Node, rewriter: Rewriter) -> bool:
    """``MatMul(x, Transpose(w)) + b`` -> ``Gemm(x, w, b, transB=1)`` if others read ``w`` too.

    So an embedding that is also the output layer is stored once. ``x`` of a higher rank is
    flattened to a matrix, and the product reshaped back. The bias is optional. Before the product
    comes Flatten instead of Reshape, because ONNX Runtime's optimizer for GPT-2 reads the third
    input of each Gemm between reshapes.
    """
    left = node.inputs[0]
    inner = rewriter.producer(node.inputs[1], "Transpose")
    if inner is None or left is None or not transposes_shared_weight(inner):
        return False
    weight = inner.inputs[0]
    sizes, stored = dims(left), dims(weight)
    if sizes is None or stored is None or len(sizes) < 2:
        return False
    columns, depth = stored
    if not (isinstance(columns, int) and columns and isinstance(depth, int) and depth):
        return False
    result, bias = _find_bias(node, columns)
    given = [weight] if bias is None else [weight, bias]
    if len(sizes) == 2:
        new = rewriter.emit("Gemm", [left, *given], {"transB": 1}, like=inner)
        rewriter.replace(result, new)
        return True
    rows = sizes[:-1]
    known = [size for size in rows if isinstance(size, int)]
    names = [str(size) for size in rows if not isinstance(size, int) and size is not None]
    count: int | ir.SymbolicDim | None = math.prod(known)
    if None in rows:
        count = None
    elif names:
        factors = [name if name.isidentifier() else f"({name})" for name in names]
        count = ir.SymbolicDim("*".join(([str(count)] if count != 1 else []) + factors))
    axis = {"axis": len(sizes) - 1}
    matrix = rewriter.emit("Flatten", [left], axis, like=node, shape=[count, depth])
    product = rewriter.emit(
        "Gemm", [matrix, *given], {"transB": 1}, like=node, shape=[count, columns]
    )
    shape = _emit_shape(left, rows, columns, node, rewriter)
    literal = None if shape.producer() is None and shape.const_value is not None else 1
    new = rewriter.emit("Reshape", [product, shape], {"allowzero": literal}, like=node)
    rewriter.replace(result, new)
    return True


def _find_bias(product: ir.Node, columns: int) -> tuple[ir.Value, ir.Value | None]:
    """The result of a product with its bias, and that bias; None if no bias alone is added."""
    result = product.outputs[0]
    uses = result.uses()
    if len(uses) != 1 or result.is_graph_output():
        return result, None
    ((user, index),) = uses
    if user.op_type != "Add" or user.domain or user.graph is not product.graph:
        return result, None
    bias = user.inputs[1 - index]
    if bias is None or bias.const_value is None or dims(bias) not in ([columns], [1, columns]):
        return result, None
    return user.outputs[0], bias


def transposes_shared_weight(node: ir.Node) -> bool:
    """Returns True for the Transpose of a matrix of floats that is multiplied and used elsewhere.

    The matrix is stored in the model or is an input. Layers that share it do not count: they may
    have other factors folded in, each into its own copy.
    """
    weight = node.inputs[0]
    if weight is None or rank(weight) != 2 or weight.dtype not in FLOATS | {ir.DataType.BFLOAT16}:
        return False
    if not weight.is_initializer() and not weight.is_graph_input():
        return False
    return is_right_factor(node) and not all(map(_is_layer, weight.consumers()))


def _is_layer(node: ir.Node) -> bool:
    return (node.op_type == "Gemm" and not node.domain) or is_right_factor(node)


def is_right_factor(node: ir.Node) -> bool:
    """Returns True for a Transpose whose results are only multiplied with matrices to the left."""
    if node.op_type != "Transpose" or node.domain or node.outputs[0].is_graph_output():
        return False
    uses = node.outputs[0].uses()
    return bool(uses) and all(
        user.op_type == "MatMul" and not user.domain and index == 1 for user, index in uses
    )


def _emit_shape(
    source: ir.Value, rows: list[Dim], columns: int, node: ir.Node, rewriter: Rewriter
) -> ir.Value:
    """Emits the shape that has the rows of a value and a number of columns."""
    if sum(not isinstance(size, int) for size in rows) <= 1 and 0 not in rows:
        sizes = [size if isinstance(size, int) else -1 for size in rows]
        return rewriter.initializer(torch.tensor([*sizes, columns]))
    known = rewriter.emit(
        "Shape",
        [source],
        {"start": 0, "end": len(rows)},
        like=node,
        dtype=ir.DataType.INT64,
        shape=[len(rows)],
    )
    last = rewriter.initializer(torch.tensor([columns]))
    return rewriter.emit("Concat", [known, last], {"axis": 0}, like=node, shape=[len(rows) + 1])


MATMUL_ADD_TO_GEMM = Rule(
    "matmul_add_to_gemm",
    ("Add",),
    matmul_add_to_gemm,
    exact=False,
    behind=frozenset({"MatMul"}),
)
GEMM_OF_TRANSPOSED = Rule(
    "gemm_of_transposed",
    ("Gemm",),
    gemm_of_transposed,
    exact=False,
    behind=frozenset({"Transpose"}),
)
GEMM_OF_SHARED_WEIGHT = Rule(
    "gemm_of_shared_weight",
    ("MatMul",),
    gemm_of_shared_weight,
    exact=False,
    since=15,
    behind=frozenset({"Transpose"}),
)
