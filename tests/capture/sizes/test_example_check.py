"""Runs of the model that a capture is compared with."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning
from tests.tolerances import assert_close


class Copies(TorchDispatchMode):
    """Notes the size of the largest tensor that is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func == torch.ops.aten.clone.default:
            self.elements = max(self.elements, args[0].numel())
        return func(*args, **(kwargs or {}))


class Branching(nn.Module):
    """A product of ``[batch, 64]`` with a branch for a batch of 1."""

    def __init__(self, writes: str = "") -> None:
        super().__init__()
        self.layer = nn.Linear(64, 256)
        self.writes = writes

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            x = x * 1.0
        if self.writes == "weight":
            with torch.no_grad():
                self.layer.weight.add_(1)
        if self.writes == "view":
            with torch.no_grad():
                self.layer.weight[2:].view(-1)[3:].mul_(2)
        y = self.layer(x)
        return y.relu_() if self.writes == "result" else y


@pytest.mark.parametrize("writes", ["", "result", "weight", "view"])
def test_weights_are_copied_only_if_the_model_writes_to_them(writes: str) -> None:
    model, dims = Branching(writes), ({0: "batch"},)
    before = model.layer.weight.detach().clone()
    with Copies() as copies:
        onnx_aot.export(model, (torch.rand(3, 64),), dynamic_shapes=dims, state="drop")
    is_copied = copies.elements >= before.numel()
    assert is_copied == (writes in ("weight", "view"))
    assert torch.equal(model.layer.weight, before)


def test_a_branch_that_writes_to_weights_is_warned_of() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            if x.shape[0] == 1:
                with torch.no_grad():
                    self.layer.bias.add_(1)
            return y

    with pytest.warns(OnnxExporterWarning, match=r"if x.shape\[0\] == 1"):
        onnx_aot.export(Counting(), (torch.rand(3, 4),), dynamic_shapes=({0: "batch"},))


def test_a_branch_without_which_the_capture_fails_is_warned_of() -> None:
    """The capture has ``ids.max()``, which PyTorch refuses to compute of no elements."""

    def continue_numbers(ids: Tensor, new: Tensor) -> Tensor:
        first = ids.max() + 1 if ids.numel() > 0 else torch.tensor(0)
        return first + torch.cumsum(new, 0)

    given = torch.arange(4), torch.ones(5, dtype=torch.int64)
    with pytest.warns(OnnxExporterWarning, match=r"if ids.numel\(\) > 0 .*, for size 0"):
        onnx_aot.export(continue_numbers, given, dynamic_shapes=({0: "t"}, {0: "d"}))


def shortcut(x: Tensor) -> Tensor:
    """Needs no sum of one row."""
    if x.shape[0] == 1:
        return x.squeeze(0)
    return x.sum(0)


def shortcut_by_name(x: Tensor) -> Tensor:
    rows, columns = x.shape
    for size in (rows, columns):
        if size == 1:
            x = x * 1.0
    return x * 2


@pytest.mark.parametrize("model", [shortcut, shortcut_by_name])
@pytest.mark.parametrize("example", [3, 1])
def test_a_shortcut_for_one_element_needs_no_other_dim(
    model: Callable[[Tensor], Tensor], example: int
) -> None:
    shapes = ({0: Dim("rows", min=1), 1: Dim("columns", min=1)},)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(model, (torch.rand(example, 4),), dynamic_shapes=shapes)
    for size in ((1, 4), (3, 1), (5, 6), (1, 1)):
        x = torch.rand(size)
        assert_close(program(x)[0], model(x))


def test_a_branch_for_one_element_is_refused_for_a_dim_that_promises_it() -> None:
    def model(x: Tensor) -> Tensor:
        return x * 3 if x.shape[0] == 1 else x * 2

    with pytest.raises(DynamicShapeError, match=r"Dim\('rows', min=2\)"):
        onnx_aot.export(model, (torch.rand(3, 4),), dynamic_shapes=({0: Dim("rows", min=1)},))
