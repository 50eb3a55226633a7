"""Every explanation of a failed capture has a page that shows it."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch

import onnx_aot
from onnx_aot.capture import error_hints
from onnx_aot.explanations import read_page

X = torch.ones(3)


def test_the_page_of_an_explanation_shows_its_message() -> None:
    assert len(error_hints._EXPLANATIONS) >= 9
    for code, _, fix in error_hints._EXPLANATIONS.values():
        page = read_page(code)
        assert f"See: onnx-aot explain {code}\n" in page
        assert fix in page


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (random.random, "random"),
        (np.random.rand, r"numpy\.random"),
        (lambda: random.random() + np.random.rand(), r"random and numpy\.random"),
    ],
)
def test_numbers_drawn_in_python(draw: object, named: str) -> None:
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=rf"numbers with {named}; the numbers"):
        onnx_aot.export(lambda x: x * draw(), (X,))  # type: ignore[operator]


def test_nothing_is_said_where_nothing_was_drawn() -> None:
    random.random()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_aot.export(lambda x: x + torch.rand(3), (X,))


def test_a_generator_in_a_model() -> None:
    generator = torch.Generator()

    def draws(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3, generator=generator)

    with pytest.raises(onnx_aot.errors.ConversionError) as caught:
        onnx_aot.export(draws, (X,))
    line = draws.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in draws" in str(caught.value)


def test_vmap_is_applied_by_torch() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row * row.sum())(x)

    program = onnx_aot.export(rows, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))
    assert any("torch.vmap or one of torch.func" in note for note in program.report.notes)
    x = torch.rand(6, 3)
    torch.testing.assert_close(program(x)[0], rows(x))


def test_numpy_of_sizes_alone() -> None:
    for text in (
        "'float' object has no attribute 'fmod'",
        "loop of ufunc does not support argument 0 of type SymInt with no log2 method",
    ):
        explained = error_hints.explain(AttributeError(text))
        assert explained is not None
        assert explained.fix.startswith("leave the dimensions")
        assert explained.code == "OA111"


def test_matrices_times_vectors_under_two_vmaps() -> None:
    """The capture has the transposed result as a constant, which nothing uses."""
    matrix = torch.nn.Parameter(torch.rand(4, 3))

    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda y: torch.vmap(lambda z: matrix @ z)(y) + 1)(x)

    program = onnx_aot.export(rows, (torch.rand(2, 5, 3),), dynamic_shapes=({0: "n"},))
    x = torch.rand(6, 5, 3)
    torch.testing.assert_close(program(x)[0], rows(x))


class Scaled(torch.nn.Module):
    """Writes to a parameter, or to what is computed from one, by ``out=``."""

    def __init__(self, by_out: bool) -> None:
        super().__init__()
        self.by_out = by_out
        self.scale = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_out:
            y = x * self.scale
            return torch.add(y, x, out=y)
        self.scale.clamp_(0, 1)
        return x * self.scale


@pytest.mark.parametrize("by_out", [True, False])
@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
def test_writes_to_tensors_that_require_gradients(by_out: bool) -> None:
    """Both edits that the error names help."""
    with pytest.raises(
        onnx_aot.errors.CaptureError, match=r"requires a gradient.*\n.*\n.*forward\nfix"
    ):
        onnx_aot.export(Scaled(by_out), (X,))
    with torch.no_grad():
        programs = [onnx_aot.export(Scaled(by_out), (X,))]
        expected = Scaled(by_out)(X)
    programs.append(onnx_aot.export(Scaled(by_out).requires_grad_(False), (X,)))
    for program in programs:
        torch.testing.assert_close(program(X)[0], expected)
