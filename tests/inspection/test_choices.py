"""Choices between nearly equal values: accepted if no value is wrong by itself, and warned of."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning, VerificationError
from onnx_aot.inspection import verify
from onnx_aot.inspection.choices import accept_choices
from onnx_aot.torch_compat import aten


class Widest(nn.Module):
    """Chooses one of ten values with nearly equal variances, in each group."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best = ((x * x).mean(-1) - x.mean(-1) ** 2).argmax(-1, keepdim=True)
        return x[..., 0].gather(-1, best), best


def draw_groups(count: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    scales = 1 + 1e-6 * torch.arange(10, dtype=torch.float64)[:, None]
    rows = torch.randn(count, 1, 50, dtype=torch.float64, generator=generator)
    return rows * scales + torch.arange(10)[:, None] + 60


def test_a_choice_is_delivered_with_one_warning_that_names_its_line() -> None:
    groups = draw_groups().float()
    with pytest.warns(OnnxExporterWarning) as caught:
        program = onnx_aot.export(Widest(), (groups,), verify=True)
    (message,) = [str(entry.message) for entry in caught if "nearly equal" in str(entry.message)]
    assert "Rounding decides between nearly equal values, first in argmax (aten.argmax" in message
    assert ".argmax(-1, keepdim=True); no value is wrong by itself" in message
    assert "Example inputs on which the choice is clear" in message
    differences = program.report.verification.results[0].differences
    assert [difference.within for difference in differences] == [False, False]
    assert all(difference.right and difference.choice for difference in differences)
    text = str(program.verify())
    assert text.startswith("the ONNX model agrees with PyTorch")
    assert "rounding decides between nearly equal values" in text
    (found, _) = json.loads(program.verify().to_json())["results"][0]["differences"]
    assert found["choice"].startswith("rounding decides")


def test_a_clear_choice_is_compared() -> None:
    program = onnx_aot.export(Widest(), (draw_groups(),), verify=True)
    assert all(d.within for d in program.report.verification.results[0].differences)


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_an_error_behind_a_choice_is_refused(factor: float) -> None:
    def off(op: Any, self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
        return op.Mul(op.GatherElements(self, index, axis=dim), factor)

    with pytest.raises(VerificationError, match=r"FAIL gather: .* elements differ"):
        onnx_aot.export(
            Widest(),
            (draw_groups().float(),),
            verify=True,
            custom_translation_table={aten.gather.default: off},
        )


def test_an_error_before_a_choice_is_refused() -> None:
    def off(op: Any, self: Any, other: Any, alpha: Any = 1) -> Any:
        return op.Mul(op.Sub(self, other), 1.5)

    with pytest.raises(VerificationError, match=r"answers differently"):
        onnx_aot.export(
            Widest(),
            (draw_groups().float(),),
            verify=True,
            custom_translation_table={aten.sub.Tensor: off},
        )


class Otherwise(Widest):
    """Computes other variances while it is captured, of which rounding leaves as little."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 7 if torch.compiler.is_compiling() else x
        best = ((y * y).mean(-1) - y.mean(-1) ** 2).argmax(-1, keepdim=True)
        return x[..., 0].gather(-1, best), best


def test_a_capture_that_computes_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = draw_groups().float()
    with pytest.raises(VerificationError):
        onnx_aot.export(Otherwise(), (groups,), verify=True)

    def accept(*given: Any) -> Any:  # the capture is not compared with the model
        return accept_choices(*given[:-1], lambda: True)

    monkeypatch.setattr(verify, "accept_choices", accept)
    with pytest.warns(OnnxExporterWarning, match="nearly equal values"):
        onnx_aot.export(Otherwise(), (groups,), verify=True)


def test_a_file_has_no_captured_values_to_compare(tmp_path: Any) -> None:
    groups = draw_groups().float()
    program = onnx_aot.export(Widest(), (groups,))
    program.save(tmp_path / "m.onnx")
    assert not onnx_aot.verify(tmp_path / "m.onnx", Widest(), (groups,)).ok


def test_the_order_of_equal_values_is_no_error_of_a_translation() -> None:
    """PyTorch does not define which of equal values comes first."""
    x = torch.randint(0, 4, (2, 200), generator=torch.Generator().manual_seed(0)).float()
    with pytest.raises(VerificationError, match="PyTorch does not define which of equal values"):
        onnx_aot.export(lambda x: torch.topk(x, 8), (x,), verify=True)
