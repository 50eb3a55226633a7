"""The page and the notebook's output as text: nothing of a model is markup, nothing is loaded."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import onnx_aot
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.inspection.view.collect import collect
from onnx_aot.inspection.view.notebook import notebook_html
from onnx_aot.inspection.view.page import render_page, to_json
from tests.inspection.view import models
from tests.inspection.view.models import NASTY


class _Elements(HTMLParser):
    """Tags with their attributes, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def _structure(text: str) -> list[Any]:
    elements = _Elements(text)
    return [(tag, sorted(attributes)) for tag, attributes in elements.found]


def test_names_of_a_model_are_never_markup() -> None:
    page = render_page(collect(models.named(NASTY).model))
    assert _structure(page) == _structure(render_page(collect(models.named("plain").model)))
    data = json.loads(_Elements(page).scripts[0])
    assert data["summary"]["name"] == NASTY
    assert data["items"][1]["title"] == NASTY
    assert NASTY in data["texts"]


def test_nothing_is_loaded() -> None:
    page = render_page(collect(models.net().model))
    elements = _Elements(page).found
    assert not [tag for tag, found in elements if {"src", "href"} & set(found)]
    assert not re.search(r"@import|url\((?!#)|sourceMappingURL|fetch\(|XMLHttpRequest", page)
    (policy,) = [found["content"] for _, found in elements if "http-equiv" in found]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_the_license_of_what_is_in_the_page_is_there_too() -> None:
    page = render_page(collect(models.chain(1).model))
    assert "Copyright (c) 2012-2014 Chris Pettitt" in page
    assert "THE SOFTWARE IS PROVIDED" in page


def test_texts_that_repeat_are_written_once() -> None:
    program = models.chain(50)
    for node in program.model.graph:
        node.metadata_props["pkg.torch.onnx.stack_trace"] = "File x.py, line 1"
    written = to_json(collect(program.model))
    assert written["texts"] == ["File x.py, line 1"]


def test_the_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = models.chain(2)
    path = tmp_path / "graph.html"
    assert program.view(path) == path
    before = path.read_bytes()
    assert before.startswith(b"<!DOCTYPE html>")

    def fails(data: Any) -> str:
        raise MemoryError

    monkeypatch.setattr("onnx_aot.inspection.view.page.render_page", fails)
    with pytest.raises(MemoryError):
        program.view(path)
    assert path.read_bytes() == before
    with pytest.raises(SaveError, match="there is no folder"):
        program.view(tmp_path / "none" / "graph.html")
    with pytest.raises(InvalidOptionError, match="give a path"):
        program.view(io.BytesIO())  # type: ignore[arg-type]


def test_saved_models_can_be_viewed(tmp_path: Path) -> None:
    models.net().save(tmp_path / "net.onnx")
    program = onnx_aot.ONNXProgram.load(tmp_path / "net.onnx")
    program.view(tmp_path / "graph.html")
    assert "Sigmoid" in (tmp_path / "graph.html").read_text(encoding="utf-8")


def test_a_notebook_gets_a_table_and_a_frame_of_its_own() -> None:
    shown = models.net()._repr_html_()
    elements = _Elements(shown).found
    (frame,) = [attributes for tag, attributes in elements if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts allow-popups"
    assert frame["srcdoc"] is not None
    assert frame["srcdoc"].startswith("<!DOCTYPE html>")
    assert "float32[rows, 4]" in shown
    assert _Elements(shown).scripts == []


def test_names_are_not_markup_in_a_notebook_either() -> None:
    nasty, plain = (models.named(name)._repr_html_() for name in (NASTY, "plain"))
    assert _structure(nasty) == _structure(plain)


def test_the_graph_of_a_large_model_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = collect(models.chain(20).model)
    assert "<details open>" in notebook_html(data)
    monkeypatch.setattr("onnx_aot.inspection.view.notebook.LARGE", 19)
    assert "<details>" in notebook_html(data)
