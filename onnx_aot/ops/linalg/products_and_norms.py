"""Matrix products and vector norms."""

from __future__ import annotations

import functools
import math
import re
import string
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape, reshape, swap_axes
from onnx_aot.ops.core.reduction import Axes, axes_of, reduce_extreme
from onnx_aot.ops.core.size_math import multiply_sizes
from onnx_aot.ops.linalg.matrices import row_numbers
from onnx_aot.ops.registry import register, register_names
from onnx_aot.torch_compat import aten

__all__ = ["raise_to", "reduce_vector_norm"]

Value = ir.Value

register_names(
    {
        aten.mm.default: "MatMul",
        aten.bmm.default: "MatMul",
        aten.dot.default: "MatMul",
    }
)


@register(aten.kron.default)
def aten_kron(op: Builder, self: Value, other: Value) -> Value:
    """Multiplies every element of the first by all of the second, side by side."""
    rank = max(op.rank(self), op.rank(other))
    outer, inner = ([*[1] * (rank - op.rank(v)), *op.all_sizes(v)] for v in (self, other))
    spread = reshape(op, op.cast(self, op.result_dtype), [s for size in outer for s in (size, 1)])
    block = reshape(op, op.cast(other, op.result_dtype), [s for size in inner for s in (1, size)])
    multiply = op.And if op.result_dtype == ir.DataType.BOOL else op.Mul
    sizes = [multiply_sizes(op, *pair) for pair in zip(outer, inner, strict=True)]
    return reshape(op, multiply(spread, block), sizes)


@register(aten.matmul.default)
def aten_matmul(op: Builder, self: Value, other: Value) -> Value:
    return _matmul(op, self, other)


@register(aten.linalg_multi_dot.default)
def aten_linalg_multi_dot(op: Builder, tensors: Sequence[Value]) -> Value:
    """Product of matrices, of which the first and the last may be vectors."""
    first, last = tensors[0], tensors[-1]
    factors = list(tensors)
    if op.rank(first) == 1:
        factors[0] = op.Unsqueeze(first, [0])
    if op.rank(last) == 1:
        factors[-1] = op.Unsqueeze(last, [1])
    product = _multiply_chain(op, factors)
    ends = [axis for axis, end in ((0, first), (1, last)) if op.rank(end) == 1]
    return op.Squeeze(product, ends) if ends else product


def _multiply_chain(op: Builder, factors: list[Value]) -> Value:
    """Multiplies in the order of the fewest multiplications, or from the left if a size is open."""
    sizes = [op.size(factor, 0) for factor in factors] + [op.size(factors[-1], 1)]
    if not all(isinstance(size, int) for size in sizes):
        return functools.reduce(op.MatMul, factors)
    best: dict[tuple[int, int], tuple[int, int]] = {}

    def count(i: int, j: int) -> int:
        """Fewest multiplications for the factors from i to before j; keeps where to split them."""
        if j - i == 1:
            return 0
        if (i, j) not in best:
            best[i, j] = min(
                (count(i, k) + count(k, j) + sizes[i] * sizes[k] * sizes[j], k)
                for k in range(i + 1, j)
            )
        return best[i, j][0]

    def multiply(i: int, j: int) -> Value:
        if j - i == 1:
            return factors[i]
        split = best[i, j][1]
        return op.MatMul(multiply(i, split), multiply(split, j))

    count(0, len(factors))
    return multiply(0, len(factors))


@register(aten.mv.default)
def aten_mv(op: Builder, self: Value, vec: Value) -> Value:
    return _matmul(op, self, vec)


def _matmul(op: Builder, left: Value, right: Value) -> Value:
    """Emits MatMul.

    ONNX Runtime fails for a matrix without elements times a vector, or returns garbage; times a
    matrix of one column it is right.
    """
    if op.rank(right) == 1 and op.rank(left) > 1 and _may_be_empty(left):
        return op.Squeeze(op.MatMul(left, op.Unsqueeze(right, [1])), [-1])
    return op.MatMul(left, right)


def _may_be_empty(value: Value) -> bool:
    return not all(isinstance(size, int) and size > 0 for size in value.shape or ())


