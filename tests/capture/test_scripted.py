"""Scripted and traced models: ``onnx_aot/capture/scripted``."""

from __future__ import annotations

import copy
import dataclasses
import io
import re
from typing import Any

import onnx
import pytest
import torch

import onnx_aot
import onnx_aot.errors
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_compat import pytree
from tests.capture.scripted import aliases, refused
from tests.capture.scripted import container_functions as c
from tests.capture.scripted import functions as f
from tests.capture.scripted import modules as m

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

Inputs = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """A function or module, and inputs of which the first is the example.

    Attributes:
        call: The function or module to script.
        inputs: Tuples of arguments.
        sizes: Dynamic shapes of the export.
        operators: Operators that must be in the graph.
    """

    call: Any
    inputs: tuple[Inputs, ...]
    sizes: Any = None
    operators: tuple[str, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return getattr(self.call, "__name__", type(self.call).__name__) + self.name


def floats(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def ints(value: int) -> torch.Tensor:
    return torch.tensor(value)


X = floats(4, 3)
POSITIVE, NEGATIVE = X.abs(), -X.abs()
SIGNS = ((POSITIVE,), (NEGATIVE,), (POSITIVE * 0.1,), (NEGATIVE * 10,))
ROWS = tuple((floats(n, 3, seed=n),) for n in (4, 1, 7, 2))
COUNTS = tuple((X, ints(n)) for n in (4, 0, 1, 7))
N = ({0: "n"},)
LIST = [X, X + 1, X * 2]
OTHER_LIST = [-X, X, X]

LOOPS = [
    Model(f.add_steps, ((torch.ones(2, 3), 9),), operators=("Loop",)),
    Model(
        f.add_steps_of_a_tensor,
        tuple((torch.ones(2, 3), ints(n)) for n in (9, 0, 4)),
        operators=("Loop",),
    ),
    Model(f.from_start_by_step, COUNTS, operators=("Loop",)),
    Model(f.downwards, ROWS, N, operators=("Loop",)),
    Model(f.downwards, ROWS[:1], name=" static"),
    Model(f.triangle, COUNTS, operators=("Loop",)),
    Model(f.nested_ranges, ROWS, N, operators=("Loop",)),
    Model(f.rows_collected, ROWS, N, operators=("Loop",)),
    Model(f.rows_written, ROWS, N, operators=("Loop",)),
    Model(f.window_written, ROWS, N, operators=("Loop",)),
    Model(f.in_place, COUNTS, operators=("Loop",)),
    Model(f.growing, COUNTS, operators=("Loop",)),
    Model(f.shrinking, ROWS, N, operators=("Loop",)),
    Model(f.rows_of_the_tensor, ROWS, N, operators=("Loop",)),
    Model(f.recurrence, tuple((x, floats(3)) for (x,) in ROWS), ({0: "n"}, {})),
    Model(f.fibonacci, COUNTS, operators=("Loop",)),
    Model(f.float_total, COUNTS, operators=("Loop",)),
    Model(f.flag_of_any_negative, (*SIGNS, *ROWS), N),
    Model(f.leaves_unread, COUNTS),
    Model(f.matrix_power, tuple((floats(3, 3), ints(n)) for n in (3, 0, 2))),
    Model(f.horner, ((X, [1.0, 2.0, 0.5]),)),
    Model(f.until_large, ((X,), (X + 5,), (X - 2,)), operators=("Loop",)),
    Model(f.until_large_counted, ((X,), (X + 5,), (X - 2,)), operators=("Loop",)),
    Model(f.halved, ((X, 9),)),
    Model(f.collatz, tuple((X, ints(n)) for n in (6, 1, 7)), operators=("Loop",)),
    Model(f.newton, ((POSITIVE + 0.5,), (POSITIVE * 9 + 0.5,)), operators=("Loop",)),
    Model(f.breaks, (*SIGNS, *ROWS), N, operators=("Loop",)),
    Model(f.breaks_at, ((X, 9),)),
    Model(f.breaks_at, ((X, 9), (X, 2), (X, 0)), ({}, "n"), name=" of an input"),
    Model(f.continues, COUNTS, operators=("Loop",)),
    Model(f.returns_early, (*SIGNS, *ROWS), N),
    Model(f.returns_from_branch, SIGNS, operators=("If",)),
    Model(f.inner_while, ((X,), (X * 40,)), operators=("Loop",)),
    Model(f.greedy, tuple((floats(6, 6), ints(n)) for n in (3, 1, 5, 2))),
]

BRANCHES = [
    Model(f.by_sign, SIGNS, operators=("If",)),
    Model(f.by_size, ROWS, N, operators=("If",)),
    Model(f.by_parity, ROWS, N, operators=("If",)),
    Model(f.chain, SIGNS, operators=("If",)),
    Model(f.nested_ifs, tuple((*x, True) for x in SIGNS), operators=("If",)),
    Model(f.connectives, (*SIGNS, (X,))),
    Model(f.by_rank, ((X,),)),
    Model(f.by_dtype, ((X,),)),
    Model(f.two_results, SIGNS, operators=("If",)),
    Model(f.other_sizes, SIGNS, operators=("If",)),
    Model(f.number_of_branch, SIGNS),
    Model(f.float_of_branch, SIGNS),
    Model(f.written_in_branch, SIGNS, operators=("If",)),
    Model(f.appended_in_branch, SIGNS, operators=("If",)),
    Model(f.raises, ((POSITIVE,),)),
    Model(f.asserts, ROWS, N),
    Model(f.empty_or_not, ROWS, N),
]

CONTAINERS = [
    Model(c.split_and_stacked, ROWS, N, operators=("Loop",)),
    Model(c.split_and_stacked, ROWS[:1], name=" static"),
    Model(c.comprehension, ROWS, N),
    Model(c.comprehension_of_rows, ROWS, N, operators=("Loop",)),
    Model(c.given_list, ((LIST,), (OTHER_LIST,))),
    Model(c.enumerated, ((LIST,), (OTHER_LIST,))),
    Model(c.zipped, ((LIST, OTHER_LIST), (OTHER_LIST, LIST))),
    Model(c.chosen, tuple((LIST, ints(k)) for k in (0, 2, -1))),
    Model(c.list_methods, ROWS, N),
    Model(c.list_methods_in_a_loop, tuple((X, ints(n)) for n in (3, 2, 5))),
    Model(c.shape_list, ROWS, N),
    Model(c.ints_counted, ROWS, N),
    Model(c.floats_counted, ROWS, N),
    Model(c.lists_of_lists, ROWS, N),
    Model(c.list_of_tuples, ROWS, N),
    Model(c.membership, ((X, 3),)),
    Model(c.membership_of_data, tuple((X, ints(n)) for n in (3, 2, 5))),
    Model(c.sorted_ints, ROWS, N),
    Model(c.chunks, ROWS, N),
    Model(c.table_of_ints, tuple((X, ints(n)) for n in (3, 0, -1))),
    Model(c.last_of_split, ROWS, N),
    Model(c.swapped, tuple((X, X * 2, ints(n)) for n in (3, 0, 2)), operators=("Loop",)),
    Model(c.dict_of_constants, ((X, "half"),)),
    Model(c.dict_of_tensors, ROWS, N),
    Model(c.dict_in_a_loop, COUNTS, operators=("Loop",)),
    Model(c.dict_given, (({"x": X, "y": X * 2},), ({"x": X * 3, "y": X},))),
    Model(c.string_mode, ((X, "mean"),)),
    Model(c.string_mode, ROWS, N, name=" by default"),
    Model(c.optional_given, ((X, floats(3)),)),
    Model(c.optional_given, ROWS, N, name=" none"),
    Model(c.optional_kept, ROWS, N, operators=("Loop",)),
    Model(c.optional_of_branch, SIGNS, operators=("If",)),
    Model(c.optional_int, ((X, 3),)),
    Model(c.defaults, ((X, 0.5, 3, True),)),
    Model(f.calls_functions, SIGNS),
    Model(f.number_arithmetic, tuple((X, ints(n)) for n in (3, 0, 8))),
    Model(f.items_as_indices, tuple((X, ints(n)) for n in (2, 0, 3))),
    Model(f.zeros_of_number, COUNTS),
    Model(f.reshaped_by_sizes, ROWS, N),
    Model(f.masked_rows, ((X, torch.tensor([1, 3, 0, 2])),)),
    Model(
        f.masked_rows,
        tuple((floats(n, 3, seed=n), torch.arange(n) % 4) for n in (4, 7)),
        ({0: "n"}, {0: "n"}),
        name=" dynamic",
    ),
    Model(f.printed, ROWS, N),
    Model(f.moved, ROWS, N),
]

MODULES = [
    Model(m.ListAndCounter(), ROWS, N, operators=("Loop",)),
    Model(m.BufferCounter(), ROWS, N),
    Model(m.BufferInBranch(), SIGNS, operators=("If",)),
    Model(m.AttributeInLoop(), COUNTS, operators=("Loop",)),
    Model(m.AttributeInBranch(), SIGNS),
    Model(m.Layers(), ROWS, N),
    Model(m.Shared(), COUNTS, operators=("Loop",)),
    Model(m.Convolution(), tuple((floats(n, 6),) for n in (4, 2)), N),
    Model(m.Constants(), ROWS, N),
    Model(m.Cell(), tuple((floats(n, 2, 3),) for n in (4, 1, 6)), N, operators=("Loop",)),
    Model(m.Recurrent(), tuple((floats(n, 2, 3),) for n in (4, 1, 6)), N, operators=("GRU",)),
    Model(m.Methods(), ROWS, N),
    Model(m.CalledTwice(), ROWS, N),
    Model(m.OptionalLayer(True), ROWS, N, name=" there"),
    Model(m.OptionalLayer(False), ROWS, N, name=" none"),
    Model(m.ReturnsNamedTuple(), ROWS, N),
    Model(m.UsesClass(), ((X,), (X * 2,))),
    Model(
        m.Attention(),
        tuple((floats(b, t, 4),) for b, t in ((2, 3), (1, 5))),
        ({0: "batch", 1: "time"},),
    ),
    Model(
        m.LaterRows(),
        tuple((floats(b, t, 4),) for b, t in ((1, 3), (2, 5), (3, 2))),
        ({0: "batch", 1: "time"},),
    ),
    Model(m.ByTrainingFlag(), ROWS, N),
]

ALIASES = [
    Model(aliases.written_after_a_loop, COUNTS),
    Model(aliases.written_after_a_branch, COUNTS),
    Model(aliases.view_of_outer_written, COUNTS),
    Model(aliases.local_written, COUNTS),
    Model(aliases.data_written, ROWS, N),
    Model(aliases.unread_alias, COUNTS),
    Model(aliases.written_in_some_steps, COUNTS),
    Model(
        aliases.written_in_some_steps,
        tuple((floats(n, 3), ints(3)) for n in (4, 1, 6)),
        ({0: "n"}, None),
        name=" of any number",
    ),
]

MODELS = [*LOOPS, *BRANCHES, *CONTAINERS, *MODULES, *ALIASES]


def operators(graph: Any) -> set[str]:
    return {node.op_type for node in graph.all_nodes()}


def check(model: Model, scripted: Any) -> None:
    """Exports and compares for all inputs, each time from the model's initial state."""
    shapes = model.sizes
    if shapes is not None:
        shapes = (*shapes, *[None] * (len(model.inputs[0]) - len(shapes)))
    program = onnx_aot.export(scripted, model.inputs[0], dynamic_shapes=shapes, state="drop")
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert set(model.operators) <= operators(program.model.graph)
    names = [str(value.name) for value in program.model.graph.outputs]
    for inputs in model.inputs:
        returned = again(model)(*inputs)
        leaves = pytree.tree_leaves(returned)
        expected = [torch.as_tensor(leaf) for leaf in leaves if not isinstance(leaf, str)]
        given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        differences = compare_outputs(names, expected, program(*given))
        assert all(d.within for d in differences), format_differences(differences)


def again(model: Model) -> Any:
    """Returns a fresh copy of the model in Python, so that its counters start over."""
    if not isinstance(model.call, torch.nn.Module):
        return model.call
    return copy.deepcopy(model.call)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.filterwarnings("ignore:.*written:onnx_aot.errors.OnnxExporterWarning")
def test_scripted(model: Model) -> None:
    call = model.call
    scripted = torch.jit.script(call.eval() if isinstance(call, torch.nn.Module) else call)
    check(model, scripted)


# --- where models come from ----------------------------------------------------------------------


def export_and_compare(model: Any, *inputs: Inputs, **options: Any) -> Any:
    program = onnx_aot.export(model, inputs[0], **options)
    for given in inputs:
        leaves = pytree.tree_leaves(model(*given))
        for actual, expected in zip(program(*given), leaves, strict=True):
            torch.testing.assert_close(actual, torch.as_tensor(expected))
    return program


def test_a_loop_over_nine_steps() -> None:
    """Scripting the function keeps its loop; tracing it unrolls the loop."""
    answer = torch.full((2, 3), 37.0)
    ones = torch.ones(2, 3)
    scripted = torch.jit.script(f.add_steps)
    program = onnx_aot.export(scripted, (ones, 9))
    assert operators(program.model.graph) >= {"Loop"}
    torch.testing.assert_close(program(ones, 9)[0], answer)
    program = onnx_aot.export(scripted, (ones, 9), dynamic_shapes=({}, "steps"))
    torch.testing.assert_close(program(ones, 9)[0], answer)
    torch.testing.assert_close(program(ones, 2)[0], ones + 1)
    traced = torch.jit.trace(lambda x: f.add_steps(x, 9), (ones,))
    program = onnx_aot.export(traced, (ones,))
    assert operators(program.model.graph) == {"Add"}
    torch.testing.assert_close(program(ones)[0], answer)


def test_a_traced_module() -> None:
    traced = torch.jit.trace(m.Layers().eval(), (X,))
    program = export_and_compare(traced, *ROWS, dynamic_shapes=N)
    assert "layers.0.weight" in program.model.graph.initializers


def test_a_scripted_function_in_a_traced_one() -> None:
    scripted = torch.jit.script(f.add_steps_of_a_tensor)
    traced = torch.jit.trace(lambda x, n: scripted(x * 2, n) + 1, (X, ints(3)))
    export_and_compare(traced, *COUNTS)


def test_a_scripted_module_in_another_one() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.jit.script(m.Shared())

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return self.inner(x * 2, n) + self.inner(x, n)

    model = Outer()
    inner = model.inner
    program = export_and_compare(model, *COUNTS, verify=True)
    assert "inner.layer.weight" in program.model.graph.initializers
    assert model.inner is inner


@pytest.mark.parametrize("scales", [False, True])
def test_another_method_of_a_scripted_part(scales: bool) -> None:
    model = m.CallsInfer(scales).eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, X[:2] * 9, -X):
        torch.testing.assert_close(program(x)[0], model(x))


def test_a_frozen_and_a_loaded_module() -> None:
    scripted = torch.jit.script(m.Layers().eval())
    export_and_compare(torch.jit.freeze(scripted), (X,))
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    export_and_compare(torch.jit.load(file), (X,))


def test_keyword_inputs_and_defaults() -> None:
    scripted = torch.jit.script(c.defaults)
    program = onnx_aot.export(scripted, (X,), kwargs={"add": 3})
    torch.testing.assert_close(program(X, add=3)[0], X * 2 + 3)


def test_what_is_counted_is_state() -> None:
    scripted = torch.jit.script(m.ListAndCounter())
    program = onnx_aot.export(scripted, (X,), state="io")
    assert [v.name for v in program.model.graph.inputs] == ["x", "count"]
    assert [int(program(X)[1]) for _ in range(3)] == [4, 8, 12]
    assert scripted.count == 0
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="count_out"):
        program = onnx_aot.export(scripted, (X,))
    assert [int(value) for value in program(X)[1:]] == [4, 4]
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="count_out"):
        onnx_aot.export(scripted, (X,), verify=True)


