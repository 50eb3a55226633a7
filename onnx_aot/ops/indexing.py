"""Reading by index: advanced indexing, gathering, selecting."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import register

__all__ = ["IndexPlan", "stacked"]

aten = torch.ops.aten
Value = ir.Value
BOOL = ir.DataType.BOOL
INT64 = ir.DataType.INT64


@register(aten.gather.default)
def aten_gather(
    op: Builder, self: Value, dim: int, index: Value, sparse_grad: bool = False
) -> Value:
    if op.rank(self) == 0:
        return op.Expand(self, op.Shape(index)) if op.rank(index) else self
    if op.rank(index) == 0:
        return op.Squeeze(op.GatherElements(self, op.Unsqueeze(index, [0]), axis=dim), [0])
    return op.GatherElements(self, op.cast(index, INT64), axis=dim)


@register(aten.index_select.default)
def aten_index_select(op: Builder, self: Value, dim: int, index: Value) -> Value:
    if op.rank(self) == 0:
        return self
    if op.rank(index) == 0:
        index = op.Unsqueeze(index, [0])
    return op.Gather(self, index, axis=op.axis(self, dim))


@register(aten.index.Tensor)
def aten_index(op: Builder, self: Value, indices: Sequence[Value | None]) -> Value:
    """``x[i, :, j]`` with integer or boolean tensors: one Gather, or one GatherND."""
    plan = IndexPlan(op, self, indices)
    if len(plan.axes) == 1 and not plan.flattened:
        return op.Gather(self, plan.indices[0], axis=plan.axes[0])
    front = op.Transpose(self, perm=plan.order)
    gathered = op.GatherND(front, stacked(op, plan.indices))
    kept = op.rank(self) - len(plan.axes)
    return _placed(op, gathered, plan.rank, kept, plan.position)


class IndexPlan:
    """Where advanced indexing reads and writes.

    Attributes:
        axes: The indexed axes of the tensor.
        indices: One integer tensor per indexed axis, broadcast to a common shape.
        order: A permutation that brings the indexed axes to the front.
        rank: Rank of the common shape of the indices.
        position: Where the common shape stands in the result: at the first indexed axis when the
            indexed axes are adjacent, else at the front.
        flattened: Whether a boolean mask was turned into positions.
    """

    def __init__(self, op: Builder, value: Value, indices: Sequence[Value | None]) -> None:
        self.flattened = False
        self.axes: list[int] = []
        self.indices: list[Value] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif index.dtype == BOOL:
                self.flattened = True
                for position in _true_positions(op, index):
                    self.axes.append(axis)
                    self.indices.append(position)
                    axis += 1
            else:
                self.axes.append(axis)
                self.indices.append(op.cast(index, INT64))
                axis += 1
        ranks = [len(i.shape) if i.shape is not None else 1 for i in self.indices]
        self.rank = max(ranks)
        rest = [a for a in range(op.rank(value)) if a not in self.axes]
        self.order = [*self.axes, *rest]
        adjacent = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.position = self.axes[0] if adjacent else 0
        if len(self.indices) > 1:
            self.indices = _broadcast(op, self.indices)


def _true_positions(op: Builder, mask: Value) -> list[Value]:
    """One 1-d tensor per dimension of a mask, in row-major order."""
    rank = op.rank(mask)
    positions = op.NonZero(mask)
    pieces = [positions] if rank == 1 else op.split(positions, [1] * rank, 0)
    found = []
    for piece in pieces:
        flat = op.Squeeze(piece, [0])
        flat.shape = ir.Shape([None])
        found.append(flat)
    return found


def _broadcast(op: Builder, indices: list[Value]) -> list[Value]:
    shapes = [index.shape for index in indices]
    first = shapes[0]
    if first is not None and not first.has_unknown_dim() and all(s == first for s in shapes):
        return indices
    if all(s is not None and len(s) == 1 and s.has_unknown_dim() for s in shapes):
        return indices  # positions of one mask have one length
    total = indices[0]
    for index in indices[1:]:
        total = op.Add(total, index)
    shape = op.Shape(total)
    rank = max(len(s) for s in shapes if s is not None)
    wide = []
    for index in indices:
        expanded = op.Expand(index, shape)
        expanded.shape = ir.Shape([None] * rank)
        wide.append(expanded)
    return wide


def stacked(op: Builder, indices: Sequence[Value]) -> Value:
    return op.Concat(*(op.Unsqueeze(index, [-1]) for index in indices), axis=-1)


def _placed(op: Builder, value: Value, rank: int, kept: int, position: int) -> Value:
    """Moves the first ``rank`` axes to ``position`` among the kept ones."""
    if position == 0:
        return value
    moved = list(range(rank))
    rest = list(range(rank, rank + kept))
    return op.Transpose(value, perm=[*rest[:position], *moved, *rest[position:]])


@register(aten.nonzero.default)
def aten_nonzero(op: Builder, self: Value) -> Value:
    return op.Transpose(op.NonZero(self), perm=[1, 0])


@register(aten.masked_select.default)
def aten_masked_select(op: Builder, self: Value, mask: Value) -> Value:
    """The elements where the mask, broadcast against them, is true, in row-major order."""
    shape = op.Shape(op.Or(mask, op.Not(mask))) if self.shape == mask.shape else None
    if shape is None:
        joint = op.Shape(op.Where(mask, self, self))
        self, mask = op.Expand(self, joint), op.Expand(mask, joint)
    return op.Compress(op.Reshape(self, [-1]), op.Reshape(mask, [-1]), axis=0)


@register(aten.take.default)
def aten_take(op: Builder, self: Value, index: Value) -> Value:
    return op.Gather(op.Reshape(self, [-1]), index, axis=0)


@register(aten.diagonal.default)
def aten_diagonal(op: Builder, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The elements ``[i, i + offset]`` of two axes, as the last axis."""
    rank = op.rank(self)
    first, second = dim1 % rank, dim2 % rank
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    front = op.Transpose(self, perm=[first, second, *rest])
    rows, columns = op.size(self, first), op.size(self, second)
    start = op.Range(0, _diagonal_length(op, rows, columns, offset), 1)
    row = op.Add(start, max(-offset, 0))
    column = op.Add(start, max(offset, 0))
    taken = op.GatherND(front, stacked(op, [row, column]))
    taken.shape = ir.Shape([None] * (rank - 1))
    return op.Transpose(taken, perm=[*range(1, rank - 1), 0])


def _diagonal_length(op: Builder, rows: Size, columns: Size, offset: int) -> Size:
    if isinstance(rows, int) and isinstance(columns, int):
        return max(0, min(rows - max(-offset, 0), columns - max(offset, 0)))
    short = op.Min(op.Sub(rows, max(-offset, 0)), op.Sub(columns, max(offset, 0)))
    return op.Max(short, 0)
