"""``onnx-aot explain``: the page of a code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onnx_aot.cli.console import errors_as_messages, escape_for_stream

__all__ = ["explain"]


def explain(
    code: Annotated[
        str | None, typer.Argument(help="A code, such as OA101; without it, all codes are listed.")
    ] = None,
) -> None:
    """Explain an error, a warning or a note by its code: what it means, an example, the fix."""
    from onnx_aot.explanations import list_titles, plain_page

    with errors_as_messages():
        if code is None:
            text = "".join(f"{each}  {title}\n" for each, title in list_titles().items())
        else:
            text = plain_page(code)
    typer.echo(escape_for_stream(text, sys.stdout), nl=False)
