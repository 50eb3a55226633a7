"""The files of rows: where they are written, which of them stay, and how they get there."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep.rows import RIGHT, STATUSES, Outcome, Row, folder_name
from onnx_aot.sweep.worker import LOG, REPORT, SCRIPT, STACK, write_script

__all__ = ["ROWS", "Store", "tidy"]

ROWS = "rows"
"""Folder of a sweep for the files of its rows."""

SHOWN = 4000  # characters of a log in a report


@dataclasses.dataclass(frozen=True)
class Store:
    """The place of the files of rows: a folder, or a storage.

    Attributes:
        address: A folder, or an address of a storage that fsspec reaches, such as
            ``s3://bucket/sweep``.
        search: Folders with modules of the user, for the scripts that repeat a row.
    """

    address: str
    search: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.remote:
            _filesystem(self.address)  # an unknown protocol is an error before the first row

    @property
    def remote(self) -> bool:
        """True if the address is not a folder of this machine."""
        return "://" in self.address

    def place_of(self, row: Row) -> str:
        """Folder or address of the files of a row."""
        return f"{self.address.rstrip('/')}/{folder_name(row.name)}"

    def working_folder(self, row: Row) -> str:
        """A new folder, which the row writes its files to."""
        if self.remote:
            return tempfile.mkdtemp(prefix="onnx-aot-sweep-")
        folder = self.place_of(row)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return folder

    def finish(self, row: Row, outcome: Outcome, folder: str) -> None:
        """Puts the files where they belong; those of right rows that nobody needs go.

        Raises:
            SweepError: They cannot be written there.
        """
        try:
            tidy(row, outcome, folder, self.search)
            if self.remote:
                self.upload(row, folder)
                shutil.rmtree(folder, ignore_errors=True)
        except Exception as error:  # each storage has errors of its own
            raise SweepError(
                f"the files of {row.name} cannot be written to {self.place_of(row)}: {error}. Make "
                "room or give another place, and go on with --resume"
            ) from error

    def upload(self, row: Row, folder: str) -> None:
        """Copies the files of a row to the storage, in place of those of an earlier try."""
        system, _ = _filesystem(self.address)
        place = self.place_of(row)
        if system.exists(place):
            system.rm(place, recursive=True)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            system.makedirs(place, exist_ok=True)
            system.put_file(os.path.join(folder, name), f"{place}/{name}")

    def unpack(self, row: Row, outcome: Outcome) -> None:
        """Writes the files that came with an outcome from another machine."""
        if self.remote:
            return
        folder = self.place_of(row)
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in outcome.files.items():
            os.makedirs(folder, exist_ok=True)
            Path(folder, name).write_bytes(content)
        outcome.files = {}


def _filesystem(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise InvalidOptionError(
            f"artifacts at {address} need fsspec: python -m pip install 'onnx-aot[sweep]'",
            code="OA801",
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise InvalidOptionError(
            f"artifacts cannot go to {address}: {error}. Give a folder, or an address that fsspec "
            "reaches",
            code="OA801",
        ) from None
    return system, path


def tidy(row: Row, outcome: Outcome, folder: str, search: Sequence[str]) -> None:
    """Removes empty files, and completes those that say why a row is not right."""
    for name in (LOG, STACK):
        path = Path(folder, name)
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()
    if outcome.status != RIGHT:
        os.makedirs(folder, exist_ok=True)
        write_script(row, folder, list(search))
        if not Path(folder, REPORT).is_file():
            _write_report(row, outcome, folder)
    files = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if files:
        outcome.metrics["files"] = files
    elif os.path.isdir(folder):
        os.rmdir(folder)


def _write_report(row: Row, outcome: Outcome, folder: str) -> None:
    """Writes a report of a row that ended outside of an export, which would have written one."""
    lines = [
        f"# {row.name}",
        "",
        f"Status: {outcome.status}, {STATUSES[outcome.status]}.",
        f"Stage: {outcome.stage or 'before the first'}. "
        f"After {outcome.seconds:.1f} s, with {outcome.peak_memory / 1e9:.2f} GB at most.",
        "",
        "```text",
        outcome.reason,
        "```",
    ]
    for title, name in (("Stack", STACK), ("Output", LOG)):
        path = Path(folder, name)
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")[-SHOWN:]
            lines += ["", f"## {title}", "", "```text", text.rstrip(), "```"]
    lines += ["", f"`python {SCRIPT}` in this folder repeats the row.", ""]
    Path(folder, REPORT).write_text("\n".join(lines), encoding="utf-8")