@pytest.mark.parametrize("module", [m.MakesState, m.HasState])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_model_before_its_first_call(module: type[torch.nn.Module], rows: int) -> None:
    scripted = torch.jit.script(module())
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=r"total is set to .* holds float32\[0\]"):
        program = onnx_aot.export(
            scripted, (X[:rows],), dynamic_shapes=({0: "n"},), state="drop", verify=True
        )
    for count in (1, 2, 4):
        expected = torch.jit.script(module())(X[:count])
        torch.testing.assert_close(program(X[:count])[0], expected)
    torch.testing.assert_close(scripted(X), torch.jit.script(module())(X))  # is left unchanged


def test_a_state_that_is_made_at_the_first_call() -> None:
    scripted = torch.jit.script(m.MakesState())
    with pytest.raises(
        onnx_aot.errors.CaptureError, match=r"total is set [\s\S]*call the model once"
    ):
        onnx_aot.export(scripted, (X,), state="io")
    scripted(torch.zeros(4, 3))
    program = onnx_aot.export(scripted, (X,), state="io")
    assert [v.name for v in program.model.graph.inputs] == ["x", "total"]
    for _ in range(3):
        torch.testing.assert_close(program(X)[0], scripted(X))


def test_nodes_name_the_line() -> None:
    program = onnx_aot.export(torch.jit.script(f.by_sign), (X,))
    (node,) = [node for node in program.model.graph if node.op_type == "If"]
    trace = node.metadata_props["pkg.torch.onnx.stack_trace"]
    assert re.search(r'functions.py", line \d+', trace)


