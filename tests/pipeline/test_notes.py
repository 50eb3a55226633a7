"""Notes of a report: ``onnx_aot/pipeline/notes.py``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch

import onnx_aot

Tensor = torch.Tensor
attend = torch.nn.functional.scaled_dot_product_attention

POSITION = "the position of a NaN is not found"
ROUNDED = "sums beyond 2^53 are rounded"
WINDOW = "a window with NaN may give its largest number"


def describe_differences(model: Callable[..., object], x: Tensor) -> list[str]:
    """Returns the notes about values that ONNX Runtime computes differently."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the notes are for the report only
        program = onnx_aot.export(model, (x,))
    return [note for note in program.report.notes if "may differ from PyTorch's" in note]


@pytest.mark.parametrize(
    ("model", "x", "expected"),
    [
        (lambda x: x.argmax(-1), torch.randn(2, 3), POSITION),
        (lambda x: x.argmin(), torch.randn(2, 3), POSITION),
        (lambda x: x.max(1), torch.randn(2, 3), POSITION),
        (lambda x: x.sum(), torch.arange(4), ROUNDED),
        (lambda x: x.sum(0), torch.arange(4), ROUNDED),
        (lambda x: torch.nn.functional.max_pool1d(x, 2), torch.randn(1, 2, 6), WINDOW),
        (torch.nn.GRU(4, 3), torch.randn(2, 1, 4), "NaN in a sequence or a state becomes"),
        (lambda x: attend(x, x, x), torch.randn(1, 2, 5, 4), "all scores of a query are NaN"),
    ],
)
def test_other_values_are_in_the_report(
    model: Callable[..., object], x: Tensor, expected: str
) -> None:
    (note,) = describe_differences(model, x)
    assert expected in note
    assert "test_notes.py" in note or isinstance(model, torch.nn.Module)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (lambda x: x.argmax(-1), torch.arange(4)),
        (lambda x: x.sum(), torch.randn(4)),
        (lambda x: x.sum(), torch.ones(4, dtype=torch.bool)),
        (lambda x: x.amax(0), torch.randn(4)),
        (lambda x: x.mean(), torch.randn(0)),
    ],
)
def test_exact_ones_are_not(model: Callable[..., object], x: Tensor) -> None:
    assert describe_differences(model, x) == []


def test_many_places_are_counted() -> None:
    def model(x: Tensor) -> list[Tensor]:
        return [
            x.argmax(0),
            x.argmax(1),
            x.argmin(0),
            x.argmin(1),
            x.argmax(0) + 1,
        ]

    (note,) = describe_differences(model, torch.randn(2, 3))
    assert note.endswith("; and 2 more)")


def test_the_described_differences_exist() -> None:
    """A release of ONNX Runtime without a difference no longer needs its note."""
    x = torch.tensor([1.0, math.nan, 2.0])
    assert onnx_aot.export(torch.argmax, (x,))(x)[0] != x.argmax()
    large = torch.tensor([2**53, 1])
    assert onnx_aot.export(torch.sum, (large,))(large)[0] != large.sum()
