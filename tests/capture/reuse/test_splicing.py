"""What is copied is what would have been traced, in every respect."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.sym_node import SymNode

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.torch_compat import MODULE_CALLS, hidden
from tests.capture.reuse.models import Block, Stack


def _export(model, x, reuse="auto", **options):
    return onnx_aot.export(model.eval(), (x,), reuse=reuse, **options)


def _graph(program):
    """Everything about the nodes of a program."""
    return [
        (
            node.op_type,
            node.name,
            [value and value.name for value in node.inputs],
            [(value.name, value.dtype, str(value.shape)) for value in node.outputs],
            {name: str(value) for name, value in node.attributes.items()},
            dict(node.metadata_props),
        )
        for node in program.model.graph
    ]


def _note(program):
    (note,) = [note for note in program.report.notes if "layers that repeat" in str(note)]
    return str(note)


def _assert_copied(model, x, expected, **options):
    """Checks that calls are copied, and that the program is the one without copies."""
    program = _export(model, x, **options)
    assert expected in _note(program)
    assert _graph(program) == _graph(_export(model, x, "off", **options))
    _export(model, x, "check", **options)
    return program


SHAPES = {"static": None, "dynamic": ({0: "batch", 1: "seq"},)}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_layers_are_copied(shapes):
    model = Stack()
    x = torch.randn(2, 5, 8)
    program = _assert_copied(model, x, "Block: 2 calls traced, 4 copied", dynamic_shapes=shapes)
    torch.testing.assert_close(program(x)[0], model(x))
    if shapes:
        other = torch.randn(3, 7, 8)
        torch.testing.assert_close(program(other)[0], model(other))


class Spectrum(torch.nn.Module):
    """Reads the memory of a tensor as elements of other types."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        pairs = torch.view_as_complex(self.linear(x).unflatten(-1, (4, 2)))
        turned = torch.complex(pairs.imag.relu(), pairs.real)
        bits = x.view(torch.int32) & 0x7FFFFFFF
        return (
            torch.view_as_real(turned).flatten(-2)
            + turned.real.repeat_interleave(2, -1)
            + bits.view(torch.float32)
        )


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_types_that_share_memory_are_copied(shapes):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Spectrum() for _ in range(5))).eval()
    program = _assert_copied(
        model, torch.randn(2, 5, 8), "Spectrum: 2 calls traced, 3 copied", dynamic_shapes=shapes
    )
    for size in ((2, 5, 8), (3, 7, 8)) if shapes else ((2, 5, 8),):
        x = torch.randn(size)
        torch.testing.assert_close(program(x)[0], model(x))


def test_copies_compute_few_symbolic_sizes(monkeypatch):
    """Torch's symbolic products took most of the time of a copy."""

    def count_products(depth):
        calls = 0

        def count(self, other):
            nonlocal calls
            calls += 1
            return multiply(self, other)

        with monkeypatch.context() as patched:
            patched.setattr(SymNode, "mul", count)
            program = _export(
                Stack(depth=depth), torch.randn(2, 5, 8), dynamic_shapes=SHAPES["dynamic"]
            )
        assert f"{depth - 2} copied" in _note(program)
        return calls

    multiply = SymNode.mul
    of_tracked_results = 4 * 3  # their numbers of elements, by layer and axis
    few, more = count_products(4), count_products(8)
    assert few
    assert more - few <= of_tracked_results


class _Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(0)

    def forward(self, x):
        for _ in range(6):
            x = self.block(x)
        return x


def test_one_layer_called_several_times_is_copied():
    # The first call is not compared: no module is like this one, and it might be the only call.
    _assert_copied(_Shared(), torch.randn(2, 8), "Block: 2 calls traced, 2 copied")


class _Lines(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (Block(i) for i in range(4))

    def forward(self, x):
        x = self.a(x)
        x = self.b(x)
        x = self.c(x)
        return self.d(x)


def test_copies_have_the_lines_of_their_own_calls():
    _assert_copied(_Lines(), torch.randn(2, 8), "Block: 2 calls traced, 2 copied")


class _Views(torch.nn.Module):
    """Writes into a view of a value, returns views of its argument, and makes a constant."""

    def __init__(self, index):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        y[:, :2].relu_()
        y.view(-1)[0] = torch.tensor(0.5)
        a, b = (y + x).chunk(2, -1)
        return torch.cat((b, a), -1) * torch.tensor([0.5, 0.25] * 4)


def test_writes_into_values_of_a_layer_are_copied():
    model = Stack(_Views)
    x = torch.randn(3, 8)
    program = _assert_copied(model, x, "_Views: 2 calls traced, 4 copied")
    torch.testing.assert_close(program(x)[0], model(x))


class _Outputs(torch.nn.Module):
    """Returns an argument, one that it computes, and a number."""

    def __init__(self, index):
        super().__init__()
        self.block = Block(0)

    def forward(self, x, mask, more=None):
        return {"x": self.block(x) * mask, "mask": mask, "rest": (more, 2, None)}


class _OutputsStack(Stack):
    def forward(self, x):
        mask = x > 0
        for layer in self.layers:
            found = layer(x, mask, more=[x])
            x, mask = found["x"] * found["rest"][1] + found["rest"][0][0], found["mask"]
        return x


def test_containers_of_arguments_and_results_are_copied():
    model = _OutputsStack(_Outputs)
    x = torch.randn(2, 8)
    program = _assert_copied(model, x, "_Outputs: 2 calls traced, 4 copied")
    torch.testing.assert_close(program(x)[0], model(x))


class _InPlaceAfter(Stack):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x += 1
        return x


def test_results_of_copies_can_be_written_to():
    model = _InPlaceAfter()
    x = torch.randn(2, 8)
    program = _assert_copied(model, x, "Block: 2 calls traced, 4 copied")
    torch.testing.assert_close(program(x)[0], model(x))


class _WithRegion(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.block = Block(0)

    def forward(self, x):
        with torch.no_grad():
            y = x.cos() + 1
        return self.block(x) * y


def test_regions_without_gradients_are_copied_or_traced():
    model = Stack(_WithRegion)
    x = torch.randn(2, 8)
    program = _export(model, x)
    assert _graph(program) == _graph(_export(model, x, "off"))
    torch.testing.assert_close(program(x)[0], model(x))


def test_layers_of_two_kinds_are_copied_by_kind():
    class Mixed(Block):
        def __init__(self, index):
            super().__init__(index)
            self.wide = index % 2 == 0

        def forward(self, x):
            return super().forward(x) if self.wide else x - super().forward(x)

    model = Stack(Mixed, 8)
    x = torch.randn(2, 8)
    program = _assert_copied(model, x, "Mixed: 4 calls traced, 4 copied")
    torch.testing.assert_close(program(x)[0], model(x))


def test_option_off_traces_all_and_says_nothing():
    program = _export(Stack(), torch.randn(2, 8), "off")
    assert not any("layers that repeat" in str(note) for note in program.report.notes)


def test_without_the_row_all_calls_are_traced():
    model, x = Stack(), torch.randn(2, 8)
    with hidden(MODULE_CALLS.name):
        program = _export(model, x)
    assert _graph(program) == _graph(_export(model, x, "off"))
    assert not any("copied" in str(note) for note in program.report.notes)


def test_unknown_value_of_the_option():
    with pytest.raises(InvalidOptionError, match=r"reuse is 'yes'; expected"):
        _export(Stack(), torch.randn(2, 8), "yes")
