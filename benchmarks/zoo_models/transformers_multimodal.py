"""Rows of transformers' models for images with text."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import CHANNELS, PATCH, SIDE, VOCABULARY
from benchmarks.zoo_models.transformers_rows import (
    Inputs,
    make_tiny_config,
    make_tokens,
    model_builder,
    padding_mask,
)

__all__ = ["CASES"]

_GROUP = "transformers: images with text"
_PATCHES = (SIDE // PATCH) ** 2
_IMAGE = VOCABULARY - 1

_PAIRS = "clip siglip altclip chinese_clip metaclip_2 aimv2 blip clipseg groupvit".split()
_TOGETHER = "flava vilt".split()


def _make_pixels(batch: int) -> torch.Tensor:
    return torch.randn(batch, CHANNELS, SIDE, SIDE)


def _pair_case(model_type: str) -> ZooCase:
    """Row for scores of texts for images, with any number of each."""

    def inputs(batch: int, texts: int, seq: int) -> Inputs:
        return (), {
            "input_ids": make_tokens(texts, seq),
            "attention_mask": padding_mask(texts, seq),
            "pixel_values": _make_pixels(batch),
        }

    words = {0: "texts", 1: "seq"}
    return ZooCase(
        name=model_type,
        build=model_builder(model_type),
        inputs=inputs,
        dynamic_shapes={
            "input_ids": words,
            "attention_mask": words,
            "pixel_values": {0: "batch"},
        },
        sizes=({"batch": 2, "texts": 3, "seq": 10}, {"batch": 4, "texts": 2, "seq": 17}),
        group=_GROUP,
    )


def _captioned_image_case(model_type: str) -> ZooCase:
    """Row for images with one text each."""

    def inputs(batch: int, seq: int) -> Inputs:
        return (), {
            "input_ids": make_tokens(batch, seq),
            "attention_mask": padding_mask(batch, seq),
            "pixel_values": _make_pixels(batch),
        }

    words = {0: "batch", 1: "seq"}
    return ZooCase(
        name=model_type,
        build=model_builder(model_type),
        inputs=inputs,
        dynamic_shapes={
            "input_ids": words,
            "attention_mask": words,
            "pixel_values": {0: "batch"},
        },
        sizes=({"batch": 2, "seq": 10}, {"batch": 3, "seq": 17}),
        group=_GROUP,
    )


def _image_in_text(
    model_type: str, vision: str, decoder: str, types: bool = False, **options: Any
) -> ZooCase:
    """Row for text after the placeholders of an image's patches; ``types`` makes all a prefix.

    Without types, PaliGemma's attention depends on the values of its mask: in eager mode it is
    causal only if a token is padded, but in a capture always.
    """

    def inputs(batch: int, seq: int) -> Inputs:
        words = torch.randint(3, _IMAGE, (batch, seq))
        image = torch.full((batch, _PATCHES), _IMAGE)
        ids = torch.cat([image, words], 1)
        prefix = {"token_type_ids": torch.zeros_like(ids)} if types else {}
        return (), {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "pixel_values": _make_pixels(batch),
            **prefix,
        }

    words = {0: "batch", 1: "places_and_seq"}
    return ZooCase(
        name=model_type,
        build=model_builder(
            model_type,
            "AutoModelForImageTextToText",
            vision_config=lambda: make_tiny_config(vision),
            text_config=lambda: make_tiny_config(decoder),
            image_token_id=_IMAGE,
            **options,
        ),
        inputs=inputs,
        dynamic_shapes={
            "input_ids": words,
            "attention_mask": words,
            "pixel_values": {0: "batch"},
            **({"token_type_ids": words} if types else {}),
        },
        sizes=({"batch": 2, "seq": 10}, {"batch": 3, "seq": 17}),
        group=_GROUP,
    )


CASES = (
    *map(_pair_case, _PAIRS),
    *map(_captioned_image_case, _TOGETHER),
    _image_in_text("llava", "clip_vision_model", "llama"),
    _image_in_text("vipllava", "clip_vision_model", "llama", vision_feature_layers=[-2, -1]),
    _image_in_text("paligemma", "siglip_vision_model", "gemma", types=True),
)
