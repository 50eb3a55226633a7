"""Block masks of ``flex_attention``: torch counts blocks, which limits the lengths.

``flex_attention`` is translated with the mask's function, not with its blocks.
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
    """An operator of the right shape; a model that reads the blocks themselves is refused."""

    @torch.library.custom_op("onnx_aot::blocks_of_mask", mutates_args=())
    def blocks_of_mask(mask: Tensor, rows: int, columns: int) -> Tensor:
        raise AssertionError("it is traced, and not run")

    @blocks_of_mask.register_fake
    def _(mask: Tensor, rows: int, columns: int) -> Tensor:
        return mask.new_empty((*mask.shape[:2], rows, columns), dtype=torch.int32)

    return blocks_of_mask


def _counted(mask: Tensor, rows: Any, columns: Any) -> tuple[Tensor, Tensor]:
    """Counts of blocks per row, and the blocks."""
    indices = _blocks_operator()(mask, rows, columns)
    return indices.sum(-1, dtype=torch.int32), indices


def _block_mask(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def convert_mask_to_block_mask(
        mask: Tensor,
        Q_BLOCK_SIZE: int = 128,  # noqa: N803
        KV_BLOCK_SIZE: int = 128,  # noqa: N803
        separate_full_blocks: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        mask = mask.expand((1,) * (4 - mask.dim()) + tuple(mask.shape))
        rows = (mask.shape[2] + Q_BLOCK_SIZE - 1) // Q_BLOCK_SIZE
        columns = (mask.shape[3] + KV_BLOCK_SIZE - 1) // KV_BLOCK_SIZE
        blocks = _blocks_operator()(mask, rows, columns)
        return blocks, blocks if separate_full_blocks else None

    return convert_mask_to_block_mask


def _ordered(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def dense_to_ordered(dense_mask: Tensor) -> tuple[Tensor, Tensor]:
        return _counted(dense_mask, dense_mask.shape[2], dense_mask.shape[3])

    return dense_to_ordered


def _transposed(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def transpose_ordered(
        num_blocks_in_row: Tensor, col_indices: Tensor, num_cols: Any = None
    ) -> tuple[Tensor, Tensor]:
        if col_indices.dim() != 4:
            more = () if num_cols is None else (num_cols,)
            return original(num_blocks_in_row, col_indices, *more)  # type: ignore[no-any-return]
        columns = col_indices.shape[3] if num_cols is None else num_cols
        return _counted(col_indices, columns, col_indices.shape[2])

    return transpose_ordered


_FLEX = "torch.nn.attention.flex_attention"
_LIMITED = "Block masks limit the lengths that flex_attention is exported for."

BLOCK_MASKS: tuple[Patch, ...] = (
    Patch(
        f"{_FLEX}:_convert_mask_to_block_mask",
        _block_mask,
        _LIMITED,
        parameters="mask, Q_BLOCK_SIZE, KV_BLOCK_SIZE, separate_full_blocks",
        imports=False,
    ),
    Patch(
        f"{_FLEX}:_dense_to_ordered",
        _ordered,
        _LIMITED,
        parameters="dense_mask",
        imports=False,
    ),
    Patch(
        f"{_FLEX}:_transpose_ordered",
        _transposed,
        _LIMITED,
        parameters="num_blocks_in_row, col_indices",
        imports=False,
    ),
)
