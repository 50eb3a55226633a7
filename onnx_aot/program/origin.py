"""How the model of a program was made, so that it can be made again in another way."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = ["Origin"]


@dataclasses.dataclass
class Origin:
    """What is known of a model that was translated in this process.

    Attributes:
        translate: Translates the captured program again, with some options of ``export`` changed,
            and returns an ``ONNXProgram``. Takes ``optimize`` and ``target`` by name.
        target: What the model was made for.
        passes: How often each optimization pass and rule has changed the model since, by name.
    """

    translate: Callable[..., Any]
    target: str | None
    passes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
