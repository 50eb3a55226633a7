"""Keeps transformers from leaving out masks of attention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["masks_kept"]


@contextlib.contextmanager
def masks_kept() -> Iterator[None]:
    """Context in which transformers leaves out no mask.

    An export keeps them anyway. The function that decides asks for lengths before it says so, and
    the capture would have a branch on whether the window is full.
    """
    from transformers import masking_utils

    name = "_ignore_causal_mask_sdpa"
    before = vars(masking_utils).get(name)
    if before is None:  # another release of transformers
        yield
        return
    setattr(masking_utils, name, lambda *_, **__: False)
    try:
        yield
    finally:
        setattr(masking_utils, name, before)
