"""Small language models by family, whose weights are spread, so that tokens differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["FAMILIES", "PROMPT", "SPECIAL", "STEPS", "make_model", "save_source"]

PROMPT = [1, 5, 9, 40, 22, 33, 17, 8, 50, 12]
STEPS = 12
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    **SPECIAL,
}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", "LlamaForCausalLM", SIZES),
    "Qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**SIZES, "head_dim": 8}),
    "Gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**SIZES, "head_dim": 8, "sliding_window": 8, "attn_logit_softcapping": 2.0},
    ),
    "Gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**SIZES, "head_dim": 8, "sliding_window": 8},
    ),
    "Phi3": ("Phi3Config", "Phi3ForCausalLM", SIZES),
    "Mistral": ("MistralConfig", "MistralForCausalLM", {**SIZES, "sliding_window": 6}),
    "gpt-oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "sliding_window": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "max_position_embeddings": 4096,  # its angles are for this many positions
        },
    ),
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {**GPT2, **SPECIAL, "initializer_range": 0.5}),
}
"""Configuration, class and sizes by family."""


def make_model(config: str, model: str, sizes: Mapping[str, Any]) -> Any:
    """A model with random weights, in evaluation mode."""
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()


def save_source(model: Any, folder: str) -> Path:
    """Writes a model with a tokenizer, as a checkpoint of transformers, and returns its folder."""
    source = Path(folder, "source")
    model.save_pretrained(source)
    _make_tokenizer().save_pretrained(source)
    return source


def _make_tokenizer() -> Any:
    """A tokenizer with one token per character."""
    import tokenizers
    import transformers

    words = ["<pad>", "<bos>", "<eos>", *map(chr, range(33, 94))]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
