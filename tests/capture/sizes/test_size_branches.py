"""Exporting a model that branches on sizes is right, or names the line in a warning or error."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.sizes.size_branches import is_rare
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning


def larger(x: Tensor) -> Tensor:
    if x.shape[0] > 4:
        return x * 2
    return x[0]  # of another rank, so that one model cannot have both


def rounded(x: Tensor) -> Tensor:
    even = (x.shape[0] + 1) // 2 * 2
    if even != x.shape[0]:
        x = torch.nn.functional.pad(x, (0, 0, 0, 1))
    return x.reshape(even // 2, 2, 3)


def of_two_sizes(x: Tensor) -> Tensor:
    return x if x.shape[0] < x.shape[1] * 5 else x + 1


def refuses(x: Tensor) -> Tensor:
    if x.shape[0] > 100:
        raise ValueError("too long")
    assert x.shape[0] < 1000
    return x + 1


def one_or_more(x: Tensor) -> Tensor:
    return x.sum(0) if x.shape[0] > 1 else x[0]


def always(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] >= 0 else x


def in_chunks(x: Tensor) -> Tensor:
    total = x * 0
    for number in range((x.shape[0] + 63) // 64):
        total = total + x if number % 2 else total - x  # cannot be one loop
    return total


N = {0: "n"}
BOTH = {0: "n", 1: "m"}


@pytest.mark.parametrize(
    ("function", "shapes", "line"),
    [
        (larger, N, "if x.shape[0] > 4:"),
        (in_chunks, N, "for number in range((x.shape[0] + 63) // 64):"),
        (of_two_sizes, BOTH, "return x if x.shape[0] < x.shape[1] * 5 else x + 1"),
    ],
)
def test_the_line_is_named(function: Callable[..., Any], shapes: Any, line: str) -> None:
    x = torch.rand(8, 3)
    with pytest.warns(OnnxExporterWarning, match="code branches on sizes") as caught:
        program = onnx_aot.export(function, (x,), dynamic_shapes=(shapes,))
    text = str(caught[0].message)
    assert f"`{line}` at {__file__}:" in text
    assert "runtime_checks=True" in text
    torch.testing.assert_close(program(x)[0], function(x))


def of_logarithm(x: Tensor) -> Tensor:
    return x if math.log2(x.shape[0]) > 2.5 else x + 1


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (larger, {"strategies": ("strict",)}),
        (of_logarithm, {"strategies": ("strict",)}),
        (of_logarithm, {}),  # a non-strict capture fixes the size
    ],
)
def test_the_line_is_named_in_strict_captures(function: Callable[..., Any], options: Any) -> None:
    """Dynamo does not run the line. A branch once passed without a word, wrong at small sizes."""
    x = torch.rand(8, 3)
    with pytest.warns(OnnxExporterWarning, match="code branches on sizes") as caught:
        program = onnx_aot.export(function, (x,), dynamic_shapes=(N,), **options)
    assert f" at {__file__}:" in str(caught[0].message)
    torch.testing.assert_close(program(x)[0], function(x))


def test_branches_of_strict_captures_are_joined() -> None:
    def of_parity(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x

    program = onnx_aot.export(
        of_parity, (torch.rand(8, 3),), dynamic_shapes=(N,), strategies=("strict",)
    )
    for rows in (8, 7, 1):
        x = torch.rand(rows, 3)
        torch.testing.assert_close(program(x)[0], of_parity(x))


def test_shortcuts_of_torch_are_no_branches_of_strict_captures() -> None:
    """``group_norm`` asks in Python code of torch whether there are several values per channel."""
    norm = torch.nn.GroupNorm(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        onnx_aot.export(norm, (torch.rand(8, 3, 4),), dynamic_shapes=(N,), strategies=("strict",))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(refuses, N), (one_or_more, N), (always, N), (larger, {0: Dim("n", min=5)})],
)
def test_what_is_right_at_every_size(function: Callable[..., Any], shapes: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_aot.export(function, (torch.rand(8, 3),), dynamic_shapes=(shapes,))


def doubles_one_row(x: Tensor) -> Tensor:
    return x if x.shape[0] > 1 else x * 2


def answers_for_none(x: Tensor) -> Tensor:
    return x.sum(0) + 1 if x.shape[0] == 0 else x.sum(0)


def refuses_one_row(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return x.view(7)
    return x * 2


@pytest.mark.parametrize(("function", "wrong"), [(doubles_one_row, 1), (answers_for_none, 0)])
def test_a_branch_for_a_small_size_is_named_if_it_matters(
    function: Callable[..., Any], wrong: int
) -> None:
    x = torch.rand(4, 3)
    with pytest.warns(OnnxExporterWarning, match="code branches on sizes") as caught:
        program = onnx_aot.export(function, (x,), dynamic_shapes=(N,))
    text = str(caught[0].message)
    assert f" at {__file__}:" in text
    assert f", for size {wrong}." in text
    for size in (2, 3, 7):
        torch.testing.assert_close(program(x := torch.rand(size, 3))[0], function(x))
    with warnings.catch_warnings():  # both ways out that the message has
        warnings.simplefilter("error")
        onnx_aot.export(function, (x,), dynamic_shapes=({0: Dim("n", min=2)},))
        checked = onnx_aot.export(function, (x,), dynamic_shapes=(N,), runtime_checks=True)
    with pytest.raises(Exception, match="Reshape"):
        checked(x[:wrong])


def adds_more_than_one_row(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, x * y], 1).sum(0) if x.shape[0] > 1 else x.new_zeros(6)


def spreads_of_rows(x: Tensor) -> Tensor:
    spread = torch.cov(x.T)
    return torch.linalg.eigvalsh(spread) if x.shape[0] > 1 else x.new_zeros(3)


@pytest.mark.parametrize("dim", [Dim.AUTO, Dim.DYNAMIC, "n"])
def test_a_branch_for_a_small_size_of_several_inputs(dim: Any) -> None:
    """Without names, only the capture says that the inputs have equally many rows."""
    inputs = (torch.rand(4, 3), torch.rand(4, 3))
    with pytest.warns(OnnxExporterWarning, match=r"adds_more_than_one_row, for size 1"):
        onnx_aot.export(adds_more_than_one_row, inputs, dynamic_shapes=({0: dim}, {0: dim}))


def test_a_branch_for_a_small_size_of_a_related_input() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        longer = torch.cat([x, x[:1]])
        return (longer + y).sum(0) if x.shape[0] > 1 else y.new_zeros(3)

    dims = ({0: Dim.AUTO}, {0: Dim.AUTO})
    with pytest.warns(OnnxExporterWarning, match=r"x.shape\[0\] > 1 else .* for size 1"):
        onnx_aot.export(function, (torch.rand(4, 3), torch.rand(5, 3)), dynamic_shapes=dims)


def test_a_branch_for_a_small_size_that_the_other_one_refuses() -> None:
    """The covariance of one row is NaN, for which torch computes no eigenvalues."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        onnx_aot.export(spreads_of_rows, (torch.rand(4, 3),), dynamic_shapes=(N,))
    (warning,) = caught  # none of torch's about one row
    assert issubclass(warning.category, OnnxExporterWarning)
    assert "x.new_zeros(3)` at" in str(warning.message)
    assert ", for size 1" in str(warning.message)


