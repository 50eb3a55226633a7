"""Recurrent layers: ``onnx_aot/ops/nn/rnn.py``."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

WIDTH, HIDDEN = 3, 4

CELLS = (
    (aten.lstm_cell.default, torch.nn.LSTMCell, {}),
    (aten.gru_cell.default, torch.nn.GRUCell, {}),
    (aten.rnn_tanh_cell.default, torch.nn.RNNCell, {}),
    (aten.rnn_relu_cell.default, torch.nn.RNNCell, {"nonlinearity": "relu"}),
)

KINDS = (
    (aten.lstm.input, torch.nn.LSTM, {}),
    (aten.gru.input, torch.nn.GRU, {}),
    (aten.rnn_tanh.input, torch.nn.RNN, {}),
    (aten.rnn_relu.input, torch.nn.RNN, {"nonlinearity": "relu"}),
)


def layer(kind: Any, **options: Any) -> Any:
    """Returns a layer in evaluation mode."""
    return kind(WIDTH, HIDDEN, **options).eval().requires_grad_(False)


def with_states(module: Any) -> Any:
    """Calls a layer with initial states."""
    return lambda x, *states: module(x, states if len(states) > 1 else states[0])


ROWS = [
    *(
        Row(
            target,
            (floats("m", "n", WIDTH),),
            call=layer(
                kind,
                num_layers=layers,
                bidirectional=bidirectional,
                batch_first=batch_first,
                bias=bias,
                **options,
            ),
            name=f"{layers} layers"
            + ", bidirectional" * bidirectional
            + ", batch first" * batch_first
            + ", no bias" * (not bias),
        )
        for target, kind, options in KINDS
        for layers, bidirectional, batch_first, bias in itertools.product(
            (1, 2), (False, True), (False, True), (True, False)
        )
    ),
    *(
        Row(
            target,
            (
                floats("n", "m", WIDTH),
                *[floats(4, "n", HIDDEN)] * (2 if target is aten.lstm.input else 1),
            ),
            call=with_states(
                layer(kind, num_layers=2, bidirectional=True, batch_first=True, **options)
            ),
            name="initial states",
        )
        for target, kind, options in KINDS
    ),
    *(
        Row(
            target,
            (floats("m", WIDTH),),
            call=layer(kind, bidirectional=True, **options),
            name="unbatched",
        )
        for target, kind, options in KINDS
    ),
    *(
        Row(
            target,
            (floats("m", "n", WIDTH),),
            call=layer(kind, num_layers=2, dropout=0.5, **options),
            name="dropout in evaluation",
        )
        for target, kind, options in KINDS
    ),
    *(
        Row(
            target,
            (floats("n", WIDTH), *[floats("n", HIDDEN)] * states),
            call=with_states(layer(kind, bias=bias, **options)),
            name="" if bias else "no bias",
        )
        for target, kind, options in CELLS
        for states in ((2,) if target is aten.lstm_cell.default else (1,))
        for bias in (True, False)
    ),
    *(
        Row(target, (floats(WIDTH),), call=layer(kind, **options), name="unbatched")
        for target, kind, options in CELLS
    ),
    Row(
        aten.lstm.input,
        (
            floats("m", "n", WIDTH),
            [floats(1, "n", HIDDEN), floats(1, "n", HIDDEN)],
            [floats(4 * HIDDEN, WIDTH), floats(4 * HIDDEN, HIDDEN), *[floats(4 * HIDDEN)] * 2],
            True,
            1,
            0.0,
            False,
            False,
            False,
        ),
        name="weights that vary",
    ),
    Row(
        aten.gru.input,
        (
            floats("m", "n", WIDTH),
            floats(1, "n", HIDDEN),
            [floats(3 * HIDDEN, WIDTH), floats(3 * HIDDEN, HIDDEN)],
            False,
            1,
            0.0,
            False,
            False,
            False,
        ),
        name="weights that vary",
    ),
]

DOUBLE = {"dtype": torch.float64}

# Forms without an ONNX operator, or without an ONNX Runtime kernel for this type.
BY_STEPS = [
    *(
        Row(
            target,
            (floats("m", "n", WIDTH, **DOUBLE),),
            call=layer(kind, num_layers=2, bidirectional=True, bias=bias, **options).double(),
            name="float64" + ", no bias" * (not bias),
        )
        for target, kind, options in KINDS
        for bias in (True, False)
    ),
    *(
        Row(
            aten.lstm.input,
            (floats("m", "n", WIDTH),),
            call=layer(torch.nn.LSTM, num_layers=layers, proj_size=2, **options),
            name=f"projected, {layers}, {options}",
        )
        for layers in (1, 2)
        for options in ({}, {"bidirectional": True}, {"bias": False}, {"batch_first": True})
    ),
    Row(
        aten.lstm.input,
        (floats("n", "m", WIDTH), floats(4, "n", 2), floats(4, "n", HIDDEN)),
        call=with_states(
            layer(torch.nn.LSTM, num_layers=2, proj_size=2, bidirectional=True, batch_first=True)
        ),
        name="projected, states",
    ),
    *(
        Row(
            target,
            (floats("n", WIDTH, **DOUBLE),),
            call=cell(WIDTH, HIDDEN, **options).double().requires_grad_(False),
            name="float64",
        )
        for target, cell, options in CELLS
    ),
]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@parametrize([*ROWS, *BY_STEPS])
def test_row(row: Row) -> None:
    check(row)
