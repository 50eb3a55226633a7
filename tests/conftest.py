"""Everything runs on the CPU, reproducibly."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(0)