@pytest.mark.parametrize("function", [one_or_more, refuses_one_row])
def test_a_branch_for_a_small_size_that_changes_nothing(function: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_aot.export(function, (torch.rand(4, 3),), dynamic_shapes=(N,))


@pytest.mark.parametrize("function", [doubles_one_row, one_or_more])
def test_a_branch_of_size_1_alone(function: Callable[..., Any]) -> None:
    program = onnx_aot.export(function, (torch.rand(1, 3),), dynamic_shapes=(N,))
    for size in (1, 2, 5, 300):
        torch.testing.assert_close(program(x := torch.rand(size, 3))[0], function(x))


def padded_to_eight(x: Tensor) -> Tensor:
    missing = -x.shape[0] % 8
    if missing > 0:
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    return x.reshape(-1, 8, 3).sum(0)


def padded_with_shortcut(x: Tensor) -> Tensor:
    """The first other size that is tried takes a branch of few sizes too."""
    return padded_to_eight(x * 2 if x.shape[0] == 16 else x + x)


def resized_if_odd(x: Tensor) -> Tensor:
    half = x[::2]
    if x.shape[0] % 2 != 0:
        return half.repeat_interleave(2, 0)[: x.shape[0]]
    return torch.stack([half, half], 1).flatten(0, 1)


def validates_multiples(x: Tensor) -> Tensor:
    if x.shape[0] % 8 == 0:
        return x * 2
    message = f"{x.shape[0]} rows"
    raise ValueError(message)


class Grid(torch.nn.Module):
    """Keeps the table of the last call for inputs of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [torch.arange(4.0)]

    def forward(self, x: Tensor) -> Tensor:
        halves = x.unfold(0, 2, 2)
        if self.tables[0].shape[0] != halves.shape[0]:
            self.tables[0] = torch.arange(halves.shape[0], dtype=x.dtype)
        return halves * self.tables[0][:, None, None]


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (padded_to_eight, 16),
        (padded_to_eight, 8),
        (padded_with_shortcut, 16),
        (resized_if_odd, 8),
        (Grid(), 8),
        (Grid(), 9),
    ],
)
def test_the_branch_of_most_sizes_is_captured(function: Callable[..., Any], rows: int) -> None:
    """The branch of the example is that of few sizes; the other one is right for it too."""
    with warnings.catch_warnings(record=True) as caught:  # torch warns of the attribute
        warnings.simplefilter("always")
        program = onnx_aot.export(function, (torch.rand(rows, 3),), dynamic_shapes=(N,))
    assert not any(issubclass(warning.category, OnnxExporterWarning) for warning in caught)
    for size in (2, 7, 8, 9, 16, 17, 24, 33):
        x = torch.rand(size, 3)
        torch.testing.assert_close(program(x)[0], function(x))


def doubled_if_odd(x: Tensor) -> Tensor:
    """The results of the branches cannot be those of one model: they have other types."""
    even = x.shape[0] // 2 * 2
    return x * 2 if even == x.shape[0] else (x * 2).double()


@pytest.mark.parametrize("rows", [8, 9])
def test_a_branch_of_few_sizes_is_refused(rows: int) -> None:
    """The other branch is not right for the example."""
    with pytest.raises(DynamicShapeError, match="right for few sizes: captured for") as caught:
        onnx_aot.export(doubled_if_odd, (torch.rand(rows, 3),), dynamic_shapes=(N,))
    text = str(caught.value)
    assert f"if even == x.shape[0] else (x * 2).double()\n      at {__file__}:" in text
    rest = " + 1" * (rows % 2)
    assert f"write 2*torch.export.Dim('_n'){rest} for it" in text
    shape = {0: 2 * Dim("_n") + rows % 2}
    program = onnx_aot.export(doubled_if_odd, (torch.rand(rows, 3),), dynamic_shapes=(shape,))
    for size in (rows, rows + 2, rows + 8):
        x = torch.rand(size, 3)
        torch.testing.assert_close(program(x)[0], doubled_if_odd(x))


def test_a_branch_of_few_sizes_is_accepted_if_asked() -> None:
    x = torch.rand(8, 3)
    with pytest.warns(OnnxExporterWarning, match="right for few sizes"):
        program = onnx_aot.export(
            doubled_if_odd, (x,), dynamic_shapes=(N,), on_specialized="warn", runtime_checks=True
        )
    torch.testing.assert_close(program(x)[0], doubled_if_odd(x))
    torch.testing.assert_close(program(x[:6])[0], doubled_if_odd(x[:6]))
    with pytest.raises(Exception, match="Reshape"):
        program(x[:7])


@pytest.mark.parametrize("options", [{}, {"runtime_checks": True}, {"on_specialized": "warn"}])
@pytest.mark.parametrize("rows", [8, 9])
def test_branches_of_which_none_is_right_for_all_sizes(rows: int, options: Any) -> None:
    x = torch.rand(rows, 3)
    program = onnx_aot.export(rounded, (x,), dynamic_shapes=(N,), **options)
    for size in (2, 3, 8, 9, 16, 17):
        x = torch.rand(size, 3)
        torch.testing.assert_close(program(x)[0], rounded(x))


def test_a_branch_that_raises_is_no_limit() -> None:
    program = onnx_aot.export(validates_multiples, (torch.rand(8, 3),), dynamic_shapes=(N,))
    x = torch.rand(24, 3)
    torch.testing.assert_close(program(x)[0], x * 2)


@pytest.mark.parametrize(
    ("takes", "example", "expected"),
    [
        (lambda n: n == 40, 40, True),
        (lambda n: n % 8 == 0, 40, True),
        (lambda n: n % 8 == 0, 8, True),
        (lambda n: n % 2 == 1, 9, True),
        (lambda n: n % 8 != 0, 41, False),
        (lambda n: n // 2 == 4, 9, True),
        (lambda n: n <= 50, 40, False),
        (lambda n: n <= 50, 50, False),
        (lambda n: n <= 1, 1, True),
        (lambda n: n <= 0, 0, True),
        (lambda n: n <= 2, 1, False),
        (lambda n: n > 39, 40, False),
        (lambda n: n // 100 == 0, 40, False),
    ],
)
def test_rare_conditions(takes: Callable[[int], bool], example: int, expected: bool) -> None:
    assert is_rare(takes, example) is expected


def _two_reasons(x: Tensor) -> Tensor:
    if x.shape[10] // 2 == 4:  # holds around the example: axis 10 has its own warning
        x = x + 1
    if x.shape[1] > 4:
        return x * 2
    return x[0]


def test_a_size_that_is_fixed_after_the_capture_names_the_line() -> None:
    """The capture is for sizes up to 2, and the autocast region is dispatched as for 2 and more."""

    def attend(x: Tensor) -> Tensor:
        x = x * 2 if not x.shape[1] // 3 else x[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ x.mT).softmax(-1)

    said = r"'m'\): fixed at 2\n +x = x \* 2 if not"
    with (
        pytest.warns(OnnxExporterWarning, match="0 to 2"),
        pytest.raises(DynamicShapeError, match=said),
    ):
        onnx_aot.export(attend, (torch.rand(6, 2, 3),), dynamic_shapes=({0: "n", 1: "m"},))


def test_what_follows_a_branch_is_not_limited_by_it() -> None:
    """The capture of one branch is for sizes up to 2, which autocast would take for 2."""

    def attend(x: Tensor) -> Tensor:
        x = x * 2 if not x.shape[1] // 3 else x.clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ x.mT).softmax(-1)

    program = onnx_aot.export(attend, (torch.rand(6, 2, 3),), dynamic_shapes=({0: "n", 1: "m"},))
    for size in (1, 2, 3, 7):
        x = torch.rand(5, size, 3)
        torch.testing.assert_close(program(x)[0], attend(x))


def test_a_quotient_that_is_one_for_the_example() -> None:
    """The capture is made with a longer example, since it would be for 1 and 2 alone."""
    cell = torch.nn.GRUCell(3, 2)

    def every_second(x: Tensor) -> Tensor:
        steps: Tensor = cell(x[::2])
        return steps

    program = onnx_aot.export(every_second, (torch.rand(2, 3),), dynamic_shapes=({0: "n"},))
    for n in (1, 2, 3, 8):
        x = torch.rand(n, 3)
        torch.testing.assert_close(program(x)[0], every_second(x))


def test_a_remainder_that_the_solver_of_torch_does_not_know() -> None:
    def choose(x: Tensor, z: Tensor) -> Tensor:
        return z * 2 if x.shape[0] < z.shape[0] * x.shape[0] // 3 else z + z

    shapes = ({0: "n", 1: "m"}, {0: "n + 1"})
    given = torch.rand(4, 6), torch.rand(5)
    program = onnx_aot.export(choose, given, dynamic_shapes=shapes)
    for n in (2, 4, 9):
        x, z = torch.rand(n, 3), torch.rand(n + 1)
        torch.testing.assert_close(program(x, z)[0], choose(x, z))


def test_axis_1_is_not_axis_10() -> None:
    x = torch.rand(1, 6, *[1] * 8, 8)
    with pytest.warns(OnnxExporterWarning) as caught:
        onnx_aot.export(_two_reasons, (x,), dynamic_shapes=({1: "n", 10: Dim.AUTO},))
    texts = [str(warning.message) for warning in caught]
    (limited,) = [text for text in texts if "behaves differently for" in text]
    (chosen,) = [text for text in texts if "branches on sizes" in text]
    assert "x, axis 10" in limited
    assert "if x.shape[1] > 4:" in chosen
    assert "shape[10]" not in chosen


def test_a_number_is_warned_of_beside_another_warning() -> None:
    def scaled(x: Tensor, n: int) -> Tensor:
        y = x[: x.shape[0] // 2 * 2] if x.shape[0] < 12 else x
        return y * 2 if n > 4 else y[0]

    with pytest.warns(OnnxExporterWarning) as caught:
        onnx_aot.export(scaled, (torch.rand(8, 3), 7), dynamic_shapes=({0: "rows"}, "n"))
    assert any("if n > 4" in str(warning.message) for warning in caught)


def halves(x: Tensor) -> Tensor:
    half = x.shape[0] // 2
    x = x.reshape(half, 2, *x.shape[1:]).sum(1)
    return x if half % 2 == 0 else x * 3


def smaller_half(x: Tensor) -> Tensor:
    return x if min(x.shape[0] // 2, x.shape[1] // 2) > 4 else x * 3


@pytest.mark.parametrize(
    ("model", "what", "fix"),
    [
        (halves, "x.shape[0] // 2) % 2", "4*torch.export.Dim('_n')"),
        (larger, "x.shape[0] > 4", "2*torch.export.Dim('_n', min=3)"),
    ],
)
def test_a_derived_dim_promises_all_its_sizes(
    model: Callable[..., Any], what: str, fix: str
) -> None:
    """Torch asks whether a ``Dim`` has the sizes that a branch needs, not whether ``2*n`` has."""
    args = (torch.randn(8, 3),)
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(model, args, dynamic_shapes=({0: 2 * Dim("n")},))
    assert what in str(caught.value)
    assert f"write {fix}" in str(caught.value)
    assert "test_size_branches.py" in str(caught.value)
    narrower = eval(fix, {"torch": torch})
    program = onnx_aot.export(model, args, dynamic_shapes=({0: narrower},))
    for size in (8, 12, 20):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x)[0], model(x))


def test_a_derived_dim_without_a_branch_is_right_at_all_its_sizes() -> None:
    def pairs(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] // 2, 2, x.shape[1]).sum(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(
            pairs, (torch.randn(8, 3),), dynamic_shapes=({0: 2 * Dim("n"), 1: "m"},)
        )
    for size in (0, 2, 6):
        x = torch.randn(size, 5)
        torch.testing.assert_close(program(x)[0], pairs(x))


def test_a_branch_on_two_derived_dims_is_warned_of() -> None:
    shape = {0: 2 * Dim("n"), 1: 2 * Dim("m")}
    with pytest.warns(OnnxExporterWarning, match=r"`return x if min\(x\.shape"):
        onnx_aot.export(smaller_half, (torch.randn(16, 24),), dynamic_shapes=(shape,))


def test_derived_dims_of_one_root_vary_together() -> None:
    def longer(x: Tensor, y: Tensor) -> Tensor:
        return x.sum() + y.sum() if x.shape[0] * 2 == y.shape[0] else x.sum() - y.sum()

    n = Dim("n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        onnx_aot.export(
            longer,
            (torch.randn(8), torch.randn(16)),
            dynamic_shapes=({0: 2 * n}, {0: 4 * n}),
        )
