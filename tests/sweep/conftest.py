"""A folder with models, tasks and a plan, and the browser of the views."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from onnx_aot.sweep import Plan, Row, runner
from onnx_aot.sweep.rows import Outcome
from onnx_aot.sweep.worker import call_task, merge
from tests.inspection.view.conftest import browser, viewer

__all__ = ["browser", "in_process", "make_plan", "viewer"]

MODELS = """
    import torch
    import swept_layers

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(100, 8)
            self.layer = swept_layers.make()

        def forward(self, ids):
            return self.layer(self.embed(ids)).relu()

    class Gate(torch.nn.Module):
        def forward(self, x):
            return x.long() if x.sum() > 0 else x

    def encoder():
        return Encoder()

    def mlp():
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.ones(2, 4),)

    def gate():
        return Gate(), (torch.ones(3),)

    def needs_size(size):
        return torch.nn.Linear(size, size)

    def _hidden():
        return torch.nn.Linear(2, 2)

    def differs(path, model, args, kwargs):
        return {"asked": 1, "wrong": "it is a Tuesday"}
"""

LAYERS = """
    import torch

    def make():
        return torch.nn.Linear(8, 4)
"""

TASKS = """
    import ctypes, os, time
    from pathlib import Path

    def right(settings, progress):
        progress.begin("thinking")
        progress.note(nodes=settings.get("nodes", 3), answer=42)
        return {}

    def refuse(settings, progress):
        if "status" in settings:
            return dict(settings)
        return {"status": "wrong", "reason": "off by one"}

    def fail(settings, progress):
        print("printed before", flush=True)
        raise KeyError("no such weight")

    def crash(settings, progress):
        progress.begin("reading")
        ctypes.string_at(0)

    def leave(settings, progress):
        os._exit(3)

    def hang(settings, progress):
        progress.begin("waiting")
        while True:
            time.sleep(1)

    def eat(settings, progress):
        progress.begin("eating")
        kept = []
        while True:
            kept.append(bytearray(20_000_000))
            time.sleep(0.005)

    def eat_at_once(settings, progress):
        return bytearray(1 << 45)

    def start_others(settings, progress):
        if os.fork() == 0:
            time.sleep(600)
        progress.note(child=1)
        return {}

    def once_killed(settings, progress):
        mark = Path(settings["mark"])
        if not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), 9)
        return {}

    def slow(settings, progress):
        with open(settings["mark"], "a") as file:
            file.write(settings["name"] + "\\n")
        time.sleep(settings.get("seconds", 0.2))
        return {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with modules that rows can name."""
    for name, text in (("models", MODELS), ("layers", LAYERS), ("tasks", TASKS)):
        (tmp_path / f"swept_{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.delitem(sys.modules, f"swept_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


class InProcess:
    """An engine without processes, for tests of what surrounds them."""

    description = "in this process"

    def __init__(self, folder: Path) -> None:
        self._folder, self._ended = folder, list[Outcome]()

    def has_room(self, row: Row) -> bool:
        return not self._ended

    def submit(self, row: Row) -> None:
        outcome = Outcome(row.name, "crashed")
        call_task(row, str(self._folder), lambda message: merge(outcome, message))
        self._ended.append(outcome)

    def collect(self) -> list[Outcome]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_make_engine", lambda *_: InProcess(tmp_path))


def make_plan(*tasks: str, **fields: Any) -> Plan:
    """A plan with a row for each task of the file ``swept_tasks``."""
    rows = [Row(name, task=f"swept_tasks:{name}", model=name, **fields) for name in tasks]
    return Plan(tuple(rows))
