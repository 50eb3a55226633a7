"""``bundle``: a language model as a folder that another program loads."""

from __future__ import annotations

from typing import Annotated

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
) -> None:
    """Export a language model with its cache, configuration and tokenizer."""
    from onnx_aot.generation import bundle as write

    with errors_as_messages(), stage_names():
        path = write(model, output, layout=layout, weights=weights, verify=verify)
    typer.echo(escape_for_stream(f"saved to {path}"))
