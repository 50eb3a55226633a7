"""Writes files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from onnx_aot.errors import InvalidOptionError, SaveError

__all__ = ["check_destination", "refuse_full_disk", "written_beside", "written_together"]


def check_destination(destination: Any) -> None:
    """Checks a destination before anything is computed or written.

    Raises:
        InvalidOptionError: It is neither a path nor a file object.
        SaveError: The folder does not exist, or the path is a folder.
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


def refuse_full_disk(path: str, size: int) -> None:
    """Checks the free space on the disk before anything is written.

    Args:
        path: Path of a file to be written.
        size: Bytes to be written to its folder.

    Raises:
        SaveError: The disk has less free space.
    """
    try:
        free = shutil.disk_usage(os.path.dirname(path)).free
    except OSError:  # not every file system reports it; a full disk is noticed later
        return
    if size > free:
        raise SaveError(
            f"the model takes {size / 1e9:.2f} GB and {os.path.dirname(path)} has "
            f"{free / 1e9:.2f} GB free; nothing was written. Make room, or save somewhere else"
        )


@contextlib.contextmanager
def written_beside(path: str) -> Iterator[BinaryIO]:
    """Like ``written_together``, for a single file."""
    with written_together([path]) as (file,):
        yield file


@contextlib.contextmanager
def written_together(paths: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens a new file for each path; they take their places if the block ends without an error.

    They do so in order, so the file that refers to the others comes last. After an error in the
    block, or if the process is killed in it, every path is as it was. No temporary file stays
    behind, except after a kill on file systems without unnamed files (most on Linux have them).
    Links are followed, and permissions of existing files are kept. There is no fsync, which would
    take as long as all the rest; journaling file systems write new contents before the rename.
    """
    pending: list[_Pending] = []
    try:
        for path in map(os.path.realpath, paths):
            pending.append(_Pending(path))  # noqa: PERF401 (those before it are undone)
        yield [one.file for one in pending]
        for one in pending:
            one.file.flush()
        for one in pending:
            one.take_place()
    except BaseException:
        for one in pending:
            one.undo()
        raise
    finally:
        for one in pending:
            one.close()


class _Pending:
    """A file that is being written and is not at its path yet."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.replaces = os.path.lexists(target)
        self._in_place = False
        folder, name = os.path.split(target)
        self._temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
        descriptor = _without_name(folder)
        self._is_nameless = descriptor is not None
        if descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self._temporary, flags, 0o666)
        self.file: BinaryIO = open(descriptor, "wb")  # noqa: SIM115

    def take_place(self) -> None:
        if self._is_nameless:
            _give_name(self.file.fileno(), self._temporary)
            self._is_nameless = False
        if self.replaces:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(self._temporary, os.stat(self.target).st_mode & 0o7777)
        if os.name == "nt":  # Windows cannot rename an open file
            self.file.close()
        os.replace(self._temporary, self.target)
        self._in_place = True

    def undo(self) -> None:
        """Removes the new file, unless it has already replaced an existing one."""
        self.close()
        leftover = self.target if self._in_place and not self.replaces else self._temporary
        with contextlib.suppress(FileNotFoundError):
            os.unlink(leftover)

    def close(self) -> None:
        """Closes the file; after an error its buffer is not needed, so flushing may fail."""
        with contextlib.suppress(OSError):
            self.file.close()


def _without_name(folder: str) -> int | None:
    """Opens an unnamed file, which vanishes when it is closed; None if that is not supported."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, flag | os.O_WRONLY, 0o666)
    except OSError:  # the file system does not support it
        return None


def _give_name(descriptor: int, path: str) -> None:
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:  # with a descriptor of the folder, os.link follows the link in /proc to the file
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=opened)
    finally:
        os.close(opened)
