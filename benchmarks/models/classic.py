"""Classic networks written out here: DCGAN, super-resolution, word language models, an MLP."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import nn

from benchmarks.models.case import ModelCase

__all__ = ["CASES", "LINEAR_RELU", "MLP"]


class DCGANGenerator(nn.Module):
    """Maps noise ``[batch, 100, h, w]`` to ``[batch, 3, 16(h+3), 16(w+3)]`` (Radford 2015)."""

    def __init__(self, noise: int = 100, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = [noise, width * 8, width * 4, width * 2, width]
        for i, (a, b) in enumerate(itertools.pairwise(channels)):
            stride, padding = (1, 0) if i == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(inplace=True),
            ]
        layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.main(z)


class DCGANDiscriminator(nn.Module):
    """Maps images ``[batch, 3, 64, 64]`` to scores ``[batch]``."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, True),
        ]
        for a, b in ((width, width * 2), (width * 2, width * 4), (width * 4, width * 8)):
            layers += [
                nn.Conv2d(a, b, 4, 2, 1, bias=False),
                nn.BatchNorm2d(b),
                nn.LeakyReLU(0.2, inplace=True),
            ]
        layers += [nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
        self.main = nn.Sequential(*layers)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.main(image).view(-1, 1).squeeze(1)


class SuperResolution(nn.Module):
    """Sub-pixel convolution network (Shi 2016): ``[batch, 1, h, w]`` to ``[batch, 1, 3h, 3w]``."""

    def __init__(self, upscale: int = 3) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 64, 5, 1, 2)
        self.conv2 = nn.Conv2d(64, 64, 3, 1, 1)
        self.conv3 = nn.Conv2d(64, 32, 3, 1, 1)
        self.conv4 = nn.Conv2d(32, upscale**2, 3, 1, 1)
        self.pixel_shuffle = nn.PixelShuffle(upscale)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.conv1(image))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.pixel_shuffle(self.conv4(x))


class RecurrentLanguageModel(nn.Module):
    """Word language model: embedding, recurrent layers, decoder, log-softmax over the words."""

    def __init__(self, kind: str, tokens: int = 200, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(tokens, width)
        if kind in ("LSTM", "GRU"):
            self.rnn: nn.Module = getattr(nn, kind)(width, width, layers, dropout=0.2)
        else:
            nonlinearity = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}[kind]
            self.rnn = nn.RNN(width, width, layers, nonlinearity=nonlinearity, dropout=0.2)
        self.decoder = nn.Linear(width, tokens)
        self.tokens = tokens

    def forward(self, tokens: torch.Tensor, hidden: Any) -> tuple[torch.Tensor, Any]:
        embedded = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(embedded, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.tokens)
        return nn.functional.log_softmax(decoded, dim=1), hidden


class TransformerLanguageModel(nn.Module):
    """Word language model: causal ``nn.TransformerEncoder`` over positional embeddings."""

    def __init__(self, tokens: int = 200, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        position = torch.arange(500).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(500, 1, width)
        table[:, 0, 0::2] = torch.sin(position * frequency)
        table[:, 0, 1::2] = torch.cos(position * frequency)
        self.register_buffer("position", table)
        self.width = width
        self.drop = nn.Dropout(0.2)
        self.embedding = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, heads, width * 2, 0.2)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.size(0)
        mask = torch.log(torch.tril(torch.ones(length, length, device=tokens.device)))
        x = self.embedding(tokens) * math.sqrt(self.width)
        x = self.drop(x + self.position[:length])
        return nn.functional.log_softmax(self.decoder(self.encoder(x, mask=mask)), dim=-1)


class MLP(nn.Module):
    """Takes a tensor, a dict and a list of tensors, adds their hidden features and classifies."""

    def __init__(self, features: int = 8, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.fc0 = nn.Linear(features, width)
        self.fc1 = nn.Linear(width, classes)

    def forward(
        self,
        tensor_x: torch.Tensor,
        input_dict: dict[str, torch.Tensor],
        input_list: list[torch.Tensor],
    ) -> torch.Tensor:
        x = self.fc0(tensor_x) + self.fc0(input_dict["tensor_x"]) + self.fc0(input_list[0])
        return self.fc1(torch.sigmoid(x))


def _language_inputs(kind: str, batch: int, seq: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    tokens = torch.randint(0, 200, (seq, batch))
    state = torch.randn(2, batch, 32)
    return (tokens, (state, torch.randn(2, batch, 32)) if kind == "LSTM" else state), {}


def _language_case(kind: str) -> ModelCase:
    state = {1: "batch"}
    return ModelCase(
        name=f"word_language_model_{kind.lower()}",
        build=lambda: RecurrentLanguageModel(kind),
        inputs=lambda batch, seq: _language_inputs(kind, batch, seq),
        dynamic_shapes=({0: "seq", 1: "batch"}, (state, state) if kind == "LSTM" else state),
        sizes=({"batch": 3, "seq": 7}, {"batch": 1, "seq": 12}, {"batch": 5, "seq": 1}),
    )


def _mlp_inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, 8), {"tensor_x": torch.randn(batch, 8)}, [torch.randn(batch, 8)]), {}


CASES = (
    ModelCase(
        name="mlp",
        build=MLP,
        inputs=_mlp_inputs,
        dynamic_shapes=(
            {0: "batch_size"},
            {"tensor_x": {0: "batch_size"}},
            [{0: "batch_size"}],
        ),
        sizes=({"batch": 2}, {"batch": 1}, {"batch": 7}),
    ),
    ModelCase(
        name="dcgan_generator",
        build=DCGANGenerator,
        inputs=lambda batch, side: ((torch.randn(batch, 100, side, side),), {}),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=({"batch": 2, "side": 2}, {"batch": 1, "side": 1}, {"batch": 3, "side": 3}),
    ),
    ModelCase(
        name="dcgan_discriminator",
        build=DCGANDiscriminator,
        inputs=lambda batch: ((torch.randn(batch, 3, 64, 64),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 1}, {"batch": 5}),
    ),
    ModelCase(
        name="super_resolution",
        build=SuperResolution,
        inputs=lambda batch, height, width: ((torch.rand(batch, 1, height, width),), {}),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=(
            {"batch": 2, "height": 16, "width": 24},
            {"batch": 1, "height": 7, "width": 5},
            {"batch": 3, "height": 32, "width": 16},
        ),
    ),
    *(_language_case(kind) for kind in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")),
    ModelCase(
        name="word_language_model_transformer",
        build=TransformerLanguageModel,
        inputs=lambda batch, seq: ((torch.randint(0, 200, (seq, batch)),), {}),
        dynamic_shapes=({0: "seq", 1: "batch"},),
        sizes=({"batch": 3, "seq": 7}, {"batch": 1, "seq": 12}, {"batch": 5, "seq": 1}),
    ),
)

LINEAR_RELU = ModelCase(
    name="linear_relu",
    build=lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU()),
    inputs=lambda batch: ((torch.randn(batch, 16),), {}),
    dynamic_shapes=({0: "batch"},),
    sizes=({"batch": 2}, {"batch": 1}, {"batch": 7}),
)
"""The smallest model, for the fixed cost of an export."""
