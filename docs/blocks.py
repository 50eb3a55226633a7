"""Runs the code on the pages of the documentation as if each block were a file."""

from __future__ import annotations

import contextlib
import io
import linecache
from typing import Any

__all__ = ["run_block"]


def run_block(name: str, code: str, names: dict[str, Any]) -> str:
    """Runs one block.

    Args:
        name: File name in tracebacks and messages; ``linecache`` finds the lines under it.
        code: The block.
        names: Namespace that the block reads and changes.

    Returns:
        The printed output.
    """
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()
