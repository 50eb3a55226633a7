"""``sweep`` and ``sweep diff``: exports of many models, and what changed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onnx_aot.cli.console import (
    EXIT_FAILED,
    AsJson,
    errors_as_messages,
    escape_for_stream,
    print_json,
)
from onnx_aot.errors import InvalidOptionError

__all__ = ["sweeps"]


class _RunByDefault(TyperGroup):
    """``sweep PLAN`` is ``sweep run PLAN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


sweeps = typer.Typer(
    cls=_RunByDefault,
    name="sweep",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Export many models, each in its own process: sweep PLAN -o FOLDER.",
)


@sweeps.command()
def run(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="File .toml, .yaml, .json or .py, or package.module:name."
        ),
    ],
    folder: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for results and page.")
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Also run rows that are not right; go on after a stop.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run all rows, unchanged ones too.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Cores of this machine to use; all by default.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="auto|ADDRESS", help="Cluster of Ray to run on."),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(help="Folder, or address such as s3://bucket/path, for the files of rows."),
    ] = None,
    parquet: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write the results as Parquet.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write a summary for a pull request.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the rows of a plan that need it. Exits with 1 if a row is not right."""
    from onnx_aot import sweep
    from onnx_aot.sweep.results import Results

    with errors_as_messages():
        try:
            done = sweep.run(
                plan, folder, resume=resume, again=again, jobs=jobs, ray=ray, artifacts=artifacts
            )
        except KeyboardInterrupt:
            typer.echo(
                f"interrupted: the results of the rows that have ended are in {folder}, and the "
                "same command runs the others",
                err=True,
            )
            raise
        if parquet is not None:
            with Results(folder) as results:
                results.write_parquet(parquet)
        if markdown is not None:
            _write(markdown, done.to_markdown())
    if as_json:
        print_json(
            {"folder": folder, "ran": done.ran, "skipped": done.skipped, "counts": done.counts}
        )
    else:
        counts = ", ".join(f"{count} {status}" for status, count in done.counts.items())
        typer.echo(f"{len(done.results)} rows: {counts}; {done.skipped} unchanged")
        for change in done.difference.of("broken"):
            typer.echo(escape_for_stream(f"newly broken: {change.name}: {change.text}"))
        typer.echo(f"results in {folder}")
    if not done.ok:
        raise typer.Exit(EXIT_FAILED)


@sweeps.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="Folder of a sweep.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Folder of a later sweep.")],
    slower: Annotated[float, typer.Option(help="Ratio of times from which a row is slower.")] = 1.3,
    larger: Annotated[
        float, typer.Option(help="Ratio of nodes or bytes from which a row is larger.")
    ] = 1.02,
    fail_on: Annotated[
        str,
        typer.Option(help="Changes that exit with 1: broken, slower, larger, removed, and others."),
    ] = "broken",
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write it for a pull request.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two sweeps row by row. Exits with 1 if a row is newly broken."""
    from onnx_aot.sweep.difference import KINDS, compare_sweeps

    with errors_as_messages():
        wanted = [kind.strip() for kind in fail_on.split(",") if kind.strip()]
        unknown = [kind for kind in wanted if kind not in KINDS]
        if unknown:
            raise InvalidOptionError(
                f"--fail-on {', '.join(unknown)} is not understood; known are {', '.join(KINDS)}",
                code="OA801",
            )
        found = compare_sweeps(before, after, slower=slower, larger=larger)
        if markdown is not None:
            _write(markdown, found.to_markdown() + "\n")
    if as_json:
        print_json(json.loads(json.dumps(asdict(found))))
    else:
        typer.echo(escape_for_stream(str(found)))
    if any(found.of(kind) for kind in wanted):
        raise typer.Exit(EXIT_FAILED)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOptionError(f"cannot write {path}: {error}", code="OA801") from None
