"""The workflows run what noxfile.py has: its sessions, releases of torch, and Pythons."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOX = runpy.run_path(str(ROOT / "noxfile.py"))
SESSIONS = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.M)) | set(
    re.findall(r"@nox\.session\(name=\"([\w-]+)\"", (ROOT / "noxfile.py").read_text())
)


def _jobs(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())["jobs"]
    return jobs


def test_releases_and_pythons() -> None:
    releases = _jobs("nightly.yml")["releases"]["strategy"]["matrix"]["torch"]
    assert releases == list(NOX["TESTED"])
    pythons = _jobs("checks.yml")["fast"]["strategy"]["matrix"]["python"]
    assert pythons == list(NOX["PYTHONS"])
    assert f"wheel -- 3.13 {NOX['NEWEST']}" in (ROOT / ".github/workflows/release.yml").read_text()
    zoo = str(_jobs("nightly.yml")["sweep"]["steps"])
    assert all(requirement in zoo for requirement in NOX["FOR_BENCHMARKS"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_every_session_exists_and_every_action_is_pinned(path: Path) -> None:
    text = path.read_text()
    named = re.findall(r"nox -s \"?([\w-]+)", text)
    assert {name.rstrip("-") for name in named} <= SESSIONS
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "docs", "nightly", "release"]
