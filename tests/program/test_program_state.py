"""State: buffers, parameters and inputs that a model writes to, in loops as in eager mode."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import (
    ConversionError,
    InferenceError,
    InvalidOptionError,
    OnnxExporterWarning,
)
from onnx_aot.metadata.keys import INPUT_KIND, OUTPUT_KIND, STATE

Tensor = torch.Tensor


class Counter(torch.nn.Module):
    """An integer buffer that is written twice and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(3, dtype=torch.int32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        y = x * self.count
        self.count.mul_(2)
        return y, self.count


class Cache(torch.nn.Module):
    """Keys at positions that the caller gives, and the newest key at a counted position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 3))
        self.register_buffer("latest", torch.zeros(2, 6, 3), persistent=False)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(1, where, x)
        self.latest[:, 1 : 1 + x.shape[1]] = x
        self.position += x.shape[1]
        return self.keys.sum(1) + self.latest.mean(1), self.position * 1


class Nested(torch.nn.Module):
    """Buffers of submodules: one is shared by two submodules, and one is only written."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Module()
        self.second = torch.nn.Module()
        self.first.register_buffer("total", torch.zeros(3))
        self.second.register_buffer("total", self.first.total)
        self.second.register_buffer("last", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        before = self.second.total * 1
        self.first.total.add_(x.sum(0))
        self.second.last.copy_(x)
        self.second.total.mul_(0.5)
        return before + 10 * self.first.total


class Decaying(torch.nn.Module):
    """Writes to a parameter, a plain tensor and the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.plain = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        self.plain.add_(x.sum(0))
        x.mul_(2)
        return x * self.weight + self.plain


class Phase(torch.nn.Module):
    """A complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("z", torch.tensor([1 + 0j, 1j]))

    def forward(self, x: Tensor) -> Tensor:
        self.z.mul_(torch.complex(x, x + 1))
        return self.z.real + x


class Normalizing(torch.nn.Sequential):
    """Batch normalization in training mode, with running statistics and a count of batches."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Conv1d(3, 4, 1), torch.nn.BatchNorm1d(4), torch.nn.ReLU())


X = torch.randn(4, 3)

STEPS = 4

# Inputs of a step for each model. The models have all kinds of buffers described above.
MODELS: dict[type[torch.nn.Module], Callable[[int], tuple[Tensor, ...]]] = {
    Counter: lambda step: (X + step,),
    Cache: lambda step: (torch.randn(2, 2, 3), torch.tensor([step, step + 2])),
    Nested: lambda step: (X * step,),
    Decaying: lambda step: (X + step,),
    Phase: lambda step: (torch.tensor([0.5, 1.0 + step]),),
    Normalizing: lambda step: (torch.randn(5, 3, 7) + step,),
}


@pytest.fixture(params=MODELS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[torch.nn.Module]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Ignores warnings about training mode, and about written tensors that are not buffers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*captured in training mode")
        warnings.filterwarnings("ignore", message="The tensor attributes?")
        yield


def eager_step(
    model: torch.nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[Any, tuple[Tensor, ...]]:
    """Returns the module's results, and its inputs as modified by the call."""
    given = tuple(tensor.clone() for tensor in inputs)
    with torch.no_grad():
        returned = model(*given)
    return (returned if isinstance(returned, tuple) else (returned,)), given


def held(model: torch.nn.Module) -> dict[str, Tensor]:
    """Returns parameters, buffers and plain tensors by name, including their other names."""
    tensors = {
        **dict(model.named_parameters()),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    if isinstance(model, Decaying):
        tensors["plain"] = model.plain
    return {name: tensor.detach() for name, tensor in tensors.items()}


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected)


# --- outputs -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_new_values_are_outputs(kind: type[torch.nn.Module]) -> None:
    model, step = kind(), MODELS[kind]
    with pytest.warns(
        OnnxExporterWarning, match=r"new values are extra outputs .*_out.* state=\"io"
    ):
        program = onnx_aot.export(model, step(0))
    onnx.checker.check_model(program.model_proto, full_check=True)
    inputs = step(1)
    actual = program(*inputs)
    returned, written = eager_step(model, inputs)
    assert_same(actual[: len(returned)], returned)
    after = {**held(model), "x": written[0]}
    new = program.model.graph.outputs[len(returned) :]
    assert new
    for value, tensor in zip(new, actual[len(returned) :], strict=True):
        assert_same(tensor, after[str(value.name).removesuffix("_out")])
        assert value.metadata_props[OUTPUT_KIND].endswith("_MUTATION")
    assert program.state == {}
    assert_same(program(*inputs), actual)  # the program has no memory


def test_the_warning_names_them_and_outputs_are_named_after_the_input_as_delivered() -> None:
    with pytest.warns(OnnxExporterWarning, match="weight_out, plain_out, data_out"):
        program = onnx_aot.export(Decaying(), (X,), input_names=["data"])
    data = program.model.graph.outputs[-1]
    assert data.metadata_props[OUTPUT_KIND] == "USER_INPUT_MUTATION"
    assert data.metadata_props[STATE] == "data"


def test_a_name_that_state_would_have_is_taken() -> None:
    class Taken(Counter):
        def forward(self, count_out: Tensor, count: Tensor) -> Any:
            return super().forward(count_out)[0] + count

    program = onnx_aot.export(Taken(), (X, X), state="io")
    names = [value.name for value in program.model.graph.inputs]
    assert names == ["count_out", "count", "count_1"]
    state = program.model.graph.outputs[-1]
    assert (state.name, state.metadata_props[STATE]) == ("count_out_1", "count_1")
    assert_same(program(X, X)[0], X * 4 + X)
    assert_same(program(X, count=X)[0], X * 9 + X)  # the argument is added, not the buffer


# --- drop ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_drop_leaves_them_out(kind: type[torch.nn.Module], tmp_path: Path) -> None:
    model, step = kind(), MODELS[kind]
    before = {name: tensor.clone() for name, tensor in held(model).items()}
    program = onnx_aot.export(
        model, step(0), state="drop", verify=True, report=True, artifacts_dir=tmp_path
    )
    assert_same(held(model), before)
    kinds = {value.metadata_props[OUTPUT_KIND] for value in program.model.graph.outputs}
    assert kinds == {"USER_OUTPUT"}
    inputs = step(1)
    actual = program(*inputs)
    assert_same(actual, eager_step(model, inputs)[0])
    (report,) = tmp_path.iterdir()
    assert "- the model writes to " in report.read_text(encoding="utf-8")


@pytest.mark.usefixtures("quiet")
def test_what_only_dropped_state_needs_is_not_there() -> None:
    program = onnx_aot.export(
        Normalizing(), (torch.randn(5, 3, 7),), state="drop", weights_as_inputs=True
    )
    names = [value.name for value in program.model.graph.inputs]
    assert names == ["input", "0.weight", "0.bias", "1.weight", "1.bias"]
    program = onnx_aot.export(Nested(), (X,), state="drop", optimize=False)
    assert "second.last" not in program.model.graph.initializers
    assert program.exported_program is not None
    kinds = {spec.kind.name for spec in program.exported_program.graph_signature.output_specs}
    assert kinds == {"USER_OUTPUT"}


# --- io ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_the_program_loops_as_the_module_does(kind: type[torch.nn.Module]) -> None:
    model, step = kind(), MODELS[kind]
    program = onnx_aot.export(model, step(0), state="io", verify=True)
    onnx.checker.check_model(program.model_proto, full_check=True)
    first = {name: tensor.clone() for name, tensor in program.state.items()}
    assert first
    assert_same(first, {name: held(model)[name] for name in first})  # verification changed nothing
    batches = [step(number) for number in range(STEPS)]
    results = []
    for inputs in batches:
        actual = program(*inputs)
        returned, written = eager_step(model, inputs)
        assert_same(actual[: len(returned)], returned)
        assert_same(program.state, {name: held(model)[name] for name in first})
        if isinstance(model, Decaying):
            assert_same(actual[-1], written[0])
        results.append(actual)
    program.reset_state()
    assert_same(program.state, first)
    for inputs, before in zip(batches, results, strict=True):
        assert_same(program(*inputs), before)


@pytest.mark.usefixtures("quiet")
def test_a_plain_session_loops_by_the_metadata(kind: type[torch.nn.Module], tmp_path: Path) -> None:
    model, step = kind(), MODELS[kind]
    path = tmp_path / "model.onnx"
    program = onnx_aot.export(model, step(0), path, state="io", metadata="none")
    graph = onnx.load(path).graph
    pairs = {
        value.name: prop.value
        for value in graph.output
        for prop in value.metadata_props
        if prop.key == STATE
    }
    session = onnxruntime.InferenceSession(path)
    outputs = [value.name for value in session.get_outputs()]
    names = [value.name for value in session.get_inputs()]
    state = {
        name: (torch.view_as_real(tensor) if tensor.is_complex() else tensor).numpy()
        for name, tensor in program.state.items()
    }
    assert names[len(names) - len(state) :] == list(state)  # follow the user's names
    assert not set(state) & {tensor.name for tensor in graph.initializer}
    for number in range(STEPS):
        inputs = step(number)
        feeds = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=False))
        results = dict(zip(outputs, session.run(None, {**feeds, **state}), strict=True))
        state = {pairs[name]: value for name, value in results.items() if pairs.get(name) in state}
        returned, _ = eager_step(model, inputs)
        for name, tensor in zip(outputs, returned, strict=False):
            assert_same(torch.from_numpy(results[name]), tensor)
    kinds = {v.name: v.metadata_props[INPUT_KIND] for v in program.model.graph.inputs}
    assert {kinds[name] for name in state} <= {"BUFFER", "PARAMETER"}


