"""In-place writes become values: results match eager mode, and no in-place operator remains."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export.graph_signature import OutputKind
from torch.nn import functional

import onnx_aot
from onnx_aot.errors import FunctionalizationError, OnnxExporterWarning
from onnx_aot.fx_passes.functionalize import functionalize
from tests.tolerances import assert_close

Tensor = torch.Tensor


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def functionalized(
    function: Callable[..., Any] | torch.nn.Module, *args: Tensor
) -> torch.export.ExportedProgram:
    module = function if isinstance(function, torch.nn.Module) else Function(function)
    return functionalize(torch.export.export(module, args))


def run(program: torch.export.ExportedProgram, *args: Tensor) -> list[Tensor]:
    """Interprets the graph; returns mutated state first, then the results."""
    weights = {**program.state_dict, **program.constants}
    given = iter(args)
    inputs = [
        weights[spec.target] if spec.target is not None else next(given)
        for spec in program.graph_signature.input_specs
    ]
    return list(torch.fx.Interpreter(program.graph_module).run(*inputs))


def assert_functional(program: torch.export.ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op == "call_function" and hasattr(node.target, "_schema"):
            assert not node.target._schema.is_mutable, node


def check(function: Callable[..., Any], *args: Tensor) -> torch.export.ExportedProgram:
    program = functionalized(function, *(a.clone() for a in args))
    assert_functional(program)
    torch.export.save(program, io.BytesIO())  # fails if the signature does not match the graph
    expected = function(*(a.clone() for a in args))
    actual = run(program, *(a.clone() for a in args))
    state = len(actual) - len(expected)
    for left, right in zip(actual[state:], expected, strict=True):
        assert left.dtype == right.dtype
        torch.testing.assert_close(left, right)
    return program


def whole(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.mul_(2)
    y += 1
    return (y.relu_(),)


def before_and_after(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    kept = y + 0
    y.zero_()
    return kept, y


def through_select(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y[0].mul_(3)
    return y, y[0]


def through_slice(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y[1:3, ::2] = 7
    return (y,)


def through_chain(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.transpose(0, 1)[1].view(-1)[2:].add_(5)
    return (y,)


def view_made_before(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    row = y[1]
    column = y[:, 2]
    row.fill_(9)
    return row + 0, column + 0, y


def base_written_view_read(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    flat = y.view(-1)
    y.add_(1)
    return (flat,)


def two_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    left, right = y[:, :2], y[:, 1:]
    left.add_(1)
    right.mul_(10)
    return left, right, y


def split(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    first, second = y.split(2)
    first.add_(1)
    second.sub_(1)
    return y, first, second


def chunk_and_unbind(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.chunk(2, dim=1)[1].mul_(2)
    y.unbind(0)[3].neg_()
    return (y,)


def views_of_several_tensors(x: Tensor) -> tuple[Tensor, ...]:
    column, row = x[:, :1].clone(), x[:1].clone()
    first, second = torch.broadcast_tensors(column, row)
    column.add_(1)
    before = first * 1
    row.add_(1)
    return before, second * 1


def at_least(x: Tensor) -> tuple[Tensor, ...]:
    row, scalar = x[0].clone(), x[0, 0].clone()
    torch.atleast_2d(row).mul_(2)
    torch.atleast_3d(row)[0, 0, 0] = 5
    torch.atleast_1d(scalar).add_(1)
    return row, scalar


def written_through_lists(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    row, whole = torch.broadcast_tensors(y[:1], y)
    whole.mul_(2)  # also shares the first argument's storage
    (grid,) = torch.meshgrid(y[0], indexing="ij")
    grid.add_(1)
    deep, last = torch.atleast_3d(y[1:3], y[2:])
    last.sub_(1)
    deep.mul_(3)
    return y, row, whole, grid


def reshape_that_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.reshape(2, -1)[0] = 0
    return (y,)


def reshape_that_copies(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    copied = y.t().reshape(-1)
    copied[0] = 100
    return y, copied


def to_that_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.to(torch.float32).add_(1)
    y.contiguous().mul_(2)
    return (y,)


def diagonal(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.diagonal().fill_(1)
    y.fill_diagonal_(2)
    return (y,)


def narrow(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.narrow(1, 1, 2).exp_()
    return (y,)


def permuted(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone().view(2, 2, 4)
    y.permute(2, 0, 1)[1] = 3
    y.movedim(0, 2)[0].neg_()
    y.unsqueeze(0).squeeze(0).abs_()
    return (y,)


def masked(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y[y > 0] = -1
    y.masked_fill_(y < -2, 4)
    y.index_put_((torch.tensor([0, 1]),), torch.tensor(6.0))
    return (y,)


def in_place_shapes(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    y.add_(1)
    return (y,)


def in_place_shapes_of_what_is_viewed(x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone()
    view = x[1:]
    x.unsqueeze_(0)
    x[0, -1] = 3
    x.transpose_(0, 2)
    x[0].mul_(2)
    return x, view * 1


def promoting(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.gt_(0)  # computes booleans, stores floats
    z = x.to(torch.float16)
    z.add_(x)  # computes in float32, stores float16
    return y, z


def copies(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.zeros_like(x)
    y.copy_(x[0])  # broadcasts
    y[2].copy_(torch.tensor(1))  # and converts
    return (y,)


def out_argument(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return (y + 0,)


def returned_alias(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    z = y.add_(1)
    y.mul_(2)
    return z, y


def assigned_operators(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    above, odd, number = x > 9, x > 9, (x * 3).int()
    view = above[1:]
    for bound in (0.2, 0.5):
        view |= x[1:] > bound
        odd ^= x > bound
        number &= 5
        number <<= 1
    return above, odd, number


def through_windows(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y.unfold(1, 1, 3).mul_(2)  # leaves columns 1 and 2 out
    y.unfold(0, 2, 2)[..., 1].add_(1)
    y.view(-1).unfold(0, 3, 5).mul_(3)
    return (y,)


def through_dropouts_that_drop_nothing(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x.flip(0), x.t() * 2
    functional.dropout(y, 0.5, training=False).clamp_(-1, 1)
    functional.dropout(z, 0.0, training=False)[0].mul_(3)
    functional.alpha_dropout(z, 0.5, training=False).add_(1)
    torch.feature_dropout(z, 0.5, False).add_(1)
    return y, z


CASES = [
    assigned_operators,
    whole,
    before_and_after,
    through_select,
    through_slice,
    through_chain,
    view_made_before,
    base_written_view_read,
    two_views,
    split,
    chunk_and_unbind,
    views_of_several_tensors,
    at_least,
    written_through_lists,
    reshape_that_views,
    reshape_that_copies,
    to_that_views,
    diagonal,
    narrow,
    permuted,
    masked,
    in_place_shapes,
    in_place_shapes_of_what_is_viewed,
    promoting,
    copies,
    out_argument,
    returned_alias,
    through_windows,
    through_dropouts_that_drop_nothing,
]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_same_as_eager(function: Callable[..., Any]) -> None:
    check(function, torch.randn(4, 4))


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_same_in_onnx_runtime(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 4)
    program = onnx_aot.export(Function(function), (x.clone(),), opset_version=18)
    for actual, expected in zip(program(x.clone()), function(x.clone()), strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        self.count[0].mul_(2)
        return x + self.count


def test_mutated_buffer_becomes_output() -> None:
    program = functionalized(Counter(), torch.ones(2))
    specs = program.graph_signature.output_specs
    assert [(s.kind, s.target) for s in specs] == [
        (OutputKind.BUFFER_MUTATION, "count"),
        (OutputKind.USER_OUTPUT, None),
    ]
    new_count, result = run(program, torch.ones(2))
    torch.testing.assert_close(new_count, torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(result, torch.tensor([3.0, 2.0]))


def test_mutated_input_becomes_output() -> None:
    def add_to_input(x: Tensor) -> tuple[Tensor, ...]:
        x.add_(1)
        return (x * 2,)

    program = functionalized(add_to_input, torch.ones(2))
    first = program.graph_signature.output_specs[0]
    assert (first.kind, first.target) == (OutputKind.USER_INPUT_MUTATION, "args_0")
    new_input, result = run(program, torch.ones(2))
    torch.testing.assert_close(new_input, torch.full((2,), 2.0))
    torch.testing.assert_close(result, torch.full((2,), 4.0))


class WritesWeight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.plain = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(2)
            self.plain.add_(1)
        return x * self.weight + self.plain


def test_mutated_parameters_and_plain_tensors_become_outputs() -> None:
    x = torch.ones(2)
    with pytest.warns(OnnxExporterWarning, match="weight_out, plain_out"):
        program = onnx_aot.export(WritesWeight(), (x,))
    captured = program.exported_program
    assert captured is not None
    assert [(s.kind, s.target) for s in captured.graph_signature.output_specs] == [
        (OutputKind.PARAMETER_MUTATION, "weight"),
        (OutputKind.BUFFER_MUTATION, "plain"),
        (OutputKind.USER_OUTPUT, None),
    ]
    torch.export.save(captured, io.BytesIO())
    for actual, expected in zip(program(x), (3.0, 2.0, 1.0), strict=True):
        torch.testing.assert_close(actual, torch.full((2,), expected))


def test_a_literal_tensor_is_made_anew_at_every_call() -> None:
    """The capture makes the tensor a constant; writes to it are not state of the model."""

    class Literal(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made = torch.tensor([1.0, 2.0])
            made.add_(x)
            return made * x

    x = torch.tensor([3.0, 4.0])
    program = onnx_aot.export(Literal(), (x,))
    assert len(program.model.graph.outputs) == 1
    torch.testing.assert_close(program(x)[0], Literal()(x))


def test_mutated_state_is_an_output_of_the_onnx_model() -> None:
    with pytest.warns(OnnxExporterWarning, match="count_out") as caught:
        program = onnx_aot.export(Counter(), (torch.ones(2),))
    assert [warning.filename for warning in caught] == [__file__]
    names = [value.name for value in program.model.graph.outputs]
    assert names == ["add", "count_out"]
    result, count = program(torch.ones(2))
    torch.testing.assert_close(result, torch.tensor([3.0, 2.0]))
    torch.testing.assert_close(count, torch.tensor([2.0, 1.0]))


def test_batch_norm_in_training_updates_statistics() -> None:
    module = torch.nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 5, 5)
    with pytest.warns(OnnxExporterWarning) as caught:
        program = onnx_aot.export(module, (x,))
    messages = [str(warning.message) for warning in caught]
    assert any("training mode: aten.batch_norm" in message for message in messages)
    assert any("running_mean_out" in message for message in messages)
    assert int(module.num_batches_tracked) == 0
    outputs = dict(zip([v.name for v in program.model.graph.outputs], program(x), strict=True))
    expected = module(x)
    assert_close(outputs["batch_norm"], expected)
    torch.testing.assert_close(outputs["running_mean_out"], module.running_mean)
    torch.testing.assert_close(outputs["running_var_out"], module.running_var)
    torch.testing.assert_close(outputs["num_batches_tracked_out"], module.num_batches_tracked)


def test_instance_norm_in_training_updates_statistics() -> None:
    module = torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    x = torch.randn(4, 3, 5, 5)
    with pytest.warns(OnnxExporterWarning, match="running_mean_out"):
        program = onnx_aot.export(module, (x,))
    outputs = dict(zip([v.name for v in program.model.graph.outputs], program(x), strict=True))
    assert_close(outputs["instance_norm"], module(x))
    torch.testing.assert_close(outputs["running_mean_out"], module.running_mean)
    torch.testing.assert_close(outputs["running_var_out"], module.running_var)


def test_inputs_named_like_builtins_keep_their_names() -> None:
    class Builtin(torch.nn.Module):
        def forward(self, input: Tensor, max: Tensor) -> Tensor:
            input.add_(max)
            return input * 2

    x = torch.randn(2, 3)
    with pytest.warns(OnnxExporterWarning, match="input_out"):
        program = onnx_aot.export(Builtin(), (x, x + 1), dynamic_shapes=({0: "n"}, {0: "n"}))
    assert [value.name for value in program.model.graph.inputs] == ["input", "max"]
    captured = torch.export.export(Builtin(), (x.clone(), x + 1))
    with pytest.warns(OnnxExporterWarning, match="input_out"):
        again = onnx_aot.export(captured)
    torch.testing.assert_close(again(x, x + 1)[0], (x + x + 1) * 2)


def test_a_graph_without_writes_is_left_alone() -> None:
    program = torch.export.export(Function(lambda x: x + 1), (torch.ones(2),))
    graph = program.graph_module.graph
    assert functionalize(program).graph_module.graph is graph


def test_an_inexpressible_write_is_refused() -> None:
    def through_unfold(x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        y.view(-1).unfold(0, 3, 2)[:, 0].mul_(2)
        return (y,)

    line = r"\(at .*test_functionalize.py:\d+ in \w+\)"
    with pytest.raises(FunctionalizationError, match=rf"unfold .* windows share elements.*{line}"):
        functionalized(through_unfold, torch.randn(4, 4))


def test_windows_of_a_dynamic_dimension_are_written() -> None:
    def through_unfold(x: Tensor) -> Tensor:
        y = x.clone()
        y.unfold(1, 2, 3).mul_(2)
        return y

    x = torch.randn(3, 7)
    program = onnx_aot.export(through_unfold, (x,), dynamic_shapes={"x": {0: "n", 1: "m"}})
    for shape in ((3, 7), (2, 8), (4, 3), (1, 2)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x)[0], through_unfold(x))


def test_an_inexpressible_write_falls_back_to_torch() -> None:
    def through_hsplit(x: Tensor) -> Tensor:
        y = x.clone()
        y.hsplit(2)[0].mul_(2)
        return y

    x = torch.randn(4, 6)
    program = onnx_aot.export(through_hsplit, (x,))
    assert any("run_decompositions" in note for note in program.report.notes)
    torch.testing.assert_close(program(x)[0], through_hsplit(x))


def test_a_write_that_torch_would_lose_is_refused() -> None:
    def through_einsum(x: Tensor) -> Tensor:
        y = x.clone()
        torch.einsum("ij->ji", y).mul_(2)
        return y

    x = torch.randn(4, 6)
    assert not torch.equal(through_einsum(x), x)
    with pytest.raises(FunctionalizationError, match=r"einsum.* does not say .* clone\(\)"):
        onnx_aot.export(through_einsum, (x,))


def _expanded(x: Tensor) -> Tensor:
    y = x[:, :1].clone()
    y.expand(-1, 6)[:, 2].mul_(2)
    return y


def _expanded_by_a_size(x: Tensor) -> Tensor:
    y = x[0].clone()
    y.expand(x.shape[0] // 4, 6).mul_(2)
    return y


@pytest.mark.parametrize("function", [_expanded, _expanded_by_a_size])
def test_writes_to_repeated_elements_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(
        FunctionalizationError, match=r"repeat elements. Write to the tensor before"
    ):
        onnx_aot.export(function, (torch.randn(4, 6),), dynamic_shapes=({0: "n"},))


def _view_outlives_resize(x: Tensor) -> Tensor:
    y = x.clone()
    view = y[1:]
    y.resize_(2)
    return view + y[0]


def _view_is_resized(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:].resize_(2)
    return y + 1


@pytest.mark.parametrize("function", [_view_outlives_resize, _view_is_resized])
def test_views_keep_their_size_when_a_tensor_is_resized(function: Callable[..., Any]) -> None:
    x = torch.arange(4.0)
    with pytest.raises(FunctionalizationError, match=r"shares its storage with a view"):
        functionalized(function, x)
    program = onnx_aot.export(function, (x,))
    assert any("run_decompositions" in note for note in program.report.notes)
    torch.testing.assert_close(program(x)[0], function(x))


def test_a_tensor_that_no_view_shares_is_resized() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        before = y[1:] * 2
        y.resize_(2)
        return before, y.mul_(2)

    x = torch.arange(4.0)
    for actual, expected in zip(run(functionalized(function, x), x), function(x), strict=True):
        torch.testing.assert_close(actual, expected)


def test_the_program_that_was_passed_in_is_not_changed() -> None:
    captured = torch.export.export(Function(whole), (torch.randn(4, 4),))
    before = str(captured)
    onnx_aot.export(captured)
    assert str(captured) == before
