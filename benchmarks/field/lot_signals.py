"""Models of sound, series and pictures in packages that were drawn by lot; see ``lot.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import BATCHES, LENGTHS, SEQUENCE, FieldCase, call, noise

__all__ = ["CASES"]

MEL = ({0: "batch", 2: "frames"},)
FRAMES = ({"batch": 1, "frames": 40}, {"batch": 2, "frames": 57})
SAMPLES = ({0: "batch", 2: "samples"},)


class _Vits(nn.Module):
    """Speech for a text of one speaker, without noise so that results can be compared."""

    def __init__(self) -> None:
        super().__init__()
        from TTS.tts.configs.vits_config import VitsConfig
        from TTS.tts.models.vits import Vits, VitsArgs

        arguments = VitsArgs(
            num_chars=40,
            hidden_channels=32,
            hidden_channels_ffn_text_encoder=64,
            num_layers_text_encoder=2,
            num_layers_flow=2,
            num_layers_posterior_encoder=2,
            upsample_initial_channel_decoder=32,
            init_discriminator=False,
        )
        self.model = Vits(VitsConfig(model_args=arguments))
        self.model.inference_noise_scale = 0.0
        self.model.inference_noise_scale_dp = 0.0

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.model.inference(x, {"x_lengths": lengths})["model_outputs"]


class _Glow(nn.Module):
    """Spectrograms for texts, without noise."""

    def __init__(self) -> None:
        super().__init__()
        from TTS.tts.configs.glow_tts_config import GlowTTSConfig
        from TTS.tts.models.glow_tts import GlowTTS

        encoder = {
            "kernel_size": 3,
            "dropout_p": 0.1,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_channels_ffn": 64,
            "input_length": None,
        }
        config = GlowTTSConfig(
            num_chars=40,
            hidden_channels_enc=32,
            hidden_channels_dec=32,
            hidden_channels_dp=32,
            num_flow_blocks_dec=2,
            encoder_params=encoder,
        )
        self.model = GlowTTS(config)
        self.model.inference_noise_scale = 0.0

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.model.inference(x, {"x_lengths": lengths})["model_outputs"]


def _texts(batch: int, length: int) -> Any:
    return (torch.randint(0, 40, (batch, length)), length - torch.arange(batch)), {}


class _Speaker(nn.Module):
    """Embeddings of speakers; the encoder squeezes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        from TTS.encoder.models.resnet import ResNetSpeakerEncoder

        self.model = ResNetSpeakerEncoder(
            input_dim=64, proj_dim=32, layers=[1, 1, 1, 1], num_filters=[8, 8, 16, 16]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x, l2_norm=True)


class _Dereverberated(nn.Module):
    """Weighted prediction error over channels, on real and imaginary parts of a spectrogram."""

    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> Any:
        from pytorch_wpe import wpe
        from torch_complex.tensor import ComplexTensor

        enhanced = wpe(ComplexTensor(real, imaginary), taps=3, delay=2, iterations=2)
        return enhanced.real, enhanced.imag


class _Masked(nn.Module):
    """Covariances of a masked spectrogram between channels, as beamformers compute them."""

    def forward(self, real: torch.Tensor, imaginary: torch.Tensor, mask: torch.Tensor) -> Any:
        import torch_complex.functional
        from torch_complex.tensor import ComplexTensor

        signal = ComplexTensor(real, imaginary)
        masked = ComplexTensor(real * mask, imaginary * mask)
        covariance = torch_complex.functional.einsum("bfct,bfet->bfce", [masked, signal.conj()])
        return covariance.real, covariance.imag


def _spectrogram(frequencies: int, frames: int) -> Any:
    shape = (frequencies, 2, frames)
    return (torch.randn(shape), torch.randn(shape)), {}


def _masked_spectrogram(batch: int, frames: int) -> Any:
    shape = (batch, 17, 2, frames)
    return (torch.randn(shape), torch.randn(shape), torch.rand(batch, 17, 1, frames)), {}


