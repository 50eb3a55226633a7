"""``bundle``: a language model as a folder that another program loads."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onnx_aot.cli.console import errors_as_messages, escape_for_stream, stage_names

__all__ = ["bundle"]


def bundle(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_FOLDER", help="Folder with config.json, weights and tokenizer files."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="The new folder.")
    ],
    layout: Annotated[
        str, typer.Option("--for", help="Who loads it: optimum, transformers.js or genai.")
    ],
    weights: Annotated[
        str, typer.Option(help="Type of the weights: fp32, fp16, int8 or int4.")
    ] = "fp32",
    verify: Annotated[
        bool, typer.Option(help="Compare steps with PyTorch, before weights become integers.")
    ] = False,
    bounded: Annotated[
        bool | None,
        typer.Option(
            help="Let layers with a sliding window keep the window alone: the default for genai, "
            "where a beam search needs --no-bounded."
        ),
    ] = None,
    by_token: Annotated[
        bool,
        typer.Option(
            "--by-token",
            help="Read one token after another, also if the model gives other results then; only "
            "models with recurrent states need it.",
        ),
    ] = False,
    target: Annotated[
        str, typer.Option(help="The runtime, such as onnxruntime==1.20; the installed one.")
    ] = "onnxruntime",
) -> None:
    """Export a language model with its cache, configuration and tokenizer."""
    from onnx_aot.generation import bundle as write

    options: dict[str, Any] = {"verify": verify, "target": target}
    if bounded is not None:
        options["bounded"] = bounded
    if by_token:
        options["by_token"] = True
    with errors_as_messages(), stage_names():
        path = write(model, output, layout=layout, weights=weights, **options)
    typer.echo(escape_for_stream(f"saved to {path}"))
