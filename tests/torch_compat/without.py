"""Exports on a release of torch that lacks a part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import CaptureError, DynamicShapeError
from onnx_aot.torch_compat import hidden, pytree
from tests.torch_compat.models import Example

__all__ = ["SHAPES", "SHOWN", "absent", "differs", "exported", "made", "message", "shows"]

SHAPES = "torch.fx.experimental.symbolic_shapes"

SHOWN: set[str] = set()
"""Names of rows that have a test."""


def shows(*names: str) -> Callable[[Any], Any]:
    """Decorator for a test that shows the effect of missing rows."""
    SHOWN.update(names)
    return lambda test: test


@contextlib.contextmanager
def absent(*names: str) -> Iterator[None]:
    """Simulates a release without these places, and clears caches."""
    torch._dynamo.reset()
    with hidden(*names):
        yield


def made(example: Example) -> Any:
    """Makes the model, with the same weights each time."""
    torch.manual_seed(0)
    return example.model().eval()


def exported(example: Example, **options: Any) -> Any:
    """Exports the model with inputs of its first size."""
    model, size = made(example), example.sizes[0]
    return onnx_aot.export(
        model,
        example.args(size),
        kwargs=example.kwargs(size),
        dynamic_shapes=example.dynamic_shapes,
        **{**example.options, **options},
    )


def _leaves(result: Any) -> list[Tensor]:
    found = pytree.tree_leaves(result)
    return [leaf.doubled if hasattr(leaf, "doubled") else torch.as_tensor(leaf) for leaf in found]


def differs(example: Example, program: Any, sizes: tuple[int, ...] | None = None) -> list[int]:
    """Returns the sizes at which the model's results differ from PyTorch's."""
    model, wrong = made(example), []
    for size in example.sizes if sizes is None else sizes:
        with torch.no_grad():
            expected = _leaves(model(*example.args(size), **example.kwargs(size)))
        actual = program(*example.args(size), **example.kwargs(size))
        try:
            torch.testing.assert_close(list(actual), expected, rtol=1e-4, atol=1e-4)
        except AssertionError:
            wrong.append(size)
    return wrong


def message(example: Example, **options: Any) -> str:
    """Returns the error message of the export."""
    with pytest.raises((CaptureError, DynamicShapeError)) as caught:
        exported(example, **options)
    return str(caught.value)
