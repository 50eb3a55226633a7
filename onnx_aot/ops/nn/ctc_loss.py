"""Connectionist temporal classification loss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import slice_axis
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64
NONE, MEAN, SUM = 0, 1, 2


def _read_lengths(op: Builder, lengths: Value | Sequence[int]) -> Value:
    """Lengths as INT64 ``[batch, 1]``."""
    value = lengths if isinstance(lengths, ir.Value) else op.constant(list(lengths), INT64)
    return op.Reshape(op.cast(value, INT64), [-1, 1])


def _collect_labels(op: Builder, targets: Value, lengths: Value, blank: int) -> Value:
    """Labels of each sequence, ``[batch, labels]``, with blanks after their ends.

    Targets with one axis are those of all sequences, one after the other.
    """
    labels = op.cast(targets, INT64)
    if op.rank(labels) == 1:
        longest = op.reduce("ReduceMax", op.Concat(lengths, [[0]], axis=0), None, keepdims=False)
        starts = op.CumSum(lengths, 0, exclusive=1)
        positions = op.Add(starts, op.Range(0, longest, 1))
        behind = op.size(labels, 0)
        labels = op.Gather(op.Concat(labels, [blank], axis=0), op.Min(positions, behind), axis=0)
    inside = op.Less(range_of_length(op, 0, op.size(labels, 1)), lengths)
    return op.Where(inside, labels, blank)


def _add_exponentials(op: Builder, *terms: Value) -> Value:
    """``log(exp(a) + exp(b) + ...)``, also where all are minus infinity."""
    largest = op.Max(*terms)
    largest = op.Where(op.Equal(largest, -math.inf), 0.0, largest)
    exponentials = [op.Exp(op.Sub(term, largest)) for term in terms]
    return op.Add(op.Log(op.Sum(*exponentials)), largest)


def _sum_alignments(op: Builder, log_probs: Value, states: Value, lengths: Value) -> Value:
    """Logarithms of the probabilities to be in each state after the last step, ``[batch, states]``.

    The forward recursion of Graves et al., 2006, equations 6 to 7. It starts before the first step
    in the first state, from which the first step reaches the two states that it may be in.

    Args:
        op: The builder.
        log_probs: ``[time, batch, classes]``.
        states: The class of each state: a blank, a label, a blank, ...; INT64 ``[batch, states]``.
        lengths: The number of steps of each sequence, INT64 ``[batch, 1]``.
    """
    before = slice_axis(op, op.Pad(states, [0, 2, 0, 0], 0), 1, 0, -2)
    barred = op.Where(op.Equal(states, before), -math.inf, op.constant(0.0, log_probs.dtype))
    first = op.Equal(range_of_length(op, 0, op.size(states, 1)), 0)
    start = op.Where(first, 0.0, op.constant(-math.inf, log_probs.dtype))

    def step(i: Value, sums: Value) -> tuple[Value]:
        classes = op.Gather(log_probs, i, axis=0)
        padded = op.Pad(sums, [0, 2, 0, 0], -math.inf)
        skipped = op.Add(slice_axis(op, padded, 1, 0, -2), barred)
        reached = _add_exponentials(op, sums, slice_axis(op, padded, 1, 1, -1), skipped)
        after = op.Add(reached, op.GatherElements(classes, states, axis=1))
        return (op.Where(op.Less(i, lengths), after, sums),)

    steps = op.size(log_probs, 0)
    return op.loop(steps, [op.Expand(start, op.Shape(states))], step)[0]


@register(aten.ctc_loss.IntList, aten.ctc_loss.Tensor)
def aten_ctc_loss(
    op: Builder,
    log_probs: Value,
    targets: Value,
    input_lengths: Value | Sequence[int],
    target_lengths: Value | Sequence[int],
    blank: int = 0,
    reduction: int = MEAN,
    zero_infinity: bool = False,
) -> Value:
    """One loop over time; the mean divides each loss by the length of its target first."""
    batched = log_probs if op.rank(log_probs) == 3 else op.Unsqueeze(log_probs, [1])
    lengths = _read_lengths(op, target_lengths)
    labels = _collect_labels(op, targets, lengths, blank)
    pairs = op.Flatten(op.Pad(op.Unsqueeze(labels, [2]), [0, 0, 1, 0, 0, 0], blank), axis=1)
    states = op.Pad(pairs, [0, 0, 0, 1], blank)
    sums = _sum_alignments(op, batched, states, _read_lengths(op, input_lengths))
    ends = op.Mul(lengths, 2)
    blank_end = op.GatherElements(sums, ends, axis=1)
    label_end = op.GatherElements(sums, op.Max(op.Sub(ends, 1), 0), axis=1)
    label_end = op.Where(op.Equal(lengths, 0), -math.inf, label_end)
    losses = op.Neg(_add_exponentials(op, blank_end, label_end))
    if zero_infinity:
        losses = op.Where(op.Equal(losses, math.inf), 0.0, losses)
    if reduction == MEAN:
        losses = op.Div(losses, op.cast(op.Max(lengths, 1), losses.dtype))
        return op.reduce("ReduceMean", losses, None, keepdims=False)
    if reduction == SUM:
        return op.reduce("ReduceSum", losses, None, keepdims=False)
    return op.Squeeze(losses, [1] if op.rank(log_probs) == 3 else [0, 1])


for _target in (aten.ctc_loss.IntList, aten.ctc_loss.Tensor):
    LIMITS[_target] = "lengths beyond the ends of log_probs or targets are not refused"
