"""Key-value caches of transformers as inputs and outputs, in loops of several steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from onnx_aot.errors import InferenceError
from tests.tolerances import assert_close

load_torchvision()  # before transformers, which imports it
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

VOCABULARY, BATCH = 32, 2
SMALL = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "initializer_range": 0.5}
DECODER = SMALL | {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def _tokens(length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length))


def _llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)).eval()


def _mistral() -> Any:
    config = transformers.MistralConfig(**DECODER, sliding_window=8)
    return transformers.MistralForCausalLM(config).eval()


def _filled(model: Any, cache: Any, length: int) -> Any:
    with torch.no_grad():
        model(_tokens(length), past_key_values=cache)
    return cache


def _layers(axes: Any, count: int = 2, **others: Any) -> dict[str, Any]:
    return {"layers": [{"keys": axes, "values": axes, **others}] * count}


def _check_steps(program: Any, model: Any, cache: Any, inputs: Any, steps: int = 4) -> Any:
    """Each side continues with the cache that it returned; returns this package's one."""
    eager, ours = copy.deepcopy(cache), copy.deepcopy(cache)
    for _ in range(steps):
        given = inputs()
        with torch.no_grad():
            expected = model(**given, past_key_values=eager)
        actual = program(**given, past_key_values=ours, structured=True)
        assert type(actual) is type(expected)
        assert expected.logits.std() > 0.1
        assert_close(actual.logits, expected.logits)
        eager, ours = expected.past_key_values, actual.past_key_values
        assert type(ours) is type(cache)
        assert int(ours.get_seq_length()) == int(eager.get_seq_length())
        for left, right in zip(_state(ours), _state(eager), strict=True):
            assert_close(left, right)
    return ours


def _state(cache: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(cache) if isinstance(leaf, torch.Tensor)]


def test_prefill_and_decode_with_a_dynamic_cache() -> None:
    model = _llama()
    empty = transformers.DynamicCache(config=model.config)
    prefill = onnx_aot.export(
        model,
        kwargs={"input_ids": _tokens(5), "past_key_values": copy.deepcopy(empty)},
        dynamic_shapes={"input_ids": {1: "length"}},
        verify=True,
    )
    cache = _check_steps(prefill, model, empty, lambda: {"input_ids": _tokens(7)}, steps=1)
    decode = onnx_aot.export(
        model,
        kwargs={"input_ids": _tokens(1), "past_key_values": copy.deepcopy(cache)},
        dynamic_shapes={
            "input_ids": {0: "batch"},
            "past_key_values": _layers({0: "batch", 2: "past"}),
        },
        verify=True,
    )
    names = [str(value.name) for value in decode.model.graph.inputs]
    assert names == [
        "input_ids",
        *(f"past_key_values_layers_{i}_{part}" for i in (0, 1) for part in ("keys", "values")),
    ]
    assert [str(dim) for dim in decode.model.graph.outputs[1].shape or ()][2] == "past + 1"
    _check_steps(decode, model, cache, lambda: {"input_ids": _tokens(1)})
    with pytest.raises(InferenceError, match="a DynamicCache with nothing was given"):
        decode(input_ids=_tokens(1), past_key_values=transformers.DynamicCache())


def test_a_cache_that_the_model_makes() -> None:
    model = _llama()
    ids = _tokens(5)
    program = onnx_aot.export(model, (ids,), kwargs={"use_cache": True})
    returned = program(ids, use_cache=True, structured=True)
    assert isinstance(returned.past_key_values, transformers.DynamicCache)
    with torch.no_grad():
        expected = model(ids).past_key_values
    for left, right in zip(_state(returned.past_key_values), _state(expected), strict=True):
        assert_close(left, right)


@pytest.mark.parametrize("filled", [False, True])
def test_static_cache(filled: bool) -> None:
    """The cache is written in place; an unused one gets its tensors from the model."""
    model = _llama()
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    length = 1 if filled else 5
    if filled:
        _filled(model, cache, 5)
    given = {"input_ids": _tokens(length), "past_key_values": copy.deepcopy(cache)}
    program = onnx_aot.export(model, kwargs=given, verify=True)
    steps = 4 if filled else 1
    _check_steps(program, model, cache, lambda: {"input_ids": _tokens(length)}, steps)


def test_sliding_window_cache_whose_length_is_dynamic() -> None:
    model = _mistral()
    cache = _filled(model, transformers.DynamicCache(config=model.config), 12)
    given = {"input_ids": _tokens(1), "past_key_values": copy.deepcopy(cache)}
    fixed = onnx_aot.export(model, kwargs=given)
    after = _check_steps(fixed, model, cache, lambda: {"input_ids": _tokens(1)}, steps=1)
    with pytest.raises(InferenceError, match=r"layers\[0\].cumulative_length was 12 when"):
        fixed(input_ids=_tokens(1), past_key_values=after)
    program = onnx_aot.export(
        model,
        kwargs=given,
        dynamic_shapes={"past_key_values": _layers(None, cumulative_length=Dim.DYNAMIC)},
    )
    _check_steps(program, model, cache, lambda: {"input_ids": _tokens(1)})


def _t5() -> Any:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_decoder_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        initializer_factor=1.0,
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def _bart() -> Any:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        init_std=0.5,
    )
    return transformers.BartForConditionalGeneration(config).eval()


@pytest.mark.parametrize("make", [_t5, _bart])
def test_encoder_decoder_cache(make: Any) -> None:
    model = make()
    with torch.no_grad():
        first = model(input_ids=_tokens(6), decoder_input_ids=_tokens(1))
    cache = first.past_key_values
    assert isinstance(cache, transformers.EncoderDecoderCache)
    encoded = transformers.modeling_outputs.BaseModelOutput(first.encoder_last_hidden_state)

    def inputs() -> dict[str, Any]:
        return {"encoder_outputs": encoded, "decoder_input_ids": _tokens(1)}

    program = onnx_aot.export(
        model,
        kwargs=inputs() | {"past_key_values": copy.deepcopy(cache)},
        dynamic_shapes={
            "past_key_values": {"self_attention_cache": _layers({2: "past"})},
        },
    )
    ours = _check_steps(program, model, cache, inputs)
    assert ours.is_updated == {0: True, 1: True}
    cache.is_updated[0] = False
    with pytest.raises(InferenceError, match=r"past_key_values.is_updated was .* when the model"):
        program(**inputs(), past_key_values=cache)
