from __future__ import annotations

import torch

from tests.ops.rows import T


def numbers(*sizes: int | str, size: float = 2.0, dtype: torch.dtype = torch.complex64) -> T:
    """Normally distributed complex numbers."""
    return T(sizes, dtype, lambda *s: torch.randn(s, dtype=torch.complex128) * size)
