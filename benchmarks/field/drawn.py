"""Models of packages that were drawn from a list of 40 PyTorch packages with many downloads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import (
    BATCH,
    BATCHES,
    IMAGE_SHAPES,
    PICTURES,
    SEQUENCE,
    FieldCase,
    call,
    noise,
)

__all__ = ["CASES"]

ENTITY, END = 3, 4  # numbers of the tokens before a name of entities, and after all of them


def _build_denoiser() -> nn.Module:
    from k_diffusion.models import ImageDenoiserModelV1

    return ImageDenoiserModelV1(3, 64, [1, 1], [32, 64], [False, True])


def _noisy_pictures(batch: int, height: int, width: int) -> Any:
    return (torch.randn(batch, 3, height, width), torch.rand(batch) + 0.1), {}


def _build_backbone() -> nn.Module:
    """Builds the part that learns without labels, as the package's documentation does."""
    from lightly.models import ResNetGenerator

    layers = list(ResNetGenerator("resnet-9").children())[:-1]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Sentences(nn.Module):
    """Last hidden states of a small BERT, whose mask is an object of the package."""

    def __init__(self) -> None:
        super().__init__()
        from curated_transformers.models import BERTConfig, BERTEncoder

        config = BERTConfig(
            embedding_width=64,
            hidden_width=64,
            intermediate_width=128,
            n_attention_heads=4,
            n_hidden_layers=2,
            n_pieces=100,
        )
        self.model = BERTEncoder(config)

    def forward(self, pieces: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        from curated_transformers.layers import AttentionMask

        return self.model(pieces, AttentionMask(mask)).last_hidden_layer_state


def _sentences(batch: int, length: int) -> Any:
    lengths = length - torch.arange(batch)
    return (torch.randint(0, 100, (batch, length)), torch.arange(length) < lengths[:, None]), {}


class _Entities(nn.Module):
    """Scores of spans of words for given names of entities, with a small encoder."""

    def __init__(self) -> None:
        super().__init__()
        from gliner.config import UniEncoderSpanConfig
        from gliner.modeling.base import UniEncoderSpanModel
        from transformers import BertConfig

        encoder = BertConfig(
            vocab_size=100,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
        )
        config = UniEncoderSpanConfig(
            encoder_config=encoder.to_dict(),
            hidden_size=64,
            max_width=4,
            class_token_index=ENTITY,
            vocab_size=100,
        )
        self.model = UniEncoderSpanModel(config)

    def forward(self, ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, **inputs).logits


def _words(batch: int, words: int) -> Any:
    """Two names of one token each, then one token per word; spans have up to four words."""
    names = torch.tensor([ENTITY, 10, ENTITY, 11, END]).expand(batch, 5)
    ids = torch.cat([names, torch.randint(20, 100, (batch, words))], 1)
    numbers = torch.arange(1, words + 1).expand(batch, words)
    first = torch.arange(words)[:, None].expand(words, 4)
    last = first + torch.arange(4)
    spans = torch.stack([first, last], -1).reshape(-1, 2).expand(batch, 4 * words, 2)
    return (ids,), {
        "attention_mask": torch.ones_like(ids),
        "words_mask": torch.cat([torch.zeros(batch, 5, dtype=torch.int64), numbers], 1),
        "text_lengths": torch.full((batch, 1), words),
        "span_idx": spans.contiguous(),
        "span_mask": spans[..., 1] < words,
    }


_OF_WORDS = {
    "ids": {0: "batch", 1: "length"},
    "inputs": {
        "attention_mask": {0: "batch", 1: "length"},
        "words_mask": {0: "batch", 1: "length"},
        "text_lengths": {0: "batch"},
        "span_idx": {0: "batch", 1: "spans"},
        "span_mask": {0: "batch", 1: "spans"},
    },
}


class _Columns(nn.Module):
    """A transformer over two columns of numbers and three of categories."""

    def __init__(self) -> None:
        super().__init__()
        from torch_frame import stype
        from torch_frame.data.stats import StatType
        from torch_frame.nn import FTTransformer

        numbers, categories = ["n0", "n1"], ["c0", "c1", "c2"]
        self.names = {stype.numerical: numbers, stype.categorical: categories}
        of_numbers = {StatType.MEAN: 0.1, StatType.STD: 1.2}
        of_categories = {StatType.COUNT: (list(range(5)), [3] * 5)}
        self.model = FTTransformer(
            channels=32,
            out_channels=2,
            num_layers=2,
            col_stats=dict.fromkeys(numbers, of_numbers) | dict.fromkeys(categories, of_categories),
            col_names_dict=self.names,
        )

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        from torch_frame import TensorFrame, stype

        features = {stype.numerical: numbers, stype.categorical: categories}
        return self.model(TensorFrame(features, self.names))


def _columns(batch: int) -> Any:
    return (torch.randn(batch, 2), torch.randint(0, 5, (batch, 3))), {}


def _row(name: str, package: str, group: str, build: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=group, build=build, **more)


CASES = (
    _row(
        "k_diffusion",
        "k-diffusion",
        "diffusion",
        _build_denoiser,
        inputs=_noisy_pictures,
        dynamic_shapes=(IMAGE_SHAPES[0], {0: "batch"}),
        sizes=PICTURES["sizes"],
    ),
    _row(
        "lightly_resnet",
        "lightly",
        "images",
        _build_backbone,
        **PICTURES,
    ),
    _row(
        "face_detector",
        "face-alignment",
        "images",
        call("face_alignment.detection.sfd.net_s3fd:s3fd"),
        **PICTURES,
    ),
    _row(
        "wavelets",
        "pytorch-wavelets",
        "images",
        call("pytorch_wavelets:DWTForward", J=3, wave="db3", mode="symmetric"),
        **PICTURES,
    ),
    _row(
        "eeg_conformer",
        "braindecode",
        "time series",
        call("braindecode.models:EEGConformer", n_outputs=4, n_chans=22, n_times=500),
        inputs=noise("batch", 22, 500),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "passt",
        "hear21passt",
        "audio",
        call(
            "hear21passt.models.passt:PaSST",
            stride=10,
            embed_dim=96,
            depth=2,
            num_heads=4,
            distilled=True,
        ),
        inputs=noise("batch", 1, 128, "time"),
        dynamic_shapes=({0: "batch", 3: "time"},),
        sizes=({"batch": 1, "time": 400}, {"batch": 2, "time": 510}),
    ),
    _row(
        "curated_bert",
        "curated-transformers",
        "text and attention",
        _Sentences,
        inputs=_sentences,
        dynamic_shapes=SEQUENCE * 2,
        sizes=({"batch": 1, "length": 16}, {"batch": 3, "length": 23}),
    ),
    _row(
        "gliner",
        "gliner",
        "text and attention",
        _Entities,
        inputs=_words,
        dynamic_shapes=_OF_WORDS,
        sizes=({"batch": 1, "words": 7}, {"batch": 2, "words": 12}),
    ),
    _row(
        "frame_transformer",
        "pytorch-frame",
        "tables",
        _Columns,
        inputs=_columns,
        dynamic_shapes=BATCH * 2,
        sizes=BATCHES,
    ),
    _row(
        "gated_features",
        "pytorch-tabular",
        "tables",
        call("pytorch_tabular.models.common.layers:GatedFeatureLearningUnit", 8, 3),
        inputs=noise("batch", 8),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
)
