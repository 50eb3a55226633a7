"""``verify`` and ``compare``: an ONNX model against its PyTorch model."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from onnx_aot.cli.console import (
    EXIT_FAILED,
    AsJson,
    errors_as_messages,
    escape_for_stream,
    print_json,
    stage_names,
)
from onnx_aot.cli.factory import Inputs
from onnx_aot.integrations.subjects import FORM, build_subject

__all__ = ["compare", "verify"]

Model = Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.")]
Against = Annotated[str, typer.Option("--against", metavar="FACTORY", help=FORM)]


def verify(
    path: Model,
    against: Against,
    inputs: Inputs = None,
    sizes: Annotated[
        bool, typer.Option(help="Also compare at other sizes of the dynamic dimensions.")
    ] = True,
    runtime: Annotated[
        str, typer.Option(help="Runtime of the file: onnxruntime, or reference for onnx.reference.")
    ] = "onnxruntime",
    as_json: AsJson = False,
) -> None:
    """Compare a file's outputs with PyTorch's. Exits with 1 if one differs."""
    import onnx_aot

    with errors_as_messages():
        subject = build_subject(against, inputs)
        with stage_names():
            result = onnx_aot.verify(
                path,
                subject.model,
                subject.args,
                subject.kwargs,
                sizes=sizes,
                runtime=runtime,  # type: ignore[arg-type]
            )
    _finish(result, as_json)


def compare(
    path: Model,
    against: Against,
    inputs: Inputs = None,
    isolate: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the first node that differs, as a separate model with its inputs "
            "and a script.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a file with PyTorch value by value. Exits with 1 if one differs."""
    import onnx_aot

    with errors_as_messages():
        subject = build_subject(against, inputs)
        with stage_names():
            result = onnx_aot.compare(path, subject.model, subject.args, subject.kwargs)
            folder = None
            if isolate is not None and result.first is not None:
                folder = result.isolate(isolate)
    if folder is not None:
        typer.echo(f"the node is in {folder}", err=as_json)
    _finish(result, as_json)


def _finish(result: Any, as_json: bool) -> None:
    if as_json:
        print_json(json.loads(result.to_json()))
    else:
        typer.echo(escape_for_stream(str(result)))
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)
