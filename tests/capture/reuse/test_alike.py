"""Attributes of layers that repeat are compared, whatever their classes do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.capture.reuse.alike import are_equal
from tests.capture.reuse.models import Block, Stack


class _Strict(type):
    """A metaclass that answers every request for an attribute it lacks with an error of its own."""

    def __getattr__(cls, name: str) -> Any:
        raise LookupError(name)


class _Raising(metaclass=_Strict):
    """A class for which ``hasattr`` raises, as those of dependency injection do."""


class _Configured(Block):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.settings = _Raising()


def _of_empty_cell() -> Any:
    number = 1

    def reads() -> int:
        return number

    (held,) = reads.__closure__ or ()
    del held.cell_contents
    return reads


@pytest.mark.parametrize("make", [_Raising, _of_empty_cell], ids=["metaclass", "empty cell"])
def test_what_cannot_be_compared_is_not_equal(make: Any) -> None:
    assert not are_equal(make(), make())
    assert not are_equal([make()], [make()])
    same = make()
    assert are_equal([same], [same])


def test_layers_with_attributes_that_cannot_be_compared() -> None:
    model, x = Stack(_Configured).eval(), torch.randn(2, 8)
    torch.testing.assert_close(onnx_aot.export(model, (x,))(x)[0], model(x))
