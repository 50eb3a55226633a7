"""The list of translations, with their files, lines and opsets."""

from __future__ import annotations

import pytest

from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET
from onnx_aot.ops.operator_table import Entry, entries


@pytest.fixture(scope="module")
def table() -> list[Entry]:
    return entries()


def test_every_line_is_where_the_translation_stands(table: list[Entry]) -> None:
    for entry in table:
        lines = entry.path.read_text(encoding="utf-8").splitlines()
        text = lines[entry.line - 1].lstrip()
        assert text.startswith(("@", "def ")) or f"{entry.name}:" in text, entry


def test_every_opset_has_every_translation(table: list[Entry]) -> None:
    assert {(entry.since, entry.until) for entry in table} == {(MIN_OPSET, MAX_OPSET)}


def test_an_operator_may_have_a_translation_for_complex_numbers(table: list[Entry]) -> None:
    found = [e for e in table if e.name == "aten.exp.default"]
    assert [e.is_complex for e in found] == [False, True]
    assert found[1].family == "elementary"


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        entries({"nowhere": lambda: None})
