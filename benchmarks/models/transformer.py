"""Rows of transformers architectures with small configurations and random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models.case import ModelCase

__all__ = ["CASES", "MORE", "build_transformer", "llama"]

VOCABULARY = 256


def build_transformer(model: str, config: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from benchmarks.models.torchvision_cpu import load_torchvision

        load_torchvision()  # before transformers, which imports it
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return build


def _make_tokens(batch: int, seq: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, seq))


def _padding_mask(batch: int, seq: int) -> torch.Tensor:
    mask = torch.ones(batch, seq, dtype=torch.int64)
    mask[0, seq - seq // 3 :] = 0  # at least one kept position in every row
    return mask


def _text_inputs(batch: int, seq: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (), {"input_ids": _make_tokens(batch, seq), "attention_mask": _padding_mask(batch, seq)}


_TEXT_SHAPES = {
    "input_ids": {0: "batch", 1: "seq"},
    "attention_mask": {0: "batch", 1: "seq"},
}
_TEXT_SIZES = ({"batch": 2, "seq": 10}, {"batch": 1, "seq": 17}, {"batch": 4, "seq": 3})


def _text_case(name: str, model: str, config: str, **options: Any) -> ModelCase:
    return ModelCase(
        name=name,
        build=build_transformer(model, config, vocab_size=VOCABULARY, **options),
        inputs=_text_inputs,
        dynamic_shapes=_TEXT_SHAPES,
        sizes=_TEXT_SIZES,
    )


_ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_DECODER = {**_ENCODER, "num_key_value_heads": 2, "use_cache": False}


def llama(layers: int, hidden: int = 256) -> ModelCase:
    """Row of a Llama of any depth, for scaling measurements; 8 heads, 4 key-value heads."""
    return _text_case(
        f"llama_{layers}_layers",
        "LlamaForCausalLM",
        "LlamaConfig",
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=2 * hidden,
        use_cache=False,
    )


def _seq2seq_inputs(batch: int, seq: int, target: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    _, kwargs = _text_inputs(batch, seq)
    return (), {**kwargs, "decoder_input_ids": _make_tokens(batch, target)}


def _seq2seq_case(name: str, model: str, config: str, **options: Any) -> ModelCase:
    return ModelCase(
        name=name,
        build=build_transformer(model, config, vocab_size=VOCABULARY, use_cache=False, **options),
        inputs=_seq2seq_inputs,
        dynamic_shapes={**_TEXT_SHAPES, "decoder_input_ids": {0: "batch", 1: "target"}},
        sizes=(
            {"batch": 2, "seq": 10, "target": 6},
            {"batch": 1, "seq": 17, "target": 1},
            {"batch": 4, "seq": 3, "target": 9},
        ),
    )


def _image_case(name: str, model: str, config: str, side: int = 32, **options: Any) -> ModelCase:
    return ModelCase(
        name=name,
        build=build_transformer(model, config, image_size=side, **options),
        inputs=lambda batch: ((torch.randn(batch, 3, side, side),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 1}, {"batch": 5}),
    )


def _clip_inputs(batch: int, texts: int, seq: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    _, kwargs = _text_inputs(texts, seq)
    return (), {**kwargs, "pixel_values": torch.randn(batch, 3, 32, 32)}


def _whisper_inputs(batch: int, target: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    features = torch.randn(batch, 16, 60)
    return (), {"input_features": features, "decoder_input_ids": _make_tokens(batch, target)}


_CLIP_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}

CASES = (
    _text_case("bert", "BertModel", "BertConfig", **_ENCODER),
    _text_case(
        "distilbert",
        "DistilBertModel",
        "DistilBertConfig",
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=4,
    ),
    _text_case("roberta", "RobertaModel", "RobertaConfig", **_ENCODER),
    _text_case(
        "gpt2", "GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, use_cache=False
    ),
    _text_case("llama", "LlamaForCausalLM", "LlamaConfig", **_DECODER),
    _text_case("mistral", "MistralForCausalLM", "MistralConfig", sliding_window=8, **_DECODER),
    _text_case("qwen2", "Qwen2ForCausalLM", "Qwen2Config", **_DECODER),
    _text_case("gemma", "GemmaForCausalLM", "GemmaConfig", head_dim=8, **_DECODER),
    _seq2seq_case(
        "t5",
        "T5ForConditionalGeneration",
        "T5Config",
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
    ),
    _image_case("vit", "ViTModel", "ViTConfig", patch_size=8, **_ENCODER),
    ModelCase(
        name="clip",
        build=build_transformer(
            "CLIPModel",
            "CLIPConfig",
            projection_dim=16,
            text_config={
                **_CLIP_TOWER,
                "num_attention_heads": 4,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": 77,
                "eos_token_id": VOCABULARY - 1,
            },
            vision_config={
                **_CLIP_TOWER,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
            },
        ),
        inputs=_clip_inputs,
        dynamic_shapes={
            "input_ids": {0: "texts", 1: "seq"},
            "attention_mask": {0: "texts", 1: "seq"},
            "pixel_values": {0: "images"},
        },
        sizes=(
            {"batch": 2, "texts": 3, "seq": 10},
            {"batch": 1, "texts": 4, "seq": 17},
            {"batch": 5, "texts": 2, "seq": 3},
        ),
    ),
    ModelCase(
        name="whisper",
        build=build_transformer(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            vocab_size=VOCABULARY,
            num_mel_bins=16,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=30,
            max_target_positions=40,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            use_cache=False,
        ),
        inputs=_whisper_inputs,
        dynamic_shapes={
            "input_features": {0: "batch"},
            "decoder_input_ids": {0: "batch", 1: "target"},
        },
        sizes=({"batch": 2, "target": 6}, {"batch": 1, "target": 11}, {"batch": 4, "target": 2}),
    ),
)

_WIDTHS = [8, 16, 32, 64]
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

MORE = (
    _text_case("albert", "AlbertModel", "AlbertConfig", embedding_size=16, **_ENCODER),
    _text_case(
        "deberta_v2",
        "DebertaV2Model",
        "DebertaV2Config",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
        **_ENCODER,
    ),
    _text_case(
        "modernbert",
        "ModernBertModel",
        "ModernBertConfig",
        local_attention=8,
        cls_token_id=1,
        sep_token_id=2,
        **_SPECIAL,
        **_ENCODER,
    ),
    _text_case(
        "opt",
        "OPTForCausalLM",
        "OPTConfig",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        word_embed_proj_dim=32,
        use_cache=False,
    ),
    _text_case("phi3", "Phi3ForCausalLM", "Phi3Config", **_SPECIAL, **_DECODER),
    _text_case("qwen3", "Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **_DECODER),
    _text_case(
        "gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=8, sliding_window=8, **_DECODER
    ),
    _seq2seq_case(
        "bart",
        "BartForConditionalGeneration",
        "BartConfig",
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        pad_token_id=0,
    ),
    _image_case(
        "dinov2",
        "Dinov2Model",
        "Dinov2Config",
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
    _image_case(
        "segformer",
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        side=64,
        hidden_sizes=_WIDTHS,
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
    ),
    ModelCase(
        name="wav2vec2",
        build=build_transformer(
            "Wav2Vec2Model",
            "Wav2Vec2Config",
            conv_dim=(16, 16, 16),
            conv_kernel=(10, 3, 2),
            conv_stride=(5, 2, 2),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            vocab_size=32,
            **_ENCODER,
        ),
        inputs=lambda batch, time: ((torch.randn(batch, time),), {}),
        dynamic_shapes=({0: "batch", 1: "time"},),
        sizes=({"batch": 2, "time": 800}, {"batch": 1, "time": 1203}, {"batch": 3, "time": 500}),
    ),
)
"""Additional models for the benchmarks; the tests do not run these."""
