"""Rows of transformers' language models: decoders, encoders, encoders with decoders."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import HEAD, HEADS, LAYERS, WIDTH
from benchmarks.zoo_models.transformers_rows import (
    TEXT,
    Inputs,
    make_tokens,
    model_builder,
    padding_mask,
    text_case,
)

__all__ = ["CASES", "LATENT", "OPTIONS"]

_GROUP = "transformers: text"
_CACHE = "transformers: decoder with a cache"

_DECODERS = """
llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo gpt_neox gptj codegen opt
bloom falcon mpt starcoder2 stablelm olmo olmo2 olmo3 granite cohere cohere2 smollm3 glm glm4
ernie4_5 exaone4 helium nemotron persimmon gpt_bigcode biogpt openai-gpt ctrl xglm gpt_neox_japanese
arcee apertus bitnet diffllama doge seed_oss vaultgemma ministral hunyuan_v1_dense cwm nanochat
jais2 modernbert-decoder lfm2 git granite_swa flint llama4_text minicpm3 youtu
""".split()

_EXPERTS = """
mixtral qwen2_moe qwen3_moe olmoe granitemoe granitemoeshared jetmoe gpt_oss phimoe glm4_moe
glm4_moe_lite ernie4_5_moe flex_olmo hunyuan_v1_moe afmoe aria_text minimax minimax_m2 exaone_moe
cohere2_moe solar_open deepseek_v2 deepseek_v3 longcat_flash lfm2_moe
""".split()

_RECURRENT = """
mamba mamba2 falcon_mamba rwkv recurrent_gemma jamba bamba falcon_h1 nemotron_h zamba zamba2 xlstm
granitemoehybrid qwen3_next qwen3_5_text kimi_linear olmo_hybrid bailing_hybrid
""".split()

_CACHED = """
llama mistral qwen2 qwen3 gemma phi phi3 gpt_neox starcoder2 stablelm olmo2 granite cohere smollm3
mixtral qwen3_moe
""".split()

_WINDOWS = ("mistral", "mixtral", "starcoder2", "phi3")

_ENCODERS = """
bert roberta distilbert albert electra deberta deberta-v2 mpnet convbert camembert xlm-roberta
xlm-roberta-xl roberta-prelayernorm ernie esm eurobert flaubert xlm fnet ibert layoutlm longformer
luke markuplm megatron-bert mobilebert modernbert mra nomic_bert nystromformer rembert roc_bert
roformer splinter squeezebert tapas xlnet xmod yoso big_bird canine data2vec-text dpr gte
jina_embeddings_v3 lilt
""".split()

_BOTH = """
bart mbart t5 mt5 umt5 marian pegasus pegasus_x blenderbot blenderbot-small m2m_100 led longt5 mvp
plbart prophetnet bigbird_pegasus fsmt switch_transformers nllb-moe t5gemma
""".split()

_WITHOUT_A_MASK = ("rwkv", "fnet")

LATENT = {"num_key_value_heads": HEADS}  # latent attention has a key head per query head
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}
_SHARED = {  # two layers that share one attention
    "num_hidden_layers": 4,
    "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
}

# Options that model types need besides small sizes.
OPTIONS: dict[str, dict[str, Any]] = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe_lite": LATENT,
    "minicpm3": LATENT,
    "youtu": LATENT,
    "longcat_flash": LATENT,
    "gptj": {"rotary_dim": HEAD},
    "codegen": {"rotary_dim": HEAD},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": LAYERS},
    "bamba": _MAMBA,
    "granitemoehybrid": _MAMBA,
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "zamba": {**_SHARED, "attention_hidden_size": 2 * WIDTH, "attention_head_dim": 2 * HEAD},
    "zamba2": _SHARED,
    "xmod": {"default_language": "en_XX"},
    "luke": {"entity_vocab_size": 16, "entity_emb_size": 16},
    "funnel": {"block_sizes": [2, 2], "d_inner": 64},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "squeezebert": {"embedding_size": 32, "q_groups": 1, "k_groups": 1, "v_groups": 1},
}


class CachedDecoder(torch.nn.Module):
    """One step of a decoder whose cache is a list of tensors, which every exporter accepts."""

    def __init__(self, decoder: torch.nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        cache: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        from transformers import DynamicCache

        past = DynamicCache(cache, config=self.decoder.config)
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        found = self.decoder(**given, past_key_values=past, use_cache=True)
        return found.logits, [(layer.keys, layer.values) for layer in past.layers]


def _cached_case(model_type: str) -> ZooCase:
    """Row for new tokens after others whose keys and values are in the cache."""
    window = {"sliding_window": 64} if model_type in _WINDOWS else {}
    heads = HEADS if model_type in ("phi", "gpt_neox", "stablelm") else 2

    def inputs(batch: int, seq: int, past: int) -> Inputs:
        def state() -> torch.Tensor:
            return torch.randn(batch, heads, past, HEAD)

        mask = padding_mask(batch, past + seq).flip(1)
        return (), {
            "input_ids": make_tokens(batch, seq),
            "attention_mask": mask,
            "cache": [(state(), state()) for _ in range(LAYERS)],
        }

    grown = {0: "batch", 2: "past"}
    return ZooCase(
        name=f"{model_type} with cache",
        build=lambda: CachedDecoder(
            model_builder(model_type, "AutoModelForCausalLM", num_key_value_heads=heads, **window)()
        ),
        inputs=inputs,
        dynamic_shapes={
            "input_ids": {0: "batch", 1: "seq"},
            "attention_mask": {0: "batch", 1: "past + seq"},
            "cache": [(grown, grown)] * LAYERS,
        },
        sizes=({"batch": 2, "seq": 3, "past": 4}, {"batch": 3, "seq": 2, "past": 9}),
        group=_CACHE,
    )


def _with_decoder(model_type: str) -> ZooCase:
    """Row for tokens of an encoder and of its decoder."""

    def inputs(batch: int, seq: int, target: int) -> Inputs:
        return (), {
            "input_ids": make_tokens(batch, seq),
            "attention_mask": padding_mask(batch, seq),
            "decoder_input_ids": make_tokens(batch, target),
        }

    return ZooCase(
        name=model_type,
        build=model_builder(model_type, "AutoModelForSeq2SeqLM"),
        inputs=inputs,
        dynamic_shapes={**TEXT, "decoder_input_ids": {0: "batch", 1: "target"}},
        sizes=({"batch": 2, "seq": 10, "target": 6}, {"batch": 3, "seq": 17, "target": 4}),
        group=_GROUP,
    )


def _text_case(model_type: str, auto: str) -> ZooCase:
    mask = model_type not in _WITHOUT_A_MASK
    return text_case(model_type, _GROUP, auto, mask, **OPTIONS.get(model_type, {}))


CASES = (
    *(_text_case(name, "AutoModelForCausalLM") for name in (*_DECODERS, *_EXPERTS, *_RECURRENT)),
    *(_text_case(name, "AutoModel") for name in _ENCODERS),
    _text_case("funnel", "AutoModelForMaskedLM"),
    *map(_with_decoder, _BOTH),
    *map(_cached_case, _CACHED),
)
