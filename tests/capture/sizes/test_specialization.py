"""Dimensions that a model specializes or limits: the line, the fix, and ``on_specialized``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError, InferenceError, OnnxExporterWarning
from tests.capture.sizes.declared_shapes import shapes
from tests.tolerances import assert_close

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(4, 3)


def line_of(function: Callable[..., Any], text: str) -> str:
    """Returns the location of a line of a function, formatted as in error messages."""
    lines, first = inspect.getsourcelines(function)
    number = next(i for i, line in enumerate(lines) if text in line)
    return f"{lines[number].strip()}\n      at {__file__}:{first + number} in {function.__name__}\n"


def fixed_view(x: Tensor) -> Tensor:
    y = x * 2
    return y.view(4, 3)


def fixed_table(x: Tensor) -> Tensor:
    table = torch.ones(4, 3)
    return x + table


def unrolled(x: Tensor) -> Tensor:
    y = x[0]
    for row in range(x.shape[0]):
        y = y + x[row] if row != 2 else y
    return y


def with_numpy(x: Tensor) -> Tensor:
    steps = np.linspace(0, 1, x.shape[0])
    return x + torch.from_numpy(steps)[:, None]


def listed(x: Tensor) -> Tensor:
    return x / max(x[:, 0].tolist())


def branch(x: Tensor) -> Tensor:
    if x.shape[0] == 4:
        return x * 2
    return x


@pytest.mark.parametrize(
    ("function", "text", "fix", "dimension"),
    [
        (fixed_view, "y.view(", "write x.shape[0], or -1", "n"),
        (fixed_view, "y.view(", "write x.shape[0], or -1", Dim("n", max=9)),
        (fixed_table, "x + table", "whatever has the size 4 there", "n"),
        (unrolled, "range(", "a Python loop is unrolled", Dim("n")),
        (with_numpy, "np.linspace", "NumPy turns the size", "n"),
        (listed, "tolist()", "tolist() makes one number of each element", "n"),
        (branch, "== 4", "only the example's branch", "n"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_line_that_fixes_a_dimension(
    function: Any, text: str, fix: str, dimension: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(function, (X,), dynamic_shapes=({0: dimension},))
    message = str(caught.value)
    assert "  x, axis 0 ('n'): fixed at 4\n" in message
    assert line_of(function, text) in message
    assert f"      fix: {fix}" in message
    assert "leave it out of dynamic_shapes" in message
    assert len(message) < 1500
    assert capfd.readouterr() == ("", "")


LIBRARY = """
def total(x):
    y = x[0]
    for row in range(x.shape[0]):
        y = y + x[row]
    return y
