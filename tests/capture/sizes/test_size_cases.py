"""Captures for the branches of a model on sizes, joined (``capture/sizes/size_cases.py``)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.sizes import size_cases
from onnx_aot.errors import DynamicShapeError, InferenceError, OnnxExporterWarning
from tests.tolerances import assert_close

LENGTHS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 40)


class Landmarks(nn.Module):
    """Fills up by whole windows, then needs that length: neither branch is right for all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        rest = n % 8
        if rest > 0:
            x = F.pad(x, (0, 0, 8, 0))[:, rest:]
        x = self.linear(x)
        landmarks = x.reshape(x.shape[0], 8, -(-n // 8), 4).mean(2)
        return (x @ landmarks.mT).softmax(-1)[:, -n:]


class Pieces(nn.Module):
    """Cuts into four pieces of sizes that differ by one at most, one question per piece."""

    def forward(self, x: Tensor) -> Tensor:
        size, rest = x.shape[1] // 4, x.shape[1] % 4
        sizes = []
        for _ in range(4):
            adjust, rest = 1 if rest > 0 else 0, rest - 1
            sizes.append(size + adjust)
        return torch.cat([piece.cumsum(1) for piece in x.split(sizes, 1)], 1)


class TwoAxes(nn.Module):
    """Fills up each axis in another way, if that is necessary."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 2:
            x = F.pad(x, (0, 0, 0, 1), value=2.0)
        if x.shape[2] % 4:
            x = F.pad(x, (4, 0), value=3.0)[:, :, x.shape[2] % 4 :]
        return x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 4, 4).amax((2, 4))


class Halved(nn.Module):
    """Halves twice, each time after a branch of half of all sizes, captured from 0 or 1 on."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if x.shape[1] % 2:
                x = torch.cat([x, x[:, -1:]], 1)
            x = x.reshape(x.shape[0], x.shape[1] // 2, 2, 4).mean(2)
        return x


class Writes(nn.Module):
    """Has other constants on each side, writes in place, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        if x.shape[1] % 8 == 0:
            y = x * torch.tensor([1.0, 2.0])[0]
            y[:, :4].relu_()
        else:
            y = x * torch.tensor([3.0, 4.0])[1]
            y[:, :1].neg_()
        return y, y.sum(1) * self.calls


class Longer(nn.Module):
    """Returns what it pads, so the results have other sizes."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        if n % 8:
            return F.pad(x, (0, 0, 0, 3))
        return x * 2


class PerBatch(Landmarks):
    """Has a shortcut for one element too."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return super().forward(x)[0][None]
        return super().forward(x)


def make(model: nn.Module, batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, n + 4 if isinstance(model, TwoAxes) else 4)


def export(model: nn.Module, example: Tensor, **options: Any) -> Any:
    shapes = {0: "b", 1: "n", 2: "m"} if isinstance(model, TwoAxes) else {0: "b", 1: "n"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return onnx_aot.export(model, (example,), dynamic_shapes=(shapes,), **options)


def check(model: nn.Module, program: Any) -> None:
    """Compares with eager PyTorch at several sizes."""
    for n in LENGTHS:
        for batch in (1, 3):
            x = make(model, batch, n)
            assert_close(program(x)[0], model(x))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("model", "length"),
    [
        *((Landmarks(), 16), (PerBatch(), 16), (TwoAxes(), 4), (Pieces(), 8), (Longer(), 8)),
        *((Halved(), 12), (Halved(), 6)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_captures_of_all_branches_are_one_model(model: nn.Module, length: int, batch: int) -> None:
    torch.manual_seed(0)
    program = export(model, make(model, batch, length), verify=True)
    check(model, program)
    assert "a capture for each branch" in program.report.to_markdown()


def test_weights_are_there_once() -> None:
    model = Landmarks()
    program = export(model, make(model, 2, 16))
    assert sum(value.const_value.size for value in program.model.graph.initializers.values()) < 64
    assert [node.op_type for node in program.model.graph].count("If") == 1


def test_writes_and_constants_of_each_branch() -> None:
    model = Writes()
    program = export(model, make(model, 2, 8), state="io")
    for n in (8, 9, 16, 3):
        x = make(model, 2, n)
        for actual, expected in zip(program(x)[:2], model(x.clone()), strict=True):
            assert_close(actual, expected)
        assert_close(program.state["calls"], model.calls)


def test_a_view_of_an_input_that_is_written_to_is_a_result() -> None:
    def write(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        view = y[:, :2]
        y[0] += 1
        return view, x + 1 if x.shape[0] % 2 == 0 else x.flip(0)

    given = torch.rand(6, 4), torch.rand(2, 3)
    with pytest.warns(OnnxExporterWarning, match="extra outputs of the ONNX model: y_out"):
        program = onnx_aot.export(write, given, dynamic_shapes=({0: "n"}, {}))
    for n in (6, 7):
        x, y = torch.rand(n, 4), torch.rand(2, 3)
        results = program(x, y)
        for actual, expected in zip(results, (*write(x, y), y), strict=True):
            assert_close(actual, expected)


def test_results_of_other_kinds_are_refused() -> None:
    def other_types(x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] % 8 == 0 else (x * 2).double()

    with pytest.raises(DynamicShapeError, match="right for few sizes"):
        export(other_types, torch.randn(2, 16, 4))  # type: ignore[arg-type]


def test_too_many_branches_are_refused() -> None:
    def by_rest(x: Tensor) -> Tensor:
        for rest in range(8):
            if x.shape[1] % 8 == rest:
                return x * (rest + 1)
        return x

    with pytest.raises(DynamicShapeError, match="right for few sizes"):
        export(by_rest, torch.randn(2, 16, 4))  # type: ignore[arg-type]


def test_conditions_with_factors_that_are_no_integers() -> None:
    """Resampling gives a few samples more or less than there were, depending on the length."""

    def restore(x: Tensor) -> Tensor:
        stretched = torch.arange(math.ceil((1 + x.shape[0] // 7) / 0.89)) * 1.0
        resampled = stretched.repeat(7)[: int(stretched.shape[0] * 7 * 0.82)]
        if resampled.shape[0] >= x.shape[0]:
            return x + resampled[: x.shape[0]]
        return x + F.pad(resampled, (0, x.shape[0] - resampled.shape[0]), value=-1.0)

    program = onnx_aot.export(restore, (torch.rand(39),), dynamic_shapes=({0: "frames"},))
    padded = 0
    for size in (20, 34, 39, 47, 48, 50, 63, 97, 104, 700):
        x = torch.rand(size)
        padded += bool((restore(x) < 0).any())
        assert_close(program(x)[0], restore(x))
    assert 0 < padded < 10


def test_values_for_which_both_branches_are_equal() -> None:
    """Nearly every row is zero for the example, and for longer ones; not for one column."""

    def fill(x: Tensor) -> Tensor:
        x = x.index_fill(0, (x.long() % x.shape[0]).flatten(), 0)
        return x * 2 if (x.shape[1] - 5) % 2 >= 1 else x.clone()

    shape = {1: torch.export.Dim("n", min=0)}
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    program = onnx_aot.export(fill, (x,), dynamic_shapes=(shape,))
    for size in (1, 2, 3, 4):
        x = torch.full((3, size), 4.0)
        assert_close(program(x)[0], fill(x))


def test_a_branch_that_is_nearly_right_is_not_taken_for_the_other() -> None:
    def forward(x: Tensor) -> Tensor:
        n = x.shape[1]
        if n % 2:  # noqa: SIM108
            grid = torch.arange(n) * (1 / (n - 0.01))
        else:
            grid = torch.arange(n) * (1 / n)
        return x + grid

    program = onnx_aot.export(forward, (torch.rand(1, 16),), dynamic_shapes=({1: "n"},))
    for length in (16, 17, 64, 65):
        x = torch.zeros(1, length)
        torch.testing.assert_close(program(x)[0], forward(x), rtol=1e-6, atol=1e-6)


# --- equations of several sizes ------------------------------------------------------------------

NAMES = {0: "batch", 2: "height", 3: "width"}
DIMS = {0: Dim("batch"), 2: Dim("height", min=2), 3: Dim("width", min=2)}
PAIRS = ((8, 8), (9, 9), (9, 8), (8, 9), (4, 16), (16, 4), (6, 10), (10, 6), (5, 5), (13, 22))


class Positions(nn.Module):
    """Adds learned positions, which it interpolates for all but 4 x 4 pieces, as DINO does."""

    def __init__(self, assures: bool = False) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 3, 4, 4))
        self.assures = assures

    def forward(self, x: Tensor) -> Tensor:
        if self.assures and (x.shape[2] % 2 or x.shape[3] % 2):
            raise ValueError("height and width have to be even")
        height, width = x.shape[2] // 2, x.shape[3] // 2
        x = F.avg_pool2d(x, 2)
        return x + self._resize(x.shape[2] * x.shape[3], height, width)

    def _resize(self, pieces: int, height: int, width: int) -> Tensor:
        if pieces == 16 and height == width:
            return self.positions
        factors = ((height + 0.1) / 4, (width + 0.1) / 4)
        return F.interpolate(self.positions, scale_factor=factors, mode="bicubic")


class Square(nn.Module):
    """Turns wide images, and what is square otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] == x.shape[3]:
            return x.flip(2).flatten(2)
        return x.transpose(2, 3).flatten(2)


def export_picture(model: nn.Module, height: int, width: int, shapes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        x = torch.randn(1, 3, height, width)
        return onnx_aot.export(model, (x,), dynamic_shapes=(shapes,))


def check_pictures(model: nn.Module, program: Any, step: int = 1) -> None:
    for height, width in PAIRS:
        x = torch.randn(2, 3, height * step, width * step)
        assert_close(program(x)[0], model(x))


@pytest.mark.parametrize("shapes", [NAMES, DIMS], ids=["names", "dims"])
@pytest.mark.parametrize("model", [Positions(), Square()], ids=["positions", "square"])
def test_an_example_of_equal_dimensions(model: nn.Module, shapes: Any) -> None:
    """Its capture has one size for both, and is joined with one of other sizes."""
    program = export_picture(model, 8, 8, shapes)
    names = [str(size) for size in program.model.graph.inputs[0].shape]
    assert names == ["batch", "3", "height", "width"]
    check_pictures(model, program)


@pytest.mark.parametrize("size", [(8, 8), (6, 10)])
def test_sizes_that_the_model_refuses_are_no_case(size: tuple[int, int]) -> None:
    model = Positions(assures=True)
    check_pictures(model, export_picture(model, *size, NAMES), step=2)


def test_another_example_learns_of_the_size_that_is_special() -> None:
    model = Positions()
    check_pictures(model, export_picture(model, 6, 10, NAMES))


@pytest.mark.parametrize(
    "shapes",
    [{2: Dim.AUTO, 3: Dim.AUTO}, {2: 2 * Dim("h", min=1), 3: 2 * Dim("w", min=1)}],
    ids=["auto", "derived"],
)
def test_a_special_size_that_is_not_joined_is_a_warning(shapes: Any) -> None:
    model, x = Positions(assures=True), torch.randn(1, 3, 6, 10)
    said = r"`if pieces == 16 and height == width:`.*for x\.shape\[\d\] and x\.shape\[\d\] of 8"
    with pytest.warns(OnnxExporterWarning, match=said):
        onnx_aot.export(model, (x,), dynamic_shapes=(shapes,))


def test_a_special_size_with_the_same_result_is_no_warning() -> None:
    class Scaled(Positions):
        """Interpolates to sizes, which changes nothing for 4 x 4."""

        def _resize(self, pieces: int, height: int, width: int) -> Tensor:
            if pieces == 16 and height == width:
                return self.positions
            return F.interpolate(self.positions, size=(height, width), mode="bicubic")

    model = Scaled()
    for size in ((6, 10), (8, 8)):
        check_pictures(model, export_picture(model, *size, NAMES))
    ops = {node.op_type for node in export_picture(model, 6, 10, NAMES).model.graph}
    assert "If" not in ops


@pytest.mark.parametrize(
    ("chooses", "special"),
    [
        (lambda h, w: h * w == 64, 8),
        (lambda h, w: 64 // (h * w) == 4, 4),  # falls
        (lambda h, w: h * w // (h - 4) == 9, None),  # there is no such number for 4
    ],
    ids=["grows", "falls", "divides by zero"],
)
def test_the_size_that_is_special_is_found(chooses: Any, special: int | None) -> None:
    def model(x: Tensor) -> Tensor:
        return x + 1 if chooses(x.shape[2], x.shape[3]) else x * 2

    x = torch.randn(1, 3, 10, 12)
    if special is None:
        program = onnx_aot.export(model, (x,), dynamic_shapes=(NAMES,))
        assert_close(program(x)[0], model(x))
        return
    said = rf"for x\.shape\[\d\] and x\.shape\[\d\] of {special}\b"
    with pytest.warns(OnnxExporterWarning, match=said):
        onnx_aot.export(model, (x,), dynamic_shapes=({2: Dim.AUTO, 3: Dim.AUTO},))


def test_products_of_which_no_size_is_special() -> None:
    """Seven is no square, so no size of both takes the other branch."""

    def model(x: Tensor) -> Tensor:
        return x + 1 if x.shape[2] * x.shape[3] == 7 else x * 2

    program = export_picture(model, 6, 10, NAMES)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 8, 8)
    assert_close(program(x)[0], model(x))


def test_products_for_which_many_sizes_take_the_branch_are_captured_once() -> None:
    def model(x: Tensor) -> Tensor:
        return x + 1 if x.shape[2] * x.shape[3] % 4 == 0 else x * 2

    with pytest.warns(OnnxExporterWarning, match=r"branches on sizes.*x\.shape\[3\] % 4 == 0"):
        program = onnx_aot.export(model, (torch.randn(1, 3, 6, 10),), dynamic_shapes=(NAMES,))
    x = torch.randn(2, 3, 8, 9)
    assert_close(program(x)[0], model(x))
    assert "the model was captured with others" not in str(program.report)


def test_captures_from_0_and_from_1_on_are_for_all_sizes() -> None:
    """The symbols of their sizes have equal names and are not equal."""

    class Bounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(2, 3, max_norm=1.0)

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            y = x * 2 if x.shape[0] >= 5 else x.clone()
            return y + self.table(ids % 2).sum(-1)

    model = Bounded().eval()
    shapes = {"x": {0: "n"}, "ids": {0: "n"}}
    given = torch.rand(3), torch.arange(3)
    program = onnx_aot.export(model, given, dynamic_shapes=shapes, state="drop")
    for n in (3, 4, 5, 9):
        given = torch.rand(n), torch.arange(n)
        assert_close(program(*given)[0], model(*given))


def test_captures_that_cannot_be_joined_keep_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that is exported then is the capture of one branch."""

    def turn(x: Tensor) -> Tensor:
        return x.flip(0) if x.shape[0] > 8 else x * 2

    monkeypatch.setattr(size_cases, "has_equal_results", lambda *args: False)
    with pytest.warns(OnnxExporterWarning, match="branches on sizes"):
        program = onnx_aot.export(turn, (torch.rand(4),), dynamic_shapes=({0: "n"},))
    with pytest.raises(InferenceError, match="captured for 0 to 8"):
        program(torch.rand(9))
