"""The commands."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from onnx_aot.cli.factory import build_model, example_inputs, parse_input
from onnx_aot.errors import InvalidOptionError, OnnxExporterError

__all__ = ["application"]

EXIT_FAILED = 1
EXIT_USAGE = 2

application = typer.Typer(
    name="onnx-aot",
    help="PyTorch models to ONNX, ahead of time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text, also in help
)


@application.callback()
def root() -> None:
    """PyTorch models to ONNX, ahead of time."""


@application.command()
def export(
    factory: Annotated[
        str,
        typer.Argument(
            help="package.module:name of a module, or of a function that returns a module, "
            "(module, args) or (module, args, kwargs)."
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help='NAME:DTYPE[SIZES], such as "ids:int64[batch,seq]"; a size that is a name is '
            "dynamic. Once per input; without any, the factory gives example inputs.",
        ),
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set, 17 to 25.")] = None,
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
) -> None:
    """Export a model."""
    import onnx_aot

    with _errors_as_messages():
        specs = [parse_input(text) for text in inputs or ()]
        model, args, kwargs = build_model(factory)
        model.train(train)
        if specs:
            args, kwargs = (), example_inputs(specs)
        with _stage_names():
            program = onnx_aot.export(
                model,
                args,
                output,
                kwargs=kwargs,
                dynamic_shapes={s.name: s.dynamic for s in specs if s.dynamic} or None,
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
                artifacts_dir=report or ".",
            )
    typer.echo(repr(program))
    typer.echo(f"saved to {output}")


def _optimize(wanted: bool, named: list[str]) -> Any:
    """What the two options mean together."""
    if not named or not wanted:
        return wanted
    return "safe" if named == ["safe"] else set(named)


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """What the user can act on is a message, not a traceback."""
    try:
        yield
    except InvalidOptionError as error:
        typer.echo(f"onnx-aot: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    except OnnxExporterError as error:
        typer.echo(f"onnx-aot: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None


@contextlib.contextmanager
def _stage_names() -> Iterator[None]:
    """Shows the present stage while a terminal watches; nothing otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    from onnx_aot.recording import logged_to  # imports torch, which --help does not need

    spinner = "dots" if (sys.stderr.encoding or "").lower().startswith("utf") else "line"
    columns = (SpinnerColumn(spinner), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    with progress, logged_to(_TaskHandler(progress)):
        yield


class _TaskHandler(logging.Handler):
    """Makes each stage that is logged the progress's description."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self._task = progress.add_task("Start")

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.update(self._task, description=record.getMessage())
