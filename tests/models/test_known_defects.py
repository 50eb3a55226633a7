"""Models for which other exporters need patches, exported without any.

The rows are the defects that ``transformers.exporters`` 5.23 works around, according to the
docstrings of its patches, fixes and translations. Each one is exported with plain
``onnx_aot.export`` and compared with PyTorch at the example's sizes and at others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn.functional import conv1d, interpolate, scaled_dot_product_attention

import onnx_aot
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.torch_compat import aten

N = {0: "n"}


class Defect(NamedTuple):
    """A function, its inputs for a size, dynamic dimensions, and sizes beyond the example's."""

    function: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    shapes: Any = (N,)
    others: tuple[int, ...] = (3, 8)


def rows(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, 6),)


def whole(n: int) -> tuple[Tensor, ...]:
    return (torch.randint(-9, 9, (n, 6)),)


def flags(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, 6), torch.arange(n * 6).reshape(n, 6) % 3 == 0


def attention(q: Tensor, mask: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, q, q, mask)


def masked_rows(n: int) -> tuple[Tensor, ...]:
    mask = torch.ones(2, 1, n, n, dtype=torch.bool).tril()
    mask[0, :, 1] = False  # a padded frame attends to nothing
    return torch.randn(2, 2, n, 8), mask


def split_by_size(x: Tensor) -> Any:
    return torch.split(x, (x.shape[0] + 2) // 3)


def written_columns(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, torch.tensor([0, 3])] = -1.0
    return x


def written_rows(x: Tensor) -> Tensor:
    y = x * 2
    y[torch.tensor([0, 1])] = x[:2]
    return y.triu_().fill_diagonal_(3.0)


def masked_scatter(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_scatter(mask, torch.arange(x.numel(), dtype=x.dtype))


def rolled(x: Tensor) -> Tensor:
    y = torch.roll(x, shifts=(1, -2), dims=(0, 1)).clone()
    y[..., 0] = 0.0
    return torch.roll(y, -1, 0)


def grouped(x: Tensor, weights: Tensor) -> Tensor:
    ends = torch.tensor([2, 2, 4], dtype=torch.int32)
    return torch._grouped_mm(x, weights, offs=ends)


def per_channel(x: Tensor) -> Tensor:
    import torch.ao.quantization.fx._decomposed

    scales, zeros = torch.tensor([0.1, 0.2, 0.5]), torch.tensor([0, 3, -2])
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel
    return dequantize(x, scales, zeros, 1, -128, 127, torch.int8)


def ceiling(x: Tensor) -> Tensor:
    return x.repeat_interleave(-(-x.shape[0] // 4), dim=1) * (-x.shape[0] // 3)


def by_grid(x: Tensor) -> Tensor:
    first, second = torch.tensor([[0], [1]]), torch.tensor([[2, 0, -1]])
    return x[first, second]


def spectrum(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, 8, dtype=torch.complex64),)


def written_constant(x: Tensor) -> Tensor:
    constant = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    constant[torch.tensor([1, 4])] = 9.0
    return x + constant


def resized_constant(x: Tensor) -> Tensor:
    grid = torch.arange(16.0).reshape(1, 1, 4, 4)
    return x + interpolate(grid, (3, 6), mode="bicubic").sum((0, 1, 2))


def edges() -> Tensor:
    return torch.tensor([-1.0, 0.0, 2.0])


def reshaped(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], -1, 2).reshape(-1, 3)


def asserted(x: Tensor) -> Tensor:
    torch._assert_async((x < 100).all())
    return x * 2


def conv_of_bfloat16(x: Tensor) -> Tensor:
    weight = torch.arange(18.0).reshape(3, 2, 3).bfloat16() / 16
    return conv1d(x, weight, padding=1)


DEFECTS = {
    "where, of two types": Defect(
        lambda x: torch.where(x > 0, x, torch.zeros((), dtype=torch.float64)), rows
    ),
    "where, with numbers": Defect(lambda x: torch.where(x > 0, 1, x), rows),
    "unsqueeze of complex": Defect(lambda x: x.unsqueeze(1).abs(), spectrum),
    "attention with masked rows": Defect(attention, masked_rows, ({2: "n"}, {2: "n", 3: "n"})),
    "rms_norm without weight": Defect(torch.nn.RMSNorm(6, elementwise_affine=False), rows),
    "split by a size": Defect(
        split_by_size, lambda n: (torch.randn(3 * n, 2),), ({0: Dim("n", min=5)},)
    ),
    "chunk of a dynamic axis": Defect(
        lambda x: torch.chunk(x, 2), lambda n: (torch.randn(2 * n, 3),), ({0: Dim("half") * 2},)
    ),
    "a resize of constants": Defect(resized_constant, rows),
    "exp of complex": Defect(torch.exp, spectrum),
    "irfft": Defect(torch.fft.irfft, lambda n: (torch.randn(n, 5, dtype=torch.complex64),)),
    "irfft of odd length": Defect(lambda x: torch.fft.irfft(x, n=7), spectrum),
    "full of an int": Defect(lambda x: torch.full((x.shape[0], 2), 7), rows),
    "full of a flag": Defect(lambda x: torch.full((x.shape[0],), True), rows),
    "masked mean": Defect(lambda x, m: torch.masked.mean(x, mask=m, dim=1), flags, (N, N)),
    "masked var": Defect(lambda x, m: torch.masked.var(x, mask=m, dim=1), flags, (N, N)),
    "masked_scatter": Defect(masked_scatter, flags, (N, N)),
    "roll, then a write": Defect(rolled, rows),
    "a comparison nobody reads": Defect(lambda x: (x.shape[0] <= 10**9, x + 1)[1], rows),
    "convolution in bfloat16": Defect(
        conv_of_bfloat16, lambda n: (torch.randn(n, 2, 5).bfloat16(),)
    ),
    "alias and detach_ of a constant, then a write": Defect(written_constant, rows),
    "a slice without start": Defect(lambda x: aten.slice.Tensor(x, 1, None, 4), rows),
    "index_put on the last dimension": Defect(written_columns, rows),
    "in-place index_put, triu, fill_diagonal": Defect(
        written_rows, rows, ({0: Dim("n", min=2, max=6)},), (3, 6)
    ),
    "stable sort": Defect(lambda x: torch.sort(x, stable=True, dim=1, descending=True), whole),
    "a float minus ints": Defect(lambda x: 1.0 - x, whole),
    "ints times a float": Defect(lambda x: x * 2.5, whole),
    "times a computed scalar": Defect(lambda x: x * (x.shape[0] / 3), rows),
    "remainder by a size": Defect(lambda x: x % (x.shape[0] + 1), whole),
    "bincount": Defect(torch.bincount, lambda n: (torch.arange(n) * 3 % 5,)),
    "boolean index_put": Defect(lambda x, m: x.index_put((m,), torch.tensor(-2.0)), flags, (N, N)),
    "boolean index_put of rows": Defect(
        lambda x, m, v: x.clone().index_put_((m,), v),
        lambda n: (torch.randn(n, 3), torch.arange(n) % 2 == 0, torch.randn((n + 1) // 2, 3)),
        (N, N, {0: "selected"}),
    ),
    "grouped_mm": Defect(
        grouped, lambda n: (torch.randn(4, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()), None
    ),
    "repeat_interleave, flat": Defect(lambda x: x.repeat_interleave(3), rows),
    "repeat_interleave by a size": Defect(lambda x: x.repeat_interleave(x.shape[0], 1), rows),
    "floor division of negatives": Defect(ceiling, rows),
    "masked_fill of flags": Defect(
        lambda x, m: (m.masked_fill(x > 0, True), m.masked_fill(x > 1, False)), flags, (N, N)
    ),
    "per-channel dequantize": Defect(
        per_channel, lambda n: (torch.randint(-128, 127, (n, 3), dtype=torch.int8),)
    ),
    "topk that is not sorted": Defect(
        lambda x: torch.topk(x, 3, sorted=False).values.sort().values, rows
    ),
    "gather at constant indices": Defect(by_grid, rows, ({0: Dim("n", min=2)},)),
    "histc": Defect(lambda x: torch.histc(x, 5, -2, 2), rows),
    "searchsorted": Defect(lambda x: torch.searchsorted(edges(), x, right=True), rows),
    "bucketize": Defect(lambda x: torch.bucketize(x, edges()), rows),
    "reshape by a size and -1": Defect(reshaped, rows),
    "cummax, cummin": Defect(lambda x: (x.cummax(0), x.cummin(1)), rows),
    "scatter_reduce": Defect(
        lambda x, i: x.scatter_reduce(0, i, x * 2, "amax", include_self=False),
        lambda n: (torch.randn(n, 6), torch.arange(n * 6).reshape(n, 6) % n),
        (N, N),
    ),
    "an assertion": Defect(asserted, rows),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.filterwarnings("ignore:Constructing a nested:UserWarning")
def test_without_a_patch(name: str) -> None:
    defect = DEFECTS[name]
    torch.manual_seed(0)
    program = onnx_aot.export(defect.function, defect.inputs(5), dynamic_shapes=defect.shapes)
    for size in (5, *defect.others) if defect.shapes else (5,):
        inputs = defect.inputs(size)
        expected = torch.utils._pytree.tree_leaves(defect.function(*inputs))
        actual = program(*inputs)
        names = [str(value.name) for value in program.outputs]
        for difference in compare_outputs(names, expected, actual):
            assert difference.within, (size, difference)


def test_randperm_is_a_permutation() -> None:
    program = onnx_aot.export(
        lambda x: torch.randperm(x.shape[0]), (torch.zeros(5),), dynamic_shapes=(N,)
    )
    for size in (5, 9):
        (drawn,) = program(torch.zeros(size))
        assert sorted(drawn.tolist()) == list(range(size))
        assert drawn.dtype == torch.int64


def test_sorted_topk_stands_in_the_model() -> None:
    """CUDA kernels of ONNX Runtime support only sorted output."""
    program = onnx_aot.export(lambda x: torch.topk(x, 2, sorted=False), (torch.randn(4, 5),))
    (node,) = [node for node in program.model.graph if node.op_type == "TopK"]
    assert "sorted" not in node.attributes or node.attributes["sorted"].as_int() == 1
