"""Outputs that exceed the tolerance by rounding, in PyTorch as much as in the ONNX model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import VerificationError
from onnx_aot.inspection.differences import SizeResult, add_rounding, compare_outputs
from onnx_aot.inspection.rounding import Rounding, measure_rounding, run_in_double
from onnx_aot.inspection.verification import make_error
from onnx_aot.inspection.verify import verify_against
from onnx_aot.torch_compat import aten
from tests.torch_compat.without import absent, shows

SHAPES = ({0: "rows"},)
MEAN = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) + 60


class Variance(nn.Module):
    """Loses most digits: the difference of two numbers near 3600."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * x).mean(-1) - x.mean(-1) ** 2


class Recurrence(nn.Module):
    """Amplifies rounding by 1.9 in each of the steps."""

    def __init__(self, steps: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.steps, self.dtype = steps, dtype

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        for _ in range(self.steps):
            x = 1.0 - 1.9 * x * torch.erf(x) / torch.erf(torch.ones_like(x))
        return x


def scaled(factor: float) -> Any:
    """A wrong translation of ``sub`` whose result is off by a factor."""
    return {aten.sub.Tensor: lambda op, self, other, alpha=1: op.Mul(op.Sub(self, other), factor)}


def test_rounding_is_no_error_at_any_size(tmp_path: Path) -> None:
    program = onnx_aot.export(
        Variance(),
        (MEAN,),
        tmp_path / "m.onnx",
        dynamic_shapes=SHAPES,
        verify=True,
        report=True,
        artifacts_dir=tmp_path,
    )
    assert (tmp_path / "m.onnx").exists()
    example = program.report.verification.results[0]
    (difference,) = example.differences
    assert not difference.within
    assert difference.right
    (note, *_) = [note for note in program.report.notes if "counts as right" in note]
    assert note.startswith("output sub counts as right at rows=50 (example), although ")
    assert "PyTorch's own rounding is as large" in note
    text = str(onnx_aot.verify(tmp_path / "m.onnx", Variance(), (MEAN,)))
    assert text.startswith("the ONNX model agrees with PyTorch")
    assert "rows=50 (example): ok; 1 of 1 outputs exceed the tolerance by rounding" in text
    assert "  ok   sub: " in text
    assert "elements beyond the tolerance from PyTorch in float64: " in text
    (report,) = tmp_path.glob("*.md")
    assert "largest error" in report.read_text()
    found = json.loads(program.verify().to_json())["results"][0]["differences"][0]
    assert found["rounding"]["alike"] is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_long_recurrence(dtype: torch.dtype) -> None:
    x = torch.rand(300, generator=torch.Generator().manual_seed(0)) * 1.8 - 0.9
    model = Recurrence({torch.float32: 15, torch.float16: 6, torch.bfloat16: 4}[dtype], dtype)
    program = onnx_aot.export(model, (x,), dynamic_shapes=SHAPES, verify=True)
    (difference,) = verify_against(program, model, (x,), {})
    assert not difference.within


@pytest.mark.parametrize("factor", [0.98, 1.02, 1.1])
def test_an_error_of_ten_times_the_rounding_is_refused(factor: float) -> None:
    with pytest.raises(VerificationError, match=r"FAIL sub: .* elements differ"):
        onnx_aot.export(
            Variance(),
            (MEAN,),
            dynamic_shapes=SHAPES,
            verify=True,
            custom_translation_table=scaled(factor),
        )


@pytest.mark.parametrize(("own", "offered"), [(0.002, True), (0.0, False)])
def test_float64_is_offered_if_pytorch_rounds_too(own: float, offered: bool) -> None:
    exact = torch.ones(10, dtype=torch.float64)
    expected, actual = (exact + own).float(), exact.float()
    actual[3] = 1.01
    (difference,) = compare_outputs(["y"], [expected], [actual])
    result = SizeResult({}, True, (add_rounding(difference, expected, actual, exact),))
    assert ("model.double()" in str(make_error([result]))) == offered


def test_rounding_of_some_elements_does_not_excuse_errors_of_others() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(1000, dtype=torch.float64, generator=generator)
    noise = torch.zeros(2, 1000, dtype=torch.float64)
    noise[:, :500] = torch.randn(2, 500, dtype=torch.float64, generator=generator) * 0.002
    expected, actual = (exact + noise).float()
    assert explains(expected, actual, exact)
    actual[600:800] += 0.01
    assert not explains(expected, actual, exact)


def explains(expected: Tensor, actual: Tensor, exact: Tensor) -> bool:
    found = measure_rounding(expected, actual, exact)
    return found is not None and found.explains


def test_choices_are_not_rounding() -> None:
    exact = torch.zeros(100, dtype=torch.float64)
    swapped = exact.float().clone()
    swapped[:2] = 5.0
    found = measure_rounding(swapped, swapped.flip(0), exact)
    assert found == Rounding(2, 50000.0, 2, 50000.0, alike=True, small=False)
    assert not found.explains


def test_whole_numbers_that_differ_are_never_rounding() -> None:
    exact = torch.arange(100)
    off = exact.clone()
    off[3] += 1
    both = measure_rounding(off, exact.roll(1).where(exact == 4, exact), exact)
    assert both is not None
    assert (both.alike, both.explains) == (True, False)
    ours = measure_rounding(exact, off, exact)
    assert ours is not None
    assert not ours.alike


def test_what_is_not_judged() -> None:
    assert measure_rounding(torch.ones(2), torch.ones(2), torch.ones(3).double()) is None
    assert measure_rounding(torch.ones(1), torch.ones(1, 1), torch.ones(1).double()) is None
    nan = torch.tensor([float("nan"), 1.0])
    assert not explains(torch.ones(2), nan, torch.ones(2).double())
    assert explains(nan, nan, nan.double())


class Mixed(nn.Module):
    """Holds tensors, and asks for types, that ``double`` does not convert."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3)
        self.matrix = torch.rand(3, 2)
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found, _ = self.lstm(x)
        found = found.float() @ self.matrix
        self.total += found.sum((0, 1))
        return found + torch.ones(2, dtype=torch.float32), torch.complex(found, found)


def test_every_type_is_double() -> None:
    model = Mixed()
    x = torch.rand(5, 2, 4)
    seen = []
    with torch.no_grad():
        found = run_in_double(lambda m, args, _: m(*seen_types(args, seen)), model, (x,), {})
    assert found is not None
    assert [value.dtype for value in found] == [torch.float64, torch.complex128]
    assert seen == [torch.float64]
    assert torch.equal(model.total, torch.zeros(2))
    assert model.lstm.weight_ih_l0.dtype == torch.float32


def seen_types(args: Any, seen: list[torch.dtype]) -> Any:
    seen += [leaf.dtype for leaf in args]
    return args


def test_a_model_that_does_not_run_in_float64() -> None:
    def refuses(x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x

    assert run_in_double(lambda m, args, _: m(*args), refuses, (torch.ones(2),), {}) is None


@shows("torch.utils._python_dispatch:TorchDispatchMode")
def test_a_release_without_dispatch_modes_refuses_what_rounds() -> None:
    name = "torch.utils._python_dispatch:TorchDispatchMode"
    with absent(name), pytest.raises(VerificationError):
        onnx_aot.export(Variance(), (MEAN,), dynamic_shapes=SHAPES, verify=True)
