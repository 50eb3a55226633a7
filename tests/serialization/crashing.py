"""Script that saves models repeatedly and is killed at a random point each time.

    python tests/serialization/crashing.py FOLDER TRIALS SEED

Prints, as JSON, for each form of data: how many saves were killed, and how often the old and the
new model were present afterwards.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import onnx_aot

WAYS: dict[str, dict[str, Any]] = {
    "one file": {"external_data": False},
    "data": {"external_data": True},
    "shards": {"external_data": "safetensors", "max_shard_size": 1_000_000},
}


def main() -> None:
    random.seed(int(sys.argv[3]))
    programs = [_program(width) for width in (512, 640)]
    counts = {}
    for name, options in WAYS.items():
        folder = Path(sys.argv[1], name)
        folder.mkdir()
        counts[name] = _trials(programs, folder / "model.onnx", options, int(sys.argv[2]))
    sys.stdout.write(json.dumps(counts))


def _trials(
    programs: list[onnx_aot.ONNXProgram], path: Path, options: dict[str, Any], trials: int
) -> dict[str, int]:
    hashes = [program.hash for program in programs]
    programs[0].save(path, **options)
    start = time.perf_counter()
    programs[1].save(path, **options)
    duration = time.perf_counter() - start
    counts = {"old": 0, "new": 0, "killed": 0}
    for _ in range(trials):
        before = hashes.index(onnx_aot.ONNXProgram.load(path).hash)
        counts["killed"] += _killed(programs[1 - before], path, options, duration)
        after = onnx_aot.ONNXProgram.load(path)
        assert after.hash in hashes, "the file is neither the old nor the new one"
        counts["old" if after.hash == hashes[before] else "new"] += 1
        left = list(path.parent.glob(".*.tmp"))
        assert len(left) <= 1, left  # exists only between a file being named and moved into place
        for file in left:
            file.unlink()
    return counts


def _program(width: int) -> onnx_aot.ONNXProgram:
    layers = (torch.nn.Linear(64, width), torch.nn.Linear(width, width), torch.nn.Linear(width, 64))
    return onnx_aot.export(torch.nn.Sequential(*layers), (torch.zeros(2, 64),), metadata="none")


def _killed(
    program: onnx_aot.ONNXProgram, path: Path, options: dict[str, Any], duration: float
) -> int:
    """Returns True if a saving process was killed before it finished."""
    begun, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready, b"1")
        try:
            program.save(path, **options)
        finally:
            os._exit(0)
    os.read(begun, 1)
    time.sleep(random.random() * 1.3 * duration)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(begun)
    os.close(ready)
    return int(os.WIFSIGNALED(status))


if __name__ == "__main__":
    main()
