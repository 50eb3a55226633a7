"""Strategies that run only on request: ``onnx_aot/capture/draft_and_trace.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError, InvalidOptionError

X = torch.ones(2, 3)
N = torch.tensor(4)


class Decides(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if x.sum() > 0:
            x = x * 2
        for i in range(int(n)):
            x = x + i
        return x


def test_by_default_nothing_is_fixed() -> None:
    with pytest.raises(CaptureError, match="needs values of its data"):
        onnx_aot.export(Decides(), (X, N))


@pytest.mark.parametrize(
    ("strategies", "name", "places"),
    [
        (("draft",), "torch.export.draft_export", ("u0 == 1 at", "range(int(n))")),
        (("non-strict", "strict", "draft"), "torch.export.draft_export", ("u0 == 1 at",)),
        (("trace",), "torch.jit.trace", ("Python boolean", "Python integer")),
    ],
)
def test_on_request(
    strategies: tuple[str, ...], name: str, places: tuple[str, ...], tmp_path: Path
) -> None:
    model = Decides()
    options: dict[str, Any] = {"dynamic_shapes": ({0: "n"}, None), "state": "drop"}
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=name) as caught:
        program = onnx_aot.export(
            model, (X, N), strategies=strategies, report=True, artifacts_dir=tmp_path, **options
        )
    message = next(str(w.message) for w in caught if name in str(w.message))
    assert all(place in message for place in places)
    assert __file__ in message
    (report,) = tmp_path.glob("*.md")
    assert f"Captured with `{name}`" in report.read_text()
    assert "the model was captured with" in report.read_text()
    assert float(model.calls) == 0
    wide = torch.ones(5, 3)
    torch.testing.assert_close(program(wide, N)[0], model(wide, N))


def test_the_first_that_succeeds_is_used() -> None:
    program = onnx_aot.export(torch.relu, (X,), strategies=("non-strict", "draft"))
    torch.testing.assert_close(program(X)[0], X)


def test_a_trace_of_other_inputs_is_refused() -> None:
    with pytest.raises(CaptureError, match="an input is something else"):
        onnx_aot.export(lambda x, k: x * k, (X, 2), strategies=("trace",))


@pytest.mark.parametrize("given", [("fast",), "draft", ()])
def test_unknown_names(given: Any) -> None:
    with pytest.raises(InvalidOptionError, match="a tuple of 'non-strict', 'strict', 'draft'"):
        onnx_aot.export(torch.relu, (X,), strategies=given)
