"""Models whose results would be changed by ONNX Runtime's fusions."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import onnx_aot
from tests.tolerances import assert_close

Tensor = torch.Tensor


def transposed_times_vector(x: Tensor, y: Tensor) -> Tensor:
    return x.t() @ (x @ y[0])


def many_transposed_times_vector(x: Tensor, y: Tensor) -> Tensor:
    return x.expand(2, *x.shape).transpose(1, 2) @ y[:, 0].repeat(x.shape[0])[: x.shape[0]]


def converted_before(x: Tensor, y: Tensor) -> Tensor:
    return x.t().float() @ (x @ y[0]).float()


def zeros_before_maximum(x: Tensor, y: Tensor) -> Tensor:
    return F.max_pool2d(F.pad(-x.abs()[None, None] - 1, (1, 1, 1, 1)), 3, 2)


def zeros_before_maximum_and_place(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return F.max_pool1d(F.pad(-x.abs() - 1, (1, 0)), 2, return_indices=True)


def scaled_twice(x: Tensor, y: Tensor) -> Tensor:
    return (x * 2) @ y.t() + (x * 2 * 2) @ y.t()


def scaled_and_divided(x: Tensor, y: Tensor) -> Tensor:
    scaled = x[None] / 4
    return scaled @ y.t() + (scaled * 2) @ y.t() - (scaled * 2 / 8) @ y.t()


def rounded_to_bytes(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    numbers = 25.25 * x.abs()
    return (
        numbers.bfloat16().to(torch.uint8),
        (-numbers).bfloat16().to(torch.int8),
        (x.abs().double() - 1e-12).float().to(torch.int16),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(
    "function",
    [
        transposed_times_vector,
        many_transposed_times_vector,
        converted_before,
        zeros_before_maximum,
        zeros_before_maximum_and_place,
        scaled_twice,
        scaled_and_divided,
        rounded_to_bytes,
    ],
)
def test_answers_are_pytorch_s(
    function: Callable[..., Tensor], opset: int, dtype: torch.dtype
) -> None:
    x, y = torch.randint(-3, 4, (3, 4)).to(dtype), torch.randint(-3, 4, (2, 4)).to(dtype)
    program = onnx_aot.export(function, (x, y), opset_version=opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    for given in (x, x - 1):
        expected = function(given, y)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(program(given, y), wanted, strict=True):
            assert_close(one, other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
        lambda x: x[:, torch.arange(-x.shape[1], 0, dtype=torch.int32)],
        lambda x: x.take(torch.arange(x.numel() - 1, -1, -2)),
        lambda x: x[torch.arange(0, x.shape[0], 2)],
        lambda x: x[torch.arange(1 - x.shape[0], x.shape[0], 2)],
    ],
)
@pytest.mark.parametrize("opset", [11, 20])
def test_elements_in_the_order_of_a_range(function: Callable[[Tensor], Tensor], opset: int) -> None:
    x = torch.arange(28.0).reshape(4, 7)
    shapes = ({0: "n", 1: "m"},)
    program = onnx_aot.export(function, (x,), dynamic_shapes=shapes, opset_version=opset)
    for given in (x, x[:1], x[:3, :2]):
        assert_close(program(given)[0], function(given))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("limits", [{"min": 0.5}, {"max": 1.5}, {"min": 0.25, "max": 2.0}])
def test_relu_before_limits(dtype: torch.dtype, limits: dict[str, float]) -> None:
    x = (torch.randn(3, 4) * 2).to(dtype)
    program = onnx_aot.export(lambda x: torch.relu(x).clamp(**limits), (x,))
    assert_close(program(x)[0], torch.relu(x).clamp(**limits))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_relu_before_limits_of_integers(dtype: torch.dtype) -> None:
    x = torch.arange(-4, 9).to(dtype)
    program = onnx_aot.export(lambda x: F.relu6(torch.relu(x) * 1).clamp(2, 5), (x,))
    assert torch.equal(program(x)[0], F.relu6(torch.relu(x)).clamp(2, 5))
    program = onnx_aot.export(lambda x: F.relu6(torch.relu(x)), (x,))
    assert torch.equal(program(x)[0], F.relu6(torch.relu(x)))


class Normalized(torch.nn.Module):
    """A layer normalization whose spread is measured by another power than the square."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power
        self.scale = torch.nn.Parameter(torch.rand(20))
        self.bias = torch.nn.Parameter(torch.rand(20))

    def forward(self, x: Tensor) -> Tensor:
        differences = x - x.mean(-1, keepdim=True)
        spread = differences.pow(self.power).mean(-1, keepdim=True)
        return self.scale * (differences / torch.sqrt(spread + 1e-5)) + self.bias


@pytest.mark.parametrize("power", [2, -2, 4])
def test_powers_of_differences_from_a_mean(power: float) -> None:
    model, x = Normalized(power), torch.randn(4, 20)
    program = onnx_aot.export(model, (x,))
    assert_close(program(x)[0], model(x))
    operators = [node.op_type for node in program.model.graph]
    assert ("LayerNormalization" in operators) == (power == 2)


class WithoutBias(torch.nn.Module):
    """An attention and a sum read the result of a normalization without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8, bias=False)
        self.query_key_value = torch.nn.Linear(8, 24, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        query, key, value = self.query_key_value(x).chunk(3, -1)
        return x + F.scaled_dot_product_attention(query, key, value)


@pytest.mark.parametrize(("release", "inputs"), [("1.16", 3), ("1.18", 3), ("1.19", 2)])
def test_normalization_without_bias(release: str, inputs: int) -> None:
    """Up to 1.18 ONNX Runtime reads the bias that is not there, and ends the process."""
    model, x = WithoutBias().eval(), torch.randn(2, 5, 8)
    program = onnx_aot.export(model, (x,), target=f"onnxruntime=={release}")
    nodes = [node for node in program.model.graph if node.op_type == "LayerNormalization"]
    assert [len(node.inputs) for node in nodes] == [inputs]
    assert_close(program(x)[0], model(x))
