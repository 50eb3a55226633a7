"""Simplifies the nodes that build and apply masks of attention."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.fusions.attention_pattern import has_attention
from onnx_aot.ir_passes.fusions.bounds import always_true, bound_magnitude, counts_up
from onnx_aot.ir_passes.fusions.matching import both_orders, dimensions, scalar_constant, single_use
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["ADMITTED_ROWS", "CHOSEN_EVERYWHERE", "SHIFTED_SOFTMAX", "TRUE_MASK", "WHOLE_INDEX"]


def shifted_softmax(node: ir.Node, rewriter: Rewriter) -> bool:
    """Subtracts no maximum before ``Softmax``, which does so itself.

    Before::

        largest = Where(Greater(ReduceSum(Cast(IsNaN(x))), 0), nan, ReduceMax(x, [-1]))
        y = Softmax(Sub(x, largest), axis=-1)

    After::

        y = Softmax(x, axis=-1)

    The choice for NaN may be missing. Both forms give NaN for rows with NaN or infinity, or of
    ``-inf`` alone.
    """
    difference = single_use(rewriter, node.inputs[0], "Sub")
    if difference is None:
        return False
    x, largest = difference.inputs
    where = rewriter.producer(largest, "Where")
    if where is not None:
        chosen = scalar_constant(rewriter, where.inputs[1])
        if chosen is None or not math.isnan(chosen):
            return False
        largest = where.inputs[2]
    found = rewriter.producer(largest, "ReduceMax")
    sizes = dimensions(x)
    if found is None or x is None or found.inputs[0] is not x or sizes is None:
        return False
    axes = rewriter.constant(found.inputs[1]) if len(found.inputs) > 1 else None
    given = found.attributes.get_ints("axes") or [] if axes is None else axes.tolist()
    wanted = node.attributes.get_int("axis", -1) % len(sizes)
    if [axis % len(sizes) for axis in given] != [wanted]:
        return False
    if not found.attributes.get_int("keepdims", 1):
        return False
    rewriter.replace(node.outputs[0], rewriter.emit("Softmax", [x], node.attributes, like=node))
    return True


def admitted_rows(node: ir.Node, rewriter: Rewriter) -> bool:
    """Removes the selection of rows that have a key, if all rows have one.

    Before::

        admitted = Where(Not(Equal(bias, -inf)), 1, 0)
        y = Where(Greater(ReduceSum(admitted, [-1]), 0), x, 0)

    After, if nothing in ``bias`` is infinite::

        y = x

    Parameters in ``bias``, such as a table of relative positions, are finite; if they are replaced
    later by infinite ones, rows without keys would differ.
    """
    greater = rewriter.producer(node.inputs[0], "Greater")
    found = greater
    for name in ("ReduceSum", "Where", "Not", "Equal"):
        found = None if found is None else rewriter.producer(found.inputs[0], name)
        if found is not None and name == "Where" and not _counts(found, rewriter):
            return False
    if greater is None or found is None:
        return False
    x, bias = node.inputs[1], found.inputs[0]
    if x is None or scalar_constant(rewriter, found.inputs[1]) != -math.inf:
        return False
    if any(scalar_constant(rewriter, zero) != 0.0 for zero in (node.inputs[2], greater.inputs[1])):
        return False
    if dimensions(x) is None or dimensions(x) != dimensions(node.outputs[0]):
        return False
    if rewriter.producer(x, "MatMul") is None:  # without keys it is 0, like the selection
        return False
    if bound_magnitude(rewriter, bias) is None:
        return False
    rewriter.replace(node.outputs[0], x)
    return True


def chosen_everywhere(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Where(everywhere, x, y)`` -> ``x``, if the condition is true everywhere."""
    x, result = node.inputs[1], node.outputs[0]
    sizes = dimensions(x)
    if x is None or sizes is None or sizes != dimensions(result):
        return False
    if not always_true(rewriter, node.inputs[0]):
        return False
    rewriter.replace(result, x)
    return True


def true_mask(node: ir.Node, rewriter: Rewriter) -> bool:
    """Removes parts of a mask that are true everywhere.

    Before::

        mask = And(everywhere, some)
        scores = Add(products, Where(mask, 0, low))
        y = Mul(x, Min(ReduceSum(Where(mask, 1, 0), [-1]), 1))

    After::

        scores = Add(products, Where(some, 0, low))
        y = Mul(x, Min(ReduceSum(Where(some, 1, 0), [-1]), 1))

    If ``mask`` is true everywhere, ``scores = products`` and ``y = x``. ``products`` and ``x``
    already have the shape of the results. Where attention becomes one node, only this last form is
    applied, because ONNX Runtime's Attention needs a mask with every row.
    """
    for whole, part in both_orders(node):
        sizes = dimensions(whole)
        if sizes is None or sizes != dimensions(node.outputs[0]):
            continue
        new = (
            _shrink_bias(rewriter, part)
            if node.op_type == "Add"
            else _shrink_row_factor(rewriter, part)
        )
        if new is None:
            continue
        if isinstance(new, ir.Value):
            rewriter.replace(node.outputs[0], rewriter.emit(node.op_type, [whole, new], like=node))
        else:
            rewriter.replace(node.outputs[0], whole)
        return True
    return False


def _shrink_bias(rewriter: Rewriter, value: ir.Value) -> ir.Value | bool | None:
    """Emits the bias of a smaller mask; True if no bias is needed, None if it stays."""
    where = rewriter.producer(value, "Where")
    if where is None or scalar_constant(rewriter, where.inputs[1]) != 0.0:
        return None
    if scalar_constant(rewriter, where.inputs[2]) is None:
        return None
    mask = _shrink_mask(rewriter, where.inputs[0])
    if mask is None or isinstance(mask, bool):
        return mask
    return rewriter.emit(
        "Where", [mask, *where.inputs[1:]], like=where, dtype=value.dtype, shape=mask.shape
    )


