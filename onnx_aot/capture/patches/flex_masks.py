"""Keeps lengths dynamic that the block masks of ``flex_attention`` would limit.

Torch counts the blocks of a mask, which limits the lengths. The translation of ``flex_attention``
uses the mask's function, not its blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat import Patch, Settings

__all__ = ["BLOCK_MASKS"]

Tensor = torch.Tensor


@functools.cache
def _blocks_operator() -> Any:
    """Operator with a result of the right shape; models that read the blocks are refused."""

    @torch.library.custom_op("onnx_aot::blocks_of_mask", mutates_args=())
    def blocks_of_mask(mask: Tensor, rows: int, columns: int) -> Tensor:
        raise AssertionError("it is traced, and not run")

    @blocks_of_mask.register_fake
    def _(mask: Tensor, rows: int, columns: int) -> Tensor:
        return mask.new_empty((*mask.shape[:2], rows, columns), dtype=torch.int32)

    return blocks_of_mask


def _replace_transpose(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def transpose_ordered(
        num_blocks_in_row: Tensor, col_indices: Tensor, num_cols: Any = None
    ) -> tuple[Tensor, Tensor]:
        if col_indices.dim() != 4:
            more = () if num_cols is None else (num_cols,)
            return original(num_blocks_in_row, col_indices, *more)  # type: ignore[no-any-return]
        columns = col_indices.shape[3] if num_cols is None else num_cols
        indices = _blocks_operator()(col_indices, columns, col_indices.shape[2])
        return indices.sum(-1, dtype=torch.int32), indices

    return transpose_ordered


BLOCK_MASKS: tuple[Patch, ...] = (
    Patch(
        "torch.nn.attention.flex_attention:_transpose_ordered",
        _replace_transpose,
        "Block masks limit the lengths that flex_attention is exported for.",
        parameters="num_blocks_in_row, col_indices",
        imports=False,
    ),
)
