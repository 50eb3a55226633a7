"""Writes files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization.deferred_signals import signals_deferred
from onnx_aot.serialization.journal import (
    Journal,
    lock_file,
    remove_temporaries,
    temporary_path,
)

__all__ = [
    "NewFile",
    "check_destination",
    "is_stream",
    "new_files",
    "place_files",
    "refuse_full_disk",
    "written_beside",
]


def check_destination(destination: Any) -> None:
    """Checks a destination before anything is computed or written.

    Raises:
        InvalidOptionError: It is neither a path nor a file object opened in binary mode.
        SaveError: The folder does not exist or takes no new files, or the path is that of a
            folder, a socket, a disk, or a link that leads to itself.
    """
    if hasattr(destination, "write"):
        if isinstance(getattr(destination, "file", destination), io.TextIOBase):
            raise InvalidOptionError(
                f"cannot save to {destination!r}, which takes text; open it in binary mode, "
                'open(path, "wb"), or give the path',
                code="OA503",
            )
        return
    is_path = isinstance(destination, (str, os.PathLike)) and os.fspath(destination) != ""
    if not is_path or isinstance(os.fspath(destination), bytes):
        is_text = isinstance(destination, (str, bytes))
        shown = repr(destination) if is_text else f"an object of {type(destination).__name__}"
        advice = ". Several inputs of a model are one tuple, export(model, (x, y))"
        raise InvalidOptionError(
            f"cannot save to {shown}; give a path, or a file object opened in binary mode"
            f"{'' if is_text else advice}",
            code="OA503",
        )
    refused = _refused_kind(os.fspath(destination))
    if refused is not None:
        raise SaveError(f"cannot save to {destination}: it is {refused}; give the name of a file")
    if is_stream(destination):
        return
    folder = os.path.dirname(os.path.realpath(destination))
    if not os.path.isdir(folder):
        raise SaveError(f"cannot save to {destination}: there is no folder {folder}; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SaveError(
            f"cannot save to {destination}: the folder {folder} is read-only for you. New files "
            "are written there before they replace anything; save to a folder where you may "
            "create files"
        )


def _refused_kind(path: str) -> str | None:
    """Description of what is at a path, if it is nothing to write into or to replace."""
    if os.path.islink(os.path.realpath(path)):
        return "a symbolic link that leads to itself"
    mode = _mode_of(path) or 0
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a disk"}
    return kinds.get(stat.S_IFMT(mode))


def is_stream(destination: Any) -> bool:
    """True for the path of a pipe or a character device, which is written into, not replaced."""
    if hasattr(destination, "write"):
        return False
    mode = _mode_of(os.fspath(destination))
    return mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))


def _mode_of(path: str) -> int | None:
    """Type and permissions of what is at a path, links followed; None if there is nothing."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


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
    """Opens a new file that replaces the one at a path if the block ends without an error.

    After an error in the block, or if the process is killed in it, the path is as it was. Links are
    followed, and the permissions of an existing file are kept. Pipes and character devices are
    written into instead.
    """
    if is_stream(path):
        with open(path, "wb") as stream:
            yield stream
        return
    target = os.path.realpath(path)
    remove_temporaries(target)
    with new_files(target, 1) as (new,):
        yield new.file
        with signals_deferred():
            new.finish(_mode_of(target))
            new.move_to(target)


@contextlib.contextmanager
def new_files(path: str, count: int) -> Iterator[list[NewFile]]:
    """Opens new files beside a path; those that got no place by the end of the block vanish.

    A killed process leaves none behind, except on file systems without unnamed files (most on Linux
    have them); such a file is removed at the next save.
    """
    files: list[NewFile] = []
    try:
        for _ in range(count):
            with signals_deferred():
                files.append(NewFile(path))
        yield files
    finally:
        left = [file for file in files if not file.is_discarded]
        if left:
            with signals_deferred():
                for file in left:
                    file.discard()


def place_files(
    model: NewFile, others: Mapping[str, NewFile], old: Sequence[str], journal: Journal
) -> None:
    """Moves the files of a save to their places: first those that the model refers to, then it.

    A kill at any moment leaves the old model with its data, or the new one with its; what belongs
    to neither is in the journal, and the next save removes it. There is no fsync, which would take
    as long as all the rest; journaling file systems write new contents before the rename.

    Args:
        model: The new model.
        others: New data files by path. A file that the old model refers to may only be replaced by
            one with the same bytes.
        old: Data files of the old model that are removed at the end.
        journal: The journal of the model's path, whose context defers signals.

    Raises:
        OSError: A file could not be moved; everything is as before.
    """
    mode = _mode_of(journal.path)  # data is as private as the model was
    for file in (*others.values(), model):
        file.finish(mode)
    coming = {path: file.temporary for path, file in others.items()}
    journal.remember({**coming, **{path: path for path in old}})
    added: list[str] = []
    try:
        for path, file in others.items():
            if not os.path.lexists(path):
                added.append(path)
            file.move_to(path)
        model.move_to(journal.path)
    except BaseException:
        if os.path.lexists(model.temporary):  # else it has its place and needs its data
            for path in added:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        raise
    for path in old:
        with contextlib.suppress(OSError):
            os.unlink(path)


class NewFile:
    """A file that is being written and has no place yet.

    Attributes:
        file: The file, to be written and read.
        temporary: Its path once it is finished.
        is_discarded: Whether nothing of it is left to be removed or unlocked.
    """

    def __init__(self, path: str) -> None:
        """Opens a file in the folder of a path, without a name if the file system supports that."""
        self.is_discarded = False
        self._is_placed = False
        descriptor = _open_without_name(os.path.dirname(path))
        self._is_nameless = descriptor is not None
        self.temporary = temporary_path(path)
        while descriptor is None:
            descriptor = _open_with_name(self.temporary)
        self.file: BinaryIO = open(descriptor, "w+b")  # noqa: SIM115
        self._lock: int | None = None
        with contextlib.suppress(OSError):
            lock_file(descriptor)
            self._lock = os.dup(descriptor)  # the lock outlives the closed file

    def finish(self, mode: int | None) -> None:
        """Gives the file its name and permissions, and closes it.

        Args:
            mode: Permissions; None leaves those of any new file.
        """
        self.file.flush()
        if self._is_nameless:
            _give_name(self.file.fileno(), self.temporary)
            self._is_nameless = False
        if mode is not None:
            os.chmod(self.temporary, stat.S_IMODE(mode))
        self.file.close()  # some file systems report errors of earlier writes only here

    def move_to(self, path: str) -> None:
        """Moves the finished file to a path, where it replaces another."""
        os.replace(self.temporary, path)
        self._is_placed = True

    def discard(self) -> None:
        """Removes the file unless it has got a place, and unlocks it."""
        with contextlib.suppress(OSError):  # an abandoned buffer need not reach the disk
            self.file.close()
        if not self._is_placed:
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self.is_discarded = True


def _open_without_name(folder: str) -> int | None:
    """Opens an unnamed file, which vanishes when it is closed; None if that is not supported."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, flag | os.O_RDWR, 0o666)
    except OSError:  # the file system does not support it
        return None


def _open_with_name(path: str) -> int | None:
    """Creates and locks a file; None if another save took it for a leftover before the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    with contextlib.suppress(OSError):  # there are no locks, so nothing is taken for a leftover
        if not lock_file(descriptor) or not os.path.lexists(path):
            os.close(descriptor)
            return None
    return descriptor


def _give_name(descriptor: int, path: str) -> None:
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:  # with a descriptor of the folder, os.link follows the link in /proc to the file
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=opened)
    finally:
        os.close(opened)