def test_checks_of_a_scripted_model_can_be_kept() -> None:
    program = onnx_aot.export(torch.jit.script(f.raises), (POSITIVE,), runtime_checks=True)
    torch.testing.assert_close(program(POSITIVE)[0], POSITIVE.sqrt())
    with pytest.raises(Exception, match="Name:'check: "):
        program(POSITIVE + 200)


# --- functions without a form in ONNX ------------------------------------------------------------

TWO = (X, ints(2))
WRITTEN = "in place under another name"
REFUSED = [
    (aliases.one_of_two_written, TWO, WRITTEN),
    (aliases.written_before_it_is_replaced, TWO, WRITTEN),
    (refused.text_of_branch, TWO, "'positive' on one path and 'negative'"),
    (refused.dtype_of_branch, TWO, r"int64\[4, 3\] on one path and .* float32\[4, 3\]"),
    (refused.rank_of_loop, TWO, r"float32\[4, 3\] on one path and .* float32\[1, 4, 3\]"),
    (refused.lists_in_a_loop, TWO, "length depends .* holds a list of 2"),
    (refused.tuples_in_a_loop, TWO, "length depends .* holds a tuple of 2"),
    (refused.key_of_data, TWO, "the key of a dict depends"),
    (refused.two_views_written, TWO, "written .* through one view"),
    (refused.shape_of_unknown_rank, TWO, "takes a list of numbers whose length"),
    (refused.returns_a_list, TWO, "returns a list whose length"),
    (refused.returns_an_optional, TWO, "there for some inputs and None"),
    (refused.raises_always, TWO, "the model raises .*ValueError: never"),
    (m.KeepsList(), (X,), r"writes to the list or dict self\.cache"),
]
# What is refused at the end of the model, after its last line.
WITHOUT_A_LINE = (refused.returns_a_list, refused.returns_an_optional)


@pytest.mark.parametrize(("call", "inputs", "reason"), REFUSED)
def test_refused(call: Any, inputs: Inputs, reason: str) -> None:
    """The error gives the reason, and the line if there is one."""
    with pytest.raises(onnx_aot.errors.CaptureError, match=reason) as caught:
        onnx_aot.export(torch.jit.script(call), inputs)
    if call not in WITHOUT_A_LINE and not isinstance(call, m.KeepsList):
        assert re.search(r"\n  at .*\w+\.py:\d+\nSee: ", str(caught.value))
