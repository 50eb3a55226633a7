"""Translates views, permutations, joining, splitting, repeating, padding and rolling.

A recorded shape is never recomputed: if an output dimension equals the input's at the same
position, Reshape copies it (0), so most views need no shape arithmetic at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.size_math import add_sizes, as_value, product, subtract_sizes
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = ["annotate_shape", "expand", "move_axis", "reshape", "slice_axis", "swap_axes"]

Value = ir.Value


def annotate_shape(value: Value, dims: Iterable[int | ir.SymbolicDim | None]) -> Value:
    """Sets the shape of a value, unless the builder has inferred one already."""
    if value.shape is None:
        value.shape = ir.Shape(dims)
    return value


# --- views ---------------------------------------------------------------------------------------


def reshape(op: Builder, value: Value, sizes: Sequence[Size]) -> Value:
    """Returns the elements in a new shape, in order.

    ``sizes`` may hold one -1; torch then allows no size of 0. A size that equals the input's at the
    same position is copied by Reshape itself. Other sizes known only at run time may be 0, which
    Reshape either takes literally or copies, but not both in one node.
    """
    numbers = [op.number(size) for size in sizes]
    source = value.shape or ()
    copied = [
        isinstance(size, ir.Value)
        and position < len(source)
        and _is_value_of_dimension(op, size, source[position])
        for position, size in enumerate(sizes)
    ]
    target = [0 if copy else size for copy, size in zip(copied, sizes, strict=True)]
    unknown = [i for i, size in enumerate(target) if op.number(size) is None]
    if 0 not in numbers and (not unknown or -1 in numbers):
        return op.Reshape(value, op.sizes(target))
    if 0 not in numbers and len(unknown) == 1 and not any(copied):
        target[unknown[0]] = -1  # the other sizes are positive numbers
        return op.Reshape(value, op.sizes(target))
    return op.Reshape(value, op.sizes(sizes), allowzero=1)


def _is_value_of_dimension(op: Builder, size: Value, dimension: int | ir.SymbolicDim) -> bool:
    """True if a 0-d value holds a symbolic dimension."""
    if isinstance(dimension, int) or dimension.value is None:
        return False
    return op.known_size(dimension.value) is size


@register(
    aten.view.default,
    aten._unsafe_view.default,
)
def aten_view(op: Builder, self: Value, size: Sequence[Size]) -> Value:
    """Reshapes; the value stays as it is if torch recorded a result that keeps its rank.

    For ``x[:] = y`` torch drops leading sizes of ``y`` that are 1 in the example. If such a size is
    dynamic, torch records a result from which nothing was dropped.
    """
    recorded = op.result.dim()
    if recorded != len(size) and recorded == op.rank(self):
        return self
    return reshape(op, self, size)


@register(aten.reshape.default)
def aten_reshape(op: Builder, self: Value, shape: Sequence[Size]) -> Value:
    return reshape(op, self, shape)


@register(aten.view_as.default, aten.reshape_as.default)
def aten_view_as(op: Builder, self: Value, other: Value) -> Value:
    return reshape(op, self, op.all_sizes(other))


@register(aten.flatten.using_ints)
def aten_flatten(op: Builder, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = op.rank(self)
    if rank == 0:
        return op.Reshape(self, [1])
    start, end = start_dim % rank, end_dim % rank
    if start == end:
        return self
    to_matrix = op.result.dim() == 2 and (start == 1 or end == rank - 2)
    if to_matrix and not _is_static(self):
        return op.Flatten(self, axis=1 if start == 1 else rank - 1)
    around = op.all_sizes(self)
    merged = product(op, around[start : end + 1])
    return reshape(op, self, [*around[:start], merged, *around[end + 1 :]])


def _is_static(value: Value) -> bool:
    return value.shape is not None and value.shape.is_static()


@register(aten.unflatten.int)
def aten_unflatten(op: Builder, self: Value, dim: int, sizes: Sequence[Size]) -> Value:
    """Computes a size of -1 from this axis alone, because the others may be 0."""
    dim = op.axis(self, dim)
    around = op.all_sizes(self)
    parts = list(sizes)
    if -1 in map(op.number, parts):
        unknown = [op.number(part) for part in parts].index(-1)
        recorded = op.result.shape[dim + unknown]
        rest = product(op, parts[:unknown] + parts[unknown + 1 :])
        parts[unknown] = recorded if type(recorded) is int else op.Div(around[dim], rest)
    return reshape(op, self, [*around[:dim], *parts, *around[dim + 1 :]])


@register(aten.ravel.default)
def aten_ravel(op: Builder, self: Value) -> Value:
    return op.Reshape(self, [-1])


@register(aten.squeeze.default)
def aten_squeeze(op: Builder, self: Value) -> Value:
    """Drops the dimensions that the capture recorded as 1."""
    return _squeeze_ones(op, self, range(op.rank(self)))


@register(aten.squeeze.dim)
def aten_squeeze_dim(op: Builder, self: Value, dim: int) -> Value:
    return _squeeze_ones(op, self, [dim])


@register(aten.squeeze.dims)
def aten_squeeze_dims(op: Builder, self: Value, dim: Sequence[int]) -> Value:
    return _squeeze_ones(op, self, dim)


def _squeeze_ones(op: Builder, value: Value, axes: Sequence[int]) -> Value:
    ones = [op.axis(value, axis) for axis in axes] if op.rank(value) else []
    ones = [axis for axis in ones if value.shape is not None and value.shape[axis] == 1]
    return op.Squeeze(value, sorted(ones)) if ones else value


@register(aten.unsqueeze.default)
def aten_unsqueeze(op: Builder, self: Value, dim: int) -> Value:
    return op.Unsqueeze(self, [dim])


@register(aten.expand.default)
def aten_expand(op: Builder, self: Value, size: Sequence[Size], implicit: bool = False) -> Value:
    return expand(op, self, size)


def expand(op: Builder, value: Value, sizes: Sequence[Size]) -> Value:
    """Broadcasts to sizes, where -1 keeps the existing dimension."""
    shape = value.shape
    assert shape is not None
    offset = len(sizes) - len(shape)
    target: list[Size] = []
    for position, size in enumerate(sizes):
        there = shape[position - offset] if position >= offset else None
        keeps = op.number(size) == -1 or (there is not None and _has_target_size(op, there, size))
        target.append(1 if keeps else size)
    if all(size == 1 for size in target) and offset == 0:
        return value
    return op.Expand(value, op.sizes(target))


def _has_target_size(op: Builder, there: int | ir.SymbolicDim, size: Size) -> bool:
    """True if a dimension already has the target size, which it must have if it is not 1."""
    if isinstance(there, int):
        return there != 1
    return not isinstance(size, int) and op.contents(size) == [there]


@register(aten.expand_as.default)
def aten_expand_as(op: Builder, self: Value, other: Value) -> Value:
    return expand(op, self, op.all_sizes(other))


@register(aten.broadcast_to.default)
def aten_broadcast_to(op: Builder, self: Value, size: Sequence[Size]) -> Value:
    return expand(op, self, size)


# --- permutations --------------------------------------------------------------------------------


@register(aten.permute.default)
def aten_permute(op: Builder, self: Value, dims: Sequence[int]) -> Value:
    rank = op.rank(self)
    return op.Transpose(self, perm=[dim % rank for dim in dims]) if rank else self


@register(aten.transpose.int, aten.swapdims.default)
def aten_transpose(op: Builder, self: Value, dim0: int, dim1: int) -> Value:
    return swap_axes(op, self, dim0, dim1)


@register(aten.swapaxes.default)
def aten_swapaxes(op: Builder, self: Value, axis0: int, axis1: int) -> Value:
    return swap_axes(op, self, axis0, axis1)


def swap_axes(op: Builder, value: Value, first: int, second: int) -> Value:
    """Exchanges two axes."""
    rank = op.rank(value)
    if rank < 2:
        return value
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return op.Transpose(value, perm=order)


@register(aten.t.default, aten.mT.default)
def aten_t(op: Builder, self: Value) -> Value:
    return swap_axes(op, self, -2, -1)


@register(aten.numpy_T.default)
def aten_numpy_t(op: Builder, self: Value) -> Value:
    return op.Transpose(self, perm=list(reversed(range(op.rank(self)))))


@register(aten.movedim.int)
def aten_movedim(op: Builder, self: Value, source: int, destination: int) -> Value:
    return move_axis(op, self, source, destination)


@register(aten.movedim.intlist)
def aten_movedim_intlist(
    op: Builder, self: Value, source: Sequence[int], destination: Sequence[int]
) -> Value:
    rank = op.rank(self)
    order = [-1] * rank
    for src, dst in zip(source, destination, strict=True):
        order[dst % rank] = src % rank
    rest = iter(axis for axis in range(rank) if axis not in order)
    return op.Transpose(self, perm=[next(rest) if axis < 0 else axis for axis in order])


def move_axis(op: Builder, value: Value, source: int, destination: int) -> Value:
    """Moves one axis; the others keep their order."""
    rank = op.rank(value)
    if rank < 2:
        return value
    order = [axis for axis in range(rank) if axis != source % rank]
    order.insert(destination % rank, source % rank)
    return op.Transpose(value, perm=order)


# --- joining and splitting -----------------------------------------------------------------------


@register(aten.cat.default, aten.concat.default, aten.concatenate.default)
def aten_cat(op: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Skips 1-d tensors of size 0 whatever the rank of the others, as torch does."""
    kept = [t for t in tensors if not (t.shape is not None and t.shape.dims == (0,))]
    return op.Concat(*(kept or tensors[:1]), axis=dim)