@register(aten.linear.default)
def aten_linear(op: Builder, input: Value, weight: Value, bias: Value | None = None) -> Value:
    """Emits Gemm with a transposed weight for matrices of floats, MatMul otherwise."""
    if op.rank(weight) == 1:
        return _matmul(op, input, weight)
    if op.rank(input) == 2 and is_floating(input.dtype):
        return op.Gemm(input, weight, bias, transB=1)
    product = op.MatMul(input, swap_axes(op, weight, -2, -1))
    return product if bias is None else op.Add(product, bias)


@register(aten.addmm.default)
def aten_addmm(
    op: Builder, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    """``beta self + alpha (mat1 @ mat2)``; with beta 0 self is not read, so its NaNs vanish.

    ONNX Runtime's Gemm does not support integers, and ignores beta if there is nothing to add up.
    """
    if not is_floating(mat1.dtype) or (_may_be_empty(mat1) and beta not in (0, 1)):
        return _plus_product(op, self, op.MatMul(mat1, mat2), beta, alpha)
    if beta == 0:
        return op.Gemm(mat1, mat2, alpha=alpha)
    return op.Gemm(mat1, mat2, self, alpha=alpha, beta=beta)


@register(aten.baddbmm.default)
def aten_baddbmm(
    op: Builder, self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    return _plus_product(op, self, op.MatMul(batch1, batch2), beta, alpha)


@register(aten.mm.dtype, aten.bmm.dtype)
def aten_mm_dtype(op: Builder, self: Value, mat2: Value, out_dtype: Any) -> Value:
    """Multiplies and sums half precision in the result's type, as the CUDA kernels do."""
    return op.MatMul(op.cast(self, op.result_dtype), op.cast(mat2, op.result_dtype))


@register(aten.addmm.dtype)
def aten_addmm_dtype(
    op: Builder,
    self: Value,
    mat1: Value,
    mat2: Value,
    out_dtype: Any,
    beta: Any = 1,
    alpha: Any = 1,
) -> Value:
    added, left, right = (op.cast(value, op.result_dtype) for value in (self, mat1, mat2))
    return _plus_product(op, added, op.MatMul(left, right), beta, alpha)


@register(aten.addmv.default)
def aten_addmv(
    op: Builder, self: Value, mat: Value, vec: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    return _plus_product(op, self, _matmul(op, mat, vec), beta, alpha)


@register(aten.addbmm.default)
def aten_addbmm(
    op: Builder, self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    total = op.reduce("ReduceSum", op.MatMul(batch1, batch2), [0], False)
    return _plus_product(op, self, total, beta, alpha)


def _plus_product(op: Builder, added: Value, product: Value, beta: Any, alpha: Any) -> Value:
    scaled = product if alpha == 1 else op.Mul(product, alpha)
    if beta == 0:
        return scaled
    return op.Add(added if beta == 1 else op.Mul(added, beta), scaled)


@register(aten.einsum.default)
def aten_einsum(op: Builder, equation: str, tensors: list[Value], path: Any = None) -> Value:
    """Einsum of operands cast to the result's type, to which torch promotes summed integers.

    Where the output has no ellipsis, torch sums over the ellipsis' axes, which ONNX cannot express.
    """
    equation = _spell_out_equation(equation)
    letters, _, output = equation.partition("->")
    summed = "..." in letters and "..." not in output
    if summed:
        equation = f"{letters}->...{output}"
    operands = letters.split(",")
    tensors = [op.cast(tensor, op.result_dtype) for tensor in tensors]
    spread = [
        op.rank(tensor) - len(operand.replace("...", "")) if "..." in operand else 0
        for tensor, operand in zip(tensors, operands, strict=True)
    ]
    # ONNX Runtime requires ellipses of equal rank
    inputs = [
        op.Unsqueeze(tensor, [operand.index("...") + axis for axis in range(max(spread) - rank)])
        if "..." in operand and rank < max(spread)
        else tensor
        for tensor, operand, rank in zip(tensors, operands, spread, strict=True)
    ]
    inputs, terms = _put_in_order(op, inputs, operands)
    result = op.Einsum(*inputs, equation=",".join(terms) + equation[equation.index("->") :])
    if not summed or not max(spread):
        return result
    result = annotate_shape(result, [None] * (max(spread) + len(output)))
    return op.reduce("ReduceSum", result, list(range(max(spread))), keepdims=False)


def _put_in_order(
    op: Builder, tensors: list[Value], operands: list[str]
) -> tuple[list[Value], list[str]]:
    """Orders the axes of operands that may be empty as the letters first occur.

    ONNX Runtime does so by itself, and crashes at an empty tensor.
    """
    order: dict[str, int] = {}
    ordered, terms = [], []
    for tensor, operand in zip(tensors, operands, strict=True):
        letters = re.findall(r"\.\.\.|\w", operand)
        for letter in letters:
            order.setdefault(letter, len(order))
        wanted = sorted(set(letters), key=order.__getitem__)
        if wanted != letters and len(wanted) == len(letters) and _may_be_empty(tensor):
            spread = op.rank(tensor) - len(letters) + 1  # of an ellipsis
            places: dict[str, list[int]] = {}
            for letter in letters:
                start = sum(map(len, places.values()))
                places[letter] = list(range(start, start + (spread if letter == "..." else 1)))
            perm = [axis for letter in wanted for axis in places[letter]]
            ordered.append(op.Transpose(tensor, perm=perm))
            terms.append("".join(wanted))
        else:
            ordered.append(tensor)
            terms.append(operand)
    return ordered, terms


def _spell_out_equation(equation: str) -> str:
    """Writes out the equation's output, in lower-case letters.

    Torch orders the letters that occur once alphabetically, capitals first; ONNX Runtime does not
    accept capitals if the output is left out.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    letters = inputs.replace("...", "").replace(",", "")
    if not arrow:
        once = (letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    spelled = f"{inputs}->{output}"
    if letters.islower() or len(set(letters)) > len(string.ascii_lowercase):
        return spelled
    used = "".join(sorted(set(letters)))
    return spelled.translate(str.maketrans(used, string.ascii_lowercase[: len(used)]))


@register(aten.linalg_vector_norm.default)
def aten_linalg_vector_norm(
    op: Builder,
    self: Value,
    ord: Any = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Value:
    """``sum(|x|^ord)^(1 / ord)``; the count of nonzeros for 0, extremes for the infinities."""
    return reduce_vector_norm(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


def reduce_vector_norm(op: Builder, value: Value, ord: Any, dim: Axes, keepdim: bool) -> Value:
    """The norm over axes, or over all."""
    if op.rank(value) == 0:
        return _mark_nonzeros(op, value) if ord == 0 else op.Abs(value)
    if math.isinf(ord):
        name = "ReduceMax" if ord > 0 else "ReduceMin"
        return reduce_extreme(op, name, op.Abs(value), dim, keepdim)
    return _reduce_norm(op, value, ord, axes_of(dim), keepdim)


def _mark_nonzeros(op: Builder, value: Value) -> Value:
    return op.cast(op.Not(op.Equal(value, 0.0)), op.result_dtype)


def _reduce_norm(
    op: Builder, value: Value, ord: Any, axes: list[int] | None, keepdim: bool
) -> Value:
    if ord == 0:
        value = _mark_nonzeros(op, value)
    if ord in REDUCTIONS:
        return op.reduce(REDUCTIONS[ord], value, axes, keepdim)
    if math.isinf(ord):
        return op.reduce("ReduceMax" if ord > 0 else "ReduceMin", op.Abs(value), axes, keepdim)
    total = op.reduce("ReduceSum", raise_to(op, op.Abs(value), ord), axes, keepdim)
    return raise_to(op, total, 1.0 / ord)


def raise_to(op: Builder, value: Value, exponent: float) -> Value:
    """A power; the exponent is of type DOUBLE if the value is, and of type FLOAT otherwise."""
    wide = ir.DataType.DOUBLE if value.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    return op.Pow(value, op.constant(float(exponent), wide))


REDUCTIONS = {0: "ReduceSum", 1: "ReduceL1", 2: "ReduceL2"}


@register(aten.norm.Scalar, aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype)
def aten_norm(
    op: Builder, self: Value, p: Any = 2, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return aten_linalg_vector_norm(op, self, 2 if p is None else p, dim, keepdim)


@register(aten.cosine_similarity.default)
def aten_cosine_similarity(
    op: Builder, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8
) -> Value:
    """``x1 x2 / (max(|x1|, eps) max(|x2|, eps))`` of the broadcast operands."""
    if op.rank(x1) == op.rank(x2) == 0:
        x1, x2, dim = op.Unsqueeze(x1, [0]), op.Unsqueeze(x2, [0]), 0
    left, right, axes = x1, x2, [dim]
    if x1.shape != x2.shape:
        left, right = op.Expand(x1, op.Shape(x2)), op.Expand(x2, op.Shape(x1))
    lengths = [op.Max(_reduce_norm(op, value, 2, axes, False), eps) for value in (left, right)]
    product = op.reduce("ReduceSum", op.Mul(left, right), axes, False)
    return op.Div(product, op.Mul(*lengths))


@register(aten.cdist.default, aten._cdist_forward.default)
def aten_cdist(
    op: Builder, x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None
) -> Value:
    """Norms of the differences between each row of one input and each row of the other."""
    return _reduce_norm(op, op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3])), p, [-1], False)


@register(aten._cdist_backward.default)
def aten__cdist_backward(
    op: Builder, grad: Value, x1: Value, x2: Value, p: float, cdist: Value
) -> Value:
    """The gradient by the rows of the first input: ``sign(d) |d / cdist| ** (p - 1)`` per element.

    Equal rows have none, nor have equal elements if p is less than 1. For p = inf, it is that of
    the largest differences.
    """
    difference = op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3]))
    distance, weight = op.Unsqueeze(cdist, [-1]), op.Unsqueeze(grad, [-1])
    if p == 0:
        return op.reduce("ReduceSum", op.Mul(op.Mul(difference, weight), 0.0), [-2], False)
    slope, size = op.Sign(difference), op.Abs(difference)
    if math.isinf(p):
        slope = op.Where(op.Equal(size, distance), slope, 0.0)
    elif p != 1:
        is_zero = op.Equal(distance if p > 1 else size, 0.0)
        share = op.Div(size, op.Where(op.Equal(distance, 0.0), 1.0, distance))
        share = share if p == 2 else raise_to(op, op.Where(is_zero, 1.0, share), p - 1.0)
        slope = op.Where(is_zero, 0.0, op.Mul(slope, share))
    return op.reduce("ReduceSum", op.Mul(slope, weight), [-2], False)


@register(aten._trilinear.default)
def aten__trilinear(
    op: Builder,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """Products of three inputs, each with axes of size 1 inserted, summed over axes."""
    wide = []
    for value, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        wide.append(op.Unsqueeze(value, list(axes)) if axes else value)
    values = op.Mul(op.Mul(wide[0], wide[1]), wide[2])
    return op.reduce("ReduceSum", values, list(sumdim), False) if sumdim else values


@register(aten.pdist.default, aten._pdist_forward.default)
def aten_pdist(op: Builder, self: Value, p: float = 2.0) -> Value:
    """Norms of the differences between each row and each later one."""
    count = op.size(self, 0)
    later = op.Less(row_numbers(op, count), range_of_length(op, 0, count))
    pairs = op.NonZero(later)
    first, second = (op.Gather(self, op.Gather(pairs, i, axis=0), axis=0) for i in (0, 1))
    return _reduce_norm(op, op.Sub(first, second), p, [-1], False)


@register(aten.bilinear.default)
def aten_bilinear(
    op: Builder, input1: Value, input2: Value, weight: Value, bias: Value | None = None
) -> Value:
    """``x1^T W_k x2`` for each k: the products of both inputs, times the weights."""
    product = op.Einsum(input1, weight, input2, equation="...i,kij,...j->...k")
    return product if bias is None else op.Add(product, bias)
