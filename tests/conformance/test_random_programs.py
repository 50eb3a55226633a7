"""Random programs are drawn, judged and counted; ``nox -s conformance`` tries many more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conformance.outcome import Result
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


def test_outcomes_are_counted(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    refused, failed = Judged({}, refused="CaptureError: x"), Judged({}, failed="wrong\nprogram")
    results = [Judged({"sizes compared": 7}), refused, failed, Result("crash", "ended with -6")]
    counted.add(Chunk(3, 20, 4), results)
    found = counted.summary()
    assert (found["programs"], found["captured"], found["right"]) == (4, 3, 1)
    assert found["refused"] == {"CaptureError: x": 1}
    assert found["failures"] == [
        {"program": "3:22", "error": "wrong"},
        {"program": "3:23", "error": "crash: ended with -6"},
    ]
    assert (tmp_path / "program_3_22.txt").read_text() == "wrong\nprogram"


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
