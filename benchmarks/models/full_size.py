"""Rows of transformers architectures at the size of published models, with random weights."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.models.case import ModelCase
from benchmarks.models.transformer import build_transformer

__all__ = ["FULL_SIZE"]

VOCABULARY = 30000


def _text_inputs(batch: int, seq: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    tokens = torch.randint(3, VOCABULARY, (batch, seq))
    return (), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _text_case(name: str, model: str, config: str, **options: Any) -> ModelCase:
    dims = {0: "batch", 1: "seq"}
    return ModelCase(
        name=name,
        build=build_transformer(model, config, **options),
        inputs=_text_inputs,
        dynamic_shapes={"input_ids": dims, "attention_mask": dims},
        sizes=({"batch": 2, "seq": 128}, {"batch": 1, "seq": 77}),
    )


def _speech_inputs(batch: int, target: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    tokens = torch.randint(3, VOCABULARY, (batch, target))
    return (), {"input_features": torch.randn(batch, 80, 3000), "decoder_input_ids": tokens}


FULL_SIZE = {
    case.name: case
    for case in (
        _text_case("bert_base", "BertModel", "BertConfig"),
        _text_case("gpt2_small", "GPT2LMHeadModel", "GPT2Config", use_cache=False),
        _text_case(
            "llama_8_layers_of_2048",
            "LlamaForCausalLM",
            "LlamaConfig",
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=8,
            num_attention_heads=32,
            num_key_value_heads=8,
            use_cache=False,
        ),
        ModelCase(
            name="whisper_tiny",
            build=build_transformer(
                "WhisperForConditionalGeneration", "WhisperConfig", use_cache=False
            ),
            inputs=_speech_inputs,
            dynamic_shapes={
                "input_features": {0: "batch"},
                "decoder_input_ids": {0: "batch", 1: "target"},
            },
            sizes=({"batch": 2, "target": 16}, {"batch": 1, "target": 5}),
        ),
    )
}
"""Cases by name; the configurations are those of the published models of that size."""