class Ring(torch.nn.Module):
    """A buffer that is reassigned and written at another's index; writes to views of a third."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(5, 3, dtype=dtype))
        self.register_buffer("hidden", torch.zeros(4, 3, dtype=dtype))
        self.register_buffer("index", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.hidden.copy_(self.hidden.logical_xor(x) if x.dtype == torch.bool else self.hidden + x)
        self.ring = torch.roll(self.ring, 1, 0)
        self.ring.index_put_((self.index.reshape(1) % 5,), self.hidden[1:2])
        self.ring[0] = self.hidden[0]
        self.hidden[:, 1:].masked_fill_(x[:, 1:] != 0, 1)
        self.index.add_(1)
        return self.ring + self.hidden[3]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64]
)
def test_state_of_every_type(dtype: torch.dtype) -> None:
    model = Ring(dtype)
    program = onnx_aot.export(model, (torch.ones(4, 3).to(dtype),), state="io")
    for _ in range(STEPS):
        x = (torch.randn(4, 3) * 2).to(dtype)
        actual, returned = program(x), eager_step(model, (x,))[0]
        torch.testing.assert_close(actual[:1], returned)
        torch.testing.assert_close(program.state, held(model))


def test_state_may_be_given_read_and_set() -> None:
    program = onnx_aot.export(Counter(), (X,), state="io")
    assert "  in   count: INT32[] (state)" in repr(program).splitlines()
    assert_same(program(X)[0], X * 4)
    given = program(X, count=torch.tensor(0, dtype=torch.int32))
    assert_same(given[0], X)
    assert int(given[-1]) == 2
    assert int(program.state["count"]) == 8  # given state applies to a single call
    program.state["count"] = torch.tensor(20, dtype=torch.int32)
    assert_same(program(X)[0], X * 21)
    program.state["count"] = torch.tensor(20)
    with pytest.raises(InferenceError, match=r"input count is torch\.int32 .* torch\.int64 was"):
        program(X)
    program.reset_state()
    with program.state_kept():
        program(X)
    assert int(program.state["count"]) == 3
    returned = program(X)
    returned[-1].zero_()  # a call's results belong to the caller
    assert int(program.state["count"]) == 8
    program.reset_state()
    program.state["count"].zero_()
    program.reset_state()
    assert int(program.state["count"]) == 3


def test_state_is_of_the_time_of_the_export() -> None:
    model = Counter()
    program = onnx_aot.export(model, (X,), state="io")
    model(X)
    assert_same(program(X)[0], X * 4)


def test_looking_into_a_model_does_not_change_its_state() -> None:
    program = onnx_aot.export(Counter(), (X,), state="io")
    count, product, end = program.compute_values(["count", "mul", "count_out"], (X,))
    assert (int(count), int(end)) == (3, 8)
    assert_same(product, X * 4)
    assert int(program.state["count"]) == 3
    assert_same(program.call_reference(X)[0], X * 4)
    assert int(program.state["count"]) == 8  # also updated by the other way to run


def test_apply_weights_sets_state_and_what_it_is_reset_to() -> None:
    program = onnx_aot.export(Nested(), (X,), state="io")
    program(X)
    total, last = torch.full((3,), 7.0), torch.ones(4, 3)
    program.apply_weights({"second.total": total, "second.last": last})  # its other name
    for _ in range(2):
        assert_same(program.state, {"first.total": total, "second.last": last})
        program(X)
        program.reset_state()
    with pytest.raises(InvalidOptionError, match=r"first\.total is FLOAT\[3\] .*FLOAT\[4\] was"):
        program.apply_weights({"first.total": torch.ones(4)})


def test_saving_with_initializers_as_inputs_or_left_out(tmp_path: Path) -> None:
    class Scaled(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Any:
            return super().forward(x * self.scale)

    buffer = io.BytesIO()
    onnx_aot.export(Scaled(), (X,), buffer, state="io", keep_initializers_as_inputs=True)
    graph = onnx.load_from_string(buffer.getvalue()).graph
    assert [value.name for value in graph.input] == ["x", "count", "scale"]
    assert "scale" in [tensor.name for tensor in graph.initializer]
    buffer = io.BytesIO()
    onnx_aot.export(Scaled(), (X,), buffer, state="io", export_params=False)
    graph = onnx.load_from_string(buffer.getvalue()).graph
    assert [value.name for value in graph.input] == ["x", "count"]
    assert "scale" not in [tensor.name for tensor in graph.initializer]


def test_state_and_dynamic_shapes() -> None:
    model = Normalizing()
    with pytest.warns(OnnxExporterWarning, match="training mode"):
        program = onnx_aot.export(
            model, (torch.randn(5, 3, 7),), state="io", dynamic_shapes=({0: "n", 2: "t"},)
        )
    for shape in ((5, 3, 7), (2, 3, 1), (1, 3, 9)):
        x = torch.randn(shape)
        actual, returned = program(x), eager_step(model, (x,))[0]
        assert_same(actual[:1], returned)
        assert_same(program.state, {name: held(model)[name] for name in program.state})


def test_a_state_that_nothing_reads_is_an_input_all_the_same() -> None:
    """The interface does not depend on the model's use of the old value."""
    program = onnx_aot.export(Nested(), (X,), state="io")
    last = next(v for v in program.model.graph.inputs if v.name == "second.last")
    assert not last.uses()
    program(X)
    assert_same(program.state["second.last"], X)


