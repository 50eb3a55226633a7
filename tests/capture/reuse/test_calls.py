"""Calls that depend on more than arguments, weights and shared attributes are never copied."""

from __future__ import annotations

import contextlib
import random
import types

import numpy as np
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


class _ByFlagOfCaller(Stack):
    """Sets an attribute of a block for its call only."""

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            layer.flag = i == 5
            x = layer(x)
            layer.flag = False
        return x


class _ReadsFlag(Block):
    flag = False

    def forward(self, x):
        return super().forward(x) * (3.0 if self.flag else 1.0)


class _ByClass(Block):
    factor = 1.0

    def forward(self, x):
        return super().forward(x) * self.factor


class _ByClassOfCaller(Stack):
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            type(layer).factor = 3.0 if i == 5 else 1.0
            x = layer(x)
        return x


class _Training(Stack):
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            layer.training = i == 5
            x = layer(x)
            layer.training = False
        return x


def test_an_attribute_that_the_caller_sets_is_noticed():
    for model in (
        _ByFlagOfCaller(_ReadsFlag, 8),
        _ByClassOfCaller(_ByClass, 8),
        _Training(_ByTraining, 8),
    ):
        x = torch.randn(2, 8)
        program = onnx_aot.export(model.eval(), (x,))
        torch.testing.assert_close(program(x)[0], model(x))


def _count_in_a_helper():
    _CALLS["count"] += 1
    return 3.0 if _CALLS["count"] == 5 else 1.0


class _ByHelper(Block):
    def forward(self, x):
        return super().forward(x) * _count_in_a_helper()


def _call_three_deep():
    return _call_two_deep()


def _call_two_deep():
    return _count_in_a_helper()


class _ByDeepHelper(Block):
    def forward(self, x):
        return super().forward(x) * _call_three_deep()


class _ByDefault(Block):
    def forward(self, x, calls=[]):  # noqa: B006
        calls.append(x.shape)
        return super().forward(x) * (3.0 if len(calls) % 8 == 5 else 1.0)


_SETTINGS = types.ModuleType("settings_of_a_user")
_SETTINGS.count = 0


class _ByModule(Block):
    def forward(self, x):
        _SETTINGS.count += 1
        return super().forward(x) * (3.0 if _SETTINGS.count % 8 == 5 else 1.0)


def _with_cell():
    calls = 0

    class ByCell(Block):
        def forward(self, x):
            nonlocal calls
            calls += 1
            return super().forward(x) * (3.0 if calls == 5 else 1.0)

        @staticmethod
        def reset():
            nonlocal calls
            calls = 0

    return ByCell


class _ByNumpy(Block):
    def forward(self, x):
        return super().forward(x) * (3.0 if np.random.rand() < 0.43 else 1.0)  # in the fifth


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "kind",
    [_ByHelper, _ByDeepHelper, _ByDefault, _ByModule, _with_cell(), _ByNumpy],
    ids=lambda kind: kind.__name__,
)
def test_state_outside_of_modules_is_noticed(kind):
    model, x = Stack(kind, 8).eval(), torch.randn(2, 8)
    outcomes = []
    for reuse in ("auto", "off"):
        np.random.seed(0)
        _CALLS["count"] = 0
        getattr(kind, "reset", int)()
        outcomes.append(onnx_aot.export(model, (x,), reuse=reuse)(x)[0])
    torch.testing.assert_close(*outcomes, rtol=0, atol=0)


def test_global_hooks_and_modes_are_noticed():
    seen = []

    def scale(module, args, result):
        if isinstance(module, Block):
            seen.append(module)
            return result * (3.0 if len(seen) == 5 else 1.0)
        return None

    model, x = Stack(depth=8).eval(), torch.randn(2, 8)
    handle = torch.nn.modules.module.register_module_forward_hook(scale)
    try:
        program = onnx_aot.export(model, (x,))
        seen.clear()
        expected = model(x)
    finally:
        handle.remove()
    torch.testing.assert_close(program(x)[0], expected)


class _Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.relu else result


class _InMode(Stack):
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            with _Doubling() if i == 5 else contextlib.nullcontext():
                x = layer(x)
        return x


def test_a_mode_around_one_layer_is_noticed():
    model, x = _InMode(depth=8).eval(), torch.randn(2, 8)
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))


class _Steps(torch.nn.Module):
    """Applies a block to each step of a sequence, which lies elsewhere in memory each time."""

    def __init__(self):
        super().__init__()
        self.block = Block(0)

    def forward(self, x):
        return sum(self.block(step) for step in x)


def test_calls_whose_arguments_always_differ_are_given_up():
    model, x = _Steps().eval(), torch.randn(30, 2, 8)
    program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))
    assert any("its arguments differ from call to call" in str(n) for n in program.report.notes)


def test_sparse_tensors_within_a_call_are_traced(caplog):
    class Product(torch.nn.Module):
        def forward(self, places, values, x):
            return torch.sparse_coo_tensor(places, values, (5, 5)) @ x * 2 + 1

    class Products(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.products = torch.nn.ModuleList(Product() for _ in range(4))

        def forward(self, places, values, x):
            return sum(product(places, values, x) for product in self.products)

    inputs = (torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.randn(3), torch.randn(5, 5))
    program = onnx_aot.export(Products(), inputs)
    torch.testing.assert_close(program(*inputs)[0], Products()(*inputs))
    assert not [record for record in caplog.records if "not recorded" in record.message]
