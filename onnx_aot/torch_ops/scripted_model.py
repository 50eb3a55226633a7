"""Defines the operator that stands for a whole scripted model while ``torch.export`` runs.

Afterwards the model's graph, which the operator's shape function records, replaces it. A file of
its own, because other models need no such operator, and defining one takes 20 ms.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
import torch.fx

__all__ = ["RECORDED", "SCRIPTED", "During"]

Tensor = torch.Tensor

RECORDED: weakref.WeakValueDictionary[int, torch.fx.GraphModule] = weakref.WeakValueDictionary()
"""Graphs that calls of ``scripted`` stand for, by their numbers; the export keeps them alive."""

_RUNNING: dict[int, Callable[..., list[Tensor]]] = {}


class During:
    """Context that defines what the ``scripted`` call with a number stands for."""

    def __init__(self, number: int, record: Callable[..., list[Tensor]]) -> None:
        """``record(tensors, sizes, symbol)`` returns fake results; ``symbol()`` makes a size."""
        self.number = number
        self.record = record

    def __enter__(self) -> None:
        _RUNNING[self.number] = self.record

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop(self.number, None)


@torch.library.custom_op("onnx_aot::scripted", mutates_args=())
def run_scripted_model(tensors: list[Tensor], sizes: list[int], number: int) -> list[Tensor]:
    """Stands for a scripted model: its weights and inputs, and sizes among its inputs."""
    return [result.clone() for result in RECORDED[number](*tensors, *sizes)]


@run_scripted_model.register_fake
def _(tensors: list[Tensor], sizes: list[int], number: int) -> list[Tensor]:
    context = torch.library.get_ctx()
    return _RUNNING[number](tensors, sizes, context.new_dynamic_size)


SCRIPTED = torch.ops.onnx_aot.scripted.default
