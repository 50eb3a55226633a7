"""``export`` and ``report``: what needs the PyTorch model alone."""

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
    plain,
    print_json,
    stage_names,
)
from onnx_aot.cli.factory import Factory, Inputs, Opset, build_subject
from onnx_aot.errors import InvalidOptionError, OnnxExporterError

__all__ = ["export", "report"]


def export(
    factory: Factory,
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write.")],
    inputs: Inputs = None,
    opset: Opset = None,
    external_data: Annotated[
        bool | None,
        typer.Option(help="Weights in a file beside; by default when they exceed 1.5 GB."),
    ] = None,
    optimize: Annotated[bool, typer.Option(help="Run all optimization passes, or none.")] = True,
    optimizations: Annotated[
        list[str] | None,
        typer.Option(
            "--optimization",
            help="safe: only what keeps every value as it is; or the name of a pass or rule that "
            "is to run alone. May be repeated.",
        ),
    ] = None,
    contrib_ops: Annotated[
        bool, typer.Option(help="Use operators that only ONNX Runtime has, where faster.")
    ] = False,
    target: Annotated[
        str, typer.Option(help="Where the model is to run: onnxruntime, or none for pure ONNX.")
    ] = "onnxruntime",
    verify: Annotated[
        bool, typer.Option(help="Compare with PyTorch on the example inputs.")
    ] = False,
    on_specialized: Annotated[
        str,
        typer.Option(help="When a dynamic size comes out fixed: error, warn or allow."),
    ] = "error",
    runtime_checks: Annotated[
        bool, typer.Option(help="Make the runtime fail at sizes the model was not captured for.")
    ] = False,
    unsupported: Annotated[
        str,
        typer.Option(help="Operators without a translation: error, emit or function."),
    ] = "error",
    state: Annotated[
        str,
        typer.Option(help="What becomes of buffers that the model writes: outputs, drop or io."),
    ] = "outputs",
    weights_as_inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--weight-as-input",
            help="A parameter or buffer, or several by *, that becomes an input. May be repeated.",
        ),
    ] = None,
    modules_as_functions: Annotated[
        list[str] | None,
        typer.Option(
            "--module-as-function",
            help="A class of modules, such as my_package.models.Block, of which each becomes a "
            "function of the model. May be repeated.",
        ),
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            help="How to capture: non-strict, strict, draft or trace. Repeated: in that order.",
        ),
    ] = None,
    report: Annotated[
        str | None, typer.Option(help="Folder for a markdown report, also of a failure.")
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
                optimize=_optimize(optimize, optimizations or []),
                target=None if target == "none" else target,  # type: ignore[arg-type]
                contrib_ops=contrib_ops,
                verify=verify,
                on_specialized=on_specialized,  # type: ignore[arg-type]
                runtime_checks=runtime_checks,
                unsupported=unsupported,  # type: ignore[arg-type]
                state=state,  # type: ignore[arg-type]
                weights_as_inputs=weights_as_inputs or False,
                export_modules_as_functions=modules_as_functions or False,
                strategies=strategies or None,
                report=report is not None,
                artifacts_dir=report,
            )
    if as_json:
        assert program.report is not None
        print_json({"saved": output, **json.loads(program.report.to_json())})
        return
    typer.echo(plain(repr(program)))
    typer.echo(f"saved to {output}")


def _optimize(wanted: bool, named: list[str]) -> Any:
    """What the two options mean together."""
    if not named or not wanted:
        return wanted
    return "safe" if named == ["safe"] else set(named)


def report(
    factory: Factory,
    inputs: Inputs = None,
    opset: Opset = None,
    folder: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Folder to write it to; else it is printed."),
    ] = None,
    verify: Annotated[
        bool, typer.Option(help="Compare with PyTorch on the example inputs and other sizes.")
    ] = False,
) -> None:
    """Say what an export does with a model, also where it fails; nothing is saved."""
    import onnx_aot

    with errors_as_messages(), contextlib.ExitStack() as kept:
        subject = build_subject(factory, inputs)
        into = folder or kept.enter_context(tempfile.TemporaryDirectory())
        code = 0
        before = set(_reports(into))
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
            if set(_reports(into)) == before:  # refused before it began
                raise
            code = EXIT_USAGE if isinstance(error, InvalidOptionError) else EXIT_FAILED
        for path in sorted(set(_reports(into)) - before):  # which says why it failed
            typer.echo(path if folder else plain(Path(path).read_text(encoding="utf-8")))
    if code:
        raise typer.Exit(code)


def _reports(folder: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(folder), "onnx_export_*.md"))
