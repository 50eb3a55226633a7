"""Writes to tensors are undone, and only tensors that are written to are copied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.torch_compat import writes_undone
from tests.torch_compat.without import absent, shows

WRITES: dict[str, Callable[[Tensor], object]] = {
    "in_place": lambda w: w.add_(1),
    "view": lambda w: w[0, 1:].fill_(7),
    "data": lambda w: w.data.mul_(2),
    "out": lambda w: torch.add(torch.ones(2, 3), 1, out=w),
    "list": lambda w: torch._foreach_add_([w], 1),  # type: ignore[func-returns-value]
    "twice": lambda w: w.zero_().add_(1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("without_modes", [False, True])
def test_elements_are_restored(write: Callable[[Tensor], object], without_modes: bool) -> None:
    written, other = torch.rand(2, 3), torch.rand(2, 3)
    before = written.clone(), other.clone()
    names = ["torch.utils._python_dispatch:TorchDispatchMode"] if without_modes else []
    with absent(*names), torch.no_grad(), writes_undone([written, other]):
        write(written)
        assert not torch.equal(written, before[0])
    assert torch.equal(written, before[0])
    assert torch.equal(other, before[1])


def test_elements_are_restored_after_an_error() -> None:
    weight = torch.zeros(2)
    with contextlib.suppress(ValueError), writes_undone([weight]):
        weight.add_(1)
        raise ValueError("refused")
    assert weight.tolist() == [0, 0]


class Copies(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the elements that are copied."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func == torch.ops.aten.clone.default:
            self.elements = max(self.elements, args[0].numel())
        return func(*args, **(kwargs or {}))


class Padded(nn.Module):
    """A product whose capture is compared with the model at size 1 of ``[batch, 64]``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 256)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            x = x * 1.0
        return self.layer(x)


def test_an_export_copies_no_weights() -> None:
    model = Padded()
    with Copies() as copies:
        program = onnx_aot.export(model, (torch.rand(3, 64),), dynamic_shapes=({0: "batch"},))
    assert 0 < copies.elements < model.layer.weight.numel()
    assert program.verify().ok


@shows("torch.utils._python_dispatch:TorchDispatchMode")
def test_without_dispatch_modes_weights_are_copied() -> None:
    model = Padded()
    with absent("torch.utils._python_dispatch:TorchDispatchMode"), Copies() as copies:
        onnx_aot.export(model, (torch.rand(3, 64),), dynamic_shapes=({0: "batch"},))
    assert copies.elements == model.layer.weight.numel()
