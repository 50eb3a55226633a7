"""Python loops that were rolled; ``test_sequences.py`` has the loops of scripted models."""

from __future__ import annotations

import torch

import onnx_aot
from onnx_aot.torch_ops.rolled_loops import rolled
from tests.capture.loops.models import MODELS, X
from tests.ops.rows import Row, parametrize

ROWS = [
    Row(rolled, (), call=MODELS["TwoStates"], name="carried and collected"),
    Row(rolled, (), call=MODELS["SmoothedLater"], name="after a first step that differs"),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    model = row.call.eval()
    for opset in (17, 25):
        program = onnx_aot.export(
            model, (X,), dynamic_shapes=({0: "batch", 1: "steps"},), opset_version=opset
        )
        for x in (X, X[:1, :1], torch.cat([X, X], 1)):
            expected = model(x)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for got, wanted in zip(program(x), expected, strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_complex_states() -> None:
    def turn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, outs = torch.complex(x[:, 0], x[:, 0]), []
        for t in range(x.shape[1]):
            z = z * 0.5j + x[:, t]
            outs.append(z)
        return torch.stack(outs, 1).abs(), torch.view_as_real(z)

    program = onnx_aot.export(turn, (X,), dynamic_shapes=({1: "steps"},))
    for x in (X, X[:, :1], torch.cat([X, X], 1)):
        for got, wanted in zip(program(x), turn(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
