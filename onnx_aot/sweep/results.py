"""Results of a sweep in one SQLite file, whose schema other tools may read.

``results`` has a line for each time that a row ran; ``current`` is a view of the last of each row
that the plan has now. ``runs`` has a line for each call of ``run``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep.rows import Outcome, Row

__all__ = ["FILE", "SCHEMA", "Result", "Results"]

FILE = "sweep.sqlite"
SCHEMA = 1
"""Version of the tables. Columns may be added to a version, and are never renamed or removed."""

COMMIT = 0.25  # seconds between two commits while rows end

TABLES = """
CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, plan TEXT NOT NULL,
    engine TEXT NOT NULL, versions TEXT NOT NULL, planned INTEGER NOT NULL,
    skipped INTEGER NOT NULL, removed TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS rows (
    name TEXT PRIMARY KEY, position INTEGER NOT NULL, model TEXT NOT NULL, options TEXT NOT NULL,
    key TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS results (
    name TEXT NOT NULL, run INTEGER NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL,
    stage TEXT NOT NULL, error TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
    started REAL NOT NULL, seconds REAL NOT NULL, cpu_seconds REAL NOT NULL,
    peak_memory INTEGER NOT NULL, worker TEXT NOT NULL, limit_seconds REAL NOT NULL,
    limit_memory INTEGER, export_seconds REAL, nodes INTEGER, bytes INTEGER, latency_ms REAL,
    max_absolute REAL, metrics TEXT NOT NULL, artifacts TEXT NOT NULL,
    PRIMARY KEY (name, run)
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS current AS
    SELECT rows.position, rows.model, rows.options, results.*
    FROM rows JOIN results ON results.name = rows.name
    WHERE results.run = (SELECT max(run) FROM results AS newer WHERE newer.name = rows.name);
"""

FIGURES = ("export_seconds", "nodes", "bytes", "latency_ms", "max_absolute")
"""Metrics with a column of their own; the others are JSON in ``metrics``."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The last result of a row; the columns of ``current``.

    Attributes:
        name: Name of the row.
        status: A key of ``STATUSES``.
        stage: The last stage that it began.
        error: Class of the exception, or "".
        reason: Why it is not right, or "".
        seconds: Wall-clock time of its process.
        run: Number of the run that made it.
        model: Name of the model.
        options: Values in the columns of the matrix.
        key: The key of the row when it ran.
        attempts: Number of tries.
        started: When it began, in seconds since 1970.
        cpu_seconds: Time of its process on processors.
        peak_memory: Its largest resident size in bytes.
        worker: Machine and process that ran it.
        limit_seconds: The limit that it had.
        limit_memory: The limit that it had, or None.
        export_seconds: Wall-clock time of the export.
        nodes: Number of nodes of the ONNX model.
        bytes: Size of its files.
        latency_ms: Median milliseconds of a call.
        max_absolute: Largest difference from PyTorch.
        metrics: Other figures by name.
        artifacts: Folder or address of its files.
        position: Its place in the plan.
    """

    name: str
    status: str
    stage: str = ""
    error: str = ""
    reason: str = ""
    seconds: float = 0.0
    run: int = 0
    model: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    key: str = ""
    attempts: int = 1
    started: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    worker: str = ""
    limit_seconds: float = 0.0
    limit_memory: int | None = None
    export_seconds: float | None = None
    nodes: int | None = None
    bytes: int | None = None
    latency_ms: float | None = None
    max_absolute: float | None = None
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    artifacts: str = ""
    position: int = 0


COLUMNS = tuple(field.name for field in dataclasses.fields(Result))


class Results:
    """The results in a folder.

    Args:
        folder: Folder of a sweep.
        create: Whether a missing file is created.

    Raises:
        InvalidOptionError: There is no sweep, and none is to be created.
        SweepError: The file is damaged, or of another version.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = False) -> None:
        path = Path(folder) / FILE if Path(folder).suffix != ".sqlite" else Path(folder)
        if not create and not path.is_file():
            raise InvalidOptionError(
                f"there is no sweep in {folder}: {path.name} is missing. Run onnx-aot sweep PLAN "
                f"-o {folder} first",
                code="OA803",
            )
        self._path = path
        self._committed = time.monotonic()
        try:
            self._db = sqlite3.connect(path, timeout=30)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and create:
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.executescript(TABLES)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        except sqlite3.DatabaseError as error:
            raise SweepError(
                f"the results in {path} cannot be read: {error}. Move the file away to start anew",
                code="OA803",
            ) from None
        if version not in (0, SCHEMA):
            raise SweepError(
                f"{path} has tables of version {version}; this release reads version {SCHEMA}. Use "
                "the release of onnx_aot that wrote it, or another folder",
                code="OA803",
            )

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Commits and closes the file."""
        self._db.commit()
        self._db.close()

    # --- a run -----------------------------------------------------------------------------------

    def begin_run(
        self,
        plan: str,
        engine: str,
        versions: dict[str, str],
        rows: Sequence[tuple[Row, str]],
        skipped: int,
        resume: bool,
    ) -> int:
        """Writes which rows there are, with their keys; returns the number of the run.

        With ``resume``, a run that did not end goes on under its number.
        """
        names = {row.name for row, _ in rows}
        had = [line[0] for line in self._db.execute("SELECT name FROM rows")]
        removed = json.dumps([name for name in had if name not in names])
        self._db.execute("DELETE FROM rows")
        self._db.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?)",
            (
                (row.name, position, row.model, json.dumps(row.options), key)
                for position, (row, key) in enumerate(rows)
            ),
        )
        last = self._db.execute("SELECT run, ended FROM runs ORDER BY run DESC LIMIT 1").fetchone()
        if resume and last and last[1] is None:
            self._db.commit()
            return int(last[0])
        found = self._db.execute(
            "INSERT INTO runs (started, plan, engine, versions, planned, skipped, removed)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (time.time(), plan, engine, json.dumps(versions), len(rows), skipped, removed),
        )
        self._db.commit()
        return int(found.lastrowid or 0)

    def add(
        self, run: int, row: Row, key: str, outcome: Outcome, attempts: int, artifacts: str
    ) -> None:
        """Writes what came of a row; commits a few times a second."""
        metrics = dict(outcome.metrics)
        figures = [metrics.pop(name, None) for name in FIGURES]
        self._db.execute(
            f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * 22)})",
            (
                row.name,
                run,
                key,
                outcome.status,
                outcome.stage,
                outcome.error,
                outcome.reason,
                attempts,
                outcome.started,
                round(outcome.seconds, 4),
                round(outcome.cpu_seconds, 4),
                outcome.peak_memory,
                outcome.worker,
                row.limits.seconds,
                row.limits.memory,
                *figures,
                json.dumps(metrics, default=str),
                artifacts,
            ),
        )
        if time.monotonic() - self._committed > COMMIT:
            self._db.commit()
            self._committed = time.monotonic()

    def end_run(self, run: int) -> None:
        """Writes that a run is complete."""
        self._db.execute("UPDATE runs SET ended = ? WHERE run = ?", (time.time(), run))
        self._db.commit()

    # --- reading ---------------------------------------------------------------------------------

    def current(self) -> Iterator[Result]:
        """Yields the last result of every row of the plan that has one, in the plan's order."""
        yield from self._select("SELECT * FROM current ORDER BY position", ())

    def before(self, run: int) -> Iterator[Result]:
        """Yields the results as they were before a run, of the rows that the plan had then."""
        yield from self._select(
            "SELECT 0 AS position, '' AS model, '{}' AS options, results.* FROM results WHERE run ="
            " (SELECT max(run) FROM results AS o WHERE o.name = results.name AND o.run < ?)"
            " AND (name IN (SELECT name FROM rows) OR name IN"
            " (SELECT value FROM runs, json_each(runs.removed) WHERE runs.run = ?))",
            (run, run),
        )

    def _select(self, query: str, values: Iterable[Any]) -> Iterator[Result]:
        cursor = self._db.execute(query, tuple(values))
        names = [column[0] for column in cursor.description]
        for line in cursor:
            found = dict(zip(names, line, strict=True))
            for name in ("options", "metrics"):
                found[name] = json.loads(found[name])
            yield Result(**{name: found[name] for name in COLUMNS})

    def known(self) -> dict[str, tuple[str, str, float, int | None]]:
        """Key, status and limits of the last result of each row that ever ran, by name."""
        lines = self._db.execute(
            "SELECT name, key, status, limit_seconds, limit_memory FROM results AS r WHERE run ="
            " (SELECT max(run) FROM results AS newer WHERE newer.name = r.name)"
        )
        return {line[0]: (line[1], line[2], line[3], line[4]) for line in lines}

    def counts(self) -> dict[str, int]:
        """Number of rows by status; rows without a result are at ``""``."""
        lines = self._db.execute(
            "SELECT coalesce(current.status, ''), count(*) FROM rows"
            " LEFT JOIN current ON current.name = rows.name GROUP BY 1"
        )
        return dict(lines.fetchall())

    def runs(self) -> list[dict[str, Any]]:
        """The runs, oldest first."""
        cursor = self._db.execute("SELECT * FROM runs ORDER BY run")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, line, strict=True)) for line in cursor]

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes ``current`` to a Parquet file, by pyarrow.

        Raises:
            InvalidOptionError: pyarrow is not installed, or the file cannot be written.
        """
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise InvalidOptionError(
                "Parquet needs pyarrow: python -m pip install 'onnx-aot[parquet]'", code="OA803"
            ) from None
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for result in self.current():
            for name in COLUMNS:
                value = getattr(result, name)
                columns[name].append(json.dumps(value) if isinstance(value, dict) else value)
        types = {"float | None": pa.float64(), "float": pa.float64()}
        types |= {"int": pa.int64(), "int | None": pa.int64()}
        fields = [(f.name, types.get(str(f.type), pa.string())) for f in dataclasses.fields(Result)]
        table = pa.table(columns, schema=pa.schema(fields))
        with contextlib.suppress(FileNotFoundError):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        pq.write_table(table, path)