"""


def test_fix_for_a_line_of_a_library(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "library.py"
    file.parent.mkdir()
    file.write_text(LIBRARY)
    code: dict[str, Any] = {"__name__": "library"}
    exec(compile(LIBRARY, str(file), "exec"), code)

    def call_library(x: Tensor) -> Tensor:
        return code["total"](x)

    with pytest.raises(DynamicShapeError, match="a Python loop is unrolled") as caught:
        onnx_aot.export(call_library, (X,), dynamic_shapes=({0: "n"},))
    assert "library.py:4 in total, called from " in str(caught.value)


def test_every_dimension_and_both_lines_where_one_follows_from_another() -> None:
    def fixes(x: Tensor, y: Tensor) -> Tensor:
        total = x + y
        return total + y.reshape(4, 3)

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(fixes, (X, X), dynamic_shapes=({0: "a"}, {0: "b"}))
    message = str(caught.value)
    assert "  x, axis 0 ('a'): fixed at 4\n" in message
    assert "  y, axis 0 ('b'): fixed at 4\n" in message
    assert line_of(fixes, "total = x + y") in message
    assert message.count(line_of(fixes, "y.reshape(4, 3)")) == 2


def test_the_torch_error_is_chained() -> None:
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(fixed_view, (X,), dynamic_shapes=({0: "n"},))
    assert "Constraints violated" in str(caught.value.__cause__)


@pytest.mark.parametrize("dimension", ["n", Dim("n", min=2, max=9)], ids=str)
def test_warn_and_allow_export_a_fixed_dimension(dimension: Any, tmp_path: Path) -> None:
    with pytest.warns(
        OnnxExporterWarning,
        match=r"x, axis 0 .*fixed at 4 .*`return y\.view\(4, 3\)` at .+\.py:\d+",
    ):
        program = onnx_aot.export(
            fixed_view, (X,), dynamic_shapes=({0: dimension},), on_specialized="warn"
        )
    assert shapes(program) == [[4, 3]]
    torch.testing.assert_close(program(X)[0], fixed_view(X))
    program = onnx_aot.export(  # warnings are errors in this test run
        fixed_view,
        (X,),
        dynamic_shapes=({0: dimension},),
        on_specialized="allow",
        report=True,
        artifacts_dir=tmp_path,
    )
    assert shapes(program) == [[4, 3]]
    (report,) = tmp_path.glob("*.md")
    assert "is fixed at 4 by `return y.view(4, 3)`" in report.read_text(encoding="utf-8")


def test_other_dimensions_stay_as_they_were_asked() -> None:
    def mixed(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return x.view(4, 3), y[1:] + z

    n = Dim("n")
    with pytest.warns(OnnxExporterWarning, match="x, axis 0 .+ is fixed at 4"):
        program = onnx_aot.export(
            mixed,
            (X, torch.ones(6, 3), torch.ones(5, 3)),
            dynamic_shapes=({0: Dim("k")}, {0: n + 1}, {0: n}),
            on_specialized="warn",
        )
    assert shapes(program) == [[4, 3], ["n + 1", 3], ["n", 3]]
    inputs = (X, torch.ones(3, 3), torch.ones(2, 3))
    for got, wanted in zip(program(*inputs), mixed(*inputs), strict=True):
        torch.testing.assert_close(got, wanted)


def rounds(x: Tensor) -> Tensor:
    return x * math.isqrt(x.shape[0] * 3 // 2)


def test_what_a_condition_binds_to_the_example_becomes_static() -> None:
    """The capture calls the dimension dynamic, but is correct only for the example."""
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(rounds, (X,), dynamic_shapes=({0: "n"},))
    assert "x, axis 0 ('n'): fixed at 4: captured for (" in str(caught.value)
    assert line_of(rounds, "math.isqrt(") in str(caught.value)
    assert "use // and * on" in str(caught.value)
    with pytest.warns(OnnxExporterWarning, match="is fixed at 4: captured for"):
        program = onnx_aot.export(rounds, (X,), dynamic_shapes=({0: "n"},), on_specialized="warn")
    assert shapes(program) == [[4, 3]]


def fixed(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] == x.shape[1] == y.shape[0] == 4:
        return x + y[:, None]
    raise ValueError("4 only")


def test_a_cause_of_several_dimensions_is_said_once() -> None:
    args = (torch.randn(4, 4), torch.randn(4))
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(fixed, args, dynamic_shapes=({0: "a", 1: "b"}, {0: "c"}))
    message = str(caught.value)
    for dim in ("x, axis 0 ('a')", "x, axis 1 ('b')", "y, axis 0 ('c')"):
        assert f"{dim}: fixed at 4" in message
    assert message.count("if x.shape[0] == x.shape[1] == y.shape[0] == 4:") == 1
    assert "without testing x.shape[0] and x.shape[1] and y.shape[0], or choose" in message


class Classifier(torch.nn.Module):
    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.pool = torch.nn.AdaptiveAvgPool2d(6) if pooled else torch.nn.Identity()
        self.linear = torch.nn.Linear(4 * 6 * 6, 2)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.conv(x))
        return self.linear(features.flatten(1))


@pytest.mark.parametrize("dims", [("h", "w"), (Dim("h", min=3), Dim("w", min=3))], ids=str)
def test_what_a_condition_binds_together_becomes_static(dims: Any) -> None:
    """Torch calls height and width dynamic although their product must be that of the example."""
    x = torch.randn(2, 3, 8, 8)
    given = ({0: "b", 2: dims[0], 3: dims[1]},)
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(Classifier(pooled=False), (x,), dynamic_shapes=given)
    message = str(caught.value)
    assert "x, axis 2 ('h'): fixed at 8: captured for " in message
    assert "x, axis 3 ('w'): fixed at 8: captured for " in message
    assert message.count("return self.linear(features.flatten(1))\n      at ") == 1
    assert message.count("fix: ") == 1
    assert "AdaptiveAvgPool2d before flatten" in message
    with pytest.warns(OnnxExporterWarning, match="is fixed at 8: captured for"):
        program = onnx_aot.export(
            Classifier(pooled=False), (x,), dynamic_shapes=given, on_specialized="warn"
        )
    assert shapes(program) == [["b", 3, 8, 8]]
    fixed = onnx_aot.export(Classifier(pooled=True), (x,), dynamic_shapes=({0: "b"},))
    assert shapes(fixed) == [["b", 3, 8, 8]]


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x, y: x.repeat_interleave(300) + y, (2, 600)),
        (lambda x, y: x.reshape(-1, 5)[:, 0] + y.reshape(-1, 7)[:, 0], (10, 14)),
        (lambda x, y: torch.cat([x, y]).reshape(3, -1), (8, 4)),
        (lambda x, y: x[::2] + y[1:], (9, 6)),
    ],
)
def test_sizes_that_depend_on_each_other_are_free(
    function: Any, sizes: tuple[int, int], recwarn: pytest.WarningsRecorder
) -> None:
    inputs = tuple(torch.randn(size) for size in sizes)
    names = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    program = onnx_aot.export(function, inputs, dynamic_shapes=names)
    assert not any(isinstance(d, int) for shape in shapes(program) for d in shape)
    assert not recwarn


def test_an_exported_program_that_is_static() -> None:
    captured = torch.export.export(torch.nn.Linear(3, 2), (X,))
    with pytest.raises(DynamicShapeError, match=r"input, axis 0 \('n'\): fixed at 4"):
        onnx_aot.export(captured, dynamic_shapes={"input": {0: "n"}})
    with pytest.warns(OnnxExporterWarning, match=r"input, axis 0 \('n'\) is fixed at 4"):
        program = onnx_aot.export(
            captured, dynamic_shapes={"input": {0: "n"}}, on_specialized="warn"
        )
    assert shapes(program) == [[4, 3]]


def test_a_static_number() -> None:
    def times(x: Tensor, k: int) -> Tensor:
        if k == 3:
            return x
        return x * k

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(times, (X, 3), dynamic_shapes={"k": "k"})
    assert "  k: fixed at 3\n" in str(caught.value)
    assert line_of(times, "if k == 3") in str(caught.value)
    with pytest.warns(OnnxExporterWarning, match="k is fixed at 3 by `if k == 3:`"):
        program = onnx_aot.export(times, (X, 3), dynamic_shapes={"k": "k"}, on_specialized="warn")
    assert shapes(program) == [[4, 3]]


# --- ranges and relations ------------------------------------------------------------------------


def above_three(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 3 else x.sum()


def below_nine(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] < 9 else x.sum()


def not_one(x: Tensor) -> Tensor:
    return x if x.shape[0] == 1 else x * 2


def pairs(x: Tensor) -> Tensor:
    return x.reshape(-1, 2, 3)


@pytest.mark.parametrize(
    ("function", "dimension", "fix"),
    [
        (above_three, Dim("n"), "torch.export.Dim('n', min=4)"),
        (above_three, Dim("n", max=64), "torch.export.Dim('n', min=4, max=64)"),
        (below_nine, Dim("n"), "torch.export.Dim('n', max=8)"),
        (not_one, Dim("n"), "torch.export.Dim('n', min=2)"),
        (pairs, Dim("n"), "2*torch.export.Dim('_n')"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_dim_that_promises_more_than_the_model_takes(
    function: Any, dimension: Any, fix: str
) -> None:
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(function, (X,), dynamic_shapes=({0: dimension},))
    message = str(caught.value)
    assert "x, axis 0 ('n'): limited to " in message
    assert line_of(function, "return") in message
    assert f"      fix: write {fix} for it" in message
    written = eval(fix, {"torch": torch})  # apply the suggested fix literally
    program = onnx_aot.export(function, (X,), dynamic_shapes=({0: written},))
    torch.testing.assert_close(program(X[:4])[0], function(X[:4]))
    with pytest.warns(OnnxExporterWarning, match=r"x, axis 0 \('n'\) is limited to"):
        program = onnx_aot.export(
            function, (X,), dynamic_shapes=({0: dimension},), on_specialized="warn"
        )
    assert shapes(program) == [["n", 3]]
    more = torch.ones(6, 3)
    torch.testing.assert_close(program(more)[0], function(more))


def test_operators_that_treat_the_sizes_0_and_1_as_special() -> None:
    """Broadcasting tests sizes against 1; ONNX operators do so at run time."""

    def attend(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x @ x.transpose(1, 2) + mask[:, None], dim=-1)

    n = Dim("n", max=512)
    program = onnx_aot.export(
        attend, (torch.randn(2, 8, 4), torch.zeros(2, 8)), dynamic_shapes=({1: n}, {1: n})
    )
    assert shapes(program) == [[2, "n", 4], [2, "n"]]
    for size in (1, 2, 5):
        inputs = (torch.randn(2, size, 4), torch.randn(2, size))
        torch.testing.assert_close(program(*inputs)[0], attend(*inputs))


def test_dims_that_are_always_equal_are_one() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    for given in (({0: "a"}, {0: "b"}), ({0: Dim("a")}, {0: Dim("b", max=99)})):
        with pytest.warns(
            OnnxExporterWarning,
            match=r"y, axis 0 .*always equals 'a'.*`return x \+ y` at ",
        ):
            program = onnx_aot.export(add, (X, X), dynamic_shapes=given)
        assert shapes(program) == [["a", 3], ["a", 3]]
        torch.testing.assert_close(program(X[:2], X[2:])[0], X[:2] + X[2:])


def test_a_dim_that_is_a_multiple_of_another() -> None:
    def every_second(x: Tensor, y: Tensor) -> Tensor:
        return x.reshape(-1, 6)[:, :3] + y

    n = Dim("n")
    program = onnx_aot.export(
        every_second, (torch.ones(8, 3), X), dynamic_shapes=({0: 2 * n}, {0: n})
    )
    assert shapes(program) == [["2*n", 3], ["n", 3]]


def test_a_derived_dim_that_the_model_contradicts() -> None:
    def shifted(x: Tensor, y: Tensor) -> Tensor:
        return x[4:] + y

    n = Dim("n")
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(shifted, (torch.ones(8, 3), X), dynamic_shapes=({0: 2 * n}, {0: n}))
    assert "y, axis 0 ('n'): limited to max(0, " in str(caught.value)
    assert line_of(shifted, "x[4:]") + "      fix: use y.shape[0] there" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (({0: Dim("n", min=8)}, None), r"x, axis 0 \('n'\) is 4 .+ 8 to no upper"),
        (({0: Dim("n", max=3)}, None), r"is 4 .+ limits it to 0 to 3"),
        (({0: Dim.DYNAMIC(max=3)}, None), r"x, axis 0 is 4 in the example inputs"),
        (({0: 3}, None), r"gives 3 for x, axis 0, which is 4 in the example inputs"),
        (({0: 2 * Dim("n")}, {0: Dim("n")}), r"x, axis 0 is 2\*n; n is 4 .+ is 4 instead of 8"),
        (({0: 3 * Dim("n")}, None), r"x, axis 0 is 3\*n, and it is 4 .+ which no n gives"),
        (({0: "n + m"}, {0: "n", 1: "m"}), r"x, axis 0 is n \+ m; m is 3, n is 4 .+ of 7"),
    ],
)
def test_examples_that_contradict_the_request(given: Any, message: str) -> None:
    with pytest.raises(DynamicShapeError, match=message):
        onnx_aot.export(lambda x, y: x.sum() + y.sum(), (X, X), dynamic_shapes=given)


def test_sizes_around_the_example_name_their_line() -> None:
    def tenth(x: Tensor) -> Tensor:
        return x[: math.isqrt(x.shape[0] // 10)]

    with pytest.raises(
        DynamicShapeError,
        match=r"x, axis 0 \('n'\): right for 20 to 29 only[\s\S]*math[\s\S]* in tenth",
    ):
        onnx_aot.export(tenth, (torch.ones(25, 2),), dynamic_shapes=({0: "n"},))


def test_two_limits_that_leave_one_size_are_both_named() -> None:
    def squeezed_in(x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            x = x * 2
        if x.shape[0] < 5:
            x = x + 1
        return x

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(squeezed_in, (X,), dynamic_shapes=({0: "n"},))
    message = str(caught.value)
    assert "  x, axis 0 ('n'): fixed at 4\n" in message
    assert line_of(squeezed_in, "> 3") in message
    assert line_of(squeezed_in, "< 5") in message


def test_a_dim_from_zero_that_operators_refuse_small_sizes_of() -> None:
    """Torch's solver fails at the condition ``3/2 < m``, under which the operator has a result."""
    model = torch.nn.ConvTranspose1d(3, 2, 1, stride=2, padding=1).eval()
    dims = {0: Dim("n", min=0), 2: Dim("m", min=0)}
    program = onnx_aot.export(model, (torch.randn(3, 3, 5),), dynamic_shapes=(dims,))
    for shape in ((3, 3, 5), (1, 3, 2), (0, 3, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-3, atol=1e-4)


def test_a_dim_from_zero_that_the_model_refuses_small_sizes_of() -> None:
    def above_one(x: Tensor) -> Tensor:
        return x + 1 if torch.sym_max(4 * x.shape[0] - 4, 0) > 1 else x - 1

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(above_one, (X,), dynamic_shapes=({0: Dim("n", min=0)},))
    assert line_of(above_one, "sym_max") in str(caught.value)
    assert "write torch.export.Dim('n', min=2) for it" in str(caught.value)


def test_a_strict_capture_names_lines_too() -> None:
    """Only strict capture handles this model; the line comes from the bytecode."""

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_dynamo_compiling():
                raise ValueError("only when bytecode is analysed")
            y = x + 1
            return y.view(4, 3)

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(Model(), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert "x, axis 0" in str(caught.value)
    assert "y.view(4, 3)" in str(caught.value)


def test_a_sum_of_names_is_delivered() -> None:
    def forward(past: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([past, x], 1) * mask

    def unrelated(past: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(past.shape[1] + x.shape[1]), torch.zeros(mask.shape[1])

    args = (torch.randn(2, 3), torch.randn(2, 4), torch.ones(2, 7))
    for name in ("past + seq", "seq+past"):
        given = ({1: "past"}, {1: "seq"}, {1: name})
        for function in (forward, unrelated):
            program = onnx_aot.export(function, args, dynamic_shapes=given)
            assert program.model.graph.inputs[2].shape == (2, "past + seq")
    with pytest.warns(OnnxExporterWarning, match=r"\('total'\) is always 'past \+ seq'"):
        onnx_aot.export(forward, args, dynamic_shapes=({1: "past"}, {1: "seq"}, {1: "total"}))
    assert [len(output) for output in program(*args)] == [7, 7]
    with pytest.raises(InferenceError, match=r"was exported with mask\.shape"):
        program(*args[:2], torch.ones(2, 9))


def _trimmed(past: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    if mask.shape[1] > past.shape[1] + x.shape[1]:
        mask = mask[:, : past.shape[1]]
    return mask * torch.cat([past, x], 1).sum()


def test_code_that_asks_about_a_sum_is_told() -> None:
    """Once the mask's size is declared as the sum, the model makes no choice anymore."""
    args = (torch.randn(2, 3), torch.randn(2, 4), torch.ones(2, 7))
    with pytest.warns(OnnxExporterWarning, match=r"branches on sizes.*`if mask.shape\[1\] > past"):
        onnx_aot.export(_trimmed, args, dynamic_shapes=({1: "past"}, {1: "seq"}, {1: "n"}))
    given = {"past": {1: "past"}, "x": {1: "seq"}, "mask": {1: "past + seq"}}
    program = onnx_aot.export(_trimmed, args[:2], kwargs={"mask": args[2]}, dynamic_shapes=given)
    other = (torch.randn(2, 5), torch.randn(2, 1), torch.rand(2, 6))
    torch.testing.assert_close(program(*other[:2], mask=other[2])[0], _trimmed(*other))


def test_what_is_asserted_or_follows_from_names_is_no_choice() -> None:
    def asserts(x: Tensor, y: Tensor) -> Tensor:
        torch._check(x.shape[0] >= 4)
        if x.shape[0] * 3 > y.shape[0] * 3:  # two dimensions that share a name
            return y - 1
        return y * x.shape[0]

    rows = {0: "n"}
    program = onnx_aot.export(asserts, (X, X), dynamic_shapes=(rows, rows))
    other = torch.randn(7, 3)
    torch.testing.assert_close(program(other, other)[0], asserts(other, other))


def odd_in_both(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x + z * 2 if torch.sym_min(y.shape[1], z.shape[0]) % 2 else x + z


def test_line_that_asks_for_two_axes_of_the_same_name() -> None:
    """They are one size, so the condition is one on a single size, and both branches are joined."""
    n = Dim("n")
    inputs = (torch.randn(3, 4), torch.randn(1, 3), torch.randn(3, 4))
    program = onnx_aot.export(odd_in_both, inputs, dynamic_shapes=({0: n}, {1: n}, {0: n}))
    for rows in (1, 2, 5, 8):
        other = (torch.randn(rows, 4), torch.randn(1, rows), torch.randn(rows, 4))
        torch.testing.assert_close(program(*other)[0], odd_in_both(*other))


def laid_out(x: Tensor) -> Tensor:
    """Torch asks from C++ whether the rows are one, when it makes them contiguous."""
    return torch.ones(1, 3).expand(x.shape[0], 3).contiguous() + x


def pooled(x: Tensor) -> Tensor:
    """The half, rounded up, may be 1, which torch asks for when it computes strides."""
    rows = torch.nn.functional.adaptive_avg_pool2d(x.T[None, :, None, ::2], (1, None))
    return rows.squeeze(2).transpose(1, 2)


@pytest.mark.parametrize("function", [laid_out, pooled])
def test_questions_of_operators_about_one_do_not_limit_a_dim(
    function: Callable[[Tensor], Tensor],
) -> None:
    program = onnx_aot.export(function, (X,), dynamic_shapes=({0: Dim("n")},))
    for rows in (1, 2, 3, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(program(x)[0], function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, -2:].contiguous() * 2,
        lambda x: x[:, -2:].reshape(-1, 3),
        lambda x: torch.nn.functional.linear(x[:, -2:], torch.ones(4, 3)),
    ],
)
def test_a_copy_of_the_last_steps_is_right_at_fewer(function: Any) -> None:
    """Without a third step, torch copies nothing; the values are the same."""
    dims = {0: Dim("batch"), 1: Dim("steps", min=1)}
    program = onnx_aot.export(function, (torch.randn(2, 6, 3),), dynamic_shapes=(dims,))
    for shape in ((2, 6, 3), (2, 1, 3), (3, 2, 3), (1, 3, 3), (2, 9, 3)):
        x = torch.randn(shape)
        assert_close(program(x)[0], function(x))


def test_two_sizes_that_the_model_compares_limit_a_dim() -> None:
    def compare(x: torch.Tensor) -> torch.Tensor:
        last = x[:, -2:]
        return last.sum() if last.shape[1] == x.shape[1] else last * 2

    with pytest.raises(DynamicShapeError, match=r"min=3"):
        onnx_aot.export(
            compare, (torch.randn(2, 6, 3),), dynamic_shapes=({1: Dim("steps", min=1)},)
        )


def test_a_static_dimension_of_another_input_is_named() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    with pytest.raises(DynamicShapeError, match=r"if that is y, axis 0, call it 'n' in dynamic_s"):
        onnx_aot.export(add, (X, X + 1), dynamic_shapes={"x": {0: "n"}})
    program = onnx_aot.export(add, (X, X + 1), dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}})
    assert shapes(program) == [["n", 3], ["n", 3]]
