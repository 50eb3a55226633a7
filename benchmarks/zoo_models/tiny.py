"""Makes small configurations of transformers architectures from the fields of their classes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = [
    "CHANNELS",
    "HEAD",
    "HEADS",
    "LAYERS",
    "MELS",
    "SIDE",
    "VOCABULARY",
    "WIDTH",
    "tiny_config",
]

VOCABULARY = 64
SIDE, PATCH, CHANNELS = 32, 8, 3
MELS = 16

WIDTH, INNER, HEADS, HEAD, LAYERS = 32, 64, 4, 8, 2

# Values of fields, by name. Widths are the product of the number of heads and the size of a head.
SMALL: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "d_embed", "embed_dim", "emb_dim"), WIDTH
    ),
    **dict.fromkeys(("decoder_hidden_size", "encoder_hidden_size", "projection_dim"), WIDTH),
    **dict.fromkeys(("embedding_size", "word_embed_proj_dim", "d_embedding"), WIDTH),
    **dict.fromkeys(("attention_hidden_size", "lru_width", "linear_attn_config_dim"), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size"), INNER),
    **dict.fromkeys(("hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "dff"), INNER),
    **dict.fromkeys(("decoder_intermediate_size", "encoder_intermediate_size"), INNER),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size"), INNER),
    **dict.fromkeys(("intermediate_size_mlp", "dim_feedforward", "mlp_dim"), INNER),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), LAYERS),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("num_encoder_layers", "decoder_num_layers", "encoder_num_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "n_kv_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("decoder_num_attention_heads", "encoder_num_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "decoder_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "attention_head_size"), HEAD),
    **dict.fromkeys(("v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim"), HEAD),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("expert_ffn_hidden_size", "moe_intermediate_size"), WIDTH),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("vocab_size", "text_vocab_size", "n_vocab", "emb_vocab_size"), VOCABULARY),
    **dict.fromkeys(("sliding_window", "attention_window_size", "local_attention"), 8),
    **dict.fromkeys(("state_size", "mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("num_mel_bins", "n_mels", "feature_size", "input_feat_per_channel"), MELS),
    "image_size": SIDE,
    "patch_size": PATCH,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "cls_token_id": 1,
    "decoder_start_token_id": 1,
}

_BLOCKS = ("depths", "depth", "layers", "num_blocks")

# Fields that hold one number per stage.
PER_STAGE = {
    **dict.fromkeys(_BLOCKS, lambda index: 1),
    "hidden_sizes": lambda index: 8 << index,
    "embed_dims": lambda index: 8 << index,
    "num_attention_heads": lambda index: 1 << index,
    "num_heads": lambda index: 1 << index,
}


@contextlib.contextmanager
def deeper(layers: int, per_stage: int) -> Iterator[None]:
    """Makes configurations with more layers than ``LAYERS``, and more blocks per stage than one."""
    small, stages = dict(SMALL), dict(PER_STAGE)
    SMALL.update({name: layers for name in small if "layer" in name})
    PER_STAGE.update({name: lambda index: per_stage for name in _BLOCKS})
    try:
        yield
    finally:
        SMALL.update(small)
        PER_STAGE.update(stages)


def tiny_config(config_class: Any, options: Mapping[str, Any] | None = None) -> Any:
    """Makes a configuration of the class in which every field of a known name is small.

    Args:
        config_class: A configuration class of transformers.
        options: Fields that need other values; those of a part of the model as a dict.
    """
    return config_class(**_small_fields(config_class, options or {}))


def _small_fields(config_class: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        default = field.default
        if isinstance(default, (list, tuple)):
            rule = PER_STAGE.get(field.name)
            if rule is not None:
                found[field.name] = type(default)(rule(i) for i in range(len(default)))
        elif field.name in SMALL:
            found[field.name] = SMALL[field.name]
    for name, part in config_class.sub_configs.items():
        given = options.get(name, {})
        if dataclasses.is_dataclass(part) and isinstance(given, Mapping):
            found[name] = _small_fields(part, given)
    parts = {name for name in found if isinstance(found[name], dict)}
    return found | {name: value for name, value in options.items() if name not in parts}
