"""Makes rows of transformers: a model by its type, with a small configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import CHANNELS, SIDE, VOCABULARY, tiny_config

__all__ = [
    "TEXT",
    "TEXT_SIZES",
    "Inputs",
    "image_case",
    "make_tiny_config",
    "make_tokens",
    "model_builder",
    "padding_mask",
    "text_case",
]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]

TEXT = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "seq"}}
TEXT_SIZES = ({"batch": 2, "seq": 10}, {"batch": 3, "seq": 17})


def make_tiny_config(model_type: str, options: Mapping[str, Any] | None = None) -> Any:
    """Returns the small configuration of a model type."""
    load_torchvision()  # before transformers, which imports it
    import transformers

    return tiny_config(transformers.CONFIG_MAPPING[model_type], options)


def model_builder(
    model_type: str, auto: str = "AutoModel", **options: Any
) -> Callable[[], torch.nn.Module]:
    """Returns a function that builds the model of one of transformers' auto classes for a type.

    Options that are functions return configurations and are called when the model is built.
    """

    def build() -> torch.nn.Module:
        made = {name: value() if callable(value) else value for name, value in options.items()}
        config = make_tiny_config(model_type, made)
        import transformers

        return getattr(transformers, auto).from_config(config)

    return build


def make_tokens(batch: int, seq: int) -> torch.Tensor:
    """Random tokens, none of which is special."""
    return torch.randint(3, VOCABULARY, (batch, seq))


def padding_mask(batch: int, seq: int) -> torch.Tensor:
    """Padding mask in which the last third of the first row is padding."""
    mask = torch.ones(batch, seq, dtype=torch.int64)
    mask[0, seq - seq // 3 :] = 0
    return mask


def text_case(
    model_type: str,
    group: str,
    auto: str = "AutoModel",
    mask: bool = True,
    **options: Any,
) -> ZooCase:
    """Row for tokens, with a padding mask unless ``mask`` is False."""

    def inputs(batch: int, seq: int) -> Inputs:
        given = {"input_ids": make_tokens(batch, seq)}
        return (), given | ({"attention_mask": padding_mask(batch, seq)} if mask else {})

    return ZooCase(
        name=model_type,
        build=model_builder(model_type, auto, **options),
        inputs=inputs,
        dynamic_shapes=TEXT if mask else {"input_ids": TEXT["input_ids"]},
        sizes=TEXT_SIZES,
        group=group,
    )


def image_case(
    model_type: str,
    group: str,
    auto: str = "AutoModel",
    side: int = SIDE,
    free: bool = False,
    **options: Any,
) -> ZooCase:
    """Row for images, of any height and width if ``free``.

    Many of these models pad to a multiple of a window. Both sizes are padded alike, because an
    export keeps the branch that the example takes, and warns about it.
    """
    names = {0: "batch", 2: "height", 3: "width"} if free else {0: "batch"}

    def inputs(batch: int, height: int = side, width: int = side) -> Inputs:
        return (), {"pixel_values": torch.randn(batch, CHANNELS, height, width)}

    return ZooCase(
        name=model_type,
        build=model_builder(model_type, auto, **options),
        inputs=inputs,
        dynamic_shapes={"pixel_values": names},
        sizes=(
            {"batch": 2, **({"height": side, "width": side + 32} if free else {})},
            {"batch": 3, **({"height": 2 * side, "width": side + 96} if free else {})},
        ),
        group=group,
    )
