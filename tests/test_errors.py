"""Targets of references in messages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from onnx_aot import errors
from onnx_aot.errors import documentation


@pytest.fixture(autouse=True)
def _forget_pages() -> Iterator[None]:
    documentation.cache_clear()
    yield
    documentation.cache_clear()


def test_a_page_of_the_source_tree() -> None:
    assert documentation("generation") == "docs/generation.md"
    assert documentation("troubleshooting", "branches") == "docs/troubleshooting.md#branches"


def test_a_page_that_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a wheel are at the locations that its record lists."""
    info = tmp_path / "onnx_aot-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: onnx-aot\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("../share/doc/onnx-aot/generation.md,,\nonnx_aot/errors.py,,\n")
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "onnx_aot" / "errors.py"))
    installed = metadata.PathDistribution(info)
    monkeypatch.setattr(metadata, "files", lambda name: installed.files)
    page = tmp_path.parent / "share" / "doc" / "onnx-aot" / "generation.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("# Generation\n")
    assert documentation("generation", "halves") == f"{page}#halves"
    assert documentation("view") == "view.md of the documentation of onnx_aot"
