"""Expands recurrent layers of DOUBLE, which ONNX Runtime has no kernels for, to Scan over time."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.targets.emitter import Emitter

__all__ = ["RECURRENT"]

Value = ir.Value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT_ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}


def _expand_layer(e: Emitter, node: ir.Node) -> Sequence[Value] | None:
    """Emits all directions of a layer; returns None for features that no capture needs.

    Sequence lengths, peepholes, clipping, batch-first layout, coupled gates and parameters of
    activations stay with the runtime's own kernel.
    """
    inputs = [*node.inputs, *[None] * (8 - len(node.inputs))]
    x, w, r, bias, lengths, first, cell, peepholes = inputs
    attributes = node.attributes
    if lengths is not None or peepholes is not None or x is None or w is None or r is None:
        return None
    if any(name in attributes for name in ("clip", "input_forget", "layout", "activation_alpha")):
        return None
    direction = attributes.get_string("direction", "forward")
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    given = attributes.get_strings("activations")
    names = list(given or DEFAULT_ACTIVATIONS[node.op_type] * len(reverse))
    per_direction = len(names) // len(reverse)
    after_reset = bool(attributes.get_int("linear_before_reset", 0))
    hidden = attributes["hidden_size"].as_int()
    states = 2 if node.op_type == "LSTM" else 1
    results: list[list[Value]] = [[] for _ in range(states + 1)]
    zeros = e.Expand(
        e.constant(0.0, ir.DataType.DOUBLE),
        e.Concat(e.dimension(x, 1), e.ints([hidden]), axis=0),
    )
    for index, backwards in enumerate(reverse):
        starts = [
            zeros if state is None else e.Gather(state, e.constant(index, ir.DataType.INT64))
            for state in (first, cell)[:states]
        ]
        parts = [
            None if part is None else e.Gather(part, e.constant(index, ir.DataType.INT64))
            for part in (w, r, bias)
        ]
        activations = names[index * per_direction : (index + 1) * per_direction]
        outputs = _emit_direction(
            e, node.op_type, x, parts, starts, hidden, activations, after_reset, backwards
        )
        # final states are [batch, hidden], collected outputs [time, batch, hidden]
        for collected, value in zip(results, (outputs[-1], *outputs[:-1]), strict=True):
            collected.append(value)
    every, *finals = results
    sequence = e.Concat(*(e.Unsqueeze(value, [1]) for value in every), axis=1)
    ends = [e.Concat(*(e.Unsqueeze(value, [0]) for value in final), axis=0) for final in finals]
    return [sequence, *ends]


def _emit_direction(
    e: Emitter,
    kind: str,
    x: Value,
    parts: Sequence[Value | None],
    starts: Sequence[Value],
    hidden: int,
    activations: Sequence[str],
    after_reset: bool,
    backwards: bool,
) -> list[Value]:
    """Emits one direction; the part that does not depend on the state is computed before Scan."""
    w, r, bias = parts
    assert w is not None
    assert r is not None
    gates = GATES[kind]
    given = e.MatMul(x, e.Transpose(w, perm=[1, 0]))
    recurrent = e.Transpose(r, perm=[1, 0])
    state_bias = None
    if bias is not None:
        middle = gates * hidden
        input_bias = e.Slice(bias, e.ints([0]), e.ints([middle]), e.ints([0]))
        state_bias = e.Slice(bias, e.ints([middle]), e.ints([2 * middle]), e.ints([0]))
        given = e.Add(given, input_bias)
    shapes = [state.shape for state in starts]
    inner = [e.make_input("state", ir.DataType.DOUBLE, shape) for shape in shapes]
    step = e.make_input("step", ir.DataType.DOUBLE, None)
    with e.collect_nodes() as nodes:
        if kind == "LSTM":
            after = _lstm_step(e, step, inner, recurrent, state_bias, hidden, activations)
        elif kind == "GRU":
            after = _gru_step(
                e, step, inner[0], recurrent, state_bias, hidden, activations, after_reset
            )
        else:
            total = e.Add(step, _emit_linear(e, inner[0], recurrent, state_bias))
            after = [_emit_activation(e, activations[0], total)]
        collected = e.Identity(after[0])
    body = ir.Graph([*inner, step], [*after, collected], nodes=nodes, name="time_step")
    attributes = {"body": body, "num_scan_inputs": 1}
    if backwards:
        attributes |= {"scan_input_directions": [1], "scan_output_directions": [1]}
    outputs = e.op("Scan", [*starts, given], attributes, outputs=len(starts) + 1)
    return list(outputs)


def _emit_linear(e: Emitter, state: Value, weight: Value, bias: Value | None) -> Value:
    product = e.MatMul(state, weight)
    return product if bias is None else e.Add(product, bias)


def _emit_activation(e: Emitter, name: str, value: Value) -> Value:
    if name == "Relu":
        return e.Max(value, 0.0)
    return e.Tanh(value) if name == "Tanh" else e.Sigmoid(value)


def _slice_gates(e: Emitter, value: Value, index: int, hidden: int, count: int = 1) -> Value:
    """Slices one gate, or ``count`` consecutive ones, from axis 1."""
    start, end = e.ints([index * hidden]), e.ints([(index + count) * hidden])
    return e.Slice(value, start, end, e.ints([1]))


def _lstm_step(
    e: Emitter,
    step: Value,
    states: Sequence[Value],
    recurrent: Value,
    bias: Value | None,
    hidden: int,
    names: Sequence[str],
) -> list[Value]:
    """Emits one LSTM step; gates are input, output, forget and cell, in ONNX's order."""
    total = e.Add(step, _emit_linear(e, states[0], recurrent, bias))
    i, o, f = (_emit_activation(e, names[0], _slice_gates(e, total, k, hidden)) for k in range(3))
    new = _emit_activation(e, names[1], _slice_gates(e, total, 3, hidden))
    cell = e.Add(e.Mul(f, states[1]), e.Mul(i, new))
    return [e.Mul(o, _emit_activation(e, names[2], cell)), cell]


def _gru_step(
    e: Emitter,
    step: Value,
    state: Value,
    recurrent: Value,
    bias: Value | None,
    hidden: int,
    names: Sequence[str],
    after_reset: bool,
) -> list[Value]:
    """Emits one GRU step; gates are update, reset and hidden.

    With ``after_reset``, as in torch, the reset gate scales the state's product instead of the
    state.
    """
    pushed = _emit_linear(e, state, recurrent, bias)
    early = e.Add(_slice_gates(e, step, 0, hidden, 2), _slice_gates(e, pushed, 0, hidden, 2))
    early = _emit_activation(e, names[0], early)
    update, reset = _slice_gates(e, early, 0, hidden), _slice_gates(e, early, 1, hidden)
    if after_reset:
        own = e.Mul(reset, _slice_gates(e, pushed, 2, hidden))
    else:
        own = e.MatMul(e.Mul(reset, state), _slice_gates(e, recurrent, 2, hidden))
        if bias is not None:
            piece = e.Slice(bias, e.ints([2 * hidden]), e.ints([3 * hidden]), e.ints([0]))
            own = e.Add(own, piece)
    new = _emit_activation(e, names[1], e.Add(_slice_gates(e, step, 2, hidden), own))
    return [e.Add(e.Mul(e.Sub(1.0, update), new), e.Mul(update, state))]


RECURRENT = {"LSTM": _expand_layer, "GRU": _expand_layer, "RNN": _expand_layer}
"""Expansions for DOUBLE, by operator."""
