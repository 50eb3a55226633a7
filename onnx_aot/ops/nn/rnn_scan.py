"""Recurrent layers step by step, for cases that ONNX LSTM, GRU and RNN do not support.

Projected hidden states (Sak et al., 2014) have no ONNX operator, and ONNX Runtime has none of these
operators in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder

__all__ = ["Direction", "run_one_step", "scan_steps"]

Value = ir.Value


@dataclasses.dataclass(frozen=True)
class Direction:
    """One direction of a layer.

    Attributes:
        kind: ``"LSTM"``, ``"GRU"`` or ``"RNN"``.
        activation: ``"Tanh"`` or ``"Relu"`` for an RNN.
        hidden: Size of one gate.
        w_ih: Weights of the input, torch's gates stacked as rows; ``w_hh``: those of the state.
        b_ih: Bias of the input or None; ``b_hh``: that of the state.
        w_hr: Weights that project the hidden state, or None.
    """

    kind: str
    activation: str | None
    hidden: int
    w_ih: Value
    w_hh: Value
    b_ih: Value | None
    b_hh: Value | None
    w_hr: Value | None


def scan_steps(
    op: Builder,
    layer: Direction,
    sequence: Value,
    states: Sequence[Value],
    reverse: bool,
    lengths: Value | None = None,
) -> list[Value]:
    """Hidden states of all steps, ``[time, batch, size]``, and the last states.

    With ``lengths``, INT64 ``[batch]``, the states of a sequence do not change after its end; in
    the reverse direction those steps come first.
    """
    slices = [_apply_linear(op, sequence, layer.w_ih, layer.b_ih)]
    if lengths is not None:
        steps = op.Range(0, op.cast(op.size(sequence, 0), ir.DataType.INT64), 1)
        slices.append(op.Less(op.Unsqueeze(steps, [1, 2]), op.Unsqueeze(lengths, [0, 2])))

    def body(*values: Value) -> list[Value]:
        before, (inputs, *inside) = values[: len(states)], values[len(states) :]
        after = _apply_cell(op, layer, inputs, before)
        if inside:
            pairs = zip(after, before, strict=True)
            after = [op.Where(inside[0], new, old) for new, old in pairs]
        return [*after, after[0]]

    *last, outputs = op.scan(states, slices, body, reverse=reverse)
    return [outputs, *last]


def run_one_step(
    op: Builder, layer: Direction, input: Value, states: Sequence[Value]
) -> list[Value]:
    """Returns the states after one step."""
    return _apply_cell(op, layer, _apply_linear(op, input, layer.w_ih, layer.b_ih), states)


def _apply_linear(op: Builder, value: Value, weight: Value, bias: Value | None) -> Value:
    product: Value = op.MatMul(value, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None else op.Add(product, bias)


def _apply_cell(
    op: Builder, layer: Direction, inputs: Value, states: Sequence[Value]
) -> list[Value]:
    """Computes torch's equations; ``inputs`` are the gates' contributions from the input."""
    recurrent = _apply_linear(op, states[0], layer.w_hh, layer.b_hh)
    if layer.kind == "RNN":
        return [op.call_op(layer.activation or "Tanh", [op.Add(inputs, recurrent)], {})]
    if layer.kind == "GRU":
        x = op.split(inputs, [layer.hidden] * 3, -1)
        h = op.split(recurrent, [layer.hidden] * 3, -1)
        reset, update = (op.Sigmoid(op.Add(x[i], h[i])) for i in (0, 1))
        new = op.Tanh(op.Add(x[2], op.Mul(reset, h[2])))
        return [op.Add(new, op.Mul(update, op.Sub(states[0], new)))]
    gates = op.split(op.Add(inputs, recurrent), [layer.hidden] * 4, -1)
    admitted, kept, output = (op.Sigmoid(gates[i]) for i in (0, 1, 3))
    cell = op.Add(op.Mul(kept, states[1]), op.Mul(admitted, op.Tanh(gates[2])))
    hidden = op.Mul(output, op.Tanh(cell))
    if layer.w_hr is not None:
        hidden = _apply_linear(op, hidden, layer.w_hr, None)
    return [hidden, cell]
