"""Sizes computed with tensors: ``onnx_aot/capture/sizes/symbolic_elements.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import onnx_aot
from onnx_aot.errors import InferenceError
from tests.releases import TORCH
from tests.tolerances import assert_close

T = {2: "t"}


class Numbers(nn.Module):
    """Numbers in non-persistent buffers, and a function of this module and an input."""

    def __init__(self, function: Callable[[Numbers, Tensor], Tensor], **numbers: int) -> None:
        super().__init__()
        self.function = function
        for name, number in numbers.items():
            self.register_buffer(name, torch.tensor(number), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def frames(n: Numbers, x: Tensor) -> Tensor:
    """Number of elements missing from the last frame, computed as in Encodec and Mimi."""
    length = x.shape[-1]
    count = torch.ceil((length - n.kernel + n.total) / n.stride + 1).to(torch.int64) - 1
    return count * n.stride + n.kernel - n.total - length


def constant(n: Numbers, x: Tensor) -> Tensor:
    return pad(x, (n.total, frames(n, x)))


def reflected(n: Numbers, x: Tensor) -> Tensor:
    most = max(n.total, frames(n, x))
    if x.shape[-1] <= most:
        x = pad(x, (0, most - x.shape[-1] + 1))
    return pad(x, (n.total, frames(n, x)), "reflect")


def sliced(n: Numbers, x: Tensor) -> Tensor:
    return x[..., n.total : torch.as_tensor(x.shape[2]) // n.stride + n.kernel]


def counted(n: Numbers, x: Tensor) -> Tensor:
    groups = (torch.tensor(x.shape[2]) * 2 - n.kernel) / n.stride
    size = (-groups.floor().long() + x.shape[2]).item()
    return x.new_ones(size) * (n.stride - 1 if n.stride > 2 else x.mean())


def smaller(n: Numbers, x: Tensor) -> Tensor:
    return x[:, :, : torch.minimum(5 * n.total, n.kernel * torch.as_tensor(x.shape[2])).item()]


def named(n: Numbers, x: Tensor) -> Tensor:
    return pad(x, pad=(n.total, frames(n, x)))


by_a_number = pytest.param(
    sliced,
    marks=pytest.mark.xfail(
        TORCH < (2, 13), reason="torch 2.12 reads the end of a slice as a number", strict=True
    ),
)


@pytest.mark.parametrize("function", [constant, reflected, by_a_number, counted, smaller, named])
def test_they_stay_dynamic(function: Callable[[Numbers, Tensor], Tensor]) -> None:
    model = Numbers(function, kernel=7, stride=4, total=3)
    program = onnx_aot.export(model, (torch.randn(1, 2, 17),), dynamic_shapes=(T,))
    for length in (17, 16, 18, 19, 40, 5):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def product(n: Numbers, x: Tensor) -> Tensor:
    return pad(x, (0, torch.ceil((x.shape[2] / n.kernel) * n.kernel).long()))


def total(n: Numbers, x: Tensor) -> Tensor:
    return pad(x, (0, torch.ceil(x.shape[2] / n.kernel + x.shape[2] / n.stride).long()))


@pytest.mark.parametrize("function", [product, total])
def test_what_float32_rounds_otherwise_is_not_known(
    function: Callable[[Numbers, Tensor], Tensor],
) -> None:
    """The number stays data, and ONNX Runtime computes the same result as PyTorch."""
    model = Numbers(function, kernel=49, stride=7)
    program = onnx_aot.export(model, (torch.randn(1, 2, 17),), dynamic_shapes=(T,))
    assert "u0" in str(program.outputs[0].shape)
    for length in range(1, 200, 3):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


ROUNDED: dict[str, Callable[[Any], Tensor]] = {
    "floor": lambda length: torch.floor(torch.as_tensor(3 * length / 2)),
    "ceil": lambda length: torch.ceil(torch.as_tensor(3 * length / 4)),
    "trunc": lambda length: torch.trunc(torch.as_tensor(length * 1.5)),
    "fix": lambda length: torch.fix(torch.tensor(length * 1.5) / 2.5),
    "round": lambda length: torch.round(torch.as_tensor(length / 3)),
    "float": lambda length: torch.floor(torch.tensor(float(length)) * 0.75),
    "remainder": lambda length: torch.ceil(torch.tensor(length / 1) % 2.5),
    "half added": lambda length: torch.floor(torch.tensor(length / 3) + 0.5),
    "sum": lambda length: torch.floor(torch.as_tensor((length - 50) / 4 + 13.5)),
    "quotients": lambda length: torch.floor(torch.as_tensor((length + 1) / 2 / 1.5)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_quotients_are_sizes(name: str) -> None:
    model = Numbers(lambda n, x: x.repeat(1, 1, 2)[..., : ROUNDED[name](x.shape[2]).long().item()])
    program = onnx_aot.export(model, (torch.randn(1, 2, 10),), dynamic_shapes=(T,))
    assert "u0" not in str(program.outputs[0].shape)
    for length in (10, 0, 1, 2, 3, 5, 7, 11, 13, 49, 50, 97):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def test_halves_are_rounded_to_even() -> None:
    model = Numbers(
        lambda n, x: x[..., : torch.round(torch.as_tensor(3 * x.shape[2] / 4)).long().item()]
    )
    program = onnx_aot.export(model, (torch.randn(1, 2, 10),), dynamic_shapes=(T,))
    for length in range(20):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


TENTHS: dict[str, Callable[[Any], Tensor]] = {
    "factor": lambda length: torch.ceil(torch.as_tensor(length * 0.1)),
    "divisor": lambda length: torch.floor(torch.as_tensor(length / 0.1)),
    "product": lambda length: torch.ceil(torch.as_tensor(length / 49 * 49)),
}


@pytest.mark.parametrize("name", TENTHS)
def test_floats_that_pytorch_rounds_stay_data(name: str) -> None:
    """A tenth is not 1/10: ``ceil(30 * 0.1)`` is 3, and the exact product is larger."""
    model = Numbers(lambda n, x: x.repeat(1, 1, 2)[..., : TENTHS[name](x.shape[2]).long().item()])
    program = onnx_aot.export(model, (torch.randn(1, 2, 10),), dynamic_shapes=(T,))
    assert "u" in str(program.outputs[0].shape[2])
    for length in (10, 1, 30, 49, 98, 110):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def test_fractions_in_tensors_of_integers() -> None:
    model = Numbers(
        lambda n, x: x[..., : torch.full((1,), 2.5, dtype=torch.int64)[0] + n.total], total=1
    )
    program = onnx_aot.export(model, (torch.randn(1, 2, 10),), dynamic_shapes=(T,))
    x = torch.randn(1, 2, 7)
    assert_close(program(x)[0], model(x))


def resample(x: Tensor, old: int, new: int) -> Tensor:
    """Repeats or drops elements; computes the length as the package julius does."""
    y = x.repeat_interleave(new, 2)[..., ::old]
    return y[..., : torch.floor(torch.as_tensor(new * x.shape[2] / old)).long().item()]


def test_resampling_twice_gives_the_first_size() -> None:
    model = Numbers(lambda n, x: resample(resample(x, 1, 2), 2, 1) + x)
    program = onnx_aot.export(model, (torch.randn(1, 2, 10),), dynamic_shapes=(T,))
    for length in (10, 11, 1, 0):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def test_sizes_are_in_the_names_of_the_user() -> None:
    model = Numbers(constant, kernel=7, stride=4, total=3)
    program = onnx_aot.export(model, (torch.randn(1, 2, 17),), dynamic_shapes=(T,))
    (output,) = program.outputs
    assert output.shape == (1, 2, "3 - 4*((-t)//4)")


def test_a_condition_on_them_holds_for_the_model() -> None:
    """``length <= most`` was false in the capture; lengths for which it is true are rejected."""
    model = Numbers(reflected, kernel=7, stride=4, total=3)
    program = onnx_aot.export(model, (torch.randn(1, 2, 17),), dynamic_shapes=(T,))
    with pytest.raises(InferenceError, match=r"is 2; .* captured for 4 or more"):
        program(torch.randn(1, 2, 2))


def test_a_tensor_made_by_keyword() -> None:
    model = Numbers(lambda n, x: x * torch.tensor(data=3) + n.stride, stride=2)
    x = torch.randn(1, 2, 17)
    program = onnx_aot.export(model, (x,), dynamic_shapes=(T,))
    assert_close(program(x)[0], model(x))


class AsTensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = torch.as_tensor([x.shape[1], x.shape[2]], dtype=torch.float64, device="cpu")
        return x * torch.as_tensor(x.shape[2] / 2, dtype=torch.float32) + torch.as_tensor(sizes)[1]


def test_as_tensor_keeps_sizes() -> None:
    """Torch turns the sizes into plain numbers."""
    program = onnx_aot.export(AsTensor(), (torch.randn(1, 2, 17),), dynamic_shapes=(T,))
    for length in (17, 5):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], AsTensor()(x))


def counting(n: Numbers, x: Tensor) -> Tensor:
    y = pad(x, (0, n.step + x.shape[2]))
    n.step += 1
    return y


def counting_anew(n: Numbers, x: Tensor) -> Tensor:
    y = pad(x, (0, n.step + x.shape[2]))
    n.step = n.step + 1
    return y


@pytest.mark.parametrize("function", [counting, counting_anew])
def test_what_the_model_writes_to_is_no_constant(
    function: Callable[[Numbers, Tensor], Tensor],
) -> None:
    model = Numbers(function, step=1)
    x = torch.randn(1, 2, 4)
    program = onnx_aot.export(model, (x,), dynamic_shapes=(T,), state="io")
    assert [value.name for value in program.inputs] == ["x", "step"]
    for length in (4, 6):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def seen_elsewhere(n: Numbers, x: Tensor) -> Tensor:
    count = n.width * 1
    count[None].add_(x.shape[2])
    return pad(x, (0, count))


def test_a_write_through_a_view_is_seen() -> None:
    model, x = Numbers(seen_elsewhere, width=3), torch.randn(1, 2, 4)
    program = onnx_aot.export(model, (x,), dynamic_shapes=(T,))
    for length in (4, 6):
        x = torch.randn(1, 2, length)
        assert_close(program(x)[0], model(x))


def test_models_without_weights() -> None:
    with onnx_aot.enable_fake_mode():
        model = Numbers(reflected, kernel=7, stride=4, total=3)
        example = torch.randn(1, 2, 17)
    program = onnx_aot.export(model, (example,), dynamic_shapes=(T,))
    x = torch.randn(1, 2, 18)
    assert_close(program(x)[0], Numbers(reflected, kernel=7, stride=4, total=3)(x))


def test_inference_tensors() -> None:
    x = torch.randn(1, 2, 17)
    with torch.inference_mode():
        model = Numbers(constant, kernel=7, stride=4, total=3)
        program = onnx_aot.export(model, (x,), dynamic_shapes=(T,))
    assert_close(program(x)[0], model(x))
