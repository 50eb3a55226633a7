"""Models of packages drawn by lot from a list of 273 that people use with PyTorch.

The list covers fields from speech to chemistry. It was shuffled and taken in that order, and each
row was written before it was known whether its model exports.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import (
    BATCH,
    BATCHES,
    LENGTHS,
    PICTURES,
    SEQUENCE,
    FieldCase,
    call,
    noise,
    tokens,
)

__all__ = ["CASES"]

SIGNAL = ({0: "batch", 2: "length"},)


class _Molecule(nn.Module):
    """Embeds the numbers of atoms and bonds that a graph of ogb has."""

    def __init__(self) -> None:
        super().__init__()
        from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder

        self.atoms = AtomEncoder(16)
        self.bonds = BondEncoder(16)

    def forward(self, x: torch.Tensor, edge_attr: torch.Tensor) -> Any:
        return self.atoms(x), self.bonds(edge_attr)


def _molecule(nodes: int, edges: int) -> Any:
    return (torch.randint(0, 2, (nodes, 9)), torch.randint(0, 2, (edges, 3))), {}


def _build_panns(name: str) -> Any:
    return call(f"panns_inference.models:{name}", 32000, 1024, 320, 64, 50, 14000, 527)


def _build_bigvgan() -> nn.Module:
    from bigvgan.bigvgan import BigVGAN
    from bigvgan.env import AttrDict

    config = AttrDict(
        resblock="1",
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        upsample_initial_channel=32,
        resblock_kernel_sizes=[3, 7],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
        activation="snakebeta",
        snake_logscale=True,
        use_tanh_at_final=False,
        use_bias_at_final=False,
        num_mels=20,
    )
    model = BigVGAN(config)
    model.remove_weight_norm()
    return model


class _Correspondence(nn.Module):
    """Matches features of two pictures by a Gaussian process, as romatch does."""

    def __init__(self) -> None:
        super().__init__()
        from romatch.models.matcher import GP, CosKernel

        self.model = GP(CosKernel, T=0.2, gp_dim=16, no_cov=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.model(x, y)


def _feature_maps(batch: int, height: int, width: int) -> Any:
    shape = (batch, 8, height, width)
    return (torch.randn(shape), torch.randn(shape)), {}


def _build_adapted_classifier() -> nn.Module:
    from pytorch_adapt.models import Classifier, MNISTFeatures

    return nn.Sequential(MNISTFeatures(), Classifier(10, in_size=48 * 4 * 4, h=64))


def _build_spherical() -> nn.Module:
    from sphericart.torch import SphericalHarmonics

    return SphericalHarmonics(4)


def _build_sinkhorn() -> nn.Module:
    from sinkhorn_transformer import SinkhornTransformerLM

    return SinkhornTransformerLM(
        num_tokens=100, dim=32, heads=2, depth=2, max_seq_len=64, bucket_size=8
    )


class _Static(nn.Module):
    """Classifies texts, whose tokens stand in one row, by the mean of their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        from model2vec.train import StaticModelForClassification
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(100)}, unk_token="w0"))
        self.model = StaticModelForClassification(
            vectors=torch.randn(100, 32), tokenizer=tokenizer, n_layers=1, hidden_dim=16
        )

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        from model2vec.train.dataset import TokenBatch

        return self.model(TokenBatch.from_lengths(ids, lengths))


def _texts(batch: int, length: int) -> Any:
    return (torch.randint(0, 100, (batch * length,)), torch.full((batch,), length)), {}


class _Recurrent(nn.Module):
    """A Bayesian network for series, frozen to its mean weights."""

    def __init__(self) -> None:
        super().__init__()
        from blitz.modules import BayesianLinear, BayesianLSTM

        self.lstm = BayesianLSTM(4, 16)
        self.linear = BayesianLinear(16, 2)
        self.lstm.freeze = self.linear.freeze = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.lstm(x)[0][:, -1])


def _build_generator_of_sound() -> nn.Module:
    from audio_diffusion_pytorch import UNetV0

    return UNetV0(
        dim=1,
        in_channels=2,
        channels=[8, 16, 16],
        factors=[1, 2, 2],
        items=[1, 1, 1],
        attentions=[0, 0, 1],
        attention_heads=2,
        attention_features=8,
        modulation_features=32,
    )


def _noisy_sound(batch: int, length: int) -> Any:
    return (torch.randn(batch, 2, length), torch.rand(batch)), {}


