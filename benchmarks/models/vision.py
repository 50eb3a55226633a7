"""Rows of torchvision networks with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models.case import ModelCase
from benchmarks.models.torchvision_cpu import load_torchvision

__all__ = ["CASES", "MORE", "fixed_size", "free_size"]


Build = Callable[[str, dict[str, Any]], Callable[[], torch.nn.Module]]


def _build(name: str, options: dict[str, Any]) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        return load_torchvision().models.get_model(name, **options)

    return build


def _image_inputs(batch: int, height: int, width: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, 3, height, width),), {}


def free_size(
    name: str, side: int = 64, step: int = 32, build: Build = _build, **options: Any
) -> ModelCase:
    """Row with dynamic batch, height and width; the other sizes also change the aspect ratio."""
    return ModelCase(
        name=name,
        build=build(name, options),
        inputs=_image_inputs,
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=(
            {"batch": 2, "height": side, "width": side + step},
            {"batch": 1, "height": side + step, "width": side},
            {"batch": 3, "height": side + step // 2, "width": side + 2 * step},
        ),
    )


def fixed_size(name: str, side: int, build: Build = _build, **options: Any) -> ModelCase:
    """Row with a dynamic batch; the architecture fixes height and width."""
    return ModelCase(
        name=name,
        build=build(name, options),
        inputs=lambda batch: _image_inputs(batch, side, side),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 1}, {"batch": 3}),
    )


CASES = (
    free_size("alexnet"),
    free_size("densenet121"),
    free_size("inception_v3", side=112, init_weights=False, transform_input=True, aux_logits=False),
    free_size("resnet18"),
    free_size("resnet50"),
    free_size("squeezenet1_1"),
    free_size("vgg11", init_weights=False),
    free_size("mobilenet_v2"),
    free_size("mobilenet_v3_small"),
    free_size("efficientnet_b0"),
    fixed_size("vit_b_16", 224),
    # Windows of 7 patches of 4 pixels, halved three times: a side that is not between 161 and 224
    # takes other branches.
    free_size("swin_t", side=192, step=16),
    free_size("convnext_tiny"),
)

MORE = (
    free_size("regnet_y_400mf"),
    free_size("shufflenet_v2_x0_5"),
    free_size("googlenet", init_weights=False, transform_input=True, aux_logits=False),
)
"""Additional models for the benchmarks; the tests do not run these."""
