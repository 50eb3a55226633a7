"""``onnx-aot``, the command line."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script, which is installed with or without the ``cli`` extra."""
    try:
        from onnx_aot.cli.application import application
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"onnx-aot needs {error.name}: python -m pip install 'onnx-aot[cli]'")
    application()
