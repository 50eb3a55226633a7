"""Arguments of commands that name a model and its example inputs."""

from __future__ import annotations

from typing import Annotated

import typer

from onnx_aot.integrations.subjects import FORM

__all__ = ["Factory", "Inputs", "Opset"]

Factory = Annotated[str, typer.Argument(metavar="FACTORY", help=FORM)]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help='NAME:DTYPE[SIZES], such as "ids:int64[batch,seq]"; a size that is a name is '
        "dynamic. Repeat it for each input; without it, the factory returns example inputs.",
    ),
]
Opset = Annotated[int | None, typer.Option(help="ONNX operator set, 11 to 28; 20 by default.")]
