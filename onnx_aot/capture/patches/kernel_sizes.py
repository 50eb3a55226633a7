"""Replaces kernels of operators while a model is traced.

Each replacement gives the shapes of the results and leaves the operator in the graph as it is. The
operators are composite, or have no shape function in torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.capture.error_hints import RefusedError, refuse_autocast
from onnx_aot.torch_compat import aten, is_differentiating, kernel_patches, symbolic_expression

__all__ = ["KERNELS", "KERNEL_PATCHES"]

Tensor = torch.Tensor

check: Any = torch._check
sym_max: Any = torch.sym_max
sym_min: Any = torch.sym_min
broadcast_shapes: Any = torch.broadcast_shapes


def _recurrent_shapes(
    input: Tensor,
    states: Sequence[Tensor],
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Outputs of the right shape; torch's kernels unroll over time, which fixes the length."""
    refuse_autocast(input.device.type, "a recurrent layer")
    # the size of the projection, if there is one
    width = states[0].shape[2] * (2 if bidirectional else 1)
    output = input.new_empty([input.shape[0], input.shape[1], width])
    return (output, *(torch.empty_like(state) for state in states))


def _lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, hx, bidirectional)


def _gru_or_rnn(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, [hx], bidirectional)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """A result laid out as by kernels of CUDA, which pad masks: that fails for dynamic sizes."""
    if query.device.type != "cuda" or query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        return NotImplemented
    batch, heads, length, _ = query.shape
    return query.new_empty(batch, length, heads, value.shape[3]).transpose(1, 2)


