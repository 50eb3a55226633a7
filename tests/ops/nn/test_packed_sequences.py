"""Packed sequences: ``onnx_aot/ops/nn/packed_sequences.py``.

``torch.export`` alone rejects them, so the rows are exported from the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import onnx_aot
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_compat import aten
from onnx_aot.torch_ops.packed_sequence_ops import PACK, PAD
from tests.ops.rows import Row, check, floats, ints, parametrize

WIDTH, HIDDEN = 3, 4
LENGTHS = ([2, 5, 3], [1, 7], [2, 1, 2, 1, 1], [1])
CELLS: dict[Any, tuple[Any, dict[str, Any]]] = {
    aten.lstm.data: (torch.nn.LSTM, {}),
    aten.gru.data: (torch.nn.GRU, {}),
    aten.rnn_tanh.data: (torch.nn.RNN, {}),
    aten.rnn_relu.data: (torch.nn.RNN, {"nonlinearity": "relu"}),
}


class Call(torch.nn.Module):
    """Calls a row's function with padded sequences and lengths; its layers are weights."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.call = row.call

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        assert self.call is not None
        return self.call(x, lengths)


def sequences(lengths: list[int], ordered: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """``[batch, time, width]``, one step longer than the longest length, and the lengths."""
    lengths = sorted(lengths, reverse=True) if ordered else lengths
    return torch.randn(len(lengths), max(lengths) + 1, WIDTH), torch.tensor(lengths)


def compare(program: Any, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    names = [str(value.name) for value in program.model.graph.outputs]
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
    differences = compare_outputs(names, expected, program(*inputs))
    assert all(d.within for d in differences), format_differences(differences)


# --- every form of a layer -----------------------------------------------------------------------


class Layers(torch.nn.Module):
    """One layer per number of layers, direction, layout and kind of initial states."""

    FORMS = tuple(itertools.product((1, 2), (False, True), (False, True), (False, True)))

    def __init__(self, target: Any) -> None:
        super().__init__()
        kind, options = CELLS[target]
        self.layers = torch.nn.ModuleList(
            kind(
                WIDTH,
                HIDDEN,
                num_layers=layers,
                bidirectional=bidirectional,
                batch_first=batch_first,
                dropout=0.5 if layers == 2 else 0.0,
                **options,
            )
            for layers, bidirectional, batch_first, _ in self.FORMS
        )

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, states: torch.Tensor) -> Any:
        results = []
        for layer, (layers, bidirectional, batch_first, given) in zip(
            self.layers, self.FORMS, strict=True
        ):
            padded = x if batch_first else x.transpose(0, 1)
            packed = pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=False)
            hidden = states[: layers * (2 if bidirectional else 1)] if given else None
            if hidden is not None and isinstance(layer, torch.nn.LSTM):
                hidden = (hidden, hidden + 1)
            output, last = layer(packed, hidden)
            results.append((pad_packed_sequence(output, batch_first), last))
        return results


@pytest.mark.parametrize("target", CELLS, ids=str)
def test_every_form_of_a_layer(target: Any) -> None:
    model = Layers(target).eval()
    inputs = [(*sequences(n), torch.randn(4, len(n), HIDDEN)) for n in LENGTHS]
    program = onnx_aot.export(
        model,
        inputs[0],
        dynamic_shapes=({0: "batch", 1: "time"}, {0: "batch"}, {1: "batch"}),
        metadata="none",
    )
    for given in inputs:
        compare(program, model, given)
    layers = [node for node in program.model.graph if node.op_type in ("LSTM", "GRU", "RNN")]
    assert len(layers) == 16 + 8  # the 8 are second layers
    assert all(node.inputs[4] is not None for node in layers)  # the lengths
    assert not [node for node in program.model.graph if node.op_type in ("GatherND", "NonZero")]


# --- other forms ---------------------------------------------------------------------------------


def layer(target: Any, **options: Any) -> Any:
    kind, own = CELLS[target]
    return kind(WIDTH, HIDDEN, batch_first=True, **own, **options).eval().requires_grad_(False)


