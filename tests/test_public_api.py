"""The public API, the keys in files and the version of reports are those that were promised."""

from __future__ import annotations

import importlib
from pathlib import Path

import onnx_aot
from tests.public_api import MODULES, collect, read

PAGE = (Path(__file__).parents[1] / "docs" / "stability.md").read_text(encoding="utf-8")


def test_the_public_api_is_the_recorded_one() -> None:
    """After a change that docs/stability.md allows: ``python -m tests.public_api``, and a line in
    CHANGELOG.md.
    """
    found, kept = collect(), read()
    assert sorted(found) == sorted(kept)
    assert {name: lines for name, lines in found.items() if lines != kept[name]} == {}


def test_public_names_exist() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(hasattr(module, public) for public in module.__all__)


def test_the_page_names_every_key_of_files() -> None:
    for key in collect()["keys of metadata in files"]:
        assert f"`{key}`" in PAGE


def test_types_are_shipped() -> None:
    assert (Path(onnx_aot.__file__).parent / "py.typed").is_file()
