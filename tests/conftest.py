"""Everything runs on the CPU, reproducibly.

``HYPOTHESIS_PROFILE=conformance`` runs ten times as many random programs, from a random seed.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile(
    "tests", max_examples=200, deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "conformance", max_examples=2000, deadline=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(0)
