"""Exports a folder with optimum: ``python export_optimum.py FOLDER OUTPUT``."""

from __future__ import annotations

import sys

from optimum.exporters.onnx import main_export


def main() -> None:
    """Writes the model with its cache, in float32."""
    main_export(sys.argv[1], sys.argv[2], task="text-generation-with-past", dtype="fp32")


if __name__ == "__main__":
    main()
