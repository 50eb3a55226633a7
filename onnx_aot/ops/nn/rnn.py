"""Recurrent layers and cells: one ONNX LSTM, GRU or RNN per layer, or a Scan where none fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.nn.rnn_scan import Direction, run_one_step, scan_steps
from onnx_aot.ops.random.uniform_and_normal import drop
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import OpOverload, aten

__all__ = ["report_lost_nan", "run_layers"]

Value = ir.Value

# Positions of ONNX's gates among torch's: i o f c among i f g o; z r h among r z n.
GATES: dict[str, list[int]] = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


def report_lost_nan(target: OpOverload, activation: str | None) -> None:
    """Notes that ONNX Runtime's activations lose NaN, but for the hyperbolic tangent alone."""
    if activation != "Tanh":
        LIMITS[target] = "NaN in a sequence or a state becomes a number"
        REPORTED[target] = FLOATING


def _register_layers(target: OpOverload, kind: str, activation: str | None = None) -> None:
    def translation(
        op: Builder,
        input: Value,
        hx: Any,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Value]:
        return run_layers(
            op,
            kind,
            input,
            _list_states(kind, hx),
            params,
            has_biases,
            num_layers,
            dropout if train else 0.0,
            bidirectional,
            batch_first,
            activation,
        )

    register(target)(translation)
    report_lost_nan(target, activation)


def _list_states(kind: str, hx: Any) -> Sequence[Value]:
    """States as a list: an LSTM has two, the other kinds have one."""
    return hx if kind == "LSTM" else [hx]


_register_layers(aten.lstm.input, "LSTM")
_register_layers(aten.gru.input, "GRU")
_register_layers(aten.rnn_tanh.input, "RNN", "Tanh")
_register_layers(aten.rnn_relu.input, "RNN", "Relu")


# --- one time step -------------------------------------------------------------------------------


