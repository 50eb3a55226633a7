"""Representation of a program in a notebook."""

from __future__ import annotations

import pytest

from onnx_aot.inspection.view.collect import collect
from onnx_aot.inspection.view.notebook import notebook_html
from tests.inspection.view import models
from tests.inspection.view.html import Elements, structure
from tests.inspection.view.models import NASTY


def test_a_notebook_gets_a_table_and_a_frame_of_its_own() -> None:
    shown = models.net()._repr_html_()
    elements = Elements(shown).found
    (frame,) = [attributes for tag, attributes in elements if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts allow-popups"
    assert frame["srcdoc"] is not None
    assert frame["srcdoc"].startswith("<!DOCTYPE html>")
    assert "float32[rows, 4]" in shown
    assert Elements(shown).scripts == []


def test_names_are_not_markup_in_a_notebook_either() -> None:
    nasty, plain = (models.named(name)._repr_html_() for name in (NASTY, "plain"))
    assert structure(nasty) == structure(plain)


def test_the_graph_of_a_large_model_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = collect(models.chain(20).model)
    assert "<details open>" in notebook_html(data)
    monkeypatch.setattr("onnx_aot.inspection.view.notebook.LARGE", 19)
    assert "<details>" in notebook_html(data)
