"""Calls that depend on more than arguments, weights and shared attributes are never copied."""

from __future__ import annotations

import random

import pytest
import torch

import onnx_aot
from tests.capture.reuse.models import Block, Stack


class _ByIndex(Block):
    def forward(self, x):
        return super().forward(x) + (5.0 if self.index == 4 else 0.0)


class _ByScale(Block):
    def __init__(self, index):
        super().__init__(index)
        self.scale = 3.0 if index == 5 else 0.5


class _ByFunction(Block):
    def __init__(self, index):
        super().__init__(index)
        self.function = (lambda x: x.exp()) if index == 3 else (lambda x: x.sin())

    def forward(self, x):
        return self.function(super().forward(x))


class _ByDict(Block):
    def forward(self, x):
        return super().forward(x) * (1.0 + vars(self)["index"] / 8)


_CALLS = {"count": 0}


class _ByGlobal(Block):
    def forward(self, x):
        _CALLS["count"] += 1
        return super().forward(x) * float(_CALLS["count"] > 3)


class _ByState(Block):
    total = 0

    def forward(self, x):
        type(self).total += 1
        return super().forward(x) * float(type(self).total)


class _ByRandom(Block):
    def forward(self, x):
        return super().forward(x) * random.random()


class _ByFlag(Block):
    def __init__(self, index):
        super().__init__(index)
        self.register_buffer("flag", torch.tensor(index == 5))

    def forward(self, x):
        return x.exp() if self.flag else super().forward(x)


class _ByBuffer(Block):
    def __init__(self, index):
        super().__init__(index)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen += x.sum(0)
        return super().forward(x) + self.seen


class _ByHook(Block):
    def __init__(self, index):
        super().__init__(index)
        if index == 4:
            self.register_forward_hook(lambda module, args, result: result * 3)


class _ByTraining(Block):
    def __init__(self, index):
        super().__init__(index)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        return super().forward(x) + float(self.training)


_MODELS = [_ByIndex, _ByScale, _ByFunction, _ByDict, _ByFlag, _ByHook, _ByTraining]


@pytest.mark.parametrize("kind", _MODELS)
def test_a_layer_that_differs_is_right(kind):
    model = Stack(kind, 7).eval()
    if kind is _ByTraining:
        model.layers[5].training = True
    x = torch.randn(2, 8)
    for reuse in ("auto", "check"):
        program = onnx_aot.export(model, (x,), reuse=reuse)
        torch.testing.assert_close(program(x)[0], model(x))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [_ByGlobal, _ByState, _ByRandom, _ByBuffer])
def test_a_call_with_effects_is_traced(kind):
    model, x = Stack(kind, 7).eval(), torch.randn(2, 8)
    outcomes = []
    for reuse in ("auto", "off"):
        random.seed(0)
        _CALLS["count"] = _ByState.total = 0
        program = onnx_aot.export(model, (x,), reuse=reuse)
        outcomes.append(program(x)[0])
        _CALLS["count"] = _ByState.total = 0
    torch.testing.assert_close(*outcomes, rtol=0, atol=0)


class _Configuration:
    scale = 1.0


class _Configured(Block):
    shared = _Configuration()

    def __init__(self, index):
        super().__init__(index)
        self.config = self.shared

    def forward(self, x):
        return super().forward(x) * self.config.scale


class _Configuring(Stack):
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            layer.config.scale = 2.0 if i == 5 else 1.0
            x = layer(x)
        return x


def test_a_shared_object_that_the_caller_changes_is_noticed():
    model, x = _Configuring(_Configured, 8).eval(), torch.randn(2, 8)
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))


class _Tied(Stack):
    """The last block has one weight for two layers, where the others have two."""

    def __init__(self):
        super().__init__(_Square)
        self.layers[-1].second.weight = self.layers[-1].first.weight


class _Square(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


def test_tied_weights_of_one_layer_are_noticed():
    model, x = _Tied().eval(), torch.randn(2, 8)
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))
    model = Stack(_Square).eval()
    model.layers[0].second.weight = model.layers[0].first.weight
    model.layers[1].second.weight = model.layers[1].first.weight
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))


class _Outside(Stack):
    def forward(self, x):
        for layer in self.layers:
            layer.given = x.sin()
            x = layer(x)
            layer.given = None
        return x


class _ReadsGiven(Block):
    given = None

    def forward(self, x):
        return super().forward(x) + self.given


def test_a_tensor_that_is_no_argument_is_noticed():
    model, x = _Outside(_ReadsGiven).eval(), torch.randn(2, 8)
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))
