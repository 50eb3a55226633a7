"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO

from onnx_aot.errors import InvalidOptionError, SaveError

__all__ = ["check_destination", "written_beside"]


def check_destination(destination: Any) -> None:
    """What can be known to be wrong before anything is computed or written.

    Raises:
        InvalidOptionError: It is neither a path nor a file object.
        SaveError: The folder does not exist, or the path is one.
    """
    if hasattr(destination, "write"):
        return
    if not isinstance(destination, (str, os.PathLike)) or isinstance(os.fspath(destination), bytes):
        raise InvalidOptionError(
            f"cannot save to {destination!r}; give a path, or a file object opened in binary mode"
        )
    path = os.path.realpath(os.fspath(destination))
    if os.path.isdir(path):
        raise SaveError(f"cannot save to {destination}: it is a folder; give the name of a file")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise SaveError(f"cannot save to {destination}: there is no folder {folder}; create it")


@contextlib.contextmanager
def written_beside(path: str) -> Iterator[BinaryIO]:
    """Opens a new file next to ``path`` that takes its place when the block ends without an error.

    After an error the new file is removed and ``path`` is as it was. A process that is killed in
    between leaves ``path`` as it was. Links are followed, permissions of an existing file are kept.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
