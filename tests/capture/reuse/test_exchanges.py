"""Layers that give their values to a cache are copied, and the calls of the cache repeated."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from tests.capture.reuse.models import Block, Stack


class _Cache:
    """Keeps a tensor for each layer, and returns the sum of all."""

    def __init__(self):
        self.kept = {}
        self.limit = 4

    def update(self, value, index, more=None):
        self.kept[index] = value
        return value + 1, sum(self.kept.values()), None

    def count(self):
        return len(self.kept)


class _Layer(Block):
    def forward(self, x, cache=None):
        x = super().forward(x)
        y, total, _ = cache.update(torch.tanh(x), self.index, more={"x": x})
        return y + total.sin() * 0.5


class _ByIndex(_Layer):
    def forward(self, x, cache=None):
        index = self.index
        y, total, _ = cache.update(torch.tanh(x), index)
        return super(_Layer, self).forward(y) + (total * 0.1 if index == 4 else 0)


class _ByList(_Layer):
    scales = (1.0, 1.0, 1.0, 1.0, 3.0, 1.0)

    def forward(self, x, cache=None):
        return super().forward(x, cache=cache) * self.scales[self.index]


class _ByCount(_Layer):
    def forward(self, x, cache=None):
        more = 1.0 if cache.count() > 3 else 2.0
        return super().forward(x, cache=cache) * more


class _ByAttribute(_Layer):
    def forward(self, x, cache=None):
        cache.limit -= 1
        more = 1.0 if cache.limit > 0 else 2.0
        return super().forward(x, cache=cache) * more


class _Cached(Stack):
    def forward(self, x):
        cache = _Cache()
        for layer in self.layers:
            x = layer(x, cache=cache)
        return x, [value * 2 for value in cache.kept.values()]


def _compare(model, x, **options):
    program = onnx_aot.export(model, (x,), **options)
    for size in (x, torch.cat((x, x))) if options else (x,):
        expected = torch.utils._pytree.tree_leaves(model(size))
        torch.testing.assert_close(list(program(size)), expected)
    return [str(note) for note in program.report.notes if "layers that repeat" in str(note)]


def test_exchanges_with_a_cache_are_repeated():
    model = _Cached(_Layer).eval()
    (note,) = _compare(model, torch.randn(2, 8))
    assert "_Layer: 2 calls traced, 4 copied" in note
    (note,) = _compare(model, torch.randn(2, 8), dynamic_shapes=({0: "batch"},))
    assert "_Layer: 2 calls traced, 4 copied" in note
    onnx_aot.export(model, (torch.randn(2, 8),), reuse="check")


def test_nodes_of_an_exchange_have_their_own_lines_and_modules():
    model, x = _Cached(_Layer).eval(), torch.randn(2, 8)
    graphs = []
    for reuse in ("auto", "off"):
        program = onnx_aot.export(model, (x,), reuse=reuse)
        graphs.append([(n.op_type, n.name, dict(n.metadata_props)) for n in program.model.graph])
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize("kind", [_ByIndex, _ByList, _ByCount, _ByAttribute])
def test_layers_whose_code_depends_on_index_or_cache_are_right(kind):
    _compare(_Cached(kind).eval(), torch.randn(2, 8))


class _Returning(_Layer):
    def forward(self, x, cache=None):
        return super().forward(x, cache=cache), self.index


class _Indexed(Stack):
    """Uses the index that each layer returns."""

    def forward(self, x):
        cache = _Cache()
        for i, layer in enumerate(self.layers):
            x, index = layer(x, cache=cache)
            assert type(index) is int
            x = x * (10.0 if index != i else 1.0) + index
        return x


def test_an_index_that_a_layer_returns_is_its_own():
    (note,) = _compare(_Indexed(_Returning).eval(), torch.randn(2, 8))
    assert "_Returning: all calls traced, because its calls differ" in note


class _Refusing(_Layer):
    """Gives its index to a function that takes nothing but an int."""

    def forward(self, x, cache=None):
        if type(self.index) is not int:
            raise TypeError("expected an int")
        return super().forward(x, cache=cache)


class _Growing(_Cache):
    """Returns a tensor of another shape for one layer."""

    def update(self, value, index, more=None):
        first, total, rest = super().update(value, index, more)
        return first, (total.sum(0, keepdim=True) if index == 4 else total), rest


class _Grown(Stack):
    def forward(self, x):
        cache = _Growing()
        for layer in self.layers:
            try:
                x = layer(x, cache=cache)
            except Exception:
                x = x * 100
        return x


def test_a_copy_that_fails_is_traced_in_another_capture():
    assert not _compare(_Cached(_Refusing).eval(), torch.randn(2, 8))
    assert not _compare(_Grown(_Layer).eval(), torch.randn(2, 8))


def test_layers_of_language_models_are_copied_with_their_cache():
    load_torchvision()  # before transformers, which imports it
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 64, (2, 6))
    shapes = {"input_ids": {0: "batch", 1: "seq"}}
    for options in ({}, {"dynamic_shapes": shapes}):
        program = onnx_aot.export(model, (), kwargs={"input_ids": ids}, **options)
        (note,) = [str(n) for n in program.report.notes if "layers that repeat" in str(n)]
        assert "LlamaDecoderLayer: 2 calls traced, 3 copied" in note
        with torch.no_grad():
            expected = model(input_ids=ids)
        found = program(input_ids=ids)
        torch.testing.assert_close(found[0], expected.logits, rtol=1e-4, atol=1e-5)
        keys = expected.past_key_values.layers[4].keys
        assert any(keys.shape == out.shape and torch.allclose(keys, out, 1e-4) for out in found)
