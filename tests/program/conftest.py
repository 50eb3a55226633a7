"""The model with an adapter, created once per file."""

from __future__ import annotations

import pytest
import torch

from tests.program.lora import Lora


@pytest.fixture(scope="module")
def lora() -> Lora:
    torch.manual_seed(0)
    return Lora()
