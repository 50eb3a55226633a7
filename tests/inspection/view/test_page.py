"""The page as text: nothing in a model is treated as markup, and nothing is loaded."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import onnx_aot
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.inspection.view.collect import collect
from onnx_aot.inspection.view.page import render_page, to_json
from tests.inspection.view import models
from tests.inspection.view.html import Elements, structure
from tests.inspection.view.models import NASTY


def test_names_of_a_model_are_never_markup() -> None:
    page = render_page(collect(models.named(NASTY).model))
    assert structure(page) == structure(render_page(collect(models.named("plain").model)))
    data = json.loads(Elements(page).scripts[0])
    assert data["summary"]["name"] == NASTY
    assert data["items"][1]["title"] == NASTY
    assert NASTY in data["texts"]


def test_nothing_is_loaded() -> None:
    page = render_page(collect(models.net().model))
    elements = Elements(page).found
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