@register(aten.stack.default)
def aten_stack(op: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    return op.Concat(*(op.Unsqueeze(tensor, [dim]) for tensor in tensors), axis=dim)


@register(aten.split.Tensor)
def aten_split(op: Builder, self: Value, split_size: Size, dim: int = 0) -> list[Value]:
    """Returns as many pieces as the capture recorded; the last one takes the rest."""
    count = len(op.result)
    return _split_with_rest(op, self, [split_size] * (count - 1), dim)


@register(aten.split_with_sizes.default)
def aten_split_with_sizes(
    op: Builder, self: Value, split_sizes: Sequence[Size], dim: int = 0
) -> list[Value]:
    return op.split(self, split_sizes, dim)


@register(aten.split.sizes)
def aten_split_sizes(
    op: Builder, self: Value, split_size: Sequence[Size], dim: int = 0
) -> list[Value]:
    return op.split(self, split_size, dim)


@register(aten.chunk.default)
def aten_chunk(op: Builder, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """Returns pieces of ``ceil(size / chunks)`` elements.

    Split's ``num_outputs`` would do, but ONNX Runtime rejects it if the size is 0.
    """
    count = len(op.result)
    size = op.size(self, dim)
    if isinstance(size, int):
        each: Size = -(-size // chunks)
    else:
        each = op.Div(op.Add(size, chunks - 1), chunks)
    return _split_with_rest(op, self, [each] * (count - 1), dim)


@register(aten.tensor_split.sections)
def aten_tensor_split(op: Builder, self: Value, sections: Size, dim: int = 0) -> list[Value]:
    """The first ``size % sections`` pieces have one element more than the others."""
    count, size = len(op.result), op.size(self, dim)
    if isinstance(size, int):
        each, more = divmod(size, count)
        return op.split(self, [each + (index < more) for index in range(count)], dim)
    quotient, rest = op.Div(size, count), op.Mod(size, count)
    starts: list[Size] = [
        op.Add(op.Mul(quotient, index), op.Min(rest, index)) if index else 0
        for index in range(count)
    ]
    ends = [*starts[1:], INT64_MAX]
    return [slice_axis(op, self, dim, *piece) for piece in zip(starts, ends, strict=True)]


def _split_with_rest(op: Builder, value: Value, sizes: list[Size], dim: int) -> list[Value]:
    """Returns consecutive pieces; the last one, whose size is not given, takes the rest."""
    whole = op.size(value, dim)
    if isinstance(whole, int) and all(isinstance(size, int) for size in sizes):
        last = whole - sum(size for size in sizes if isinstance(size, int))
        return op.split(value, [*sizes, last], dim)
    pieces = []
    start: Size = 0
    for size in sizes:
        end = add_sizes(op, start, size)
        pieces.append(slice_axis(op, value, dim, start, end))
        start = end
    pieces.append(slice_axis(op, value, dim, start, INT64_MAX))
    return pieces


@register(aten.unbind.int)
def aten_unbind(op: Builder, self: Value, dim: int = 0) -> list[Value]:
    return [op.Gather(self, index, axis=op.axis(self, dim)) for index in range(len(op.result))]


@register(aten.meshgrid.default, aten.meshgrid.indexing)
def aten_meshgrid(op: Builder, tensors: Sequence[Value], indexing: str = "ij") -> list[Value]:
    """Expands each vector along its own axis; "xy" exchanges the first two axes."""
    rank = len(tensors)
    axes = list(range(rank))
    if indexing == "xy" and rank > 1:
        axes[:2] = [1, 0]
    lengths: list[Size] = [op.size(t, 0) if op.rank(t) else 1 for t in tensors]
    sizes = op.sizes([lengths[axis] for axis in axes])
    grids = []
    for tensor, axis in zip(tensors, axes, strict=True):
        around = [a for a in range(rank) if a != axis or op.rank(tensor) == 0]
        grids.append(op.Expand(op.Unsqueeze(tensor, around) if around else tensor, sizes))
    return grids


# --- slices --------------------------------------------------------------------------------------


def slice_axis(
    op: Builder, value: Value, axis: int, start: Size, end: Size, step: int = 1
) -> Value:
    """``value[start:end:step]`` along one axis; Slice clamps bounds beyond the ends."""
    bounds = [op.sizes([start]), op.sizes([end]), [axis]]
    return op.Slice(value, *bounds) if step == 1 else op.Slice(value, *bounds, [step])


@register(aten.slice.Tensor)
def aten_slice(
    op: Builder,
    self: Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Value:
    dim = op.axis(self, dim)
    first = 0 if start is None else start
    last = INT64_MAX if end is None else end
    if step == 1 and op.number(first) == 0 and _is_whole_axis(op, self, dim, last):
        return self
    return slice_axis(op, self, dim, first, last, step)


def _is_whole_axis(op: Builder, value: Value, axis: int, end: Size) -> bool:
    """True if a slice from 0 to ``end`` is known to be the whole axis."""
    assert value.shape is not None
    dimension = value.shape[axis]
    number = op.number(end)
    if isinstance(dimension, int):
        return number is not None and number >= dimension
    if number is not None:
        return number >= INT64_MAX
    return isinstance(end, ir.Value) and _is_value_of_dimension(op, end, dimension)


@register(aten.narrow.default)
def aten_narrow(op: Builder, self: Value, dim: int, start: Size, length: Size) -> Value:
    if isinstance(start, int) and start < 0 and not isinstance(length, int):
        start = add_sizes(op, op.size(self, dim), start)
    end = add_sizes(op, start, length)
    if isinstance(start, int) and start < 0 and end == 0:
        end = INT64_MAX
    return slice_axis(op, self, op.axis(self, dim), start, end)


@register(aten.select.int, aten.select_copy.int)
def aten_select(op: Builder, self: Value, dim: int, index: Size) -> Value:
    return op.Gather(self, index, axis=op.axis(self, dim))


@register(aten.unfold.default)
def aten_unfold(op: Builder, self: Value, dimension: int, size: int, step: int) -> Value:
    """Returns windows along an axis; their elements become the last axis."""
    if op.rank(self) == 0:
        return op.Slice(op.Reshape(self, [1]), [0], [size], [0])
    axis = op.axis(self, dimension)
    starts: Value = op.Range(0, subtract_sizes(op, op.size(self, axis), size - 1), step)
    positions = op.Add(op.Unsqueeze(starts, [-1]), op.constant(list(range(size))))
    order = [a for a in range(op.rank(self) + 1) if a != axis + 1]
    return op.Transpose(op.Gather(self, positions, axis=axis), perm=[*order, axis + 1])


# --- repeating, rolling, flipping ----------------------------------------------------------------


@register(aten.repeat.default)
def aten_repeat(op: Builder, self: Value, repeats: Sequence[Size]) -> Value:
    added = len(repeats) - op.rank(self)
    value = op.Unsqueeze(self, list(range(added))) if added else self
    if not repeats or all(op.number(size) == 1 for size in repeats):
        return value
    return op.Tile(value, op.sizes(repeats))


@register(aten.tile.default)
def aten_tile(op: Builder, self: Value, dims: Sequence[Size]) -> Value:
    missing = op.rank(self) - len(dims)
    return aten_repeat(op, self, [*[1] * max(missing, 0), *dims])


@register(aten.flip.default)
def aten_flip(op: Builder, self: Value, dims: Sequence[int]) -> Value:
    count = len(dims)
    if count == 0 or op.rank(self) == 0:
        return self
    axes = [op.axis(self, dim) for dim in dims]
    return op.Slice(self, [-1] * count, [-INT64_MAX] * count, axes, [-1] * count)


@register(aten.roll.default)
def aten_roll(op: Builder, self: Value, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Value:
    """``[a | b]`` -> ``[b | a]``, cut ``shift mod size`` elements from the end."""
    if not dims:
        count = product(op, op.all_sizes(self))
        flat = op.Reshape(self, [count if isinstance(count, int) and count > 0 else -1])
        return reshape(op, _roll_axis(op, flat, shifts[0], 0), op.all_sizes(self))
    for shift, dim in zip(shifts, dims, strict=True):
        self = _roll_axis(op, self, shift, op.axis(self, dim))
    return self


def _roll_axis(op: Builder, value: Value, shift: Size, axis: int) -> Value:
    size = op.size(value, axis)
    if isinstance(size, int) and isinstance(shift, int):
        if size == 0 or shift % size == 0:
            return value
        cut: Size = size - shift % size
    elif isinstance(shift, int) and abs(shift) == 1:
        cut = -shift  # correct for every size, including 0 and 1
    else:
        safe = op.Max(size, 1) if isinstance(size, ir.Value) else max(size, 1)
        cut = subtract_sizes(op, size, op.Mod(as_value(op, shift), safe))
    head = slice_axis(op, value, axis, 0, cut)
    tail = slice_axis(op, value, axis, cut, INT64_MAX)
    return op.Concat(tail, head, axis=axis)


# --- padding -------------------------------------------------------------------------------------

PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@register(aten.constant_pad_nd.default)
def aten_constant_pad_nd(op: Builder, self: Value, pad: Sequence[Size], value: Any = 0) -> Value:
    return _pad_axes(op, self, pad, "constant", value)


@register(aten.pad.default)
def aten_pad(
    op: Builder, self: Value, pad: Sequence[Size], mode: str = "constant", value: Any = None
) -> Value:
    return _pad_axes(op, self, pad, PAD_MODES[mode], 0 if value is None else value)


@register(
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default
)
def aten_reflection_pad(op: Builder, self: Value, padding: Sequence[Size]) -> Value:
    return _pad_axes(op, self, padding, "reflect", 0)


@register(
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default
)
def aten_replication_pad(op: Builder, self: Value, padding: Sequence[Size]) -> Value:
    return _pad_axes(op, self, padding, "edge", 0)


def _pad_axes(op: Builder, value: Value, pad: Sequence[Size], mode: str, fill: Any) -> Value:
    """Pads. Torch lists (before, after) from the last axis backwards, ONNX all befores first."""
    if all(op.number(size) == 0 for size in pad):
        return value
    count = len(pad) // 2
    rank = op.rank(value)
    before = [pad[2 * i] for i in reversed(range(count))]
    after = [pad[2 * i + 1] for i in reversed(range(count))]
    rest = [0] * (rank - count)
    pads = op.sizes([*rest, *before, *rest, *after])
    numbers = [op.number(size) for size in pad]
    if mode in ("edge", "reflect") and any(n is not None and n < 0 for n in numbers):
        for axis, (left, right) in enumerate(zip(before, after, strict=True), start=rank - count):
            value = _pad_or_crop_axis(op, value, axis, left, right, mode)
        return value
    empty = value.shape is not None and 0 in value.shape
    if mode == "wrap" and (op.opset < 19 or empty):  # ONNX Runtime cannot wrap empty ones
        return _pad_circularly(op, value, before, after, rank - count)
    if mode != "constant" or (not isinstance(fill, ir.Value) and fill == 0):
        return op.Pad(value, pads, mode=mode)
    if isinstance(fill, ir.Value):
        fill = op.cast(fill, op.result_dtype)
    return op.Pad(value, pads, fill, mode=mode)


def _pad_or_crop_axis(
    op: Builder, value: Value, axis: int, left: Size, right: Size, mode: str
) -> Value:
    """Pads one axis of which a side may be cut off, by picking elements by position.

    Elements that are cut off still count for the padding of the other side.
    """
    if op.number(left) == 0 and op.number(right) == 0:
        return value
    size = op.size(value, axis)
    last = subtract_sizes(op, size, 1)
    positions = op.Range(subtract_sizes(op, 0, left), add_sizes(op, size, right), 1)
    if mode == "edge":
        positions = op.Min(op.Max(positions, 0), last)
    else:
        positions = op.Sub(last, op.Abs(op.Sub(last, op.Abs(positions))))
    return op.Gather(value, positions, axis=axis)


def _pad_circularly(
    op: Builder, value: Value, before: Sequence[Size], after: Sequence[Size], first: int
) -> Value:
    """Pads circularly before opset 19, axis by axis: ``[end of x | x | start of x]``.

    A negative amount cuts elements off before anything is added.
    """
    for axis, (left, right) in enumerate(zip(before, after, strict=True), start=first):
        cut = [size if isinstance(size, int) and size < 0 else 0 for size in (left, right)]
        if any(cut):
            value = slice_axis(op, value, axis, -cut[0], cut[1] or INT64_MAX)
        parts = [value]
        if not (isinstance(left, int) and left <= 0):
            start = (
                -left if isinstance(left, int) else subtract_sizes(op, op.size(value, axis), left)
            )
            parts.insert(0, slice_axis(op, value, axis, start, INT64_MAX))
        if not (isinstance(right, int) and right <= 0):
            parts.append(slice_axis(op, value, axis, 0, right))
        value = op.Concat(*parts, axis=axis)
    return value
