"""Infers shapes of values inside one translation.

The results of a translation get the shapes that the capture recorded. Values between its nodes get
theirs here: the rank whenever ONNX determines it, and each dimension as a number, as an expression
over recorded sizes, or as an unknown size with a unique name (``size_table.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.conv_shapes import infer_conv_shape, infer_pool_shape, transposed_convolution
from onnx_aot.builder.size_table import UNKNOWN, Dimension, Op
from onnx_aot.builder.slice_shapes import infer_slice_shape, numbers_of

__all__ = ["output_shapes"]

# The first output has the shape of the first input.
SAME_AS_FIRST = frozenset(
    (
        "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli BitCast BitwiseNot "
        "Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum DequantizeLinear Dropout "
        "DynamicQuantizeLinear Elu Erf Exp EyeLike Floor Gelu GroupNormalization HardSigmoid "
        "HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization "
        "LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu "
        "QuantizeLinear RMSNormalization RandomNormalLike RandomUniformLike Reciprocal Relu "
        "ReverseSequence RotaryEmbedding Round ScatterElements ScatterND Selu Shrink Sigmoid "
        "Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter "
        "ThresholdedRelu Trilu"
    ).split()
)

# The output has the shape that the inputs broadcast to.
BROADCAST = frozenset(
    (
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
        "LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"
    ).split()
)

Dimensions = list[Dimension]
Several = Sequence[Sequence[Dimension] | None]
Inputs = Sequence[ir.Value | None]
Attributes = Mapping[str, Any]
Rule = Callable[[Op, Dimensions, Inputs, Attributes], Dimensions | None]


def output_shapes(
    op: Op, op_type: str, inputs: Inputs, attributes: Attributes, count: int
) -> list[ir.Shape | None]:
    """Returns the shapes of an operator's outputs, None for those that cannot be inferred."""
    first = inputs[0] if inputs else None
    if op_type in BROADCAST:
        return [_broadcast(op, [value.shape if value is not None else None for value in inputs])]
    shape = first.shape if first is not None else None
    if shape is not None and op_type in SAME_AS_FIRST and count == 1:
        return [shape.copy()]
    dims = list(shape) if shape is not None else None
    several = SEVERAL.get(op_type)
    if several is not None:
        found = several(op, dims, inputs, attributes, count)
        return [None if one is None else ir.Shape(one) for one in found]
    if dims is None:
        made = MADE.get(op_type)
        found_one = made(op, inputs, attributes) if made is not None else None
    elif op_type in SAME_AS_FIRST:
        found_one = dims
    else:
        rule = RULES.get(op_type)
        found_one = rule(op, dims, inputs, attributes) if rule is not None else None
    return [None if found_one is None else ir.Shape(found_one)]


