"""Whether tensors are those of PyTorch, by the package's table of tolerances."""

from __future__ import annotations

import torch

from onnx_aot.dtypes import TOLERANCES, Tolerance

__all__ = ["assert_close"]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """As ``torch.testing.assert_close``, with the tolerance of the type of ``expected``.

    Shapes and types are the same, and NaN is NaN. Types without a tolerance are equal.
    """
    limit = TOLERANCES.get(expected.dtype, Tolerance(0.0, 0.0))
    torch.testing.assert_close(
        actual, expected, rtol=limit.relative, atol=limit.absolute, equal_nan=True
    )
