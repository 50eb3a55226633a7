"""Makes the names of files in stack traces the same on every machine."""

from __future__ import annotations

import functools
import os
import sys

__all__ = ["relativize_trace"]

_FILE = 'File "'
_GENERATED = "<eval_with_key>"


def relativize_trace(trace: str, known: dict[str, str]) -> str:
    """Names the files of a stack trace relative to where Python looks for modules.

    ``/home/ann/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py`` becomes
    ``torch/nn/modules/linear.py``. A file outside these folders and the current one keeps only
    its base name. ``known`` caches the names of files.
    """
    before, *frames = trace.split(_FILE)
    named = [before]
    for frame in frames:
        path, quote, rest = frame.partition('"')
        if path not in known:
            known[path] = _shorten_path(path, tuple(sys.path), os.getcwd())
        named.append(known[path] + quote + rest)
    return _FILE.join(named)


@functools.lru_cache(1024)
def _shorten_path(path: str, searched: tuple[str, ...], current: str) -> str:
    if path.startswith(_GENERATED):  # a counter of generated code follows
        return _GENERATED
    if not os.path.isabs(path):  # typed at a prompt, or relative already
        return path
    folders = {os.path.abspath(os.path.join(current, entry)) for entry in (*searched, os.curdir)}
    around = [f for f in folders if path.startswith(f.rstrip(os.sep) + os.sep) and f != os.sep]
    longest = max(around, key=len, default=os.path.dirname(path))
    return os.path.relpath(path, longest).replace(os.sep, "/")
