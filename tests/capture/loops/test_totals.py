"""Loops over pieces of a dynamic dimension, of which the last one may be smaller."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import onnx_aot
from tests.capture.loops.test_roll import compare

X = torch.randn(2, 9, 4)
LINEAR = nn.Linear(4, 4)


def chunked(x: Tensor) -> Tensor:
    return x + torch.cat([LINEAR(c) for c in x.chunk(4, dim=1)], dim=1)


def split_along_batch(x: Tensor) -> Tensor:
    outs = []
    for piece in torch.split(x, 2):
        outs.append(LINEAR(piece).relu())  # noqa: PERF401
    return torch.cat(outs)


def sliced(x: Tensor) -> Tensor:
    n, outs = x.shape[1], []
    for begin in range(0, n, 4):
        end = min(begin + 4, n)
        outs.append(functional.scaled_dot_product_attention(x[:, begin:end], x, x))
    return torch.cat(outs, dim=1) + x


def zipped(x: Tensor) -> Tensor:
    pairs = zip(x.split(4, 1), x.exp().split(4, 1), strict=True)
    return torch.cat([(a @ b.transpose(1, 2)).softmax(-1) @ b for a, b in pairs], 1)


def with_state(x: Tensor) -> tuple[Tensor, Tensor]:
    state, outs = torch.zeros_like(x[:, 0]), []
    for piece in torch.chunk(x, 3, 1):
        outs.append(piece + state[:, None])
        state = 0.5 * state + piece.mean(1)
    return torch.cat(outs, 1), state


def front_first(x: Tensor) -> Tensor:
    outs: list[Tensor] = []
    for piece in x.split(4, 1):
        outs.insert(0, piece.exp())
    return torch.cat(outs, 1)


def with_ends(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1], *map(LINEAR, x.split(4, 1)), x[:, -1:]], 1)


def overlapping(x: Tensor) -> Tensor:
    padded, outs = functional.pad(x, (0, 0, 1, 1)), []
    for begin in range(0, x.shape[1], 4):
        piece = padded[:, begin : begin + 6]
        outs.append(piece[:, :-2] + piece[:, 1:-1] + piece[:, 2:])
    return torch.cat(outs, 1)


def of_complex(x: Tensor) -> Tensor:
    numbers = torch.view_as_complex(x.reshape(*x.shape[:2], 2, 2))
    return torch.view_as_real(torch.cat([piece * 2j for piece in numbers.split(4, 1)], 1))


def selected(x: Tensor) -> Tensor:
    """Pieces whose sizes depend on data."""
    outs = []
    for t in range(x.shape[1]):
        row = x[:, t]
        outs.append(row[row[:, 0] > 0])
    return torch.cat(outs)


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = torch.cat([LINEAR(c) for c in x.split(4, 1)], 1)
    return y + x


def written(x: Tensor) -> Tensor:
    y = x.clone()
    for piece in y.split(4, 1):
        piece[:, 0] = 0
    return y


MODELS = (
    *(chunked, split_along_batch, sliced, zipped, with_state, front_first, with_ends),
    *(overlapping, of_complex, selected, without_gradients, written),
)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_pieces_of_all_sizes(model: Callable[[Tensor], Any]) -> None:
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "batch", 1: "steps"},))
    for batch, steps in ((2, 9), (1, 1), (3, 2), (5, 4), (1, 8), (3, 13), (2, 37)):
        x = torch.randn(batch, steps, 4)
        got = program(x)
        expected = model(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, two in zip(got, expected, strict=True):
            assert one.shape == two.shape
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_pieces_of_one_element_in_the_example() -> None:
    model = nn.Module()
    model.forward = lambda x: x + torch.cat([LINEAR(c) for c in x.chunk(10, 1)], 1)  # type: ignore[assignment]
    program = onnx_aot.export(model, (X[:1],), dynamic_shapes=({0: "batch", 1: "steps"},))
    for batch, steps in ((1, 9), (2, 10), (3, 11), (1, 101)):
        compare(program, model, torch.randn(batch, steps, 4))


def test_written_rows_of_one_element_in_the_example() -> None:
    def integral(x: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.zeros(len(times), *x.shape)
        for t in range(1, len(times)):
            rows[t] = x * times[t]
        return rows, torch.trapezoid(rows.sum(-1), times, dim=0)

    example = (torch.randn(1, 4), torch.linspace(0, 1, 5))
    program = onnx_aot.export(integral, example, dynamic_shapes=({0: "batch"}, {0: "steps"}))
    for batch, steps in ((1, 5), (3, 2), (2, 9)):
        given = torch.randn(batch, 4), torch.linspace(0, 2, steps)
        for one, two in zip(program(*given), integral(*given), strict=True):
            assert one.shape == two.shape
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_size_of_joined_pieces_is_that_of_the_input() -> None:
    program = onnx_aot.export(chunked, (X,), dynamic_shapes=({0: "batch", 1: "steps"},))
    (output,) = program.model.graph.outputs
    assert [str(size) for size in output.shape or ()] == ["batch", "steps", "4"]


def one_of_each(x: Tensor) -> Tensor:
    """Takes the element after each block of four, as streaming models take their right context."""
    steps = math.ceil((x.shape[1] - 1) / 4)
    outs = []
    for t in range(steps - 1):
        outs.append(x[:, 4 * t + 4 : 4 * t + 5])  # noqa: PERF401
    outs.append(x[:, -1:])
    return torch.cat(outs, 1)


def test_one_piece_for_each_step_has_the_size_of_their_number() -> None:
    program = onnx_aot.export(
        one_of_each, (torch.randn(2, 33, 4),), dynamic_shapes=({0: "batch", 1: "steps"},)
    )
    for batch, steps in ((2, 33), (1, 7), (3, 8), (2, 9), (2, 10), (1, 70)):
        compare(program, one_of_each, torch.randn(batch, steps, 4))
    (output,) = program.model.graph.outputs
    assert [str(size) for size in output.shape or ()][1] == "(steps + 2)//4"


def first_is_left_out(x: Tensor) -> Tensor:
    outs = []
    for begin in range(0, x.shape[1], 4):
        if begin > 0:
            outs.append(x[:, begin : begin + 4])  # noqa: PERF401
    return torch.cat(outs, 1)


def test_pieces_from_the_second_step_on_are_refused() -> None:
    with pytest.raises(onnx_aot.errors.DynamicShapeError, match="the first step adds none"):
        onnx_aot.export(first_is_left_out, (X,), dynamic_shapes=({1: "steps"},))


def unpacked(x: Tensor) -> Tensor:
    """Looks at the pieces of the batch, beside a loop over steps."""
    one, two = torch.split(x, x.shape[0] // 2)
    three, four = x.chunk(2)
    return torch.stack([x[:, t] for t in range(x.shape[1])], 1).sum(0) + one - two + three * four


def test_pieces_that_are_unpacked_are_no_loop() -> None:
    shapes = ({0: 2 * torch.export.Dim("half"), 1: "steps"},)
    program = onnx_aot.export(unpacked, (X[:, :5].repeat(2, 1, 1)[:4],), dynamic_shapes=shapes)
    for batch, steps in ((2, 3), (4, 9)):
        x = torch.randn(batch, steps, 4)
        torch.testing.assert_close(program(x)[0], unpacked(x), rtol=1e-4, atol=1e-5)


def test_no_pieces_but_one_that_is_empty() -> None:
    program = onnx_aot.export(split_along_batch, (X,), dynamic_shapes=({0: "batch"},))
    for batch in (0, 1, 5):
        x = torch.randn(batch, 9, 4)
        (got,) = program(x)
        torch.testing.assert_close(got, split_along_batch(x), rtol=1e-4, atol=1e-5)
