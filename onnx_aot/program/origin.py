"""Record of how a program's model was made, to make it again with other options."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["Origin"]


@dataclasses.dataclass
class Origin:
    """Origin of a model that was translated in this process.

    Attributes:
        translate: Translates the captured program again and returns an ``ONNXProgram``. Takes
            changed options of ``export`` by name, such as ``optimize`` and ``target``.
        target: The ``target`` option that the model was made with.
        passes: How often each optimization pass and rule has changed the model, by name.
        read: Values of the module's weights and attributes that the model was captured for, by
            name, since its Python code reads them.
    """

    translate: Callable[..., Any]
    target: str | None
    passes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    read: Mapping[str, torch.Tensor] = dataclasses.field(default_factory=dict)
