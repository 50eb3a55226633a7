"""Reports of failed exports show the cause, the place and the fix on their first screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_aot.errors import OnnxExporterError
from onnx_aot.reporting.markdown import COLUMNS, FIRST_SCREEN
from tests.inspection.broken_models import BROKEN, Broken

IDS = [broken.export.__name__ for broken in BROKEN]


def unwrapped(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("broken", BROKEN, ids=IDS)
def test_the_first_screen_says_what_to_do(broken: Broken, tmp_path: Path) -> None:
    with pytest.raises(OnnxExporterError) as caught:
        broken.export(str(tmp_path))
    (path,) = tmp_path.glob("onnx_export_*.md")
    assert f"\nThe report is in {path}\nSee: onnx-aot explain " in str(caught.value)
    lines = path.read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN]
    assert lines[0].endswith(": failed")
    assert not [line for line in lines if len(line) > COLUMNS and str(Path.cwd()) not in line]
    text = unwrapped(lines)
    for said in (broken.cause, *broken.where, broken.fix):
        assert said in text, said
    message = unwrapped([str(caught.value)])
    assert broken.fix in message  # the command line prints this message
