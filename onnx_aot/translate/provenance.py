"""Where in the user's code an FX node comes from."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import torch
import torch.fx

__all__ = ["Location", "location", "stack_trace"]

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]*)'
)
_TORCH = os.path.dirname(torch.__file__) + os.sep


class Location(NamedTuple):
    """One line of Python."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


def stack_trace(node: torch.fx.Node) -> str:
    """The recorded stack, outermost call first, or an empty string."""
    return node.meta.get("stack_trace") or ""


def location(node: torch.fx.Node) -> Location | None:
    """The innermost recorded line outside torch itself, or the innermost line, or None."""
    frames = [
        Location(match["file"], int(match["line"]), match["function"], match["code"])
        for match in _FRAME.finditer(stack_trace(node))
    ]
    outside = [frame for frame in frames if not frame.file.startswith(_TORCH)]
    chosen = outside or frames
    return chosen[-1] if chosen else None