class _Similarity(nn.Module):
    """A measure of pyiqa between distorted pictures and the originals."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import pyiqa

        self.metric = pyiqa.create_metric(name, device="cpu")

    def forward(self, pictures: torch.Tensor, originals: torch.Tensor) -> torch.Tensor:
        return self.metric(pictures, originals)


def _picture_pairs(batch: int, height: int, width: int) -> Any:
    originals = torch.rand(batch, 3, height // 8, width // 8)
    originals = nn.functional.interpolate(originals, (height, width), mode="bilinear")
    strength = 0.05 + 0.2 * torch.arange(batch)[:, None, None, None]
    noisy = originals + strength * torch.randn(batch, 3, height, width)
    return (noisy.clamp(0, 1), originals), {}


PICTURE_PAIRS: dict[str, Any] = {
    "inputs": _picture_pairs,
    "dynamic_shapes": ({0: "batch", 2: "height", 3: "width"},) * 2,
    "sizes": (
        {"batch": 1, "height": 192, "width": 192},
        {"batch": 2, "height": 224, "width": 256},
    ),
}


class _Shifted(nn.Module):
    """Pitch of sound, two semitones up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch_pitch_shift import pitch_shift

        return pitch_shift(x, 2, 16000)


class _Cosines(nn.Module):
    """Cosine transform of pictures, with small coefficients left out, and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch_dct import dct_2d, idct_2d

        found = dct_2d(x, norm="ortho")
        return idct_2d(torch.where(found.abs() > 0.1, found, 0.0), norm="ortho")


class _Structure(nn.Module):
    """Classes of the secondary structure of proteins, one-hot."""

    def forward(self, coordinates: torch.Tensor) -> torch.Tensor:
        from pydssp.pydssp_torch import assign

        return assign(coordinates)


def _chains(batch: int, length: int) -> Any:
    steps = torch.randn(batch, length, 4, 3).cumsum(1)
    return (steps,), {}


def _build_bert() -> nn.Module:
    from pytorch_pretrained_bert import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        vocab_size_or_config_json_file=100,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
    )
    return BertForQuestionAnswering(config)


def _build_gpt2() -> nn.Module:
    from pytorch_pretrained_bert import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(100, n_positions=64, n_ctx=64, n_embd=64, n_layer=2, n_head=4)
    return GPT2LMHeadModel(config)


def _sentences(batch: int, length: int) -> Any:
    ids = torch.randint(0, 100, (batch, length))
    mask = torch.arange(length) < (length - torch.arange(batch))[:, None]
    return (ids, torch.zeros_like(ids), mask.long()), {}


class _Forecast(nn.Module):
    """The temporal fusion transformer for known and unknown continuous inputs."""

    def __init__(self) -> None:
        super().__init__()
        from pytorch_forecasting.models.temporal_fusion_transformer._tft_v2 import TFT

        metadata = {
            "max_encoder_length": 24,
            "max_prediction_length": 6,
            "encoder_cont": 4,
            "encoder_cat": 1,
            "decoder_cont": 2,
            "decoder_cat": 1,
            "static_categorical_features": 1,
            "static_continuous_features": 2,
        }
        self.model = TFT(nn.MSELoss(), hidden_size=32, output_size=7, metadata=metadata)

    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(x)["prediction"]


def _windows(batch: int) -> Any:
    shapes = {
        "encoder_cont": (24, 4),
        "encoder_cat": (24, 1),
        "decoder_cont": (6, 2),
        "decoder_cat": (6, 1),
        "static_categorical_features": (1, 1),
        "static_continuous_features": (1, 2),
    }
    return ({name: torch.randn(batch, *shape) for name, shape in shapes.items()},), {}


WINDOWS = (
    {
        name: {0: "batch"}
        for name in (
            "encoder_cont",
            "encoder_cat",
            "decoder_cont",
            "decoder_cat",
            "static_categorical_features",
            "static_continuous_features",
        )
    },
)


def _row(name: str, package: str, group: str, build: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=group, build=build, **more)


CASES = (
    _row(
        "coqui_vits",
        "coqui-tts",
        "audio",
        _Vits,
        inputs=_texts,
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "coqui_glow",
        "coqui-tts",
        "audio",
        _Glow,
        inputs=_texts,
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "coqui_hifigan",
        "coqui-tts",
        "audio",
        call(
            "TTS.vocoder.models.hifigan_generator:HifiganGenerator",
            80,
            1,
            "1",
            [[1, 3, 5], [1, 3, 5]],
            [3, 5],
            [8, 4],
            32,
            [4, 4],
        ),
        inputs=noise("batch", 80, "frames"),
        dynamic_shapes=MEL,
        sizes=FRAMES,
    ),
    _row(
        "coqui_melgan",
        "coqui-tts",
        "audio",
        call("TTS.vocoder.models.melgan_generator:MelganGenerator", base_channels=64),
        inputs=noise("batch", 80, "frames"),
        dynamic_shapes=MEL,
        sizes=FRAMES,
    ),
    _row(
        "coqui_speaker_resnet",
        "coqui-tts",
        "audio",
        _Speaker,
        inputs=noise("batch", 64, "frames"),
        dynamic_shapes=MEL,
        sizes=FRAMES,
    ),
    _row(
        "coqui_speaker_lstm",
        "coqui-tts",
        "audio",
        call("TTS.encoder.models.lstm:LSTMSpeakerEncoder", 40, 16, 32, 2),
        inputs=noise("batch", 40, "frames"),
        dynamic_shapes=MEL,
        sizes=FRAMES,
    ),
    _row(
        "prediction_error",
        "pytorch-wpe",
        "audio",
        _Dereverberated,
        inputs=_spectrogram,
        dynamic_shapes=({0: "frequencies", 2: "frames"},) * 2,
        sizes=({"frequencies": 5, "frames": 30}, {"frequencies": 9, "frames": 41}),
    ),
    _row(
        "complex_covariance",
        "torch-complex",
        "audio",
        _Masked,
        inputs=_masked_spectrogram,
        dynamic_shapes=({0: "batch", 3: "frames"},) * 3,
        sizes=FRAMES,
    ),
    *(
        _row(
            f"iqa_{name}",
            "pyiqa",
            "images",
            lambda name=name: _Similarity(name),
            **PICTURE_PAIRS,
        )
        for name in ("fsim", "vif", "cw_ssim", "gmsd")
    ),
    _row(
        "alias_free_activation",
        "alias-free-torch",
        "audio",
        call("alias_free_torch:Activation1d", nn.SiLU()),
        inputs=noise("batch", 8, "samples"),
        dynamic_shapes=SAMPLES,
        sizes=({"batch": 1, "samples": 100}, {"batch": 2, "samples": 133}),
    ),
    _row(
        "alias_free_activation_2d",
        "alias-free-torch",
        "images",
        call("alias_free_torch:Activation2d", nn.SiLU()),
        inputs=noise("batch", 4, "height", "width"),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=({"batch": 1, "height": 16, "width": 20}, {"batch": 2, "height": 24, "width": 17}),
    ),
    _row(
        "par_net",
        "deepecho",
        "time series",
        call("deepecho.models.par:PARNet", 6, 3),
        inputs=lambda batch, length: ((torch.randn(length, batch, 6), torch.randn(batch, 3)), {}),
        dynamic_shapes=({0: "length", 1: "batch"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "fusion_transformer",
        "pytorch-forecasting",
        "time series",
        _Forecast,
        inputs=_windows,
        dynamic_shapes=WINDOWS,
        sizes=BATCHES,
    ),
    _row(
        "pitch_shift",
        "torch-pitch-shift",
        "audio",
        _Shifted,
        inputs=noise("batch", 1, "samples"),
        dynamic_shapes=SAMPLES,
        sizes=({"batch": 1, "samples": 8000}, {"batch": 2, "samples": 11025}),
    ),
    _row(
        "cosine_transform",
        "torch-dct",
        "images",
        _Cosines,
        inputs=noise("batch", 3, "height", "width"),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=({"batch": 1, "height": 16, "width": 20}, {"batch": 2, "height": 25, "width": 17}),
    ),
    _row(
        "spectral_loss",
        "auraloss",
        "audio",
        call(
            "auraloss.freq:MultiResolutionSTFTLoss",
            fft_sizes=[256, 512],
            hop_sizes=[64, 128],
            win_lengths=[256, 512],
        ),
        inputs=lambda batch, samples: (
            (torch.randn(batch, 1, samples), torch.randn(batch, 1, samples)),
            {},
        ),
        dynamic_shapes=SAMPLES * 2,
        sizes=({"batch": 1, "samples": 4000}, {"batch": 2, "samples": 5300}),
    ),
    _row(
        "secondary_structure",
        "pydssp",
        "proteins and genes",
        _Structure,
        inputs=_chains,
        dynamic_shapes=SEQUENCE,
        sizes=({"batch": 1, "length": 20}, {"batch": 2, "length": 31}),
    ),
    _row(
        "pretrained_bert",
        "pytorch-pretrained-bert",
        "text and attention",
        _build_bert,
        inputs=_sentences,
        dynamic_shapes=SEQUENCE * 3,
        sizes=LENGTHS,
    ),
    _row(
        "pretrained_gpt2",
        "pytorch-pretrained-bert",
        "text and attention",
        _build_gpt2,
        inputs=lambda batch, length: ((torch.randint(0, 100, (batch, length)),), {}),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
)
