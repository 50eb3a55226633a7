"""Models that no capture supports: the error shows every place, the user's line and the fix."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError
from tests.tolerances import assert_close

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(4, 3)


def place(function: Callable[..., Any], text: str) -> str:
    """Returns a line of a function and its location, formatted as in error messages."""
    lines, first = inspect.getsourcelines(function)
    number = next(i for i, line in enumerate(lines) if text in line)
    return f"{lines[number].strip()}\n     at {__file__}:{first + number} in {function.__name__}\n"


def failure(function: Any, *args: Any, **options: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(function, args, **options)
    assert len(str(caught.value).splitlines()) < 30  # fits on one screen
    assert isinstance(caught.value.__cause__, Exception)  # torch's own exception
    return caught.value


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    n = x.max().to(torch.int64).item()
    if n > 3:
        x = x + 1
    return x


def numbers(x: Tensor) -> Tensor:
    for step in range(x.max().to(torch.int64).item()):
        x = x + step
    if x.sum() > 0:
        x = x * 2
    return x * [0.5, 2.0][x[0, 0].to(torch.int64).item() % 2]


def test_every_place_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    message = str(failure(numbers, X, dynamic_shapes=({0: "n"},)))
    assert "  1. " + place(numbers, "for step in") in message
    assert place(numbers, "return x * [0.5") in message
    assert capfd.readouterr() == ("", "")


def test_branches_that_are_captured_are_no_places() -> None:
    def followed(x: Tensor) -> Tensor:
        return repeated(branches(x), x.max().to(torch.int64))

    message = str(failure(followed, X))
    assert "in one place:\n  1. " + place(repeated, "for step in") in message


def flags(x: Tensor) -> Tensor:
    for limit in range(25):
        x = x + 1 if x.sum() > limit else x
    return x


def test_too_many_branches() -> None:
    message = str(failure(flags, X))
    assert "  1. " + place(flags, "if x.sum() > limit") in message
    assert "Both sides cannot be one model: there are more than 48 paths" in message
    assert "fix: choose with torch.where(condition, a, b)" in message

    def fixed(x: Tensor) -> Tensor:
        for limit in range(25):
            x = torch.where(x.sum() > limit, x + 1, x)
        return x

    program = onnx_aot.export(fixed, (X,))
    torch.testing.assert_close(program(-X)[0], flags(-X))


def test_the_fix_helps() -> None:
    def fixed(x: Tensor) -> Tensor:
        x = torch.where(x.sum() > 0, x * 2, x)
        n = x.max().to(torch.int64).item()
        torch._check(n > 3)
        if n > 3:
            x = x + 1
        return x

    program = onnx_aot.export(fixed, (X,), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(X[2:])[0], branches(X[2:]))


def repeated(x: Tensor, k: Tensor) -> Tensor:
    n = k.item()
    for step in range(n):
        x = x + step
    return x


def doubled(x: Tensor) -> Tensor:
    while x.sum() < 100:
        x = x * 2
    return x


def empty(x: Tensor) -> Tensor:
    y = x[x > 2]
    if y.shape[0] == 0:
        return x.sum()
    return y.sum()


def selected(x: Tensor) -> Tensor:
    total = x.sum()
    for row in (x > 0).nonzero():
        total = total + row.sum()
    return total


def pieces(x: Tensor) -> Tensor:
    counts = (x > 0).unique_consecutive(return_counts=True)[1]
    return torch.stack([piece.sum() for piece in x.split(counts.tolist())])


def lengths(x: Tensor) -> Tensor:
    return torch.LongTensor([x[x > 0].shape[0], 3])


def padded(x: Tensor) -> Tensor:
    length = int(x.abs().sum().ceil())
    while True:
        if length % 4 == 0:
            return torch.arange(length)
        length += 1


@pytest.mark.parametrize(
    ("function", "args", "text", "fix"),
    [
        (lengths, (X,), "return torch.LongTensor(", "write torch.tensor(..., dtype=...)"),
        (padded, (X,), "if length % 4 == 0:", "make a function of the code for each way"),
        (repeated, (X, torch.tensor(3)), "for step in", "the number of iterations"),
        (selected, (X,), "for row in", "the number of iterations"),
        (pieces, (X,), "return torch.stack(", "the number of iterations"),
        (doubled, (X,), "while x.sum()", "loop with torch._higher_order_ops.while_loop("),
    ],
)
def test_places_that_need_values(
    monkeypatch: pytest.MonkeyPatch, function: Any, args: Any, text: str, fix: str
) -> None:
    monkeypatch.setattr("onnx_aot.capture.time_limits.ALLOWANCE", 60.0)  # it takes seconds
    message = str(failure(function, *args))
    assert "in one place:\n" in message
    assert "  1. " + place(function, text) + f"     fix: {fix}" in message


def early(x: Tensor) -> Tensor:
    for limit in range(25):
        if x.sum() > limit:
            return x * 2
    return x - 1


def test_the_fix_of_an_early_return_helps() -> None:
    message = str(failure(early, X))
    assert "fix: make a function of the code for each way, and write return torch.cond(" in message
    assert "torch.where" not in message

    def fixed(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    program = onnx_aot.export(fixed, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, -X[:1]):
        torch.testing.assert_close(program(x)[0], early(x))


def stops(x: Tensor) -> Tensor:
    for _ in range(30):
        x = x * 2
        if x.sum() > 100:
            break
    return x


def test_the_fix_of_a_loop_that_ends_early_helps() -> None:
    message = str(failure(stops, X))
    assert place(stops, "if x.sum() > 100:") + "     fix: let the loop take all of its" in message

    def fixed(x: Tensor) -> Tensor:
        for _ in range(30):
            x = x * 2
            if not onnx_aot.is_in_onnx_export() and bool(x.sum() > 100):
                break
        return x

    program = onnx_aot.export(fixed, (X,), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(X[:1])[0], X[:1] * 2**30)


def test_the_fix_of_a_caught_assertion_helps() -> None:
    def catching(x: Tensor) -> Tensor:
        for limit in range(9):
            try:
                assert (x.min() >= -limit).item()
            except AssertionError:
                x = x.abs()
        return x * 2

    message = str(failure(catching, X, strategies=("non-strict",)))
    assert "fix: check the data before the model is called, or leave the check out" in message
    assert "torch.where" not in message

    def fixed(x: Tensor) -> Tensor:
        return catching(x) if not onnx_aot.is_in_onnx_export() else x * 2

    program = onnx_aot.export(fixed, (X,))
    torch.testing.assert_close(program(X)[0], catching(X))


def test_a_float_that_decides() -> None:
    def scaled(x: Tensor, scale: float) -> Tensor:
        if scale > 0.5:
            return x * scale
        return x

    program = onnx_aot.export(scaled, (X, 0.7), dynamic_shapes={"scale": "scale"})
    for scale in (0.7, 0.3):
        torch.testing.assert_close(program(X, scale)[0], scaled(X, scale))


def test_a_custom_operator_without_a_fake_kernel() -> None:
    @torch.library.custom_op("onnx_aot_tests::unfaked", mutates_args=())
    def unfaked(x: Tensor) -> Tensor:
        return x * 2

    message = str(failure(lambda x: unfaked(x) + 1, X))
    assert "  onnx_aot_tests::unfaked\n" in message
    assert "@torch.library.register_fake('onnx_aot_tests::unfaked')" in message


def test_an_error_of_the_model_itself(capfd: pytest.CaptureFixture[str]) -> None:
    def wrong(x: Tensor) -> Tensor:
        y = x + 1
        return y @ torch.ones(4, 4)

    message = str(failure(wrong, X))
    assert "mat1 and mat2 shapes cannot be multiplied (4x3 and 4x4)" in message
    lines, first = inspect.getsourcelines(wrong)
    assert f"  {lines[2].strip()}\n  at {__file__}:{first + 2} in wrong\n" in message
    assert capfd.readouterr() == ("", "")


class Counting(torch.nn.Module):
    """Chooses a way by a count, keeps the choice for the next call, and selects columns."""

    is_long = False

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1 if self.is_long else x
        self.is_long = exceeds(int((x > 0).sum()))
        selected = x[:, x[0] > 0][1]  # its offset depends on data
        return selected * 2 if self.is_long else selected


def exceeds(count: int) -> bool:
    return True if count > 3 else False  # noqa: SIM210


def test_sizes_that_only_draft_export_compares_are_no_places() -> None:
    message = str(failure(Counting(), X, dynamic_shapes=({1: "n"},)))
    assert "leave self.is_long with different values" in message
    assert "torch._check(max(1," not in message
    assert "selected = " not in message
    assert "     fix: use a local variable; " in message


def test_the_fix_of_a_kept_choice_helps() -> None:
    def forward(x: Tensor) -> Tensor:
        is_long = exceeds(int((x > 0).sum()))
        selected = x[:, x[0] > 0][1]  # its offset depends on data
        return selected * 2 if is_long else selected

    program = onnx_aot.export(forward, (X,), dynamic_shapes=({1: "n"},))
    for given in (X, torch.cat([X, X], 1)):
        torch.testing.assert_close(program(given)[0], forward(given))


def test_the_way_of_a_branch_that_cannot_be_captured_can_be_left_out() -> None:
    def forward(x: Tensor) -> Tensor:
        n = int(x.max().item()) + 1
        many = n > 3
        if many:
            return x * math.log(n)
        return x * 2

    def follows(x: Tensor) -> Tensor:
        n = int(x.max().item()) + 1
        many = n > 3
        torch._check(n <= 3)
        if many:
            return x * math.log(n)
        return x * 2 if n <= 3 else x * math.log(n)

    x = torch.tensor([0.5, 1.5, 0.1])
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(forward, (x,), dynamic_shapes=({0: "n"},))
    assert (
        "Or, if the model never goes the way of many at this line, write torch._check(n <= 3) "
        "above it:\n  if many:\n  at "
    ) in str(caught.value)
    program = onnx_aot.export(follows, (x,), dynamic_shapes=({0: "n"},))
    for size in (3, 5):
        x = torch.rand(size) * 2
        assert_close(program(x)[0], follows(x))
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(lambda x: x * math.log(int(x.max().item()) + 1), (x,))
    assert "never goes" not in str(caught.value)


def test_branches_around_a_place_can_be_left_out() -> None:
    """The outermost one comes first, and the last branch before the place is not around it."""

    def splits(x: Tensor, many: Tensor) -> Tensor:
        rows = []
        while x[len(rows)].sum() > 0:
            rows.append(x[len(rows)] * many.sum())
        return torch.cat(rows)

    def forward(x: Tensor, many: Tensor) -> Tensor:
        if x.mean() > 0:
            x = x + 1
        if many.any():
            if x.max() > 9:
                return splits(x, many)
            return x * 2
        return x

    def follows(x: Tensor, many: Tensor) -> Tensor:
        if x.mean() > 0:
            x = x + 1
        if not onnx_aot.is_in_onnx_export() and many.any():
            return splits(x, many)
        return x

    def passes(x: Tensor, few: Tensor) -> Tensor:
        if few.all():
            return x
        else:  # noqa: RET505
            return splits(x, few)

    x, many = torch.rand(40, 3), torch.zeros(3, dtype=torch.bool)
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(forward, (x, many))
    into = (
        "Or, if the model never goes into this branch, leave it out while exporting, if not "
        "onnx_aot.is_in_onnx_export() and ...:\n  "
    )
    outer, inner = str(caught.value).split(into)[1:]
    assert outer.startswith("if many.any():\n  at ")
    assert inner.startswith("if x.max() > 9:\n  at ")
    program = onnx_aot.export(follows, (x, many))
    for given in (x, -x):
        assert_close(program(given, many)[0], follows(given, many))
    with pytest.raises(CaptureError, match=r"never goes past this branch, .*\(\) or ...:"):
        onnx_aot.export(passes, (x, ~many))


def test_a_number_that_is_computed_from_sizes() -> None:
    def forward(x: Tensor) -> Tensor:
        n = torch.full((), float(x.shape[0])).erf().to(torch.int64).item()
        return x if x.shape[0] > n else x.long()

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(forward, (X,), dynamic_shapes=({0: "n"},))
    assert (
        "if the number that it needs, made at `n = torch.full((), float(x.shape[0])).erf().to("
        "torch.int64).item()` at "
    ) in str(caught.value)
    assert "computed from sizes only, leave these dimensions out of" in str(caught.value)
    assert_close(onnx_aot.export(forward, (X,))(X)[0], forward(X))


def thinned(x: Tensor) -> Tensor:
    """The first row that is left, then those that are larger, until none is left."""
    kept = []
    while x.shape[0] > 0:
        kept.append(x[0])
        x = x[1:][x[1:, 0] > x[0, 0]]
    return torch.stack(kept)


class Thinned(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = [x[0]]
        x = x[1:][x[1:, 0] > x[0, 0]]
        while x.shape[0] > 0:
            kept.append(x[0])
            x = x[1:][x[1:, 0] > x[0, 0]]
        return torch.stack(kept)


def test_a_loop_until_data_selects_nothing() -> None:
    """It would never end if it went on for sizes from 2 on."""
    message = str(failure(thinned, X, dynamic_shapes=({0: "n"},)))
    assert place(thinned, "while x.shape") in message
    assert "or export torch.jit.script(model), which keeps the loop" in message
    script = onnx_aot.export(torch.jit.script(Thinned()), (X,), dynamic_shapes=({0: "n"},))
    static = onnx_aot.export(thinned, (X,))  # at most one step for each row
    for rows in (X, X.flip(0), X.roll(1, 0)):
        torch.testing.assert_close(script(rows)[0], thinned(rows))
        torch.testing.assert_close(static(rows)[0], thinned(rows))
