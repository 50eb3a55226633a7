"""``onnx_aot.verify`` and ``ONNXProgram.verify``: programs, files, runtimes and messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_results
from onnx_aot.torch_compat import aten

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


class Scores(nn.Module):
    """Takes inputs that share a dimension: ``n`` rows, and ``2 * n`` elements."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, y: Tensor, *, bias: float = 1.0) -> tuple[Tensor, Tensor]:
        assert x.shape[1] == 3
        return self.linear(x) + bias, (y.reshape(x.shape[0], 2) > 0).sum(0)


N = torch.export.Dim("n", min=2, max=40)
SHAPES = {"x": {0: N}, "y": {0: 2 * N}}
ARGS = (torch.rand(4, 3), torch.randn(8))


@pytest.fixture
def program() -> tuple[onnx_aot.ONNXProgram, Scores]:
    model = Scores().eval()
    return onnx_aot.export(model, ARGS, dynamic_shapes=SHAPES), model


def test_a_program_with_its_own_inputs(program: tuple[onnx_aot.ONNXProgram, Scores]) -> None:
    made, model = program
    for result in (made.verify(), made.verify(model), made.verify(model, ARGS)):
        assert result.ok
        assert [r.sizes["n"] for r in result.results] == [4, 2, 3, 7]
        assert result.results[0].is_example
    alone = onnx_aot.verify(made, model, ARGS, sizes=False)
    assert [r.sizes for r in alone.results] == [{"n": 4}]
    assert str(alone) == (
        "the ONNX model agrees with PyTorch (in ONNX Runtime):\n  n=4 (example): ok"
    )


def test_a_file_is_verified_at_the_sizes_that_it_declares(
    program: tuple[onnx_aot.ONNXProgram, Scores], tmp_path: Path
) -> None:
    made, model = program
    path = tmp_path / "scores.onnx"
    made.save(path)
    result = onnx_aot.verify(path, model, (ARGS[0],), {"y": ARGS[1]})
    assert result.ok
    assert [r.sizes["n"] for r in result.results] == [4, 2, 3, 7]
    with torch.no_grad():
        model.linear.bias += 0.5
    wrong = onnx_aot.verify(path, model, ARGS)
    assert not wrong.ok
    assert [r.failed for r in wrong.results] == [True] * 4
    assert "n=2: 1 of 2 outputs differ" in format_results(wrong.results)


def test_conditions_in_a_file_hold_for_what_is_tried(tmp_path: Path) -> None:
    def halves(x: Tensor) -> Tensor:
        return x.reshape(-1, 8) + 1

    onnx_aot.export(halves, (torch.rand(16),), tmp_path / "m.onnx", dynamic_shapes=({0: "n"},))
    result = onnx_aot.verify(tmp_path / "m.onnx", halves, (torch.rand(16),))
    assert result.ok
    assert len(result.results) > 2
    assert all(r.sizes["n"] % 8 == 0 and not r.torch_refuses for r in result.results)


def test_onnx_s_reference_implementation(
    program: tuple[onnx_aot.ONNXProgram, Scores], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, model = program

    def never(*args: Any) -> None:
        raise AssertionError("ONNX Runtime was asked")

    monkeypatch.setattr("onnx_aot.program.session.run_session", never)
    result = made.verify(model, runtime="reference")
    assert result.ok
    assert result.runtime == "reference"
    assert len(result.results) == 4
    assert "(in ONNX's reference implementation)" in str(result)


def test_what_the_reference_implementation_lacks() -> None:
    def rotated(x: Tensor) -> Tensor:
        return torch.relu(x)

    table = {aten.relu.default: lambda op, self: op.FastGelu(self, _domain="com.microsoft")}
    program = onnx_aot.export(rotated, (X,), custom_translation_table=table)
    with pytest.raises(InvalidOptionError, match=r"not have com\.microsoft::FastGelu"):
        program.verify(runtime="reference")


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    program = onnx_aot.export(model, (X,), tmp_path / "m.onnx")
    with pytest.raises(InvalidOptionError, match="expected one of onnxruntime, reference"):
        program.verify(runtime="tensorrt")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="neither the model nor example inputs"):
        onnx_aot.ONNXProgram.load(tmp_path / "m.onnx").verify()
    with pytest.raises(InvalidOptionError, match="there is no file"):
        onnx_aot.verify(tmp_path / "other.onnx", model, (X,))
    with pytest.raises(InvalidOptionError, match=r"do not fit .*missing a required argument"):
        onnx_aot.verify(tmp_path / "m.onnx", model)
    with pytest.raises(InferenceError, match=r"input input has shape \[2,3\]"):
        onnx_aot.verify(tmp_path / "m.onnx", nn.Identity(), (torch.rand(5, 3),))
    with onnx_aot.enable_fake_mode():
        empty = nn.Linear(3, 2)
    with pytest.raises(InvalidOptionError, match="without the values of its weights"):
        onnx_aot.export(empty, (X,)).verify(model, (X,))


def test_a_kernel_that_is_missing_is_a_failure() -> None:
    program = onnx_aot.export(nn.ELU(), (X.double(),), target=None)
    result = program.verify()
    assert not result.ok
    assert "ONNX Runtime refuses, PyTorch does not: NotImplemented" in str(result)
    assert program.verify(runtime="reference").ok


def test_json_is_json(tmp_path: Path) -> None:
    onnx_aot.export(nn.Identity(), (X,), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.node[0].op_type = "Reciprocal"
    onnx.save(model, tmp_path / "m.onnx")
    result = onnx_aot.verify(tmp_path / "m.onnx", nn.Identity(), (torch.zeros(2, 3),))
    found = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert (found["schema"], found["ok"]) == (1, False)
    assert found["runtime"] == "onnxruntime"
    (difference,) = found["results"][0]["differences"]
    assert difference["max_absolute"] == "inf"
    assert difference["worst"] == [0, 0]
    assert difference["tolerance"] == {"relative": 1e-3, "absolute": 1e-4}
    assert ["not finite", 6] in difference["histogram"]


def difference(expected: Any, actual: Any, dtype: torch.dtype | None = None) -> Any:
    tensors = (torch.tensor(given, dtype=dtype) for given in (expected, actual))
    (found,) = compare_outputs(["y"], *[[tensor] for tensor in tensors])
    return found
