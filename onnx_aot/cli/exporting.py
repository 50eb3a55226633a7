"""``export`` and ``report``: commands that need only the PyTorch model."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from onnx_aot.cli.console import (
    EXIT_FAILED,
    EXIT_USAGE,
    AsJson,
    errors_as_messages,
    escape_for_stream,
    print_json,
    stage_names,
)
from onnx_aot.cli.factory import Factory, Inputs, Opset
from onnx_aot.errors import InvalidOptionError, OnnxExporterError
from onnx_aot.integrations.subjects import build_subject

__all__ = ["export", "report"]


def export(
    factory: Factory,
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write.")],
    inputs: Inputs = None,
    opset: Opset = None,
    external_data: Annotated[
        bool | None,
        typer.Option(help="Save the weights in a second file; by default if they exceed 1.5 GB."),
    ] = None,
    optimize: Annotated[bool, typer.Option(help="Run all optimizations or none.")] = True,
    optimizations: Annotated[
        list[str] | None,
        typer.Option(
            "--optimization",
            help="safe: only passes and rules that keep every value. Otherwise the name of a pass "
            "or rule; only the named ones run. May be repeated.",
        ),
    ] = None,
    contrib_ops: Annotated[
        bool, typer.Option(help="Use operators that only ONNX Runtime has, if faster.")
    ] = False,
    target: Annotated[
        str,
        typer.Option(
            help="Runtime of the model: onnxruntime, a release of it such as onnxruntime==1.18, "
            "onnxruntime-gpu, onnxruntime-web, openvino, opencv, or none for standard ONNX."
        ),
    ] = "onnxruntime",
    verify: Annotated[
        bool, typer.Option(help="Compare with PyTorch at the example sizes and at others.")
    ] = False,
    on_specialized: Annotated[
        str,
        typer.Option(help="Response if a dynamic dimension is specialized: error, warn or allow."),
    ] = "error",
    runtime_checks: Annotated[
        bool, typer.Option(help="Make the model refuse sizes that it was not captured for.")
    ] = False,
    unsupported: Annotated[
        str,
        typer.Option(help="Handling of operators without a translation: error, emit or function."),
    ] = "error",
    state: Annotated[
        str,
        typer.Option(help="Handling of buffers that the model writes to: outputs, drop or io."),
    ] = "outputs",
    weights_as_inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--weight-as-input",
            help="Parameter or buffer that becomes an input; * matches several. May be repeated.",
        ),
    ] = None,
    modules_as_functions: Annotated[
        list[str] | None,
        typer.Option(
            "--module-as-function",
            help="Module class whose modules become local functions, such as "
            "my_package.models.Block. May be repeated.",
        ),
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            help="Way of capturing: non-strict, strict, draft or trace. Repeat it to try several.",
        ),
    ] = None,
    reuse: Annotated[
        str, typer.Option(help="Layers that repeat: auto copies them, off traces all, or check.")
    ] = "auto",
    report: Annotated[
        str | None,
        typer.Option(help="Folder for a markdown report, also of a failed export."),
    ] = None,
    train: Annotated[bool, typer.Option(help="Export in training mode.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export a model."""
    import onnx_aot

    with errors_as_messages():
        subject = build_subject(factory, inputs)
        subject.model.train(train)
        with stage_names():
            program = onnx_aot.export(
                subject.model,
                subject.args,
                output,
                kwargs=subject.kwargs,
                dynamic_shapes=subject.dynamic_shapes,
                opset_version=opset,
                external_data="auto" if external_data is None else external_data,
                optimize=_merge_optimize_options(optimize, optimizations or []),
                target=None if target == "none" else target,
                contrib_ops=contrib_ops,
                verify=verify,
                on_specialized=on_specialized,  # type: ignore[arg-type]
                runtime_checks=runtime_checks,
                unsupported=unsupported,  # type: ignore[arg-type]
                state=state,  # type: ignore[arg-type]
                weights_as_inputs=weights_as_inputs or False,
                export_modules_as_functions=modules_as_functions or False,
                strategies=strategies or None,
                reuse=reuse,  # type: ignore[arg-type]
                report=report is not None,
                artifacts_dir=report,
            )
    if as_json:
        assert program.report is not None
        print_json({"saved": output, **json.loads(program.report.to_json())})
        return
    typer.echo(escape_for_stream(repr(program)))
    typer.echo(f"saved to {output}")


def _merge_optimize_options(wanted: bool, named: list[str]) -> Any:
    """Combines the two command-line options into ``optimize=``."""
    if not named or not wanted:
        return wanted
    return "safe" if named == ["safe"] else set(named)


def report(
    factory: Factory,
    inputs: Inputs = None,
    opset: Opset = None,
    folder: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Folder for the report, which is printed by default."),
    ] = None,
    verify: Annotated[
        bool, typer.Option(help="Compare with PyTorch at the example sizes and at others.")
    ] = False,
) -> None:
    """Export without saving and print the report, even if the export fails."""
    import onnx_aot

    with errors_as_messages(), contextlib.ExitStack() as kept:
        subject = build_subject(factory, inputs)
        into = folder or kept.enter_context(tempfile.TemporaryDirectory())
        code = 0
        before = set(_find_reports(into))
        try:
            with stage_names():
                onnx_aot.export(
                    subject.model,
                    subject.args,
                    kwargs=subject.kwargs,
                    dynamic_shapes=subject.dynamic_shapes,
                    opset_version=opset,
                    verify=verify,
                    report=True,
                    artifacts_dir=into,
                )
        except OnnxExporterError as error:
            if set(_find_reports(into)) == before:  # refused before the export began
                raise
            code = EXIT_USAGE if isinstance(error, InvalidOptionError) else EXIT_FAILED
        for path in sorted(set(_find_reports(into)) - before):  # a failed export writes one too
            typer.echo(
                path if folder else escape_for_stream(Path(path).read_text(encoding="utf-8"))
            )
    if code:
        raise typer.Exit(code)


def _find_reports(folder: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(folder), "onnx_export_*.md"))
