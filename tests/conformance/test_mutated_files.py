"""Damaged files are read or refused; ``nox -s conformance`` tries many more."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.mutated_files import (
    _read_in_child,
    choose_parts,
    make_files,
    merge_results,
    mutate_file,
)
from onnx_aot.errors import InvalidOptionError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="readers run in forks")


def test_some_files(tmp_path: Path) -> None:
    """In a process of its own: the threads of this one do not survive a fork."""
    output, seed = tmp_path / "found.json", str(random.randrange(10**6))
    options = ["--trials", "12", "--seed", seed, "--output", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "conformance.mutated_files", *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    found = json.loads(output.read_text())
    assert sum(sum(outcomes.values()) for outcomes in found["readers"].values()) >= 12


def test_results_are_added() -> None:
    one = {"readers": {"load": {"read": 2, "refused": 1}}, "seconds": 2.0, "megabytes": 5}
    one |= {"trials": 50, "seeds": [4000], "failures": []}
    other = {"readers": {"load": {"read": 3}, "view": {"failed": 1}}, "seconds": 1.0}
    other |= {"trials": 20, "seeds": [3000, 3001], "megabytes": 9, "failures": [{}]}
    merged = merge_results([one, other])
    assert (merged["trials"], merged["seeds"]) == (70, [3000, 3001, 4000])
    assert choose_parts(120, 4, [merged]) == [(4001, 50), (4002, 20)]
    assert merged["readers"] == {"load": {"read": 5, "refused": 1}, "view": {"failed": 1}}
    assert (merged["seconds"], merged["megabytes"], merged["failures"]) == (2.0, 9, [{}])


def test_mutations_change_files(tmp_path: Path) -> None:
    make_files(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        before = path.read_bytes()
        changed = 0
        for _ in range(10):
            mutate_file(path)
            changed += path.read_bytes() != before
            path.write_bytes(before)
        assert changed > 4, path


def test_outcomes(tmp_path: Path) -> None:
    """Errors of others, the end of a process, and memory without bounds are failures."""

    def refuse() -> Any:
        raise InvalidOptionError("no")

    def fail() -> Any:
        raise KeyError("x")

    def allocate() -> Any:
        return bytearray(2**33)

    readers = {"refuse": refuse, "fail": fail, "allocate": allocate, "end": lambda: os._exit(3)}
    outcomes, seconds, _ = _read_in_child(readers, tmp_path / "result")
    found = {name: outcome for name, (outcome, _) in outcomes.items()}
    assert found == {"refuse": "refused", "fail": "failed", "allocate": "failed", "end": "failed"}
    assert seconds > 0
