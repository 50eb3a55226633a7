"""Random programs are drawn, judged and counted; ``nox -s conformance`` tries many more."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conformance.random_programs import Chunk, Counted, Judged, draw, judge


def test_a_number_always_draws_the_same_program() -> None:
    programs = [draw(5, number) for number in range(12)]
    assert programs == [draw(5, number) for number in range(12)]
    assert len(set(map(repr, programs))) == 12
    assert {program.dims == "none" for program in programs} == {True, False}


def test_a_program_is_judged() -> None:
    judged = next(found for found in (judge(5, n) for n in range(20)) if not found.refused)
    assert not judged.failed
    assert judged.sizes["sizes compared"]


def made(sizes: dict[str, int], **fields: str) -> dict[str, Any]:
    return dataclasses.asdict(Judged(sizes, **fields))


def test_outcomes_are_counted(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    refused, failed = made({}, refused="CaptureError: x"), made({}, failed="wrong\nprogram")
    results = [
        made({"sizes compared": 7}),
        refused,
        failed,
        {"outcome": "crash", "reason": "ended with -6"},
    ]
    counted.add(Chunk(3, 20, 4), results)
    found = counted.summary()
    assert (found["programs"], found["captured"], found["right"]) == (4, 3, 1)
    assert found["refused"] == {"CaptureError: x": 1}
    assert found["failures"] == [
        {"program": "3:22", "error": "wrong"},
        {"program": "3:23", "error": "crash: ended with -6"},
    ]
    assert (tmp_path / "program_3_22.txt").read_text() == "wrong\nprogram"


def test_a_later_run_adds_to_the_counts(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    counted = Counted.read(output)
    explained = made({"sizes compared": 7, "sizes that eager refuses": 1})
    counted.add(Chunk(3, 20, 2), [explained, made({}, failed="wrong")])
    counted.add(Chunk(3, 0, 20), [made({}, refused="CaptureError: x")] * 20)
    output.write_text(json.dumps(counted.summary()))
    again = Counted.read(output)
    assert again.summary() == counted.summary()
    assert again.has(3, 21)
    assert not again.has(3, 22)
    assert not again.has(4, 0)
    assert again.take_failures() == [Chunk(3, 21, 1)]
    again.add(Chunk(3, 21, 1), [made({"sizes compared": 8})])
    again.add(Chunk(3, 22, 1), [made({}, refused="CaptureError: x")])
    found = again.summary()
    assert (found["programs"], found["right"], found["failures"]) == (23, 2, [])
    assert found["refused"] == {"CaptureError: x": 21}
    assert found["sizes compared"] == 15
    assert found["seeds"] == {"3": [[0, 23]]}


def test_a_program_is_printed_as_a_script(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(repr(draw(5, 1)))
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "agrees with PyTorch" in done.stdout, done.stdout
