"""Networks for image and audio generation, written out here: UNet, VAE, codec, vocoder."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.zoo_models.case import ZooCase

__all__ = ["CASES"]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class ResidualBlock(nn.Module):
    """Two convolutions, with an embedding of the time step added in between."""

    def __init__(self, inner: int, outer: int, embedding: int = 0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inner), nn.GroupNorm(4, outer)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(embedding, outer) if embedding else None
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor, step: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.conv1(functional.silu(self.norm1(x)))
        if self.time is not None and step is not None:
            hidden = hidden + self.time(functional.silu(step))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(hidden)))


class ImageAttention(nn.Module):
    """Attention of the pixels to a text, or to themselves if there is none."""

    def __init__(self, width: int, context: int | None = None, heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(context or width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        batch, width, height, breadth = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        key, value = self.key_value(pixels if context is None else context).chunk(2, -1)
        split = [
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.query(pixels), key, value)
        ]
        attended = functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        return x + self.out(attended).transpose(1, 2).reshape(batch, width, height, breadth)


class UNet(nn.Module):
    """Denoises latents ``[batch, 4, h, w]`` at a time step, given text states."""

    def __init__(self, width: int = 16, context: int = 24) -> None:
        super().__init__()
        self.width = width
        embedding = 4 * width
        self.time = nn.Sequential(
            nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down1 = ResidualBlock(width, width, embedding)
        self.halve = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(width, 2 * width, embedding)
        self.itself = ImageAttention(2 * width)
        self.text = ImageAttention(2 * width, context)
        self.middle = ResidualBlock(2 * width, 2 * width, embedding)
        self.up2 = ResidualBlock(4 * width, width, embedding)
        self.widen = nn.Conv2d(width, width, 3, padding=1)
        self.up1 = ResidualBlock(2 * width, width, embedding)
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, context: torch.Tensor
    ) -> torch.Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
        angles = timestep[:, None].float() * rates[None]
        step = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        outer = self.down1(self.first(sample), step)
        inner = self.down2(self.halve(outer), step)
        x = self.middle(self.text(self.itself(inner), context), step)
        x = self.up2(torch.cat([x, inner], 1), step)
        x = self.widen(functional.interpolate(x, size=outer.shape[-2:], mode="nearest"))
        return self.last(self.up1(torch.cat([x, outer], 1), step))


class AutoencoderKL(nn.Module):
    """Encodes images as mean and deviation of latents, and decodes the mean."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            ResidualBlock(width, width),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            ResidualBlock(width, 2 * width),
            ImageAttention(2 * width),
            nn.Conv2d(2 * width, 8, 1),
        )
        self.decode = nn.Sequential(
            nn.Conv2d(4, 2 * width, 1),
            ResidualBlock(2 * width, width),
            nn.Upsample(scale_factor=2.0, mode="nearest"),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(image).chunk(2, 1)
        return self.decode(mean), torch.exp(0.5 * log_variance.clamp(-30.0, 20.0))


class AudioCodec(nn.Module):
    """Encodes waveforms with three codebooks, each for the residual of the last, and decodes."""

    def __init__(self, width: int = 16, entries: int = 32, books: int = 3) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3),
            nn.ELU(),
            nn.Conv1d(width, width, 8, stride=4, padding=2),
            nn.ELU(),
            nn.Conv1d(width, width, 4, stride=2, padding=1),
        )
        self.recur = nn.LSTM(width, width, batch_first=True)
        self.books = nn.Parameter(torch.randn(books, entries, width))
        self.decode = nn.Sequential(
            nn.ConvTranspose1d(width, width, 4, stride=2, padding=1),
            nn.ELU(),
            nn.ConvTranspose1d(width, 1, 8, stride=4, padding=2),
            nn.Tanh(),
        )

    def forward(self, waveform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.encode(waveform[:, None]).transpose(1, 2)
        rest = hidden + self.recur(hidden)[0]
        total, codes = torch.zeros_like(rest), []
        for book in self.books:
            nearest = torch.cdist(rest, book[None]).argmin(-1)
            chosen = functional.embedding(nearest, book)
            rest, total = rest - chosen, total + chosen
            codes.append(nearest)
        return torch.stack(codes, 1), self.decode(total.transpose(1, 2)).squeeze(1)


class Vocoder(nn.Module):
    """Maps mel spectrograms ``[batch, 16, frames]`` to waveforms, as HiFi-GAN's generator does."""

    def __init__(self, mels: int = 16, width: int = 32) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(mels, width, 7, padding=3))
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, stride=4, padding=2)
            for i in range(2)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Conv1d(width >> (i + 1), width >> (i + 1), 3, padding=d, dilation=d)
                for d in (1, 3)
            )
            for i in range(2)
        )
        self.last = nn.Conv1d(width >> 2, 1, 7, padding=3)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.first(mel)
        for up, block in zip(self.up, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            x = x + sum(conv(functional.leaky_relu(x, 0.1)) for conv in block)
        return torch.tanh(self.last(functional.leaky_relu(x, 0.1))).squeeze(1)


def _unet_inputs(batch: int, height: int, width: int, seq: int) -> Inputs:
    steps = torch.randint(0, 1000, (batch,))
    return (torch.randn(batch, 4, height, width), steps, torch.randn(batch, seq, 24)), {}


CASES = (
    ZooCase(
        name="unet",
        build=UNet,
        inputs=_unet_inputs,
        dynamic_shapes=(
            {0: "batch", 2: "height", 3: "width"},
            {0: "batch"},
            {0: "batch", 1: "seq"},
        ),
        sizes=(
            {"batch": 2, "height": 16, "width": 24, "seq": 7},
            {"batch": 1, "height": 9, "width": 13, "seq": 11},
        ),
        group="others",
    ),
    ZooCase(
        name="vae",
        build=AutoencoderKL,
        inputs=lambda batch, height, width: ((torch.rand(batch, 3, height, width),), {}),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=(
            {"batch": 2, "height": 16, "width": 24},
            {"batch": 1, "height": 30, "width": 14},
        ),
        group="others",
    ),
    ZooCase(
        name="audio_codec",
        build=AudioCodec,
        inputs=lambda batch, time: ((torch.randn(batch, time),), {}),
        dynamic_shapes=({0: "batch", 1: "time"},),
        sizes=({"batch": 2, "time": 320}, {"batch": 1, "time": 504}),
        group="others",
    ),
    ZooCase(
        name="vocoder",
        build=Vocoder,
        inputs=lambda batch, frames: ((torch.randn(batch, 16, frames),), {}),
        dynamic_shapes=({0: "batch", 2: "frames"},),
        sizes=({"batch": 2, "frames": 12}, {"batch": 1, "frames": 19}),
        group="others",
    ),
)
