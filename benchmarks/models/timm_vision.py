"""Rows of timm networks with random weights, for the benchmarks; the tests do not run these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models.case import ModelCase
from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.models.vision import fixed_size, free_size

__all__ = ["CASES"]


def _build(name: str, options: dict[str, Any]) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        load_torchvision()  # before timm, which imports it
        import timm

        return timm.create_model(name.removeprefix("timm_"), pretrained=False, **options)

    return build


def _free_size(name: str) -> ModelCase:
    return free_size(f"timm_{name}", build=_build)


def _fixed_size(name: str) -> ModelCase:
    return fixed_size(f"timm_{name}", 224, build=_build)


CASES = (
    _free_size("resnet10t"),
    _free_size("mobilenetv4_conv_small"),
    _free_size("ghostnet_100"),
    _free_size("edgenext_xx_small"),
    _free_size("eca_nfnet_l0"),
    _free_size("fastvit_t8"),
    _fixed_size("mixer_s32_224"),
    _fixed_size("levit_128s"),
    _fixed_size("coat_lite_tiny"),
    _fixed_size("eva02_tiny_patch14_224"),
    _fixed_size("pvt_v2_b0"),
)
