"""``verify=True``: the comparison, the reported location and the message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning, VerificationError
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_results
from onnx_aot.inspection.verify import verify_against, verify_sizes
from onnx_aot.torch_compat import aten

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


def refuses(op: Any, self: Any) -> Any:
    """Correct for the example's two rows; ONNX Runtime rejects other numbers of rows."""
    return op.Expand(op.Relu(op.Reshape(self, op.constant([2, 3]))), op.Shape(self))


def wrong_at_other_sizes(op: Any, self: Any) -> Any:
    """Correct only for the example's two rows."""
    rows = op.Cast(op.Gather(op.Shape(self), op.constant(0)), to=1)
    return op.Mul(op.Relu(self), op.Div(rows, op.constant(2.0)))


def test_a_translation_that_is_wrong_at_another_size() -> None:
    table = {aten.relu.default: wrong_at_other_sizes}
    onnx_aot.export(nn.ReLU(), (X,), verify=True, custom_translation_table=table)
    with pytest.raises(VerificationError) as caught:
        onnx_aot.export(
            nn.ReLU(),
            (X,),
            dynamic_shapes=({0: "rows"},),
            verify=True,
            custom_translation_table=table,
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "the ONNX model answers differently from PyTorch at sizes other than the example's:"
    )
    assert lines[1:4] == [
        "  rows=2 (example): ok",
        "  rows=0: ok",
        "  rows=1: 1 of 1 outputs differ",
    ]
    assert lines[4] == (
        "    FAIL relu: max abs 1.5, max rel 0.5, PyTorch float32[1, 3], ONNX float32[1, 3]; "
        "2 of 3 elements differ, most at [0, 2]: PyTorch 3, ONNX 1.5"
    )
    assert lines[5:8] == [
        "      elements by difference, in multiples of (0.0001 + 0.001 * abs(PyTorch)):",
        "        equal      1 ####################",
        "        up to 1000 2 !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
    ]
    assert "torch.export.Dim(name, min=..., max=...)" in lines[-3]
    assert lines[-2] == "Nothing was saved."
    assert lines[-1] == "See: onnx-aot explain OA605"


class Squeezed(nn.Module):
    """Branches for one row; the factor decides whether the result differs there."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return x[0][None] * self.factor
        return x * 2


def test_a_shortcut_for_one_that_is_none() -> None:
    onnx_aot.export(Squeezed(2), (X,), dynamic_shapes=({0: "rows"},), verify=True)
    with (
        pytest.warns(onnx_aot.OnnxExporterWarning, match=r"shape\[0\] == 1:` at .* for size 1"),
        pytest.raises(VerificationError, match="rows=1: 1 of 1 outputs differ") as caught,
    ):
        onnx_aot.export(Squeezed(3), (X,), dynamic_shapes=({0: "rows"},), verify=True)
    assert "the model's own code does something else at rows=1" in str(caught.value)


@pytest.mark.filterwarnings("ignore:squeeze removes dimensions")
def test_a_rank_that_the_model_changes_is_no_bug() -> None:
    with pytest.raises(VerificationError) as caught:
        onnx_aot.export(
            lambda x: x.sum(1, keepdim=True).squeeze() * 2,
            (X,),
            dynamic_shapes=({0: "rows"},),
            verify=True,
        )
    message = str(caught.value)
    assert "removes dynamic dimensions where their size is 1" in message
    assert "PyTorch's result is float32[] there" in message
    assert "bug of onnx_aot" not in message
    (place,) = caught.value.places
    assert "squeeze()" in place.code
    onnx_aot.export(  # as the fix says
        lambda x: x.sum(1, keepdim=True).squeeze(1) * 2,
        (X,),
        dynamic_shapes=({0: "rows"},),
        verify=True,
    )


def test_a_model_that_does_something_else_while_it_is_captured() -> None:
    def model(x: Tensor) -> Tensor:
        return x + 1 if torch.compiler.is_exporting() else x - 1

    with pytest.raises(VerificationError) as caught:
        onnx_aot.export(model, (torch.rand(4, 3),), verify=True)
    message = str(caught.value)
    assert "something else while it is captured" in message
    assert "torch.compiler.is_exporting()" in message


def test_sizes_that_the_runtime_refuses(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="rows=1: ONNX Runtime refuses"):
        onnx_aot.export(
            nn.ReLU(),
            (X,),
            dynamic_shapes=({0: "rows"},),
            verify=True,
            report=True,
            artifacts_dir=tmp_path,
            custom_translation_table={aten.relu.default: refuses},
        )
    (report,) = tmp_path.iterdir()
    assert report.name.endswith("_accuracy.md")
    assert re.search(r"\| rows=1 .*\| FAILED .*ONNX Runtime refuses: ", report.read_text())


def test_that_the_runtime_refuses_only_empty_inputs_is_a_warning() -> None:
    def needs_a_row(op: Any, self: Any) -> Any:
        return op.Add(op.Relu(self), op.Mul(op.Gather(self, op.constant([0])), op.constant(0.0)))

    with pytest.warns(OnnxExporterWarning, match="refuses empty inputs .*: rows=0"):
        onnx_aot.export(
            nn.ReLU(),
            (X,),
            dynamic_shapes=({0: "rows"},),
            verify=True,
            custom_translation_table={aten.relu.default: needs_a_row},
        )


def test_a_runtime_that_ends_the_process_on_empty_inputs() -> None:
    def heads(q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhqd,bhkd->bhqk", q, k)

    def as_it_is(op: Any, equation: str, tensors: Any, path: Any = None) -> Any:
        return op.Einsum(*tensors, equation=equation)  # the built-in one avoids this

    args = (torch.rand(2, 1, 3, 4), torch.rand(2, 1, 5, 4))
    with pytest.warns(OnnxExporterWarning, match="refuses empty inputs .*: batch=0"):
        program = onnx_aot.export(
            heads,
            args,
            dynamic_shapes=({0: "batch"}, {0: "batch"}),
            custom_translation_table={torch.ops.aten.einsum.default: as_it_is},
            verify=True,
        )
    results = verify_sizes(program, heads, args, {})
    assert "batch=0: ONNX Runtime refuses, PyTorch does not: it crashes with SIG" in (
        format_results(results)
    )


def test_sizes_that_torch_refuses_are_passed_over() -> None:
    def largest(x: Tensor) -> Tensor:
        return x.amax(0)

    program = onnx_aot.export(largest, (X,), dynamic_shapes=({0: "rows"},))
    results = verify_sizes(program, largest, (X,), {})
    assert [result.failed for result in results] == [False] * len(results)
    assert "rows=0: PyTorch refuses: " in format_results(results)


class Counter(nn.Module):
    """Writes to a buffer, an input and an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.calls = 0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.total += x.sum(0)
        y.mul_(2)
        return x + self.total


