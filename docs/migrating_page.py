"""Fills docs/migrating-from-torch-onnx.md with ``python -m benchmarks.transformers_exporters``."""

from __future__ import annotations

from pathlib import Path

from benchmarks import transformers_exporters
from benchmarks.page import fill_part
from benchmarks.results import read_json

__all__ = ["make_migrating_page"]

PAGE = Path(__file__).with_name("migrating-from-torch-onnx.md")


def make_migrating_page() -> str:
    """Returns the page with the current results."""
    kept = read_json(transformers_exporters.NAME)
    part = transformers_exporters.render(kept["rows"], kept["summary"])
    return fill_part(PAGE.read_text(encoding="utf-8"), transformers_exporters.NAME, part)
