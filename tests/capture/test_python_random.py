"""Random numbers that the ONNX model does not draw as the model does."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning
from tests.torch_compat.without import absent, shows

X = torch.ones(4, 3)


def seeded(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x + torch.randn_like(x)  # drawn


def in_fork(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return x + torch.rand(x.shape)  # drawn


def by_state(x: Tensor) -> Tensor:
    torch.set_rng_state(STATE)
    return torch.normal(x, 1.0)  # drawn


def by_generator(x: Tensor) -> Tensor:
    torch.default_generator.manual_seed(0)
    return x + torch.empty(4, 3).uniform_()  # drawn


STATE = torch.Generator().manual_seed(3).get_state()


@pytest.mark.parametrize("forward", [seeded, in_fork, by_state, by_generator])
def test_numbers_drawn_after_a_seed_are_warned_of_with_their_line(
    forward: Callable[[Tensor], Tensor],
) -> None:
    torch.manual_seed(0)  # the seed of the model
    torch.rand(1)
    assert torch.equal(forward(X), forward(X))
    before = torch.get_rng_state()
    with pytest.warns(
        OnnxExporterWarning, match=r"# drawn` at .*test_python_random\.py:\d+"
    ) as found:
        program = onnx_aot.export(forward, (X,))
    assert "OA127" in program.report.note_codes
    assert any("keep them in a buffer" in str(each.message) for each in found)
    assert not torch.equal(program(X)[0], program(X)[0])
    assert torch.equal(torch.get_rng_state(), before)


@shows("torch.manual_seed")
def test_a_seed_that_torch_has_already_is_warned_of() -> None:
    torch.manual_seed(0)
    with pytest.warns(OnnxExporterWarning, match="sets the seed"):
        onnx_aot.export(seeded, (X,))
    torch.manual_seed(0)
    with absent("torch.manual_seed"):
        assert "OA127" not in onnx_aot.export(seeded, (X,)).report.note_codes


def test_other_threads_draw_as_they_would_without_an_export() -> None:
    """Neither does an export take their generator, nor does it set it back."""
    model, found = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), []

    def record(module: Any, args: Any) -> None:
        thread = threading.Thread(target=lambda: found.append(torch.rand(2)))
        thread.start()
        thread.join()

    model.register_forward_pre_hook(record)
    torch.manual_seed(5)
    onnx_aot.export(model, (X,))
    found.append(torch.rand(2))
    torch.manual_seed(5)
    assert len(found) > 1
    assert torch.equal(torch.cat(found), torch.rand(2 * len(found)))


def before_the_seed(x: Tensor) -> Tensor:
    x = x + torch.randn_like(x)
    torch.manual_seed(0)
    return x


def without_numbers(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return torch.nn.functional.dropout(x, 0.5, training=False) * 2


def behind_a_fork(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(7)
    return x + torch.randn_like(x)


@pytest.mark.parametrize("forward", [before_the_seed, without_numbers, behind_a_fork])
def test_a_seed_that_sets_no_number_needs_no_word(forward: Callable[[Tensor], Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(forward, (X,))
    assert "OA127" not in program.report.note_codes


def drawn_in_python(x: Tensor) -> Tensor:
    import random

    return x * random.random()


def test_numbers_of_python_are_constants() -> None:
    with pytest.warns(OnnxExporterWarning, match="draws random numbers with random;"):
        program = onnx_aot.export(drawn_in_python, (X,))
    assert torch.equal(program(X)[0], program(X)[0])
