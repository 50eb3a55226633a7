"""Logarithms and powers of sizes: ``onnx_aot/torch_compat/size_logarithms.py``.

Models round lengths up to powers of two for Fourier transforms and for sums in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import DynamicShapeError
from tests.tolerances import assert_close

SIZES = (6, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 128, 129)


def up(n: Any, dtype: torch.dtype | None = None) -> Tensor:
    return 2 ** torch.ceil(torch.log2(torch.tensor(n, dtype=dtype)))


# Powers of two and exponents of sizes from 1 on, as models compute them.
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "tensor": up,
    "tensor as int": lambda n: int(up(n)),
    "tensor of integers": lambda n: up(n).int(),
    "tensor in double": lambda n: up(n, torch.float64).long().item(),
    "tensor, exp2": lambda n: torch.exp2(torch.floor(torch.log2(torch.as_tensor(n)))),
    "tensor, pow": lambda n: torch.pow(2.0, torch.tensor(2 * n - 1).log2().ceil()),
    "tensor, exponent": lambda n: torch.log2(torch.tensor(n)).ceil(),
    "tensor, exponent as int": lambda n: torch.log2(torch.tensor([n, 3])).int()[0],
    "tensor, other dtype": lambda n: torch.log2(torch.tensor(n)).double().floor().float(),
    "tensor, not rounded": lambda n: int(torch.log2(torch.tensor(n))),
    "math": lambda n: 2 ** math.ceil(math.log2(n)),
    "math, down": lambda n: 2 ** int(math.log2(n)),
    "math, exponent": lambda n: math.floor(math.log2(n)),
    "math, fraction": lambda n: math.ceil(math.log2(n / 2 + 1)),
    "math, twice": lambda n: int(math.log2(2 ** math.ceil(math.log2(n)))),
    "numpy": lambda n: int(2 ** np.ceil(np.log2(n))),
    "numpy, exponent": lambda n: int(np.floor(np.log2(n)) + 2),
    "bits": lambda n: 1 << (n - 1).bit_length(),
    "bits of a size": lambda n: n.bit_length(),
    "bits, below zero": lambda n: (n - 9).bit_length(),
}


class Computed(nn.Module):
    """Returns a number computed from an input that is an int."""

    def __init__(self, number: Callable[[Any], Any]) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor, n: int) -> Tensor:
        number = self.number(n)
        return x + (number.item() if isinstance(number, Tensor) else number)


def differing(number: Callable[[Any], Any], numbers: Iterable[int]) -> list[int]:
    """The integers for which the exported model computes another number than PyTorch."""
    x = torch.zeros(1, dtype=torch.float64)
    options: Any = {"dynamic_shapes": {"n": torch.export.Dim.DYNAMIC}}
    program = onnx_aot.export(Computed(number), (x, 6), **options)
    model = Computed(number)
    return [n for n in numbers if not torch.equal(program(x, n)[0], model(x, n))]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_small_number(name: str) -> None:
    assert differing(NUMBERS[name], range(1, 600)) == []


def around_powers(largest: int) -> list[int]:
    offsets = range(-3, 4)
    return [2**k + offset for k in range(2, largest + 1) for offset in offsets]


@pytest.mark.parametrize("name", ["math", "math, down", "bits", "numpy", "bits of a size"])
def test_around_powers_of_two(name: str) -> None:
    assert differing(NUMBERS[name], around_powers(40)) == []


@pytest.mark.parametrize("name", ["tensor", "tensor, exp2", "tensor, pow"])
def test_around_powers_of_two_in_single_precision(name: str) -> None:
    """``log2`` of ``2**21 + 1`` is 21 in float32, and that of ``2**22 + 3`` is above 22."""
    assert up(2**21 + 1) == 2**21
    assert differing(NUMBERS[name], around_powers(22)) == []


def test_single_precision_is_that_of_every_size() -> None:
    """The exact logarithms, less or more the rounding error, round to the numbers of PyTorch."""
    sizes = torch.arange(1, 2**22)
    exact, single = torch.log2(sizes.double()), torch.log2(sizes)
    assert torch.equal(torch.ceil(exact - 2.0**-20), torch.ceil(single).double())
    assert torch.equal(torch.floor(exact + 2.0**-20), torch.floor(single).double())


@pytest.mark.parametrize("name", ["tensor as int", "math", "bits", "numpy, exponent"])
def test_static_sizes(name: str) -> None:
    model = Cropped(NUMBERS[name])
    for size in (6, 8):
        x = torch.randn(2, size)
        assert_close(onnx_aot.export(model, (x,))(x)[0], model(x))


class Cropped(nn.Module):
    def __init__(self, size: Callable[[Any], Any]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : self.size(x.shape[1])] + 1


class Model(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)


def convolve(x: Tensor, length: Callable[[Any], Any]) -> Tensor:
    """Convolves a signal with three numbers by way of its spectrum."""
    size = length(x.shape[1] + x.shape[1] - 1)
    kernel = torch.fft.rfft(torch.tensor([0.5, -1.0, 2.0]), size)
    result: Tensor = torch.fft.irfft(torch.fft.rfft(x, n=size) * kernel, n=size)
    return result[:, : x.shape[1]]


def add_in_pairs(x: Tensor) -> Tensor:
    size = 1 << (x.shape[1] - 1).bit_length()
    padded: Tensor = F.pad(x, (0, size - x.shape[1]))
    return padded.reshape(-1, size, 1).sum(1)


SIGNALS: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution": lambda x: convolve(x, lambda n: up(n).int()),
    "convolution, python": lambda x: convolve(x, lambda n: 2 ** math.ceil(math.log2(n))),
    "padded": lambda x: F.pad(x, (int(up(x.shape[1])) - x.shape[1], 0)),
    "pairs": add_in_pairs,
    "view": lambda x: F.pad(x, (0, 2 * int(up(x.shape[1])) - x.shape[1])).view(
        2, 2, int(up(x.shape[1]))
    ),
    "cropped spectrum": lambda x: torch.fft.rfft(x, 2 ** int(math.log2(x.shape[1]))).abs(),
    "factor": lambda x: x * math.log2(x.shape[1] + 1),
    "natural": lambda x: x * math.log(x.shape[1]) + math.log(x.shape[1] / 7),
    "natural, tensor": lambda x: x * torch.tensor(math.log(max(x.shape[1], 1)), dtype=x.dtype),
    "decimal": lambda x: x * math.log10(x.shape[1] + 2),
    "base": lambda x: x * math.log(x.shape[1], 3) + math.log(5, x.shape[1] + 1),
    "numpy": lambda x: x * float(np.log(x.shape[1])),
    "exponential": lambda x: x * math.exp(-x.shape[1] / 7) + math.exp(math.log(x.shape[1]) / 3),
    "exponential, numpy": lambda x: x * float(np.exp(-x.shape[1])),
    "powers": lambda x: x * math.pow(x.shape[1], -0.5) + math.pow(0.9, x.shape[1]),
    "shifted time": lambda x: x / (1 + math.exp(0.3 * (x.shape[1] // 2) / 7 - 0.5)),
    "temperature": lambda x: x.softmax(1) * math.log(x.shape[1]) / math.sqrt(x.shape[1]),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_sizes(name: str) -> None:
    model = Model(SIGNALS[name])
    program = onnx_aot.export(model, (torch.randn(2, 6),), dynamic_shapes=({1: "n"},))
    for size in SIZES:
        x = torch.randn(2, size)
        torch.testing.assert_close(program(x)[0], SIGNALS[name](x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: math.floor(math.log(n, 10)),  # that of 1000 is below 3 in Python
        lambda n: math.ceil(math.log(n) / math.log(2)),
        lambda n: int(math.log(n)),
        lambda n: math.floor(math.log(n) * (1 / math.log(2))),
        lambda n: int(2.5 * math.log(n + 1) - 1),
        lambda n: round(math.log(n), 2),
        lambda n: round(np.log(n)),
    ],
)
def test_a_natural_logarithm_that_is_rounded_fixes_the_size(function: Callable[[Any], Any]) -> None:
    model = Model(lambda x: x * function(x.shape[1]))
    with pytest.raises(DynamicShapeError, match=r"fixed at 6") as caught:
        onnx_aot.export(model, (torch.randn(2, 6),), dynamic_shapes=({1: "n"},))
    assert "test_size_logarithms.py" in str(caught.value)
    static = onnx_aot.export(model, (torch.randn(2, 6),), dynamic_shapes=({0: "n"},))
    x = torch.randn(3, 6)
    assert_close(static(x)[0], x * function(6))


def test_text_of_a_size() -> None:
    model = Model(SIGNALS["pairs"])
    x = torch.randn(2, 6)
    assert onnx_aot.export(model, (x,), dynamic_shapes=({1: "n"},)).outputs[0].shape == (2, 1)
    model = Model(lambda x: F.pad(x, (0, 2 ** math.ceil(math.log2(x.shape[1])) - x.shape[1])))
    program = onnx_aot.export(model, (x,), dynamic_shapes=({1: torch.export.Dim("n", min=1)},))
    assert program.outputs[0].shape == (2, "2**ceil(log2(n))")


def test_size_zero_has_no_logarithm() -> None:
    """PyTorch raises an error, and the range of the dimension begins at 1."""
    program = onnx_aot.export(
        Cropped(NUMBERS["math"]),
        (torch.randn(2, 6),),
        dynamic_shapes=({1: "n"},),
        runtime_checks=True,
    )
    x = torch.randn(2, 1)
    assert_close(program(x)[0], x + 1)
    with pytest.raises(Exception, match=r"check: x\.shape\[1\] >= 1"):
        program(torch.randn(2, 0))


def test_a_condition_with_a_logarithm_is_checked() -> None:
    def branch(x: Tensor) -> Tensor:
        return x * 2 if math.ceil(math.log2(x.shape[1])) > 2 else x + 1

    model = Model(branch)
    options: Any = {"dynamic_shapes": ({1: "n"},), "runtime_checks": True}
    program = onnx_aot.export(model, (torch.randn(2, 6),), **options)
    for size in (6, 5, 9):
        x = torch.randn(2, size)
        assert_close(program(x)[0], branch(x))
    with pytest.raises(Exception, match=r"check: .*log2\("):
        program(torch.randn(2, 4))


def test_a_result_of_transform_has_the_size_of_the_input() -> None:
    """Torch knows that ``n <= 2**ceil(log2(2*n - 1))``."""
    model = Model(SIGNALS["convolution"])
    program = onnx_aot.export(model, (torch.randn(2, 6),), dynamic_shapes=({1: "n"},))
    assert program.outputs[0].shape == (2, "n")


def roll_and_add(x: Tensor) -> Tensor:
    for step in range(int(math.log2(x.shape[1]))):
        x = x + x.roll(2**step, 1)
    return x


def add_earlier_ones(x: Tensor) -> Tensor:
    """The sum of all elements up to each one, in steps of powers of two, as pypose adds."""
    y, n = x.clone(), x.shape[1]
    for step in torch.pow(2, torch.arange(math.log2(n) + 1, dtype=torch.int64)):
        index = torch.arange(step, n)
        y.index_copy_(1, index, y.index_select(1, index - step) + y.index_select(1, index))
    return y


@pytest.mark.parametrize("function", [roll_and_add, add_earlier_ones])
def test_loops_of_as_many_steps(function: Callable[[Tensor], Tensor]) -> None:
    model = Model(function)
    program = onnx_aot.export(model, (torch.randn(2, 12),), dynamic_shapes=({1: "n"},))
    for size in (12, *SIZES):
        x = torch.randn(2, size)
        torch.testing.assert_close(program(x)[0], function(x), rtol=1e-4, atol=1e-4)


def halve(x: Tensor) -> Tensor:
    size = 2 ** math.ceil(math.log2(x.shape[1]))
    x = F.pad(x, (0, size - x.shape[1]))
    for _ in range(int(math.log2(size))):
        x = x[:, ::2] + x[:, 1::2]
    return x


def test_a_loop_whose_steps_differ_in_size_is_refused() -> None:
    model = Model(halve)
    with pytest.raises(DynamicShapeError, match=r"for _ in range\(int\(math\.log2"):
        onnx_aot.export(model, (torch.randn(2, 12),), dynamic_shapes=({1: "n"},))
