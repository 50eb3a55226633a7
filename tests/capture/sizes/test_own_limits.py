"""Tests for own_limits.py: conditions on sizes whose other side raises an error."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.capture.sizes.guards import Decision
from onnx_aot.errors import DynamicShapeError

N = {0: "n"}


class InWindows(nn.Module):
    """Refuses sizes that its windows do not divide, several lines after the comparison."""

    def check(self, shape: torch.Size) -> None:
        remainder = (np.array(shape) % np.power(2, 3)) > 0
        if remainder.any():
            wrong = np.where(remainder)[0].tolist()
            raise ValueError(f"sizes {wrong} must be divisible by 8")

    def forward(self, x: Tensor) -> Tensor:
        self.check(x.shape[:1])
        if x.shape[0] % 2 == 1:  # never true
            x = nn.functional.pad(x, (0, 0, 0, 1))
        return x.reshape(-1, 8, 3).sum(1)


def two_windows(x: Tensor) -> Tensor:
    """Has a third side, which refuses."""
    if x.shape[0] % 8 == 0:
        return x.reshape(-1, 8, 3).sum(1)
    if x.shape[0] % 4 == 0:
        return x.reshape(-1, 4, 3).amax(1)
    return x.reshape(-1, 4, 3)


def fails_alone(x: Tensor, y: Tensor) -> Tensor:
    """Fails at every size that the other input has not, so failing tells nothing."""
    if x.shape[0] % 8 == 0:
        x = x * 2
    return x + y


def test_a_condition_of_the_model_is_no_branch() -> None:
    model = InWindows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(model, (torch.rand(16, 3),), dynamic_shapes=(N,))
    for size in (8, 24, 64):
        torch.testing.assert_close(program(x := torch.rand(size, 3))[0], model(x))


def test_another_side_that_computes_is_no_limit() -> None:
    with pytest.raises(DynamicShapeError, match="only the example's branch is captured"):
        onnx_aot.export(two_windows, (torch.rand(16, 3),), dynamic_shapes=(N,))


def test_inputs_of_equal_size_tell_nothing() -> None:
    inputs = torch.rand(16, 3), torch.rand(16, 3)
    shapes = ({0: "n"}, {0: "m"})
    with pytest.raises(DynamicShapeError, match="only the example's branch is captured"):
        onnx_aot.export(fails_alone, inputs, dynamic_shapes=shapes)


def test_a_limit_beside_a_batch_of_one() -> None:
    """The example fixes the batch, so the limit is seen in the second capture only."""

    def forward(x: Tensor) -> Tensor:
        if any(n % 8 > 0 for n in x.shape[1:2]):
            message = "sizes must be divisible by 8"
            x = 0 if message else x
            raise ValueError(message)
        return x.reshape(-1, 8, 3).sum(1)

    program = onnx_aot.export(
        forward, (torch.rand(1, 16, 3),), dynamic_shapes=({0: "batch", 1: "n"},)
    )
    for sizes in ((1, 8, 3), (3, 24, 3)):
        torch.testing.assert_close(program(x := torch.rand(sizes))[0], forward(x))


def test_few_sizes_and_conditions_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes on the same side are tried downwards first, and no more of them than are needed."""
    asked, sizes = [], []
    holds = Decision.holds

    def count(decision: Decision, values: Mapping[str, int]) -> bool | None:
        asked.append(values)
        return holds(decision, values)

    class Recorded(InWindows):
        def forward(self, x: Tensor) -> Tensor:
            for other in range(20):
                assert x.shape[0] != 1000 + other
            if not torch.compiler.is_exporting():
                sizes.append(int(x.shape[0]))
            return super().forward(x)

    monkeypatch.setattr(Decision, "holds", count)
    onnx_aot.export(Recorded(), (torch.rand(16, 3),), dynamic_shapes=(N,))
    assert sizes[-1] == 8
    assert max(sizes) < 24
    assert len(asked) < 3000
