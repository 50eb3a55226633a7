"""The commands by name."""

from __future__ import annotations

import typer

from onnx_aot.cli import (
    bundling,
    checking,
    explaining,
    exporting,
    looking,
    machine,
    operators,
    sweeping,
)

__all__ = ["application"]

application = typer.Typer(
    name="onnx-aot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text, also in help
)


@application.callback()
def root() -> None:
    """PyTorch models to ONNX, ahead of time."""


application.command()(exporting.export)
application.command()(exporting.report)
application.command()(bundling.bundle)
application.command()(checking.verify)
application.command()(checking.compare)
application.command()(looking.inspect)
application.command()(looking.view)
application.command()(operators.ops)
application.command()(explaining.explain)
application.command()(machine.doctor)
application.add_typer(sweeping.sweeps)