def _shrink_row_factor(rewriter: Rewriter, value: ir.Value) -> ir.Value | bool | None:
    """The same for the factor that is 1 for rows that have a key and 0 for others."""
    least = rewriter.producer(value, "Min")
    reduce = None if least is None else rewriter.producer(least.inputs[0], "ReduceSum")
    numbers = None if reduce is None else rewriter.producer(reduce.inputs[0], "Where")
    if least is None or reduce is None or numbers is None or len(reduce.inputs) != 2:
        return None
    if not _counts(numbers, rewriter):
        return None
    given, axes = numbers.inputs[0], rewriter.constant(reduce.inputs[1])
    if given is None or given.dtype != ir.DataType.BOOL or given.shape is None or axes is None:
        return None
    rank = len(given.shape)
    if axes.tolist() != [rank - 1] or scalar_constant(rewriter, least.inputs[1]) != 1.0:
        return None
    mask = _shrink_mask(rewriter, given)
    if mask is None or isinstance(mask, bool):
        return mask
    if mask.shape is None or len(mask.shape) != rank:
        return None
    dtype, sizes = numbers.outputs[0].dtype, ir.Shape([*mask.shape[:-1], 1])
    as_numbers = rewriter.emit(
        "Where", [mask, *numbers.inputs[1:]], like=numbers, dtype=dtype, shape=mask.shape
    )
    count = rewriter.emit(
        "ReduceSum", [as_numbers, reduce.inputs[1]], reduce.attributes, like=reduce, shape=sizes
    )
    return rewriter.emit(
        "Min", [count, least.inputs[1]], like=least, dtype=value.dtype, shape=sizes
    )


def _counts(where: ir.Node, rewriter: Rewriter) -> bool:
    """True if a node gives 1 where its condition is true, and else 0."""
    return [scalar_constant(rewriter, number) for number in where.inputs[1:]] == [1.0, 0.0]


def _shrink_mask(rewriter: Rewriter, mask: ir.Value | None) -> ir.Value | bool | None:
    """A mask without a part that is true everywhere; True if nothing is left, None if unchanged."""
    if always_true(rewriter, mask):
        return True
    if has_attention(rewriter):
        return None
    node = rewriter.producer(mask, "And")
    for everywhere, some in both_orders(node):
        if always_true(rewriter, everywhere) and _rank(some) == _rank(mask):
            return some
    return None


def _rank(value: ir.Value | None) -> int:
    return -1 if value is None or value.shape is None else len(value.shape)


def whole_index(node: ir.Node, rewriter: Rewriter) -> bool:
    """Removes indexing that takes all elements in order.

    Before::

        i, j = Unsqueeze(Range(0, n, 1), [1, 2, 3]), Unsqueeze(Range(0, m, 1), [0, 1, 2])
        y = GatherND(x, Concat(Unsqueeze(Expand(i), [-1]), Unsqueeze(Expand(j), [-1])))

    After, if ``x`` is ``[n, m]``::

        y = Unsqueeze(x, [1, 2])
    """
    data, sizes, result = node.inputs[0], dimensions(node.inputs[0]), dimensions(node.outputs[0])
    concat = rewriter.producer(node.inputs[1], "Concat")
    if data is None or sizes is None or result is None or concat is None:
        return False
    if node.attributes.get_int("batch_dims", 0) or len(concat.inputs) > len(sizes):
        return False
    places = []
    for axis, index in enumerate(concat.inputs):
        place = _find_index_axis(rewriter, index, sizes[axis])
        if place is None:
            return False
        places.append(place)
    if places != sorted(set(places)):
        return False
    others = [axis for axis in range(len(result) - len(sizes) + len(places)) if axis not in places]
    expected = list(sizes)
    for axis in others:
        expected.insert(axis, 1)
    if expected != result:
        return False
    if not others:
        rewriter.replace(node.outputs[0], data)
        return True
    axes = rewriter.initializer(torch.tensor(others, dtype=torch.int64))
    rewriter.replace(node.outputs[0], rewriter.emit("Unsqueeze", [data, axes], like=node))
    return True


def _find_index_axis(rewriter: Rewriter, index: ir.Value | None, size: int | str) -> int | None:
    """The only axis along which an index varies, if it counts through a whole dimension there."""
    outer = single_use(rewriter, index, "Unsqueeze")
    expand = None if outer is None else rewriter.producer(outer.inputs[0], "Expand")
    value = None if outer is None else outer.inputs[0]
    if expand is not None:
        value = expand.inputs[0]
    sizes = dimensions(value)
    if sizes is None or value is None:
        return None
    offset = _rank(outer.inputs[0] if outer is not None else None) - len(sizes)
    while True:
        node = rewriter.producer(value, "Unsqueeze")
        if node is None:
            break
        value = node.inputs[0]
    if not counts_up(rewriter, value) or dimensions(value) != [size]:
        return None
    varying = [axis for axis, length in enumerate(sizes) if length != 1]
    if size == 1 or len(varying) != 1:
        return None
    return varying[0] + offset


ADMITTED_ROWS = Rule("admitted_rows", ("Where",), admitted_rows, exact=False)
CHOSEN_EVERYWHERE = Rule("chosen_everywhere", ("Where",), chosen_everywhere, exact=True)
SHIFTED_SOFTMAX = Rule("shifted_softmax", ("Softmax",), shifted_softmax, exact=False)
TRUE_MASK = Rule(
    "true_mask", ("Add", "Mul"), true_mask, exact=True, behind=frozenset({"Where", "Min"})
)
WHOLE_INDEX = Rule("whole_index", ("GatherND",), whole_index, exact=True)
