"""Branches on data: the ONNX model takes the way that PyTorch takes, at every size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError

X = torch.linspace(-2, 3, 12).reshape(3, 4)
INPUTS = (X, X[:1], -X, X * 10, X * 0.1, X[:2] - 5, torch.rand(7, 4) * 50, torch.zeros(2, 4))


def scales(x: Tensor) -> Tensor:
    y = x * 2
    if x.max() > 1:
        y = y / 255
    return y + 1


def returns_early(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def asks_twice(x: Tensor) -> Tensor:
    if x.max() > 1:
        x = x / 255
    if x.min() < 0:
        x = x + 3
    return x * 2


def asks_the_same(x: Tensor) -> Tensor:
    n = (x > 0).sum().item()
    if n > 3:
        x = x + n
    y = x * 2
    return y if n > 3 else y - 1


def nests(x: Tensor) -> Tensor:
    if x.sum() > 0:
        if x.max() > 1:
            return x * 2
        y = x + 1
    else:
        y = x - 1
    return y * 3


def ends_loop_early(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x * 2
        if x.sum() > 10:
            break
    return x + 1


def combines(x: Tensor) -> Tensor:
    if (x.sum() > 0 and x.max() < 1) or x.min() < -2:
        x = x * 2
    return x + 1


def chooses_number(x: Tensor) -> Tensor:
    largest = x.max().item()
    if largest > 1:
        largest = largest / 2
    return x * largest


def chooses_size(x: Tensor) -> Tensor:
    y = torch.cat([x, x]) if x.sum() > 0 else x
    return y * 2 + y.shape[0]


def collects(x: Tensor) -> Tensor:
    found = [x[:, i] for i in range(3) if x[:, i].sum() > 0]
    return torch.stack(found).sum(0) if found else x[:, 0]


def fills_selected(x: Tensor) -> Tensor:
    inside = (x >= -1) & (x <= 1)
    result = torch.zeros_like(x)
    result[~inside] = x[~inside]
    if torch.any(inside):
        result[inside] = x[inside].sin()
    return result


def writes(x: Tensor) -> Tensor:
    y = x * 2
    view = y[0]
    if x.sum() > 0:
        y.mul_(2)
    return view + y


def writes_afterwards(x: Tensor) -> Tensor:
    y = x * 1
    z = y if x.sum() > 0 else y * 2
    z.add_(1)
    return y + z


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        if x.sum() > 0:
            x = x * 2
    return x + 1


MODELS = (
    *(scales, returns_early, asks_twice, asks_the_same, nests, ends_loop_early, combines),
    *(chooses_number, chooses_size, collects, fills_selected, writes, writes_afterwards),
    without_gradients,
)


@pytest.mark.parametrize("model", MODELS)
def test_each_way_is_right(model: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in INPUTS:
        torch.testing.assert_close(program(x)[0], model(x))


def test_a_small_branch_gives_a_small_if() -> None:
    program = onnx_aot.export(scales, (X,), dynamic_shapes=({0: "n"},))
    names = [node.op_type for node in program.model.graph]
    assert names[0] == "Mul"
    assert names[-2:] == ["If", "Add"]


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = self.second(y) if y.mean() > 0 else y + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return y.relu()


def test_weights_and_literals_of_one_way() -> None:
    torch.manual_seed(0)
    model = Weights().eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in INPUTS:
        torch.testing.assert_close(program(x)[0], model(x))


def returns_none(x: Tensor) -> tuple[Tensor, Any]:
    return (x, None) if x.sum() > 0 else (x, x)


def returns_integers(x: Tensor) -> Tensor:
    return x.long() if x.sum() > 0 else x


def loops(x: Tensor) -> Tensor:
    while x.sum() < 1e6:
        x = x * 2 + 1
    return x


def writes_and_reads_view(x: Tensor) -> Tensor:
    y = x * 1
    view = y[0]
    if x.sum() > 0:
        y.mul_(2)
        return view * 3 + y
    return view + y


class NotPositiveError(ValueError):
    pass


def fail(kind: type[ValueError] = ValueError) -> Tensor:
    raise kind("not positive")


def always_raises(x: Tensor) -> Tensor:
    y = x * 2 if x.sum() > 0 else x
    return fail() if y.max() > 1 else fail(NotPositiveError)


def hides_a_loop(x: Tensor) -> Tensor:
    """Its error is one of the capture, which has no number of steps."""
    if x.sum() > 0:
        return x
    try:
        return x * sum(range(int(x.abs().max())))
    except Exception as error:
        raise ValueError("not positive") from error


def returns_numbers(x: Tensor) -> tuple[Tensor, int]:
    return (x, 1) if x.sum() > 0 else (x * 2, 2)


REFUSED = {
    returns_numbers: "they return different numbers, such as 1 and 2",
    returns_none: "they return different structures",
    returns_integers: "they compute a torch.int64 tensor with 2 dimensions and a torch.float32",
    loops: "more than 24 questions on one path",
    writes_and_reads_view: "another view",
    always_raises: "each side raises an error, such as ValueError: not positive",
    hides_a_loop: "needs values of its data",
}


@pytest.mark.parametrize("model", REFUSED)
def test_ways_that_cannot_be_joined_are_refused(model: Callable[[Tensor], Any]) -> None:
    with pytest.raises(CaptureError, match="needs values of its data") as caught:
        onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    assert REFUSED[model] in str(caught.value)


def test_a_check_of_one_side_is_left_out() -> None:
    def checks(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        if x.min() < -60:
            raise ValueError("not positive")
        return x * 2

    program = onnx_aot.export(checks, (X,), dynamic_shapes=({0: "n"},))
    assert any("leaves the checks out" in note for note in program.report.notes)
    for x in INPUTS:
        torch.testing.assert_close(program(x)[0], checks(x))


def raises(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else fail()


def raises_first(x: Tensor) -> Tensor:
    if x.sum() > 100:
        y = x / 2
        return fail() if y.max() > 10 else y
    return x + 1 if x.mean() > 0 else x - 1


def retries(x: Tensor) -> Tensor:
    """Adds to the diagonal until the matrix has a factor, as libraries of Gaussian processes do."""
    matrix = torch.eye(3) * x[:1, :1, None]
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not torch.any(info):
        return factor
    matrix = matrix.clone()
    for step in range(3):
        matrix.diagonal(dim1=-1, dim2=-2).add_(10**step)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not torch.any(info):
            return factor * 2
    return fail(NotPositiveError)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("model", [raises, raises_first, retries])
def test_a_side_that_raises_is_a_check(model: Callable[[Tensor], Tensor], checked: bool) -> None:
    example = X + 3
    program = onnx_aot.export(model, (example,), dynamic_shapes=({0: "n"},), runtime_checks=checked)
    for x in (example, *INPUTS, X - 60, X - 600):
        try:
            expected = model(x)
        except ValueError:
            if checked:
                with pytest.raises(Exception, match="check: "):
                    program(x)
        else:
            torch.testing.assert_close(program(x)[0], expected)


def test_the_report_has_the_line_that_raises() -> None:
    program = onnx_aot.export(raises, (X,), dynamic_shapes=({0: "n"},))
    (message,) = [note for note in program.report.notes if "leaves the checks out" in note]
    assert "in fail" in message
    assert 'raise kind("not positive")' in message


def test_the_example_is_not_on_the_side_that_raises() -> None:
    with pytest.raises(CaptureError, match="do not pass a check") as caught:
        onnx_aot.export(raises, (-X,), dynamic_shapes=({0: "n"},))
    assert "ValueError: not positive" in str(caught.value)


class Batched(nn.Module):
    """Has dimensions of size 1 within the strides of what the ways compute."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.transpose(0, 1) * 2
        y = y * 2 if y.sum() > 0 else y + 1
        return y.relu()


@pytest.mark.parametrize("batch", [1, 3])
def test_no_condition_on_strides(batch: int) -> None:
    example = torch.rand(batch, 5, 4)
    program = onnx_aot.export(Batched(), (example,), dynamic_shapes=({0: "batch", 1: "n"},))
    assert program.report.conditions == ()
    for sizes in ((1, 5), (2, 3), (4, 1), (0, 3), (2, 0)):
        for x in (torch.rand(*sizes, 4), -torch.rand(*sizes, 4)):
            torch.testing.assert_close(program(x)[0], Batched()(x))


# --- the report, and models without branches -----------------------------------------------------


def test_the_report_lists_the_lines() -> None:
    notes = onnx_aot.export(scales, (X,)).report.notes
    (note,) = [note for note in notes if "both sides" in note]
    assert note.endswith("in scales: if x.max() > 1:")


def test_models_without_branches_import_nothing() -> None:
    code = (
        "import sys, torch, onnx_aot; "
        "onnx_aot.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),)); "
        "print([name for name in sys.modules if name.startswith('onnx_aot.capture.branches')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
