"""Comparison of tensors with those of PyTorch, by the package's table of tolerances."""

from __future__ import annotations

import torch

from onnx_aot.dtypes import TOLERANCES, Tolerance

__all__ = ["assert_close"]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Like ``torch.testing.assert_close``, with the tolerance for the dtype of ``expected``.

    Shapes and dtypes must match, and NaN equals NaN. Types without a tolerance must match exactly.
    """
    limit = TOLERANCES.get(expected.dtype, Tolerance(0.0, 0.0))
    torch.testing.assert_close(
        actual, expected, rtol=limit.relative, atol=limit.absolute, equal_nan=True
    )
