"""Tensors whose values are known before a capture: ``capture/sizes/known_sources.py``."""

from __future__ import annotations

import torch
from torch import nn

from onnx_aot.capture.sizes.known_sources import LIMIT, find_sources
from onnx_aot.torch_compat import FakeTensorMode

NAMES = {
    "weight",
    "kernel",
    "plain",
    "listed[1]",
    "named['stride']",
    "learned",
    "inner.flag",
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.tensor(7), persistent=False)
        self.register_buffer("large", torch.ones(LIMIT + 1))
        self.weight = nn.Parameter(torch.ones(2))
        self.plain = torch.tensor([1, 2])
        self.listed = ["text", torch.tensor(3)]
        self.named = {"stride": torch.tensor(2)}
        self.learned = torch.ones(2, requires_grad=True)
        self.inner = nn.Module()
        self.inner.register_buffer("flag", torch.tensor(True))


def test_small_weights_and_attributes() -> None:
    model = Model()
    found = find_sources(model)
    assert found.keys() == NAMES
    assert found["inner.flag"].held() is model.inner.flag
    assert found["listed[1]"].held() is model.listed[1]
    assert found["plain"].value.tolist() == [1, 2]
    model.plain.add_(1)
    del model.plain, model.named["stride"]
    assert found["plain"].value.tolist() == [1, 2]
    assert found["plain"].held() is None
    assert found["named['stride']"].held() is None


def test_inputs_of_the_exported_model_are_left_out() -> None:
    found = find_sources(Model(), replaceable=lambda name: name.startswith("inner"))
    assert NAMES - found.keys() == {"inner.flag"}


def test_what_shares_memory_with_such_an_input_is_left_out() -> None:
    model = Model()
    model.inner.tied = model.weight
    found = find_sources(model, replaceable=lambda name: name == "inner.tied")
    assert NAMES - found.keys() == {"weight"}
    assert "inner.tied" not in found


def test_tensors_without_elements_are_left_out() -> None:
    model = Model()
    model.kernel = FakeTensorMode().from_tensor(model.kernel)
    model.plain = model.plain.to("meta")
    assert NAMES - find_sources(model).keys() == {"kernel", "plain"}