def _register_cell(target: OpOverload, kind: str, activation: str | None = None) -> None:
    def translation(
        op: Builder,
        input: Value,
        hx: Any,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> list[Value] | Value:
        states = _list_states(kind, hx)
        finals = _run_cell(op, kind, input, states, w_ih, w_hh, b_ih, b_hh, activation)
        return finals if kind == "LSTM" else finals[0]

    register(target)(translation)
    report_lost_nan(target, activation)


_register_cell(aten.lstm_cell.default, "LSTM")
_register_cell(aten.gru_cell.default, "GRU")
_register_cell(aten.rnn_tanh_cell.default, "RNN", "Tanh")
_register_cell(aten.rnn_relu_cell.default, "RNN", "Relu")


def _run_cell(
    op: Builder,
    kind: str,
    input: Value,
    states: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
    activation: str | None,
) -> list[Value]:
    """Runs a layer over a sequence of length one and returns the final states."""
    if input.dtype == ir.DataType.DOUBLE:
        hidden = _hidden_size(op, w_hh)
        cell = Direction(kind, activation, hidden, w_ih, w_hh, b_ih, b_hh, None)
        return run_one_step(op, cell, input, states)
    biases = [bias for bias in (b_ih, b_hh) if bias is not None]
    _, *finals = _run_layer(
        op,
        kind,
        op.Unsqueeze(input, [0]),
        [op.Unsqueeze(state, [0]) for state in states],
        [[w_ih, w_hh, *biases]],
        _hidden_size(op, w_hh),
        len(biases) == 2,
        activation,
    )
    return [op.Squeeze(final, [0]) for final in finals]


# --- any number of time steps --------------------------------------------------------------------


def _hidden_size(op: Builder, w_hh: Value) -> int:
    hidden = op.size(w_hh, 1)
    assert isinstance(hidden, int), "the hidden size is fixed by the weights"
    return hidden


def _gate_size(op: Builder, w_hh: Value, kind: str) -> int:
    """Rows of one gate, which differ from the columns if the hidden state is projected."""
    rows = op.size(w_hh, 0)
    assert isinstance(rows, int), "the hidden size is fixed by the weights"
    return rows // len(GATES[kind])


def run_layers(
    op: Builder,
    kind: str,
    input: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
    activation: str | None,
    lengths: Value | None = None,
) -> list[Value]:
    """Returns the output and the final states, each ``[layers * directions, batch, hidden]``.

    With ``lengths``, INT64 ``[batch]``, each sequence ends there; the output after that is
    undefined.
    """
    directions = 2 if bidirectional else 1
    sequence: Value = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    per_direction = len(params) // (layers * directions)
    projected = per_direction > (4 if has_biases else 2)
    width = _hidden_size(op, params[1])
    hidden = _gate_size(op, params[1], kind)
    split = [_split_by_layer(op, state, layers, directions) for state in states]
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        weights = [
            params[(layer * directions + d) * per_direction :][:per_direction]
            for d in range(directions)
        ]
        run = _run_layer_by_steps if projected or input.dtype == ir.DataType.DOUBLE else _run_layer
        outputs = run(
            op,
            kind,
            sequence,
            [state[layer] for state in split],
            weights,
            hidden,
            has_biases,
            activation,
            lengths,
        )
        for index, final in enumerate(outputs[1:]):
            finals[index].append(final)
        # [time, directions, batch, hidden] to [time, batch, directions * hidden]
        if directions == 1:
            sequence = op.Squeeze(outputs[0], [1])
        else:
            sequence = op.Reshape(op.Transpose(outputs[0], perm=[0, 2, 1, 3]), [0, 0, 2 * width])
        if dropout and layer + 1 < layers:
            sequence = drop(op, sequence, dropout)
    output = op.Transpose(sequence, perm=[1, 0, 2]) if batch_first else sequence
    return [output, *(op.Concat(*final, axis=0) for final in finals)]


def _split_by_layer(op: Builder, state: Value, layers: int, directions: int) -> list[Value]:
    return op.split(state, [directions] * layers, 0)


def _run_layer(
    op: Builder,
    kind: str,
    sequence: Value,
    states: Sequence[Value],
    weights: Sequence[Sequence[Value]],
    hidden: int,
    has_biases: bool,
    activation: str | None,
    lengths: Value | None = None,
) -> list[Value]:
    stacked = [
        _stack(op, [_reorder_gates(op, direction[i], kind, hidden) for direction in weights])
        for i in range(2)
    ]
    bias = None
    if has_biases:
        biases = [
            op.Concat(*(_reorder_gates(op, b, kind, hidden) for b in direction[2:4]), axis=0)
            for direction in weights
        ]
        bias = _stack(op, biases)
    attributes: dict[str, object] = {"hidden_size": hidden}
    if len(weights) == 2:
        attributes["direction"] = "bidirectional"
    if activation is not None:
        attributes["activations"] = [activation] * len(weights)
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    ends = None if lengths is None else op.cast(lengths, ir.DataType.INT32)
    outputs = op.call_op(
        kind,
        [sequence, *stacked, bias, ends, *states],
        attributes,
        outputs=1 + len(states),
    )
    return list(outputs)


def _run_layer_by_steps(
    op: Builder,
    kind: str,
    sequence: Value,
    states: Sequence[Value],
    weights: Sequence[Sequence[Value]],
    hidden: int,
    has_biases: bool,
    activation: str | None,
    lengths: Value | None = None,
) -> list[Value]:
    """Computes the same results as ``_run_layer``, one step at a time."""
    results = []
    for index, direction in enumerate(weights):
        b_ih, b_hh = direction[2:4] if has_biases else (None, None)
        rest = direction[4:] if has_biases else direction[2:]
        projection = rest[0] if rest else None
        layer = Direction(
            kind, activation, hidden, direction[0], direction[1], b_ih, b_hh, projection
        )
        own = [op.Gather(state, index, axis=0) for state in states]
        outputs, *last = scan_steps(op, layer, sequence, own, index == 1, lengths)
        results.append([op.Unsqueeze(outputs, [1]), *(op.Unsqueeze(value, [0]) for value in last)])
    outputs = op.Concat(*(result[0] for result in results), axis=1)
    finals = [op.Concat(*values, axis=0) for values in list(zip(*results, strict=True))[1:]]
    return [outputs, *finals]


def _reorder_gates(op: Builder, weight: Value, kind: str, hidden: int) -> Value:
    """Reorders the gates' rows to ONNX's order."""
    order = GATES[kind]
    if order == sorted(order):
        return weight
    rows = torch.cat([torch.arange(hidden) + gate * hidden for gate in order])
    return op.Gather(weight, rows, axis=0)


def _stack(op: Builder, directions: Sequence[Value]) -> Value:
    return op.Concat(*(op.Unsqueeze(value, [0]) for value in directions), axis=0)