def last_states(module: Any) -> Callable[..., Any]:
    def call(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return module(packed)[1]

    return call


def changed_data(module: Any) -> Callable[..., Any]:
    """The packed data is changed between packing and the layer, and is read after the layer."""

    def call(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed = PackedSequence(
            packed.data * 2, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        output, last = module(packed)
        return pad_packed_sequence(output)[0], last, output.data, output.batch_sizes

    return call


def in_order(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    return packed.data, pad_packed_sequence(packed, batch_first=True)


def padded_with(value: float, longer: int = 0, total: int | None = None) -> Callable[..., Any]:
    def call(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        size = x.shape[1] + longer if total is None else total
        return pad_packed_sequence(packed, True, padding_value=value, total_length=size)

    return call


def of_integers(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    classes = (x[:, :, 0] * 10).to(torch.int64)
    packed = pack_padded_sequence(classes, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(packed, padding_value=-100)


def in_double(module: Any) -> Callable[..., Any]:
    return lambda x, lengths: last_states(module)(x.double(), lengths)


ROWS = [
    *(Row(target, (), call=last_states(layer(target))) for target in CELLS),
    *(
        Row(target, (), call=changed_data(layer(target, bidirectional=True)), name="changed data")
        for target in CELLS
    ),
    *(
        Row(
            target,
            (),
            call=in_double(layer(target, num_layers=2, bidirectional=True, bias=bias).double()),
            name="float64" + ", no bias" * (not bias),
        )
        for target, bias in ((aten.lstm.data, True), (aten.gru.data, False))
    ),
    Row(
        aten.lstm.data,
        (),
        call=changed_data(layer(aten.lstm.data, num_layers=2, bidirectional=True, proj_size=2)),
        name="projected",
    ),
    Row(PACK, (), call=in_order, name="in order"),
    Row(PAD, (), call=padded_with(-1.5), name="to the time of the input"),
    Row(PAD, (), call=padded_with(0.0, longer=2), name="longer"),
    Row(PAD, (), call=padded_with(0.0, longer=-1), name="shorter"),
    Row(PAD, (), call=padded_with(0.5, total=12), name="to a fixed number"),
    Row(PAD, (), call=of_integers, name="integers"),
]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@parametrize(ROWS)
def test_row(row: Row) -> None:
    model = Call(row)
    inputs = [sequences(lengths, row.name == "in order") for lengths in LENGTHS]
    shapes = ({0: "batch", 1: "time"}, {0: "batch"})
    for opset in (17, 25):
        program = onnx_aot.export(model, inputs[0], dynamic_shapes=shapes, opset_version=opset)
        assert row.target in {node.target for node in program.exported_program.graph.nodes}
        onnx.checker.check_model(program.model_proto, full_check=True)
        for given in inputs:
            compare(program, model, given)


def test_torch_is_as_it_was() -> None:
    before = [torch.nn.LSTM.forward, torch.nn.GRU.forward, torch.nn.RNN.forward]
    functions, code = torch.nn.utils.rnn._VF, pad_packed_sequence.__code__
    onnx_aot.export(Call(ROWS[0]), sequences([2, 3]))
    assert before == [torch.nn.LSTM.forward, torch.nn.GRU.forward, torch.nn.RNN.forward]
    assert torch.nn.utils.rnn._VF is functions
    assert pad_packed_sequence.__code__ is code


def test_a_packed_sequence_as_input_and_output() -> None:
    model = layer(aten.gru.data)
    packed = pack_padded_sequence(*sequences([2, 5, 3]), batch_first=True, enforce_sorted=False)
    program = onnx_aot.export(model, (packed,))
    compare(program, model, (packed,))


def test_a_captured_program_runs() -> None:
    model = Call(ROWS[0])
    program = onnx_aot.export(model, sequences([2, 3])).exported_program
    inputs = sequences([2, 3])
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))


def pad_all(*sequences: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(sequences), **options)


TO_THE_LONGEST = [
    Row(aten.pad_sequence.default, tensors, options, call=pad_all, name=name)
    for name, tensors, options in (
        ("plain", (floats("n", 2), floats("m", 2), floats(5, 2)), {}),
        ("filled", (floats("n"), floats("m")), {"batch_first": True, "padding_value": -1.0}),
        ("before", (floats("n", 2), floats("m", 2)), {"padding_side": "left"}),
        ("integers", (ints("n", 2), ints("m", 2)), {"padding_value": 7}),
        ("equal", (floats("n", 2), floats("n", 2)), {}),
    )
]


@parametrize(TO_THE_LONGEST)
def test_sequences_padded_to_the_longest(row: Row) -> None:
    check(row)