def _parameters(batch: int) -> Any:
    return (torch.rand(batch, 3), torch.rand(batch, 5)), {}


class _Autoencoder(nn.Module):
    """Encodes stereo sound and decodes it again, without the sampling between."""

    def __init__(self) -> None:
        super().__init__()
        from stable_audio_tools.models.autoencoders import OobleckDecoder, OobleckEncoder

        sizes = {"channels": 8, "latent_dim": 8, "c_mults": [1, 2], "strides": [2, 4]}
        self.encoder = OobleckEncoder(in_channels=2, use_snake=True, **sizes)
        self.decoder = OobleckDecoder(out_channels=2, use_snake=True, **sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))


def _build_audio_transformer() -> nn.Module:
    from stable_audio_tools.models.dit import DiffusionTransformer

    return DiffusionTransformer(io_channels=8, embed_dim=64, depth=2, num_heads=2)


def _latents(batch: int, length: int) -> Any:
    return (torch.randn(batch, 8, length), torch.rand(batch)), {}


class _Processed(nn.Module):
    """Sound through a processor of dasp_pytorch with parameters from 0 to 1."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import dasp_pytorch

        self.processor = getattr(dasp_pytorch, name)(sample_rate=44100)

    def forward(self, x: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        return self.processor.process_normalized(x, parameters)


def _sound(parameters: int) -> Any:
    return lambda batch, length: (
        (torch.randn(batch, 1, length), torch.rand(batch, parameters)),
        {},
    )


class _Embedded(nn.Module):
    """Embeds pictures with the encoder of sam2."""

    def __init__(self) -> None:
        super().__init__()
        from sam2.modeling.backbones.hieradet import Hiera
        from sam2.modeling.backbones.image_encoder import FpnNeck, ImageEncoder
        from sam2.modeling.position_encoding import PositionEmbeddingSine

        trunk = Hiera(
            embed_dim=16,
            num_heads=1,
            stages=(1, 2, 2, 1),
            global_att_blocks=(4,),
            window_pos_embed_bkg_spatial_size=(7, 7),
        )
        neck = FpnNeck(
            PositionEmbeddingSine(32),
            d_model=32,
            backbone_channel_list=[128, 64, 32, 16],
            fpn_top_down_levels=[2, 3],
        )
        self.model = ImageEncoder(trunk, neck, scalp=1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)


def _build_compressive() -> nn.Module:
    from compressive_transformer_pytorch import CompressiveTransformer

    return CompressiveTransformer(
        num_tokens=100, dim=32, seq_len=32, mem_len=32, cmem_len=8, depth=2, heads=4
    )


class _Quantized(nn.Module):
    """Encodes pictures to a codebook and decodes them, as VQModel of taming does."""

    def __init__(self) -> None:
        super().__init__()
        from taming.modules.diffusionmodules.model import Decoder, Encoder
        from taming.modules.vqvae.quantize import VectorQuantizer2

        sizes: dict[str, Any] = {
            "ch": 32,
            "out_ch": 3,
            "ch_mult": (1, 2),
            "num_res_blocks": 1,
            "attn_resolutions": [16],
            "in_channels": 3,
            "resolution": 32,
            "z_channels": 16,
        }
        self.encoder = Encoder(**sizes, double_z=False)
        self.quantizer = VectorQuantizer2(64, 16, beta=0.25)
        self.decoder = Decoder(**sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.quantizer(self.encoder(x))[0])


class _Parser(nn.Module):
    """Scores of arcs between words by the layers of stanza's parser."""

    def __init__(self) -> None:
        super().__init__()
        from stanza.models.common.biaffine import DeepBiaffineScorer
        from stanza.models.common.hlstm import HighwayLSTM

        self.lstm = HighwayLSTM(
            16, 16, num_layers=2, batch_first=True, bidirectional=True, highway_func=torch.tanh
        )
        self.arcs = DeepBiaffineScorer(32, 32, 16, 1)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, lengths, batch_first=True)
        batch = x.shape[0]
        first = x.new_zeros(4, batch, 16), x.new_zeros(4, batch, 16)
        found = pad_packed_sequence(self.lstm(packed, lengths, hx=first)[0], batch_first=True)[0]
        return self.arcs(found, found).squeeze(3)


def _words(batch: int, length: int) -> Any:
    return (torch.randn(batch, length, 16), length - torch.arange(batch)), {}