def _broadcast(op: Op, shapes: list[ir.Shape | None]) -> ir.Shape | None:
    first = shapes[0]
    if first is None:
        return None
    if not any(map(_is_unknown, first.dims)) and all(
        shape is not None and (shape == first or not len(shape)) for shape in shapes[1:]
    ):
        return first.copy()
    known = [shape.dims for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    return ir.Shape(
        [
            _broadcast_sizes(op, [dims[position] for dims in known if len(dims) >= -position])
            for position in range(-max(map(len, known)), 0)
        ]
    )


def _broadcast_sizes(op: Op, sizes: Sequence[Dimension]) -> Dimension:
    """Broadcasts sizes: a number other than 1 wins, else a size that all but the 1s share."""
    wide: Dimension = 1
    for size in sizes:
        if size == 1 or (isinstance(wide, int) and wide != 1):
            continue
        if size == wide and not _is_unknown(size):
            continue
        if wide == 1 or isinstance(size, int):
            wide = size
        else:
            return next((s for s in sizes if isinstance(s, int) and s != 1), op.fresh())
    return op.fresh() if _is_unknown(wide) else wide


def _is_unknown(size: Dimension) -> bool:
    """Like ``size == UNKNOWN``, which takes a microsecond for an int."""
    return not isinstance(size, int) and size.value is None


def _shape_from_sizes(op: Op, value: ir.Value | None) -> Dimensions | None:
    """Returns the shape that a vector of sizes describes."""
    sizes = op.contents(value)
    if sizes is None:
        return None
    return [op.fresh() if isinstance(s, int) and s < 0 else s for s in sizes]


def _replace_size(shape: Dimensions, axis: int, size: Dimension) -> Dimensions:
    axis %= len(shape)
    return [*shape[:axis], size, *shape[axis + 1 :]]


# --- views ---------------------------------------------------------------------------------------


def _unsqueeze(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    axes = numbers_of(op, inputs, 1)
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    added = {axis % rank for axis in axes}
    rest = iter(shape)
    return [1 if axis in added else next(rest) for axis in range(rank)]


def _squeeze(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    axes = numbers_of(op, inputs, 1)
    if axes is None:
        return None
    dropped = {axis % len(shape) for axis in axes}
    return [size for axis, size in enumerate(shape) if axis not in dropped]


def _transpose(_: Op, shape: Dimensions, __: Inputs, attributes: Attributes) -> Dimensions | None:
    order = attributes.get("perm") or range(len(shape) - 1, -1, -1)
    return [shape[axis] for axis in order]


def _reshape(
    op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes
) -> Dimensions | None:
    target = op.contents(inputs[1])
    if target is None:
        return None
    copies = not attributes.get("allowzero")
    sizes = [
        shape[axis] if size == 0 and copies and axis < len(shape) else size
        for axis, size in enumerate(target)
    ]
    if -1 in target:
        place = target.index(-1)
        sizes[place] = _infer_reshape_size(op, shape, [*sizes[:place], *sizes[place + 1 :]])
    return sizes


def _infer_reshape_size(op: Op, shape: Dimensions, others: Dimensions) -> Dimension:
    """Infers the size for -1 in a Reshape; sizes that occur on both sides cancel."""
    left = list(shape)
    rest = []
    for size in others:
        if size in left and size not in (UNKNOWN, 0):
            left.remove(size)
        else:
            rest.append(size)
    if all(isinstance(size, int) for size in rest):
        divisor = math.prod(size for size in rest if isinstance(size, int))
        number = math.prod(size for size in left if isinstance(size, int))
        if divisor and number % divisor == 0:
            total: Dimension = number // divisor
            for size in left:
                if not isinstance(size, int):
                    total = op.combine("mul", size, total)
            return total
    return op.fresh()


def _flatten(op: Op, shape: Dimensions, _: Inputs, attributes: Attributes) -> Dimensions | None:
    axis = attributes.get("axis", 1)
    axis = axis % len(shape) if axis < 0 else axis
    return [_multiply_sizes(op, shape[:axis]), _multiply_sizes(op, shape[axis:])]


def _multiply_sizes(op: Op, sizes: Dimensions) -> Dimension:
    total: Dimension = 1
    for size in sizes:
        total = op.combine("mul", total, size)
    return total


def _expand(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    target = _shape_from_sizes(op, inputs[1])
    if target is None:
        return None
    widened = _broadcast(op, [ir.Shape(shape), ir.Shape(target)])
    return None if widened is None else list(widened)


def _tile(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    repeats = op.contents(inputs[1])
    if repeats is None or len(repeats) != len(shape):
        return [op.fresh() for _ in shape]
    return [op.combine("mul", size, more) for size, more in zip(shape, repeats, strict=True)]


# --- parts ---------------------------------------------------------------------------------------


def _concat(op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    axis = attributes["axis"] % len(shape)
    total = shape[axis]
    sizes = list(shape)
    for value in inputs[1:]:
        if value is None or value.shape is None:
            total = op.fresh()
            continue
        total = op.combine("add", total, value.shape[axis])
        for position, size in enumerate(value.shape.dims):
            if isinstance(size, int) or sizes[position] == UNKNOWN:
                sizes[position] = size
    sizes[axis] = op.fresh() if total == UNKNOWN else total
    return sizes


def _pad(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    pads = op.contents(inputs[1]) if len(inputs) > 1 else None
    given = inputs[3] if len(inputs) > 3 else None
    axes = numbers_of(op, inputs, 3) if given is not None else list(range(len(shape)))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return [op.fresh() for _ in shape]
    sizes = list(shape)
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        sizes[axis] = op.combine("add", op.combine("add", sizes[axis], before), after)
    return sizes


def _gather(_: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    indices = inputs[1]
    if indices is None or indices.shape is None:
        return None
    axis = (attributes.get("axis") or 0) % len(shape)
    return [*shape[:axis], *indices.shape, *shape[axis + 1 :]]


def _gather_nd(
    _: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes
) -> Dimensions | None:
    indices = inputs[1]
    if indices is None or indices.shape is None or not isinstance(indices.shape[-1], int):
        return None
    batch = attributes.get("batch_dims") or 0
    return [*indices.shape.dims[:-1], *shape[batch + indices.shape[-1] :]]


def _like_indices(_: Op, __: Dimensions, inputs: Inputs, ___: Attributes) -> Dimensions | None:
    indices = inputs[1]
    return None if indices is None or indices.shape is None else list(indices.shape)


def _compress(op: Op, shape: Dimensions, _: Inputs, attributes: Attributes) -> Dimensions | None:
    axis = attributes.get("axis")
    return [op.fresh()] if axis is None else _replace_size(shape, axis, op.fresh())


def _split(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    if shape is None:
        return [None] * count
    axis = (attributes.get("axis") or 0) % len(shape)
    sizes = op.contents(inputs[1]) if len(inputs) > 1 else None
    whole = shape[axis]
    if sizes is None and isinstance(whole, int):
        part = -(-whole // count)
        sizes = [min(part, max(whole - index * part, 0)) for index in range(count)]
    if sizes is None or len(sizes) != count:
        sizes = [op.fresh() for _ in range(count)]
    return [_replace_size(shape, axis, size) for size in sizes]


# --- reductions and products ---------------------------------------------------------------------


def _reduce(op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    axes = attributes.get("axes", attributes.get("axis"))
    if axes is None and len(inputs) > 1 and inputs[1] is not None:
        axes = numbers_of(op, inputs, 1)
        if axes is None:
            return [op.fresh() for _ in shape] if attributes.get("keepdims", 1) else None
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        axes = range(len(shape)) if not attributes.get("noop_with_empty_axes") else ()
    reduced = {axis % len(shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    if attributes.get("keepdims", 1):
        return [1 if axis in reduced else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in reduced]


def _matmul(op: Op, shape: Dimensions, inputs: Inputs, _: Attributes) -> Dimensions | None:
    right = inputs[1]
    if right is None or right.shape is None or not shape or not len(right.shape):
        return None
    others = list(right.shape)
    rows = shape[-2:-1] if len(shape) > 1 else []
    columns = others[-1:] if len(others) > 1 else []
    batch = _broadcast(op, [ir.Shape(shape[:-2]), ir.Shape(others[:-2])])
    return None if batch is None else [*batch, *rows, *columns]


def _gemm(_: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    right = inputs[1]
    if right is None or right.shape is None:
        return None
    rows = shape[1 if attributes.get("transA") else 0]
    return [rows, right.shape[0 if attributes.get("transB") else 1]]


def _einsum(op: Op, __: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    equation = str(attributes.get("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    sizes: dict[str, Dimension] = {}
    front: list[ir.Shape | None] = [ir.Shape([])]
    for term, value in zip(left.split(","), inputs, strict=True):
        if value is None or value.shape is None:
            return None
        first, dots, last = term.partition("...")
        dims, after = value.shape.dims, len(value.shape) - len(last)
        sizes.update(zip(first, dims, strict=False))
        sizes.update(zip(last, dims[after:], strict=True) if dots else ())
        front.append(ir.Shape(dims[len(first) : after] if dots else []))
    first, dots, last = right.partition("...")
    wide = _broadcast(op, front)
    if not arrow or wide is None:
        return None
    return [sizes[x] for x in first] + list(wide if dots else ()) + [sizes[x] for x in last]


# --- outputs of their own size -------------------------------------------------------------------


def _resize(op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    sizes = op.contents(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
    axes = attributes.get("axes")
    if sizes is None or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return [op.fresh() for _ in shape]
    if axes is None:
        return sizes if len(sizes) == len(shape) else [op.fresh() for _ in shape]
    found = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        found[axis] = size
    return found


def _one_hot(op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions:
    depth = op.contents(inputs[1])
    axis = attributes.get("axis", -1) % (len(shape) + 1)
    return [*shape[:axis], depth[0] if depth else op.fresh(), *shape[axis:]]


def _dft(op: Op, shape: Dimensions, inputs: Inputs, attributes: Attributes) -> Dimensions | None:
    numbers = numbers_of(op, inputs, 2) if len(inputs) > 2 and inputs[2] is not None else None
    axis = numbers[0] if numbers else attributes.get("axis", 1 if len(inputs) < 3 else -2)
    length = op.contents(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    size: Dimension = length[0] if length else shape[axis]
    if attributes.get("onesided"):
        half = op.combine("floordiv", size, 2)
        size = op.combine("add", half, 1)
        if attributes.get("inverse"):
            size = op.fresh()
    return [
        *_replace_size(shape, axis, size)[:-1],
        1 if attributes.get("inverse") and attributes.get("onesided") else 2,
    ]


def _range(op: Op, _: Dimensions, inputs: Inputs, __: Attributes) -> Dimensions | None:
    start, end, step = (op.contents(value) for value in inputs)
    if start is None or end is None or step is None or step[0] != 1:
        return [op.fresh()]
    length = op.combine("sub", end[0], start[0])
    return [length if op.at_least(length, 0) else op.fresh()]


def _grid_sample(_: Op, shape: Dimensions, inputs: Inputs, __: Attributes) -> Dimensions | None:
    grid = inputs[1]
    if grid is None or grid.shape is None:
        return None
    return [*shape[:2], *grid.shape.dims[1:-1]]


def _top_k(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    if shape is None:
        return [None] * count
    wanted = op.contents(inputs[1])
    sizes = _replace_size(shape, attributes.get("axis", -1), wanted[0] if wanted else op.fresh())
    return [sizes, list(sizes)]


def _unique(
    op: Op, shape: Dimensions | None, _: Inputs, attributes: Attributes, count: int
) -> Several:
    axis, found = attributes.get("axis"), op.fresh()
    first: Dimensions | None = [found]
    along: Dimension = op.fresh() if shape is None else _multiply_sizes(op, shape)
    if axis is not None:
        first = None if shape is None else _replace_size(shape, axis, found)
        along = op.fresh() if shape is None else shape[axis]
    several: list[Dimensions | None] = [first, [found], [along], [found]]
    return several[:count]


def _pool(
    op: Op, shape: Dimensions | None, _: Inputs, attributes: Attributes, count: int
) -> Several:
    sizes = None if shape is None else infer_pool_shape(op, shape, (), attributes)
    return [sizes] * count


def _layer_normalization(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    """LayerNormalization with the statistics, which keep the reduced axes with size 1."""
    if shape is None:
        return [None] * count
    axis = attributes.get("axis", -1) % len(shape)
    statistics: Dimensions = [*shape[:axis], *([1] * (len(shape) - axis))]
    return [list(shape), *([statistics] * (count - 1))]


def _batch_norm(
    _: Op, shape: Dimensions | None, inputs: Inputs, __: Attributes, count: int
) -> Several:
    """BatchNormalization, with the statistics in training mode."""
    shapes = [None if value is None else value.shape for value in inputs[3 : 2 + count]]
    return [shape, *(None if one is None else list(one) for one in shapes)]


def _same_each(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    return [None if shape is None else list(shape) for _ in range(count)]


def _dynamic_quantize_linear(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    return [shape, [], []][:count]


def _recurrent_layer(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    """LSTM, GRU and RNN: states of all steps, last state, last cell state."""
    if shape is None:
        return [None] * count
    weight = inputs[2].shape if len(inputs) > 2 and inputs[2] is not None else None
    directions: Dimension = 2 if attributes.get("direction") == "bidirectional" else 1
    hidden = attributes.get("hidden_size") or (weight[2] if weight is not None else op.fresh())
    time, batch = shape[0], shape[1]
    if attributes.get("layout"):
        return [[time, batch, directions, hidden], *([[time, directions, hidden]] * 2)][:count]
    last: Dimensions = [directions, batch, hidden]
    return [[time, directions, batch, hidden], last, list(last)][:count]


def _attention(
    op: Op, shape: Dimensions | None, inputs: Inputs, attributes: Attributes, count: int
) -> Several:
    value = inputs[2]
    if shape is None or value is None or value.shape is None or len(shape) != 4 or count > 1:
        return [None] * count
    return [[*shape[:3], value.shape[3]]]


# Operators without inputs, or with outputs of known rank whatever the first input's shape.
MADE: dict[str, Callable[[Op, Inputs, Attributes], Dimensions | None]] = {
    "RandomNormal": lambda op, _, attributes: list(attributes["shape"]),
    "RandomUniform": lambda op, _, attributes: list(attributes["shape"]),
    "NonZero": lambda op, *_: [op.fresh(), op.fresh()],
    "Size": lambda *_: [],
}

SEVERAL: dict[str, Callable[..., Several]] = {
    "Attention": _attention,
    "BatchNormalization": _batch_norm,
    "Dropout": _same_each,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "GRU": _recurrent_layer,
    "LSTM": _recurrent_layer,
    "LayerNormalization": _layer_normalization,
    "MaxPool": _pool,
    "RNN": _recurrent_layer,
    "Split": _split,
    "TopK": _top_k,
    "Unique": _unique,
}

RULES: dict[str, Rule] = {
    "ArgMax": _reduce,
    "ArgMin": _reduce,
    "AveragePool": infer_pool_shape,
    "LpPool": infer_pool_shape,
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": lambda op, _, inputs, __: _shape_from_sizes(op, inputs[0]),
    "Conv": infer_conv_shape,
    "ConvInteger": infer_conv_shape,
    "ConvTranspose": transposed_convolution,
    "DFT": _dft,
    "Det": lambda op, shape, *_: shape[:-2],
    "Einsum": _einsum,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _like_indices,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda op, shape, *_: [*shape[:2], *([1] * (len(shape) - 2))],
    "GlobalMaxPool": lambda op, shape, *_: [*shape[:2], *([1] * (len(shape) - 2))],
    "GridSample": _grid_sample,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Multinomial": lambda _, shape, __, a: [shape[0], a.get("sample_size") or 1],
    "NonMaxSuppression": lambda op, *_: [op.fresh(), 3],
    "NonZero": lambda op, shape, *_: [len(shape), op.fresh()],
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "ReduceL1": _reduce,
    "ReduceL2": _reduce,
    "ReduceLogSum": _reduce,
    "ReduceLogSumExp": _reduce,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceMin": _reduce,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "ReduceSumSquare": _reduce,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": lambda op, shape, _, a: [len(shape[a.get("start") or 0 : a.get("end")])],
    "Size": lambda *_: [],
    "Slice": infer_slice_shape,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
