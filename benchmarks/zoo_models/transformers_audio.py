"""Rows of transformers' models for audio and time series."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import MELS
from benchmarks.zoo_models.transformers_rows import Inputs, make_tokens, model_builder

__all__ = ["CASES"]

_GROUP = "transformers: audio and time series"

_CONVOLUTIONS = {
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_WAVEFORMS = """
wav2vec2 hubert unispeech unispeech-sat wavlm wav2vec2-conformer data2vec-audio sew sew-d
""".split()
_CODECS = ("encodec", "dac", "mimi")
_OPTIONS: dict[str, dict[str, Any]] = {
    "mimi": {
        "num_filters": 8,
        "codebook_size": 32,
        "codebook_dim": 16,
        "vector_quantization_hidden_dimension": 16,
        "num_quantizers": 4,
        "upsample_groups": 32,
        "num_key_value_heads": 4,
    },
}


def _waveform_case(model_type: str) -> ZooCase:
    more = {"conv_pos_kernel_size": 3} if model_type == "data2vec-audio" else {}
    return ZooCase(
        name=model_type,
        build=model_builder(model_type, **_CONVOLUTIONS, **more),
        inputs=lambda batch, time: ((), {"input_values": torch.randn(batch, time)}),
        dynamic_shapes={"input_values": {0: "batch", 1: "time"}},
        sizes=({"batch": 2, "time": 800}, {"batch": 3, "time": 1203}),
        group=_GROUP,
    )


def _codec_case(model_type: str) -> ZooCase:
    return ZooCase(
        name=model_type,
        build=model_builder(model_type, **_OPTIONS.get(model_type, {})),
        inputs=lambda batch, time: ((), {"input_values": torch.randn(batch, 1, time)}),
        dynamic_shapes={"input_values": {0: "batch", 2: "time"}},
        sizes=({"batch": 2, "time": 5120}, {"batch": 1, "time": 7680}),
        group=_GROUP,
    )


def _speech_case(model_type: str, frames: int, channels_first: bool, auto: str) -> ZooCase:
    """Row for spectrograms of one length, with the tokens of a decoder."""
    shape = (MELS, frames) if channels_first else (frames, MELS)

    def inputs(batch: int, target: int) -> Inputs:
        features = torch.randn(batch, *shape)
        return (), {"input_features": features, "decoder_input_ids": make_tokens(batch, target)}

    return ZooCase(
        name=model_type,
        build=model_builder(model_type, auto, max_source_positions=30 if channels_first else 60),
        inputs=inputs,
        dynamic_shapes={
            "input_features": {0: "batch"},
            "decoder_input_ids": {0: "batch", 1: "target"},
        },
        sizes=({"batch": 2, "target": 6}, {"batch": 3, "target": 9}),
        group=_GROUP,
    )


def _spectrogram_case() -> ZooCase:
    """Row for spectrograms of one length, split into patches."""
    options = {"max_length": 32, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}
    return ZooCase(
        name="audio-spectrogram-transformer",
        build=model_builder("audio-spectrogram-transformer", **options),
        inputs=lambda batch: ((), {"input_values": torch.randn(batch, 32, MELS)}),
        dynamic_shapes={"input_values": {0: "batch"}},
        sizes=({"batch": 2}, {"batch": 3}),
        group=_GROUP,
    )


def _series_case(model_type: str, **options: Any) -> ZooCase:
    return ZooCase(
        name=model_type,
        build=model_builder(model_type, **options, num_input_channels=3, context_length=32),
        inputs=lambda batch: ((), {"past_values": torch.randn(batch, 32, 3)}),
        dynamic_shapes={"past_values": {0: "batch"}},
        sizes=({"batch": 2}, {"batch": 3}),
        group=_GROUP,
    )


CASES = (
    *map(_waveform_case, _WAVEFORMS),
    *map(_codec_case, _CODECS),
    _speech_case("whisper", 60, True, "AutoModelForSpeechSeq2Seq"),
    _speech_case("speech_to_text", 60, False, "AutoModelForSpeechSeq2Seq"),
    _spectrogram_case(),
    _series_case("patchtst"),
    _series_case("patchtsmixer"),
)
