"""Cases for functions of one input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.ir_passes.fusions.fusion_cases import FusionCase

ROOT = math.sqrt(2.0 / math.pi)


def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    return (3.0 * torch.randn(batch, length, 4),)


def activation(
    name: str, function: Callable[..., Any], fires: str = "", opset: int = 20, **operators: int
) -> FusionCase:
    return FusionCase(name, function, inputs, {fires: 1} if fires else {}, operators, opset)
