"""Defines targets of FX nodes for the parts of scripted models that ATen has no operators for.

``branch`` and ``repeat`` have graph modules as bodies, and the others work on lists of tensors of
unknown length.

Calls of the functions are translated in ``onnx_aot/ops/control``. The functions themselves run only
where a captured program is compared with its model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

__all__ = [
    "SequenceVal",
    "branch",
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


@dataclasses.dataclass(frozen=True, eq=False)
class SequenceVal:
    """Recorded value of a list of tensors: one element, with the sizes that all have."""

    element: Tensor


def branch(condition: Any, then: Any, otherwise: Any, inputs: Any, others: Any) -> Any:
    """Returns the outputs of ``then(*inputs)`` or of ``otherwise(*others)``."""
    return then(*inputs) if bool(condition) else otherwise(*others)


def repeat(count: Any, condition: Any, body: Any, carried: Any, inputs: Any) -> Any:
    """Runs ``proceed, *carried = body(step, *carried, *inputs)`` up to ``count`` times.

    It stops when ``proceed`` is false. ``count`` and ``condition`` may be None: no limit, and no
    condition.
    """
    proceed, step, values = condition is None or bool(condition), 0, list(carried)
    while proceed and (count is None or step < int(count)):
        proceed, *values = body(step, *values, *inputs)
        step += 1
    return values


def sequence_construct(items: Sequence[Any], element: torch.dtype) -> Any:
    """Returns a list of tensors."""
    return list(items)


def sequence_append(sequence: Any, item: Any) -> Any:
    """Returns the list with a tensor appended."""
    return [*sequence, item]


def sequence_insert(sequence: Any, index: Any, item: Any) -> Any:
    """Returns the list with a tensor inserted at an index."""
    return [*sequence[:index], item, *sequence[index:]]


def sequence_erase(sequence: Any, index: Any) -> Any:
    """Returns the list without the tensor at an index."""
    kept = list(sequence)
    del kept[index]
    return kept


def sequence_at(sequence: Any, index: Any) -> Any:
    """Returns one tensor of the list; a negative index counts from its end."""
    return sequence[index]


def sequence_length(sequence: Any) -> Any:
    """Returns the number of tensors in the list."""
    return len(sequence)


def sequence_cat(sequence: Any, dim: int) -> Any:
    """Concatenates the list as ``torch.cat`` does."""
    return torch.cat(sequence, dim)


def sequence_stack(sequence: Any, dim: int) -> Any:
    """Stacks the list as ``torch.stack`` does."""
    return torch.stack(sequence, dim)


def sequence_split(tensor: Any, size: Any, dim: int, keep: bool) -> Any:
    """Splits as ``torch.split``, or as ``torch.unbind`` if ``keep`` is false and the size is 1."""
    return list(torch.split(tensor, size, dim) if keep else torch.unbind(tensor, dim))
