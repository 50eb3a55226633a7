"""Tells the user's code from that of torch, of NumPy, of Python and of this package.

Installed packages count as the user's code: a model may be one of transformers. A line in them is
named together with the nearest line outside that calls it.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import os
import sys
import sysconfig
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import TypeVar

import numpy as np

from onnx_aot.errors import PACKAGE, SourceLocation
from onnx_aot.torch_compat import TORCH_FOLDER

__all__ = ["GENERATED", "add_caller", "is_users_file", "is_users_frame", "source_range"]

GENERATED = ("<eval_with_key>", "<frozen ")
"""Beginnings of the names of files that FX and Python give to code without a file.

Code that the user makes with ``exec`` or types at a prompt has no file either; its names are
``<string>``, ``<stdin>``, or what the user gave ``compile``.
"""

_NUMPY = os.path.dirname(np.__file__) + os.sep  # a model calls it as it calls torch
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_MODULES = (
    os.path.join(TORCH_FOLDER, "nn") + os.sep,
    os.path.join(TORCH_FOLDER, "fx", "_symbolic_trace.py"),
)
_OTHERS = {"torch", "onnx_aot", *sys.stdlib_module_names} - {"__main__"}

_PARTS_OF_MODELS = (os.path.join(PACKAGE, "generation", "token_loop.py"),)
"""Files of this package that run as parts of the models that are captured."""

_Line = TypeVar("_Line", bound=SourceLocation)


def is_users_file(file: str) -> bool:
    """True if a file is none of torch, NumPy, Python and this package, or is part of a model."""
    if file in _PARTS_OF_MODELS:
        return True
    if file.startswith((TORCH_FOLDER, _NUMPY, PACKAGE, *GENERATED)):
        return False
    return not file.startswith(_PYTHON) or _is_installed(file)


def is_users_frame(frame: FrameType) -> bool:
    """True if a frame runs the user's code.

    Code without a file belongs to the module whose names it uses. If it has a namespace of its own,
    it is torch's if torch calls it other than as a module's ``forward`` or hook.
    """
    file = frame.f_code.co_filename
    if not file.startswith("<") or not is_users_file(file):
        return is_users_file(file)
    module = frame.f_globals.get("__name__")
    if module:
        return str(module).partition(".")[0] not in _OTHERS
    caller = "" if frame.f_back is None else frame.f_back.f_code.co_filename
    return not caller.startswith(TORCH_FOLDER) or caller.startswith(_MODULES)


def source_range(code: CodeType, instruction: int) -> tuple[int, int, int, int] | None:
    """Returns the place of the expression that an instruction computes.

    Args:
        code: The function.
        instruction: The instruction, as ``frame.f_lasti`` has it.

    Returns:
        First line, last line, first column and column behind the end, both in bytes; None if Python
        does not tell, as before 3.11.
    """
    list_positions = getattr(code, "co_positions", None)
    if list_positions is None:
        return None
    place = next(itertools.islice(list_positions(), instruction // 2, None))
    return None if None in place else place


def add_caller(lines: Sequence[_Line]) -> _Line | None:
    """Returns the innermost line, with the nearest one that the user can open as its caller.

    Args:
        lines: Lines of the user's code, the innermost first.

    Returns:
        The first line; None if there is none. It has a caller if it is in an installed package, or
        has no source.
    """
    if not lines:
        return None
    own = next((line for line in lines if _is_own(line.file)), None)
    return lines[0] if own in (None, lines[0]) else dataclasses.replace(lines[0], caller=own)


def _is_own(file: str) -> bool:
    has_source = not file.startswith("<") or bool(linecache.getlines(file))
    return has_source and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return any(folder in file for folder in _INSTALLED)