def _packed_lstm(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    refuse_autocast(data.device.type, "a recurrent layer")
    width = hx[0].shape[2] * (2 if bidirectional else 1)
    output = data.new_empty([data.shape[0], width])
    return (output, *(torch.empty_like(state) for state in hx))


def _packed_gru_or_rnn(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    arguments = (params, has_biases, num_layers, dropout, train, bidirectional)
    return _packed_lstm(data, batch_sizes, [hx], *arguments)


def _max_pool1d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Keeps the length dynamic; torch's kernel reads it as a number, which fixes it."""
    arguments = (self, kernel_size, stride, padding, dilation, ceil_mode)
    return aten.max_pool1d_with_indices.default(*arguments)[0]  # type: ignore[no-any-return]


def _tensor_split(self: Tensor, sections: int, dim: int = 0) -> Any:
    """Pieces whose sizes are right for every length.

    Torch asks which of them have one element more, and keeps the example's answers.
    """
    if not isinstance(self.shape[dim], torch.SymInt) or not isinstance(sections, int):
        return NotImplemented
    check(sections > 0, lambda: f"number of sections must be larger than 0, got {sections}")
    sizes, stride, start = list(self.shape), self.stride(), self.storage_offset()
    length, pieces = sizes[dim], []
    for piece in range(sections):
        sizes[dim] = (length + sections - 1 - piece) // sections
        pieces.append(torch.as_strided(self, sizes, stride, start))
        start = start + sizes[dim] * stride[dim]
    return pieces


def _fake_quantized(self: Tensor, *parameters: Any) -> Tensor:
    """Replaces a kernel without support for fake tensors, which refuses dynamic dimensions."""
    return torch.empty_like(self)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Avoids torch's test for more than 25 rows, a guard that limits the number of rows."""
    check(x1.shape[-1] == x2.shape[-1])
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return x1.new_empty([*batch, x1.shape[-2], x2.shape[-2]])


def _cov(
    self: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Leaves out torch's tests of the weights and the number of observations, which read data."""
    check(self.dim() <= 2, lambda: "cov(): expected input to have two or fewer dimensions")
    check(self.dtype != torch.bool, lambda: "cov(): bool dtype is not supported for input")
    matrix = self if self.dim() == 2 else self.reshape(1, -1)
    dtype = matrix.dtype
    for weights in (fweights, aweights):
        if weights is not None:
            check(weights.dim() <= 1, lambda: "cov(): weights must have one dimension")
            check(
                weights.numel() == matrix.shape[1],
                lambda: "cov(): expected as many weights as observations",
            )
            dtype = torch.result_type(matrix.new_empty((1, 1), dtype=dtype), weights)
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return matrix.new_empty([matrix.shape[0], matrix.shape[0]], dtype=dtype).squeeze()


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Replaces a kernel that reads the lengths as numbers."""
    check(log_probs.dim() in (2, 3), lambda: "ctc_loss: log_probs must have 2 or 3 axes")
    check(targets.dim() in (1, 2), lambda: "ctc_loss: targets must have 1 or 2 axes")
    check(0 <= blank < log_probs.shape[-1], lambda: "blank must be in label range")
    unreduced = reduction == 0 and log_probs.dim() == 3
    return log_probs.new_empty([log_probs.shape[1]] if unreduced else [])


def _lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shapes of the results; residuals are those of matrices of full rank."""
    if is_differentiating():
        raise RefusedError(
            "the derivative of torch.linalg.lstsq is not recorded",
            "solve the normal equations: torch.linalg.solve(a.mT @ a, a.mT @ b), or multiply by "
            "torch.linalg.pinv(a)",
            "OA120",
        )
    rows, columns = self.shape[-2:]
    is_vector = b.dim() == self.dim() - 1
    right = b.unsqueeze(-1) if is_vector else b
    check(
        right.dim() == self.dim(),
        lambda: (
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
            "(input.dim() - other.dim()) <= 1"
        ),
    )
    check(right.shape[-2] == rows, lambda: "torch.linalg.lstsq: input and other must agree")
    batch = broadcast_shapes(self.shape[:-2], right.shape[:-2])
    solution = self.new_empty([*batch, columns, right.shape[-1]])
    real = self.dtype.to_real() if self.dtype.is_complex else self.dtype
    residuals = lengths = self.new_empty([0], dtype=real)
    rank = self.new_empty([0], dtype=torch.int64)
    if driver in ("gels", "gelsd", "gelss") and rows > columns:
        residuals = self.new_empty([*batch, right.shape[-1]], dtype=real)
    if driver != "gels":
        rank = self.new_empty(self.shape[:-2], dtype=torch.int64)
    if driver in ("gelsd", "gelss"):
        side = sym_min(rows, columns)
        lengths = self.new_empty([*self.shape[:-2], side], dtype=real)
    return solution.squeeze(-1) if is_vector else solution, residuals, rank, lengths


def _geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    side = sym_min(*self.shape[-2:])
    return self.new_empty(self.shape), self.new_empty([*self.shape[:-2], side])


def _kron(self: Tensor, other: Tensor) -> Tensor:
    """Keeps sizes dynamic; torch's kernel reads them as numbers."""
    rank = max(self.dim(), other.dim())
    first, second = ([1] * (rank - x.dim()) + list(x.shape) for x in (self, other))
    dtype = torch.result_type(self, other)
    sizes = [a * b for a, b in zip(first, second, strict=True)]
    return self.new_empty(sizes, dtype=dtype)


def _take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Keeps sizes dynamic; torch's kernel reads them as numbers."""
    if dim is None:
        return self.new_empty([indices.numel()])
    check(
        self.dim() == indices.dim(),
        lambda: "torch.take_along_dim(): input and indices should have the same number of axes",
    )
    check(indices.dtype == torch.int64, lambda: "torch.take_along_dim(): indices must be int64")
    axis = dim % self.dim()
    sizes, others = list(self.shape), list(indices.shape)
    sizes[axis] = others[axis] = 1
    broadcast = list(broadcast_shapes(sizes, others))
    broadcast[axis] = indices.shape[axis]
    return self.new_empty(broadcast)


def _matrix_norm(
    self: Tensor,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Keeps sizes dynamic; torch's kernel asks whether there are elements."""
    check(self.dtype.is_floating_point or self.dtype.is_complex, lambda: "expected numbers")
    reduced = {axis % max(self.dim(), 1) for axis in dim}
    check(len(reduced) == len(dim) == 2, lambda: f"expected two distinct axes, found {dim}")
    sizes = [1 if i in reduced else size for i, size in enumerate(self.shape)]
    kept = [size for i, size in enumerate(self.shape) if i not in reduced]
    made = dtype or self.dtype
    return self.new_empty(
        sizes if keepdim else kept, dtype=made.to_real() if made.is_complex else made
    )


def _cond(self: Tensor, p: str) -> Tensor:
    """Keeps sizes dynamic; torch's kernel asks whether there are elements."""
    check(self.dim() >= 2, lambda: "linalg.cond: expected at least two axes")
    if p != "nuc":
        check(self.shape[-2] == self.shape[-1], lambda: "linalg.cond: expected square matrices")
    made = self.dtype
    return self.new_empty(self.shape[:-2], dtype=made.to_real() if made.is_complex else made)


def _gradient(
    self: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> list[Tensor]:
    """Keeps sizes dynamic; torch's kernel reads them as numbers."""
    axes = [dim] if isinstance(dim, int) else range(self.dim()) if dim is None else dim
    check(edge_order in (1, 2), lambda: "torch.gradient: expected edge_order 1 or 2")
    for axis in axes:
        check(self.shape[axis] > edge_order, lambda: "torch.gradient: expected longer axes")
    if isinstance(spacing, Sequence):
        check(len(spacing) == len(axes), lambda: "torch.gradient: expected a spacing per axis")
    made = self.dtype
    if not (made.is_floating_point or made.is_complex):
        made = torch.get_default_dtype()
    return [self.new_empty(self.shape, dtype=made) for _ in axes]


def _multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Keeps sizes dynamic; torch's kernel compares numbers of multiplications."""
    check(len(tensors) > 1, lambda: "expected at least two matrices")
    for left, right in itertools.pairwise(tensors):
        check(left.shape[-1] == right.shape[0])
    first, last = tensors[0], tensors[-1]
    return first.new_empty([*first.shape[:-1], *last.shape[1:]])


def _combinations(self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Counts the combinations; torch's kernel selects them by a mask, whose sum is data."""
    check(self.dim() == 1, lambda: "Expect a 1D vector")
    check(r >= 0, lambda: "Expect a non-negative number")
    if r == 0:
        return self.new_empty([0])
    size = self.shape[0] + (r - 1 if with_replacement else 0)
    count = math.prod(size - i for i in range(r)) // math.factorial(r)
    # the bound spares a guard, which torch cannot solve for three or more
    return self.new_empty([sym_max(count, 0), r])


def _histogram(
    self: Tensor,
    bins: int | Tensor = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    counts, edges = _histogramdd(self, [bins])
    return counts, edges[0]


def _histogramdd(
    self: Tensor,
    bins: int | Sequence[int | Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Shapes of the counts and of the edges of the bins: tensors of bins are their edges."""
    each = [bins] * self.shape[-1] if isinstance(bins, int) else bins
    sizes = [b.shape[0] if isinstance(b, Tensor) else b + 1 for b in each]
    return self.new_empty([n - 1 for n in sizes]), [self.new_empty([n]) for n in sizes]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    return _multiply(aten.linear.default, input, weight, bias)


def _matmul(self: Tensor, other: Tensor) -> Any:
    return _multiply(aten.matmul.default, self, other)


def _multiply(operator: Any, rows: Tensor, matrix: Tensor, *others: Any) -> Any:
    """Multiplies a flat copy of rows that are a slice: torch asks whether they lie in one piece.

    Those of ``x[:, 1:]`` do if the batch is 1. The result has the same strides.
    """
    is_dynamic = any(isinstance(size, torch.SymInt) for size in rows.shape)
    if not is_dynamic or rows.dim() < 3 or matrix.dim() != 2 or _is_in_one_piece(rows):
        return NotImplemented
    copy = rows.clone(memory_format=torch.contiguous_format)
    return operator(copy.flatten(0, -2), matrix, *others).unflatten(0, rows.shape[:-1])


def _is_in_one_piece(tensor: Tensor) -> bool:
    """True if all strides are known to be those of a contiguous tensor; asks for no guard."""
    *outer, last = map(_expression, tensor.stride())
    if last != 1:
        return False
    for size, stride in zip(reversed(tensor.shape[1:]), reversed(outer), strict=True):
        if stride != last * _expression(size) and stride != last * _expression(sym_max(size, 1)):
            return False
        last = stride
    return True


def _expression(size: Any) -> Any:
    return symbolic_expression(size) if isinstance(size, torch.SymInt) else size


KERNELS: dict[Any, Any] = {
    aten.combinations.default: _combinations,
    aten.geqrf.default: _geqrf,
    aten.linear.default: _linear,
    aten.matmul.default: _matmul,
    aten.kron.default: _kron,
    aten.take_along_dim.default: _take_along_dim,
    aten.histogram.bin_ct: _histogram,
    aten.histogram.bins_tensor: _histogram,
    aten.histogramdd.default: _histogramdd,
    aten.histogramdd.int_bins: _histogramdd,
    aten.histogramdd.TensorList_bins: _histogramdd,
    aten.cdist.default: _cdist,
    aten.cov.default: _cov,
    aten.ctc_loss.IntList: _ctc_loss,
    aten.ctc_loss.Tensor: _ctc_loss,
    aten.gradient.array: _gradient,
    aten.gradient.scalararray: _gradient,
    aten.gradient.scalarint: _gradient,
    aten.gradient.scalarrayarray: _gradient,
    aten.gradient.scalarrayint: _gradient,
    aten.gradient.tensorarray: _gradient,
    aten.gradient.tensorarrayint: _gradient,
    aten.linalg_cond.p_str: _cond,
    aten.linalg_lstsq.default: _lstsq,
    aten.linalg_matrix_norm.default: _matrix_norm,
    aten.linalg_multi_dot.default: _multi_dot,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantized,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantized,
    aten.fake_quantize_per_channel_affine.default: _fake_quantized,
    aten.max_pool1d.default: _max_pool1d,
    aten.tensor_split.sections: _tensor_split,
    aten.lstm.data: _packed_lstm,
    aten.lstm.input: _lstm,
    aten.gru.data: _packed_gru_or_rnn,
    aten.gru.input: _gru_or_rnn,
    aten.rnn_tanh.data: _packed_gru_or_rnn,
    aten.rnn_tanh.input: _gru_or_rnn,
    aten.rnn_relu.data: _packed_gru_or_rnn,
    aten.rnn_relu.input: _gru_or_rnn,
    aten.scaled_dot_product_attention.default: _attention,
}

_WITHOUT: dict[Any, str] = {
    _combinations: "torch.combinations is refused, or the number of its rows has no name.",
    _linear: "Linear layers of slices fix the batch if it is 1 in the example.",
    _matmul: "Products of slices and matrices fix the batch if it is 1 in the example.",
    _geqrf: "torch.geqrf refuses dynamic dimensions.",
    _kron: "torch.kron fixes all dimensions.",
    _take_along_dim: "torch.take_along_dim fixes all dimensions.",
    _histogram: "torch.histogram refuses dynamic dimensions.",
    _histogramdd: "torch.histogramdd refuses dynamic dimensions.",
    _cov: "torch.cov and torch.corrcoef are refused.",
    _ctc_loss: "ctc_loss is refused.",
    _matrix_norm: "torch.linalg.norm and matrix_norm fix rows or columns.",
    _cond: "torch.linalg.cond of the orders fro and nuc is refused.",
    _gradient: "torch.gradient fixes all dimensions.",
    _multi_dot: "torch.linalg.multi_dot fixes all dimensions.",
    _lstsq: "torch.linalg.lstsq is refused.",
    _cdist: "torch.cdist limits the number of rows to 25, or to more than 25.",
    _fake_quantized: "Models with fake quantization are refused.",
    _max_pool1d: "max_pool1d fixes the length.",
    _tensor_split: "torch.tensor_split of a dynamic dimension records sizes of the example's kind.",
    _lstm: "LSTM fixes the length, over which torch unrolls it.",
    _gru_or_rnn: "GRU and RNN fix the length, over which torch unrolls them.",
    _packed_lstm: "LSTM refuses packed sequences.",
    _packed_gru_or_rnn: "GRU and RNN refuse packed sequences.",
    _attention: "Attention with a mask of dynamic sizes is refused on a CUDA device.",
}

# torch does not expand the first three into other operators, and the last one into right ones.
_INDIVISIBLE = (_geqrf, _histogram, _lstsq, _tensor_split)

KERNEL_PATCHES = kernel_patches(
    {o: (kernel, _WITHOUT[kernel], kernel not in _INDIVISIBLE) for o, kernel in KERNELS.items()}
)
