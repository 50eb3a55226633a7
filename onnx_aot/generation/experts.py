"""Lets all experts of a mixture compute, where code loops over those that tokens chose."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["all_experts"]


@contextlib.contextmanager
def all_experts(model: torch.nn.Module) -> Iterator[None]:
    """Context in which experts are looped over in full, as those of Switch Transformers.

    Code such as that of NLLB-MoE and LongCat-Flash asks which experts have tokens,
    ``torch.greater(counts, 0).nonzero()``, and loops over the answer, whose length depends on
    data. An expert without tokens adds nothing.
    """
    mixtures = [module for module in model.modules() if _loops_over_chosen(module)]
    for module in mixtures:
        forward: Any = type(module).forward
        names = {**forward.__globals__, "torch": _EveryExpert()}
        copied = types.FunctionType(
            forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
        )
        module.forward = types.MethodType(copied, module)
    try:
        yield
    finally:
        for module in mixtures:
            del module.forward


def _loops_over_chosen(module: torch.nn.Module) -> bool:
    """True for experts whose code finds those that have tokens."""
    code = getattr(type(module).forward, "__code__", None)
    return (
        "Expert" in type(module).__name__
        and code is not None
        and {"greater", "nonzero"} <= {*code.co_names}
    )


class _EveryExpert:
    """Stands for ``torch``, with another answer to which counts are greater than 0: all."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def greater(self, counts: torch.Tensor, _: int) -> Any:
        numbers = [_Number([number]) for number in range(len(counts))]
        return types.SimpleNamespace(nonzero=lambda **_: numbers)


class _Number(list[int]):
    """Stands for a tensor of one number."""

    def item(self) -> int:
        return self[0]
