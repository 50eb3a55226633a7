"""Vocoders, codecs, speech synthesis, beats, notes and spectrograms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, Method, call, noise

__all__ = ["CASES"]

GROUP = "audio"
WAVE = ({0: "batch", 1: "time"},)
CHANNELS = ({0: "batch", 2: "time"},)


def _sizes(first: int, second: int, batch: int = 2) -> tuple[dict[str, int], ...]:
    return {"batch": 1, "time": first}, {"batch": batch, "time": second}


def _row(name: str, package: str, build: Any, inputs: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=GROUP, build=build, inputs=inputs, **more)


def _build_diffwave() -> nn.Module:
    from diffwave.model import DiffWave
    from diffwave.params import AttrDict, params

    return DiffWave(AttrDict({**params, "residual_layers": 4, "residual_channels": 16}))


def _noisy_speech(batch: int, frames: int) -> Any:
    """A noisy wave, the spectrogram that conditions it, and the step of the diffusion."""
    wave, spectrogram = torch.randn(batch, 256 * frames), torch.randn(batch, 80, frames)
    return (wave, spectrogram, torch.randint(0, 50, (batch,))), {}


class _SpeechCodes(nn.Module):
    """Numbers of CosyVoice's tokens of a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        from s3tokenizer.model_v2 import ModelConfig, S3TokenizerV2

        config = ModelConfig(n_audio_state=128, n_audio_head=2, n_audio_layer=2)
        self.model = S3TokenizerV2("speech_tokenizer_v2_25hz", config)

    def forward(self, mel: torch.Tensor, lengths: torch.Tensor) -> Any:
        return self.model(mel, lengths)


CASES = (
    _row(
        "nnaudio_cqt",
        "nnAudio",
        call("nnAudio.features.cqt:CQT1992v2", sr=16000, n_bins=48, verbose=False),
        noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(16000, 20000),
    ),
    _row(
        "diffwave",
        "diffwave",
        _build_diffwave,
        _noisy_speech,
        dynamic_shapes=({0: "batch", 1: "256*frames"}, {0: "batch", 2: "frames"}, {0: "batch"}),
        sizes=({"batch": 1, "frames": 12}, {"batch": 2, "frames": 17}),
    ),
    _row(
        "mimi",
        "moshi",
        lambda: Method(call("moshi.models.loaders:get_mimi", None)(), "encode"),
        noise("batch", 1, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(24000, 38400),
    ),
    _row(
        "lhotse_fbank",
        "lhotse",
        call("lhotse.features.kaldi.layers:Wav2LogFilterBank", dither=0.0),
        noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(16000, 20000),
    ),
    _row(
        "beat_this",
        "beat-this",
        call("beat_this.model.beat_tracker:BeatThis", transformer_dim=64, n_layers=2),
        noise("batch", "time", 128),
        dynamic_shapes=WAVE,
        sizes=_sizes(100, 143),
    ),
    _row(
        "s3_tokenizer",
        "s3tokenizer",
        _SpeechCodes,
        lambda batch, time: (
            (torch.randn(batch, 128, time), torch.full((batch,), time)),
            {},
        ),
        dynamic_shapes=({0: "batch", 2: "time"}, {0: "batch"}),
        sizes=_sizes(100, 143),
    ),
    _row(
        "piano_transcription",
        "piano-transcription-inference",
        call(
            "piano_transcription_inference.models:Regress_onset_offset_frame_velocity_CRNN",
            frames_per_second=100,
            classes_num=88,
        ),
        noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(16000, 24000),
    ),
)
