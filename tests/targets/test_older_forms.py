"""Operators in opsets 11 to 16, whose forms differ from those that translations write.

Each function is captured with dynamic dimensions and exported at each of these opsets. ONNX's
checker and ONNX Runtime must accept the model, and its results must be PyTorch's at two sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest
import torch
from onnx import helper

import onnx_aot
from onnx_aot.errors import OpsetError
from onnx_aot.graph.opset_range import BUILT_OPSET, MIN_OPSET
from onnx_aot.targets.older_forms import FORMS, older_forms
from tests.ops.rows import T, bools, floats, ints
from tests.tolerances import assert_close

F = torch.nn.functional
Tensor = torch.Tensor
OLDER = tuple(range(MIN_OPSET, BUILT_OPSET))
SIZES = ({"n": 4, "m": 6}, {"n": 3, "m": 2})


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, its inputs, and the operators of the table that it needs."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[T, ...]
    rows: tuple[str, ...]
    since: int = MIN_OPSET

    def __str__(self) -> str:
        return self.name


def case(call: Callable[..., Any], *inputs: T, rows: str, name: str = "", since: int = 11) -> Case:
    return Case(name or rows.replace(" ", "-"), call, inputs, tuple(rows.split()), since)


def _scatter(reduce: str) -> Callable[..., Tensor]:
    return lambda x, i, y: x.scatter_reduce(1, i, y, reduce)


def _positions(*sizes: int | str, below: int) -> T:
    return ints(*sizes, low=0, high=below)


HALF, DOUBLE, BFLOAT = torch.float16, torch.float64, torch.bfloat16
NORM = torch.nn.LayerNorm(5)
BATCH_NORM = torch.nn.BatchNorm1d(5).eval()

CASES = (
    case(lambda x: x.unsqueeze(0).squeeze(0) + 1, floats("n", 3), rows="Unsqueeze", name="axes"),
    case(lambda x: x[:, :1].squeeze(1), floats("n", 3), rows="Squeeze"),
    case(lambda x: x.sum(1) + x.sum(), floats("n", "m"), rows="ReduceSum"),
    case(lambda x: x.amax(1) + x.mean((0, 1)), floats("n", "m"), rows="", name="reductions"),
    case(lambda x: x.split([1, 2], 1), floats("n", 3), rows="Split"),
    case(lambda x: x.split([1, x.shape[1] - 1], 1), floats("n", "m"), rows="Split", name="sizes"),
    case(lambda x: x.reshape(x.shape[1], -1), floats("n", "m"), rows="Shape"),
    case(lambda x: x.reshape(3, 0, 5), floats(3, 0), rows="Reshape", name="empty"),
    case(lambda x: x.tril(), floats("n", "m"), rows="Trilu"),
    case(lambda x: x.triu(-1), floats(2, 3, 4), rows="Trilu", name="triu"),
    case(lambda x: x.triu(1), bools(3, "n"), rows="Trilu", name="triu-bool"),
    case(
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        floats("n", 2, 4, 5),
        rows="Resize",
    ),
    case(
        lambda x: F.interpolate(x, size=(7, 9), mode="bicubic"),
        floats(1, 2, 4, 5),
        rows="",
        name="resized",
    ),
    case(torch.maximum, ints("n", 3), ints("n", 3), rows="Max"),
    case(torch.minimum, ints(3), ints("n", 3), rows="Min"),
    case(torch.maximum, floats(3), floats("n", 3), rows="", name="max-floats"),
    case(lambda x: x.clamp(-1, 2), ints("n", 3), rows="Clip"),
    case(lambda x: x.clamp(min=0.5), floats("n", dtype=DOUBLE), rows="Clip", name="clip-double"),
    case(lambda x: x.clamp(max=0.5), floats("n", dtype=HALF), rows="Clip", name="clip-half"),
    case(lambda x: x.relu(), ints("n", dtype=torch.int32), rows="", name="relu-int32"),
    case(
        lambda x, y: (x >= y, x <= y, x.long() >= y.long()),
        floats("n"),
        floats("n"),
        rows="GreaterOrEqual LessOrEqual",
    ),
    case(
        lambda x: (x / 0 >= x / 0, x / 0 <= 1.0),
        floats("n", low=-0.4, high=0.0),
        rows="GreaterOrEqual LessOrEqual",
        name="not-a-number",
    ),
    case(lambda x, y: (x.abs() ** y, x.abs() ** 2), floats("n"), ints("n"), rows="Pow"),
    case(lambda x: x**3, ints("n"), rows="Pow", name="pow-int"),
    case(F.hardswish, floats("n"), rows="HardSwish"),
    case(lambda x: F.celu(x, 0.7), floats("n"), rows="Celu"),
    case(NORM, floats("n", "m", 5), rows="LayerNormalization"),
    case(
        lambda x: F.layer_norm(x, (3, 5)),
        floats("n", 3, 5, dtype=HALF),
        rows="LayerNormalization",
        name="normalized-half",
    ),
    case(
        lambda x: F.layer_norm(x, (5,)),
        floats("n", 5, dtype=BFLOAT),
        rows="LayerNormalization",
        name="normalized-bfloat16",
        since=13,
    ),
    case(lambda x: x.softmax(1), floats("n", "m", 5), rows="Softmax"),
    case(lambda x: x.softmax(-1) + x.softmax(0), floats("n", "m"), rows="Softmax", name="ends"),
    case(lambda x: x.log_softmax(0), floats("n", "m"), rows="LogSoftmax"),
    case(BATCH_NORM, floats("n", 5, "m"), rows="BatchNormalization"),
    case(
        lambda x: torch.fake_quantize_per_channel_affine(
            x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 3, -2]).int(), 1, -128, 127
        ),
        floats("n", 3),
        rows="QuantizeLinear DequantizeLinear",
    ),
    case(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        floats("n", 3),
        rows="QuantizeLinear DequantizeLinear",
        name="quantized",
    ),
    case(
        lambda x, i, y: x.scatter_add(1, i, y),
        *(floats("n", 5), _positions("n", 9, below=5), floats("n", 9)),
        rows="ScatterElements",
    ),
    case(
        _scatter("prod"),
        *(floats("n", 5), _positions("n", 9, below=5), floats("n", 9)),
        rows="ScatterElements",
        name="scattered-product",
    ),
    case(
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        *(floats(5, "m"), _positions("n", below=5), floats("n", "m")),
        rows="ScatterND ScatterElements",
    ),
    case(
        lambda x, i, y: x.index_add(0, i, y),
        *(ints(5, 3), _positions("n", below=5), ints("n", 3)),
        rows="ScatterElements ScatterND",
        name="index-add",
    ),
    case(
        lambda x, y: torch.einsum("bij,bkj->bik", x, y), *[floats("n", "m", 5)] * 2, rows="Einsum"
    ),
    case(
        lambda x, y: torch.einsum("b...i,ij->b...j", x, y),
        *(floats("n", 2, 3, 4), floats(4, 5)),
        rows="Einsum",
        name="ellipsis",
    ),
    case(
        lambda x, y, z: torch.einsum("i,j,ij->j", x, y, z),
        *(floats("n"), floats("m"), floats("n", "m")),
        rows="Einsum",
        name="three",
    ),
    case(lambda x: torch.einsum("ijk->ki", x), floats("n", 2, "m"), rows="Einsum", name="one"),
    case(lambda x: x.cumsum(0), floats("n", "m", dtype=HALF), rows="", name="cumulative-half"),
    case(lambda x: (x + x, x * 3, x - 1), ints("n", dtype=torch.uint8), rows="", name="uint8"),
    case(lambda x: F.pad(x, (1, 2)), bools("n", 3), rows="", name="pad-bool"),
    case(
        lambda x: torch.where(x > 0, x, -x), floats("n", dtype=BFLOAT), rows="", since=13, name="bf"
    ),
    case(
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        floats(2, 3, 5, 4),
        floats(2, 3, 3, 2, low=-1.1, high=1.1),
        rows="",
        name="grid",
    ),
    case(lambda x: torch.fft.rfft(x).abs(), floats("n", 16), rows="", name="transform"),
    case(
        lambda x: torch.fft.fft(x.to(torch.complex64)).abs(), floats("n", 512), rows="", name="long"
    ),
    case(lambda x: F.max_pool2d(x, 2), floats("n", 2, 6, 6), rows="", name="pooled"),
    case(lambda x: x.topk(2, 1), floats("n", 5), rows="", name="topk"),
    case(
        lambda x: (x.argmax(1), x.sort(1).values, x.unique()), ints("n", 5), rows="", name="order"
    ),
)


class Called(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(*inputs)


def _capture(given: Case) -> tuple[torch.nn.Module, torch.export.ExportedProgram]:
    module = Called(given.call).eval()
    examples = tuple(tensor.example(SIZES[0]) for tensor in given.inputs)
    dynamic = (tuple(tensor.dynamic_axes() for tensor in given.inputs),)
    return module, onnx_aot.export(module, examples, dynamic_shapes=dynamic).exported_program


def _check_model(program: Any, opset: int) -> None:
    proto = program.model_proto
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", opset)]
    assert proto.ir_version == helper.find_min_ir_version_for([helper.make_opsetid("", opset)])


def _as_list(results: Any) -> Sequence[Tensor]:
    return results if isinstance(results, (tuple, list)) else (results,)


@pytest.mark.parametrize("given", CASES, ids=str)
def test_older_forms(given: Case) -> None:
    torch.manual_seed(0)
    module, captured = _capture(given)
    for opset in OLDER:
        if opset < given.since:
            with pytest.raises(OpsetError, match=f"BFLOAT16 in opset {opset}"):
                onnx_aot.export(captured, opset_version=opset)
            continue
        pure = onnx_aot.export(captured, opset_version=opset, target=None)
        _check_model(pure, opset)
        program = onnx_aot.export(captured, opset_version=opset)
        _check_model(program, opset)
        for sizes in SIZES:
            inputs = [tensor.example(sizes) for tensor in given.inputs]
            for actual, expected in zip(program(*inputs), _as_list(module(*inputs)), strict=True):
                assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, HALF, BFLOAT], ids=str)
@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_what_onnxruntime_has_no_kernel_for_at_opset_28(dtype: torch.dtype, keep: bool) -> None:
    """ReduceLogSumExp, with rows whose largest number is infinite."""
    torch.manual_seed(0)
    module = Called(lambda x: (torch.logsumexp(x, 1, keep), torch.logsumexp(x, (0, 2), keep)))
    x = torch.randn(3, 4, 2).to(dtype)
    x[0, :, 0], x[1, 1, 1] = -torch.inf, torch.inf
    program = onnx_aot.export(module, (x,), opset_version=28)
    assert "ReduceLogSumExp" not in {node.op_type for node in program.model.graph}
    for actual, expected in zip(program(x), module(x), strict=True):
        assert_close(actual, expected)


def test_every_row_has_a_case() -> None:
    assert {row.op_type for row in FORMS} == {name for given in CASES for name in given.rows}


def test_rows_end_before_the_opset_that_translations_write() -> None:
    assert not older_forms(BUILT_OPSET)
    assert all(MIN_OPSET < row.before <= BUILT_OPSET for row in FORMS)


@pytest.mark.parametrize("opset", [11, 13, 14])
def test_an_empty_result_of_computed_sizes(opset: int) -> None:
    x = torch.zeros(0, 6)
    program = onnx_aot.export(
        lambda x: x.unflatten(0, (2, 0)), (x,), dynamic_shapes=({1: "n"},), opset_version=opset
    )
    assert program(x)[0].shape == (2, 0, 6)
    assert program(x[:, :3])[0].shape == (2, 0, 3)


def test_casts_for_the_runtime_need_their_types_too() -> None:
    x = torch.ones(3, 4, dtype=torch.bfloat16)
    message = r"Cast takes no BFLOAT16 in opset 11; opset 13 has this form\s+for aten.count_nonzero"
    with pytest.raises(OpsetError, match=message):
        onnx_aot.export(lambda x: x.count_nonzero(-2), (x,), opset_version=11)
    program = onnx_aot.export(lambda x: x.count_nonzero(-2), (x,), opset_version=13)
    assert program(x)[0].tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("opset", [11, 13])
def test_one_size_of_several_that_are_computed_is_zero(opset: int) -> None:
    def split(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(y.shape[0], x.shape[1] // 2, -1, 2)

    dims = ({0: "n", 1: "m"}, {0: "k"})
    example = torch.randn(6, 4), torch.randn(3)
    program = onnx_aot.export(split, example, dynamic_shapes=dims, opset_version=opset)
    for sizes in ((6, 4, 3), (0, 4, 3), (5, 2, 5)):
        x, y = torch.randn(sizes[:2]), torch.randn(sizes[2])
        assert_close(program(x, y)[0], split(x, y))
