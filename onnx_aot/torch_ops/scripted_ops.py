"""Targets of the FX nodes that scripted models become and ATen has no operators for.

``scripted`` stands for a whole model while ``torch.export`` runs. Its graph, which the shape
function of the operator records, takes its place afterwards; there ``branch`` and ``repeat`` have
graph modules for bodies, and the others work on lists of tensors whose length is not known.

The functions are names only; calls of them are translated in ``onnx_aot/ops/control``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

__all__ = [
    "RECORDED",
    "SCRIPTED",
    "During",
    "SequenceVal",
    "branch",
    "keep_recorded",
    "repeat",
    "sequence_append",
    "sequence_at",
    "sequence_cat",
    "sequence_construct",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "sequence_split",
    "sequence_stack",
]

Tensor = torch.Tensor

A_NAME = "a name in a graph, which is translated and not run"


@dataclasses.dataclass(frozen=True, eq=False)
class SequenceVal:
    """What is recorded for a list of tensors: an element of it, with the sizes that all have."""

    element: Tensor


def branch(condition: Any, then: Any, otherwise: Any, inputs: Any, others: Any) -> Any:
    """The outputs of ``then(*inputs)`` or of ``otherwise(*others)``."""
    raise AssertionError(A_NAME)


def repeat(count: Any, condition: Any, body: Any, carried: Any, inputs: Any) -> Any:
    """``proceed, *carried = body(step, *carried, *inputs)``, ``count`` times while it proceeds.

    ``count`` and ``condition`` may be None: no limit, and no condition.
    """
    raise AssertionError(A_NAME)


def sequence_construct(items: Sequence[Any], element: torch.dtype) -> Any:
    """A list of tensors."""
    raise AssertionError(A_NAME)


def sequence_append(sequence: Any, item: Any) -> Any:
    """The list with one more at its end."""
    raise AssertionError(A_NAME)


def sequence_insert(sequence: Any, index: Any, item: Any) -> Any:
    """The list with one more at a place."""
    raise AssertionError(A_NAME)


def sequence_erase(sequence: Any, index: Any) -> Any:
    """The list without what is at a place."""
    raise AssertionError(A_NAME)


def sequence_at(sequence: Any, index: Any) -> Any:
    """One tensor of the list; an index below 0 counts from its end."""
    raise AssertionError(A_NAME)


def sequence_length(sequence: Any) -> Any:
    """How many there are."""
    raise AssertionError(A_NAME)


def sequence_cat(sequence: Any, dim: int) -> Any:
    """``torch.cat``."""
    raise AssertionError(A_NAME)


def sequence_stack(sequence: Any, dim: int) -> Any:
    """``torch.stack``."""
    raise AssertionError(A_NAME)


def sequence_split(tensor: Any, size: Any, dim: int, keep: bool) -> Any:
    """``torch.split``, or ``torch.unbind`` when ``keep`` is false and the size 1."""
    raise AssertionError(A_NAME)


RECORDED: dict[int, torch.fx.GraphModule] = {}
"""What calls of ``scripted`` stand for, by their numbers."""

KEPT = 1024
"""Of captures that failed after they recorded a graph the oldest are dropped."""

_RUNNING: dict[int, Callable[..., list[Tensor]]] = {}


def keep_recorded(number: int, module: torch.fx.GraphModule) -> None:
    """Keeps a graph until it is put in the place of the call."""
    RECORDED[number] = module
    if len(RECORDED) > KEPT:
        del RECORDED[next(iter(RECORDED))]


class During:
    """Says what the operator with a number stands for, as a context."""

    def __init__(self, number: int, record: Callable[..., list[Tensor]]) -> None:
        """``record(tensors, sizes, symbol)`` gives fake results; ``symbol()`` makes a size."""
        self.number = number
        self.record = record

    def __enter__(self) -> None:
        _RUNNING[self.number] = self.record

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop(self.number, None)


@torch.library.custom_op("onnx_aot::scripted", mutates_args=())
def scripted(tensors: list[Tensor], sizes: list[int], number: int) -> list[Tensor]:
    """A scripted model: its weights and inputs, and sizes among its inputs."""
    raise AssertionError(A_NAME)


@scripted.register_fake
def _(tensors: list[Tensor], sizes: list[int], number: int) -> list[Tensor]:
    context = torch.library.get_ctx()
    return _RUNNING[number](tensors, sizes, context.new_dynamic_size)


SCRIPTED = torch.ops.onnx_aot.scripted.default