def test_names_for_state() -> None:
    program = onnx_aot.export(
        Cache(), MODELS[Cache](0), state="io", input_names=["x", "at", "past"], output_names=["y"]
    )
    inputs = [value.name for value in program.model.graph.inputs]
    outputs = [value.name for value in program.model.graph.outputs]
    assert inputs == ["x", "at", "past", "latest", "position"]
    assert outputs[2:] == ["past_out", "latest_out", "position_out"]
    program(*MODELS[Cache](0))
    program = onnx_aot.export(
        Cache(), MODELS[Cache](0), state="io", output_names=["y", "n", "keys_now", "latest_now"]
    )
    outputs = [value.name for value in program.model.graph.outputs]
    assert outputs == ["y", "n", "keys_now", "latest_now", "position_out"]
    with pytest.raises(InvalidOptionError, match=r"6 names.*returns 2 values.*keys_out, latest_"):
        onnx_aot.export(Cache(), MODELS[Cache](0), state="io", output_names=list("abcdef"))


def test_buffers_that_overlap_are_refused() -> None:
    class Overlapping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(4))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x: Tensor) -> Tensor:
            self.whole.add_(1)
            return x + self.part

    with pytest.raises(ConversionError, match="b_whole or b_part, which share memory"):
        onnx_aot.export(Overlapping(), (torch.ones(2),))


def test_a_program_that_is_functional_already() -> None:
    model = Cache()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        captured = torch.export.export(model, MODELS[Cache](0)).run_decompositions({})
    program = onnx_aot.export(captured, state="io")
    for number in range(STEPS):
        inputs = MODELS[Cache](number)
        assert_same(program(*inputs)[:2], eager_step(model, inputs)[0])
    assert list(program.state) == ["keys", "latest", "position"]
