"""Remembers the files of a save until it is complete, and lets one save at a time place files.

While a save places its files, ``.<name>.saving`` exists beside them. The process locks it and lists
in it the data files that come and go. A lock ends with its process, so the next save finds the file
of a killed save unlocked, and knows what to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from onnx_aot.serialization.deferred_signals import signals_deferred

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Journal",
    "is_remembered",
    "journal_of",
    "lock_file",
    "remove_temporaries",
    "temporary_path",
]

WAIT = 0.01
"""Seconds between attempts to get a lock that another save holds for the time of a few renames."""

TOKEN = 12


def temporary_path(path: str) -> str:
    """Returns an unused name, beside a path, for a file that has no place yet."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.urandom(TOKEN // 2).hex()}.tmp")


def lock_file(descriptor: int) -> bool:
    """Locks an open file until it is closed; False if it is locked already.

    Raises:
        OSError: The system, or the file system, has no locks.
    """
    if fcntl is None:
        raise OSError("this system has no locks")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def journal_of(path: str) -> Iterator[Journal]:
    """Context in which no other save places files at a path; signals wait until its end.

    Where there are no locks, saves do not wait for each other, and nothing is remembered.
    """
    while True:
        with signals_deferred():
            journal = Journal.open(path)
            if journal is not None:
                try:
                    yield journal
                finally:
                    journal.close()
                return
        time.sleep(WAIT)  # interrupts are possible here


class Journal:
    """Data files that a save adds or removes, remembered until it is complete."""

    def __init__(self, path: str, descriptor: int | None) -> None:
        """``descriptor`` is that of the locked file; None: there are no locks."""
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: str) -> Journal | None:
        """Locks and opens the journal of a path; None if another save holds it."""
        name = _journal_path(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(name, flags, 0o666)
        except OSError:
            return cls(path, None)
        try:
            locked = stat.S_ISREG(os.fstat(descriptor).st_mode) and lock_file(descriptor)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(name)
            return cls(path, None)
        if locked and _is_at(descriptor, name):
            return cls(path, descriptor)
        os.close(descriptor)
        return None

    def remember(self, files: Mapping[str, str]) -> None:
        """Writes down data files; if the process is killed, the next save looks at them.

        Args:
            files: Paths of the files now, keyed by their paths when they have their places.
        """
        if self._descriptor is None:
            return
        known = {os.path.basename(path): _identify(now) for path, now in files.items()}
        text = json.dumps(known).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))  # from 0, ext4 would flush it to the disk

    def remembered(self) -> list[str]:
        """Names of files that a killed save wrote down and that are still the same files."""
        if self._descriptor is None:
            return []
        try:
            known = json.loads(os.pread(self._descriptor, 1 << 20, 0) or b"{}")
            folder = os.path.dirname(self.path)
            return [
                name
                for name, identity in known.items()
                if name == os.path.basename(name)
                and _identify(os.path.join(folder, name)) == identity
            ]
        except (ValueError, AttributeError, RecursionError):  # it was killed while it wrote it
            return []

    def close(self) -> None:
        """Removes the journal."""
        if self._descriptor is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_journal_path(self.path))
            os.close(self._descriptor)
            self._descriptor = None


def is_remembered(path: str) -> bool:
    """True if there is a journal at a path: that of a running save, or one that a kill has left."""
    return os.path.lexists(_journal_path(path))


def remove_temporaries(path: str) -> None:
    """Removes the unfinished files of killed saves of a path; those in use are locked and stay."""
    folder, name = os.path.split(path)
    temporary = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{{TOKEN}}}\.tmp")
    for file in filter(temporary.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            _remove_unless_locked(os.path.join(folder, file))


def _remove_unless_locked(path: str) -> None:
    flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    try:
        if lock_file(descriptor):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _journal_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.saving")


def _is_at(descriptor: int, path: str) -> bool:
    """True if an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _identify(path: str) -> list[Any] | None:
    """Numbers that tell a file from any other that may later have its name."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]
