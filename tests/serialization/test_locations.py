"""Paths in files stay in the folder of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_aot.serialization.locations import lies_beside


@pytest.mark.parametrize(
    ("location", "beside"),
    [
        ("data", True),
        ("sub/data", True),
        ("./data", True),
        ("...data", True),
        ("inside", True),
        ("../data", False),
        ("sub/../../data", False),
        ("..\\data", False),
        ("/etc/passwd", False),
        ("outside", False),
        ("elsewhere/data", False),
        (".", False),
        ("", False),
        ("a\0b", False),
    ],
)
def test_locations(location: str, beside: bool, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "outside").symlink_to(tmp_path / "data")
    (folder / "inside").symlink_to(folder / "data")
    (folder / "elsewhere").symlink_to(tmp_path)
    assert lies_beside(location, str(folder / "model.onnx")) is beside