@pytest.mark.filterwarnings("ignore:the model writes to buffers")
def test_what_is_written_is_compared() -> None:
    model, args = Counter(), (X, torch.ones(2))
    shapes = ({0: "rows"}, {0: "others"})
    program = onnx_aot.export(model, args, dynamic_shapes=shapes, verify=True)
    assert torch.equal(model.total, torch.zeros(3))
    found = verify_against(program, model, args, {})
    assert [difference.name for difference in found] == ["add", "total_out", "y_out"]
    assert torch.equal(args[1], torch.ones(2))
    with pytest.raises(VerificationError, match=r"FAIL y_out: .*PyTorch 2, ONNX -1"):
        onnx_aot.export(
            model,
            args,
            verify=True,
            custom_translation_table={aten.mul.Tensor: lambda op, self, other: op.Neg(self)},
        )


@pytest.mark.filterwarnings("ignore:the model was captured in training mode")
def test_random_outputs_are_compared_in_type_and_shape(tmp_path: Path) -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            drawn = nn.functional.dropout(x, 0.5, True)
            kept = nn.functional.dropout(x, 0.5, False)
            return drawn + 1, kept, torch.rand_like(x)

    onnx_aot.export(
        Drops(),
        (X,),
        dynamic_shapes=({0: "rows"},),
        verify=True,
        report=True,
        artifacts_dir=tmp_path,
    )
    (report,) = tmp_path.iterdir()
    compared = [
        "random: type and shape compared" in line
        for line in report.read_text().splitlines()
        if line.startswith("| rows=1 ")
    ]
    assert compared == [True, False, True]


def test_attention_without_dropout_is_not_random() -> None:
    def attend(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)

    program = onnx_aot.export(attend, (torch.rand(1, 2, 3, 4),))
    (found,) = verify_against(program, attend, (torch.rand(1, 2, 3, 4),), {})
    assert found.remark == ""


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("expected", "actual", "within"),
    [
        ([INF, 1.0], [INF, 1.0], True),
        ([INF, 1.0], [7.0, 1.0], False),
        ([INF], [-INF], False),
        ([INF], [NAN], False),
        ([NAN], [NAN], True),
        ([1.0], [NAN], False),
        ([2**60], [2**60 + 1], False),
        ([complex(INF, 1.0)], [complex(INF, 1.0 + 1e-6)], True),
        ([complex(INF, 1.0)], [complex(INF, 2.0)], False),
        ([complex(1.0, 1.0)], [complex(1.0, 1.0 + 1e-6)], True),
    ],
)
def test_infinite_and_large_numbers(expected: list[Any], actual: list[Any], within: bool) -> None:
    (found,) = compare_outputs(["y"], [torch.tensor(expected)], [torch.tensor(actual)])
    assert found.within is within
    assert bool(found.remark) is not within