class _Integrated(nn.Module):
    """Rotations, velocities and positions from measurements of acceleration."""

    def __init__(self) -> None:
        super().__init__()
        import pypose

        self.model = pypose.module.IMUPreintegrator(prop_cov=True, reset=True)

    def forward(self, dt: torch.Tensor, gyro: torch.Tensor, acc: torch.Tensor) -> Any:
        state = self.model(dt, gyro, acc)
        return state["rot"].tensor(), state["vel"], state["pos"], state["cov"]


def _measurements(batch: int, frames: int) -> Any:
    dt = torch.full((batch, frames, 1), 0.01)
    return (dt, torch.randn(batch, frames, 3), torch.randn(batch, frames, 3)), {}


class _Tracer(nn.Module):
    """Outlines objects; the encoder is as the package builds it."""

    def __init__(self) -> None:
        super().__init__()
        from carvekit.ml.arch.tracerb7.efficientnet import EfficientEncoderB7
        from carvekit.ml.arch.tracerb7.tracer import TracerDecoder

        self.model = TracerDecoder(EfficientEncoderB7())

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)


def _row(name: str, package: str, group: str, build: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=group, build=build, **more)


_SAMPLES = ({"batch": 1, "length": 32000}, {"batch": 2, "length": 48000})

CASES = (
    _row(
        "ogb_molecules",
        "ogb",
        "graphs and molecules",
        _Molecule,
        inputs=_molecule,
        dynamic_shapes=({0: "nodes"}, {0: "edges"}),
        sizes=({"nodes": 5, "edges": 8}, {"nodes": 9, "edges": 14}),
    ),
    _row(
        "panns_tagging",
        "panns-inference",
        "audio",
        _build_panns("Cnn14"),
        inputs=noise("batch", "length"),
        dynamic_shapes=SEQUENCE,
        sizes=_SAMPLES,
    ),
    _row(
        "panns_events",
        "panns-inference",
        "audio",
        _build_panns("Cnn14_DecisionLevelMax"),
        inputs=noise("batch", "length"),
        dynamic_shapes=SEQUENCE,
        sizes=_SAMPLES,
    ),
    _row(
        "bigvgan",
        "bigvgan",
        "audio",
        _build_bigvgan,
        inputs=noise("batch", 20, "length"),
        dynamic_shapes=SIGNAL,
        sizes=LENGTHS,
    ),
    _row(
        "gaussian_process_matching",
        "romatch",
        "images",
        _Correspondence,
        inputs=_feature_maps,
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},) * 2,
        sizes=({"batch": 1, "height": 4, "width": 5}, {"batch": 2, "height": 6, "width": 4}),
    ),
    _row(
        "antialiased_resnet18",
        "antialiased-cnns",
        "images",
        call("antialiased_cnns:resnet18"),
        **PICTURES,
    ),
    _row(
        "antialiased_mobilenet",
        "antialiased-cnns",
        "images",
        call("antialiased_cnns:mobilenet_v2"),
        **PICTURES,
    ),
    _row(
        "domain_classifier",
        "pytorch-adapt",
        "images",
        _build_adapted_classifier,
        inputs=noise("batch", 3, 28, 28),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "spherical_harmonics",
        "sphericart-torch",
        "physics and equations",
        _build_spherical,
        inputs=noise("points", 3),
        dynamic_shapes=({0: "points"},),
        sizes=({"points": 4}, {"points": 9}),
    ),
    _row(
        "palm",
        "palm-rlhf-pytorch",
        "text and attention",
        call("palm_rlhf_pytorch:PaLM", num_tokens=100, dim=32, depth=2, dim_head=16, heads=2),
        inputs=tokens(100),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "megabyte",
        "megabyte-pytorch",
        "text and attention",
        call(
            "MEGABYTE_pytorch:MEGABYTE",
            num_tokens=100,
            dim=(32, 16),
            max_seq_len=(16, 4),
            depth=(2, 1),
            dim_head=8,
            heads=2,
        ),
        inputs=tokens(100),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "sinkhorn_transformer",
        "sinkhorn-transformer",
        "text and attention",
        _build_sinkhorn,
        inputs=lambda batch, buckets: ((torch.randint(0, 100, (batch, 8 * buckets)),), {}),
        dynamic_shapes=({0: "batch", 1: 8 * torch.export.Dim("buckets", max=8)},),
        sizes=({"batch": 1, "buckets": 3}, {"batch": 3, "buckets": 5}),
    ),
    _row(
        "static_embeddings",
        "model2vec",
        "text and attention",
        _Static,
        inputs=_texts,
        dynamic_shapes=({0: "tokens"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "bayesian_lstm",
        "blitz-bayesian-pytorch",
        "time series",
        _Recurrent,
        inputs=noise("batch", "length", 4),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "voice_encoder",
        "chatterbox-tts",
        "audio",
        call("chatterbox.models.voice_encoder:VoiceEncoder"),
        inputs=lambda batch, length: ((torch.rand(batch, length, 40),), {}),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "pitch_predictor",
        "chatterbox-tts",
        "audio",
        call("chatterbox.models.s3gen.f0_predictor:ConvRNNF0Predictor", cond_channels=32),
        inputs=noise("batch", 80, "length"),
        dynamic_shapes=SIGNAL,
        sizes=LENGTHS,
    ),
    _row(
        "audio_diffusion",
        "audio-diffusion-pytorch",
        "audio",
        _build_generator_of_sound,
        inputs=_noisy_sound,
        dynamic_shapes=({0: "batch", 2: 4 * torch.export.Dim("steps")}, {0: "batch"}),
        sizes=({"batch": 1, "length": 64}, {"batch": 2, "length": 96}),
    ),
    _row(
        "solution_of_equation",
        "neurodiffeq",
        "physics and equations",
        call("neurodiffeq.networks:Resnet", 2, 1, hidden_units=(16, 16)),
        inputs=noise("points", 2),
        dynamic_shapes=({0: "points"},),
        sizes=({"points": 4}, {"points": 9}),
    ),
    _row(
        "posterior_estimation",
        "lampe",
        "physics and equations",
        call("lampe.inference:NPE", 3, 5, hidden_features=(32, 32)),
        inputs=_parameters,
        dynamic_shapes=({0: "batch"}, {0: "batch"}),
        sizes=BATCHES,
    ),
    _row(
        "ratio_estimation",
        "lampe",
        "physics and equations",
        call("lampe.inference:NRE", 3, 5, hidden_features=(32, 32)),
        inputs=_parameters,
        dynamic_shapes=({0: "batch"}, {0: "batch"}),
        sizes=BATCHES,
    ),
    _row(
        "oobleck_autoencoder",
        "stable-audio-tools",
        "audio",
        _Autoencoder,
        inputs=noise("batch", 2, "length"),
        dynamic_shapes=({0: "batch", 2: 8 * torch.export.Dim("steps")},),
        sizes=({"batch": 1, "length": 128}, {"batch": 2, "length": 200}),
    ),
    _row(
        "audio_transformer",
        "stable-audio-tools",
        "audio",
        _build_audio_transformer,
        inputs=_latents,
        dynamic_shapes=({0: "batch", 2: "length"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "parametric_equalizer",
        "dasp-pytorch",
        "audio",
        call("benchmarks.field.second_lot:_Processed", "ParametricEQ"),
        inputs=_sound(18),
        dynamic_shapes=({0: "batch", 2: "length"}, {0: "batch"}),
        sizes=({"batch": 1, "length": 256}, {"batch": 2, "length": 400}),
    ),
    _row(
        "compressor",
        "dasp-pytorch",
        "audio",
        call("benchmarks.field.second_lot:_Processed", "Compressor"),
        inputs=_sound(6),
        dynamic_shapes=({0: "batch", 2: "length"}, {0: "batch"}),
        sizes=({"batch": 1, "length": 256}, {"batch": 2, "length": 400}),
    ),
    _row("sam2_encoder", "sam2", "images", _Embedded, **PICTURES),
    _row(
        "compressive_transformer",
        "compressive-transformer-pytorch",
        "text and attention",
        _build_compressive,
        inputs=tokens(100),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row("vqgan", "taming-transformers-rom1504", "images", _Quantized, **PICTURES),
    _row(
        "biaffine_parser",
        "stanza",
        "text and attention",
        _Parser,
        inputs=_words,
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        sizes=LENGTHS,
    ),
    _row(
        "inertial_integration",
        "pypose",
        "physics and equations",
        _Integrated,
        inputs=_measurements,
        dynamic_shapes=({0: "batch", 1: "frames"},) * 3,
        sizes=({"batch": 1, "frames": 12}, {"batch": 2, "frames": 19}),
    ),
    _row("tracer", "carvekit", "images", _Tracer, **PICTURES),
)
