"""torchvision networks with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models.case import ModelCase
from benchmarks.models.torchvision_cpu import load_torchvision

__all__ = ["CASES"]


def _build(name: str, options: dict[str, Any]) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        return load_torchvision().models.get_model(name, **options)

    return build


def _images(batch: int, height: int, width: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, 3, height, width),), {}


def _free_size(name: str, side: int = 64, step: int = 32, **options: Any) -> ModelCase:
    """Batch, height and width dynamic; sizes other than the example change the aspect too."""
    return ModelCase(
        name=name,
        build=_build(name, options),
        inputs=_images,
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=(
            {"batch": 2, "height": side, "width": side + step},
            {"batch": 1, "height": side + step, "width": side},
            {"batch": 3, "height": side + step // 2, "width": side + 2 * step},
        ),
    )


def _fixed_size(name: str, side: int, **options: Any) -> ModelCase:
    """The architecture fixes height and width; batch is dynamic."""
    return ModelCase(
        name=name,
        build=_build(name, options),
        inputs=lambda batch: _images(batch, side, side),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 1}, {"batch": 3}),
    )


CASES = (
    _free_size("alexnet"),
    _free_size("densenet121"),
    _free_size("inception_v3", side=112, init_weights=False, transform_input=True, aux_logits=False),
    _free_size("resnet18"),
    _free_size("resnet50"),
    _free_size("squeezenet1_1"),
    _free_size("vgg11", init_weights=False),
    _free_size("mobilenet_v2"),
    _free_size("mobilenet_v3_small"),
    _free_size("efficientnet_b0"),
    _fixed_size("vit_b_16", 224),
    # Windows of 7 patches of 4 pixels, halved three times: other branches are taken where a side
    # is not between 161 and 224.
    _free_size("swin_t", side=192, step=16),
    _free_size("convnext_tiny"),
)
