"""Software of others in the package is listed with its hash and its licence."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import onnx_aot

ROOT = Path(__file__).parents[1]
PACKAGE = Path(onnx_aot.__file__).parent
LISTED = dict(
    re.findall(
        r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$",
        (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)


def test_listed_files_are_the_bundled_ones() -> None:
    assert len(LISTED) == 1
    for name, digest in LISTED.items():
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest, name


def test_every_bundled_script_is_listed() -> None:
    """Scripts of others are in folders of their own, with their licence; ours are not minified."""
    for script in (*PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.css")):
        name = script.relative_to(ROOT).as_posix()
        if script.parent.name != "assets":
            assert name in LISTED
            assert (script.parent / "LICENSE").is_file()
        else:
            assert max(map(len, script.read_text(encoding="utf-8").splitlines())) < 200, name


def test_licences_are_in_the_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = re.findall(r"^license-files = (.*)$", text, re.MULTILINE)
    assert '"THIRD_PARTY.md"' in line
    for name in LISTED:
        assert f'"{Path(name).parent.as_posix()}/LICENSE"' in line
