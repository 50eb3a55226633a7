"""The documented commands print the documented output."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import call

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\[exit code (\d+)\]\n")


def _sessions(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields each command with its output and its exit code; ``...`` matches anything."""
    for part in text.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        code = EXIT.search(shown)
        yield command, EXIT.sub("", shown), int(code[1]) if code else 0


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_models", raising=False)
    seen = 0
    for language, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            name = block.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(block, encoding="utf-8")
            continue
        for command, shown, code in _sessions(block):
            program, *arguments = shlex.split(command)
            done = call(*arguments)
            assert program == "onnx-aot"
            assert done.exit_code == code, (command, done.output)
            pattern = re.escape(shown).replace(re.escape("..."), "(?:.*)")
            assert re.fullmatch(pattern, done.output, re.DOTALL), (command, done.output)
            seen += 1
    assert seen >= 8
