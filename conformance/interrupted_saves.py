"""Measures saves that are interrupted: each leaves the old model or the new one, and it runs.

    python -m conformance.interrupted_saves --trials 1000
    python -m conformance.interrupted_saves --output conformance/results/interrupted_saves.json

For each form of data, a child process saves a model over another and gets SIGINT, SIGTERM or
SIGKILL at a random microsecond. The model that is at the path afterwards has to load, and to give
its own answer in ONNX Runtime. After the next save, only the files of that save may be there.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch

import onnx_aot

WAYS: dict[str, dict[str, Any]] = {
    "one file": {"external_data": False},
    "data file": {"external_data": True},
    "safetensors": {"external_data": "safetensors"},
    "safetensors, shards": {"external_data": "safetensors", "max_shard_size": 200_000},
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
X = torch.ones(2, 64)


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a model was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12, help="saves for each form of data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="JSON file for the result")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    programs = [make_program(width) for width in (256, 320)]
    rows = {}
    for name, options in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            rows[name] = interrupt_saves(programs, path, options, arguments.trials)
    found = {"trials": arguments.trials, "seed": arguments.seed, "forms": rows}
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.output:
        Path(arguments.output).write_text(text)
    sys.exit(any(row.get("lost") or row.get("leftovers") for row in rows.values()))


def make_program(width: int) -> onnx_aot.ONNXProgram:
    """Exports a model whose answer tells it from those of other widths."""
    torch.manual_seed(width)
    layers = (torch.nn.Linear(64, width), torch.nn.Linear(width, width), torch.nn.Linear(width, 64))
    return onnx_aot.export(torch.nn.Sequential(*layers), (X,), metadata="none")


def interrupt_saves(
    programs: Sequence[onnx_aot.ONNXProgram], path: Path, options: Mapping[str, Any], trials: int
) -> dict[str, int]:
    """Interrupts saves of the second program over the first.

    Returns:
        Numbers of saves: ``interrupted`` ones and those that were ``finished`` before; the ``old``
        or the ``new`` model is there, or it is ``lost``; files that nothing needs are ``present``
        before the next save; there are ``leftovers`` after it.
    """
    answers = [program(X)[0] for program in programs]
    programs[0].save(path, **options)
    duration = statistics.median(_time_save(programs[1], path, options) for _ in range(9))
    counts = collections.Counter(dict.fromkeys(("old", "new", "lost", "present", "leftovers"), 0))
    programs[0].save(path, **options)
    for trial in range(trials):
        number = SIGNALS[trial % len(SIGNALS)]
        ended = _save_interrupted(programs[1], path, options, number, random.random() * duration)
        counts["interrupted" if ended else "finished"] += 1
        counts[_identify(path, answers)] += 1
        counts["present"] += _has_leftovers(path)
        programs[0].save(path, **options)
        counts["leftovers"] += _has_leftovers(path)
    return dict(counts)


def _time_save(program: onnx_aot.ONNXProgram, path: Path, options: Mapping[str, Any]) -> float:
    """Returns the seconds of a save in a child process, which is slower than one in this."""
    child = _start_save(program, path, options)
    start = time.perf_counter()
    os.waitpid(child, 0)
    return time.perf_counter() - start


def _save_interrupted(
    program: onnx_aot.ONNXProgram,
    path: Path,
    options: Mapping[str, Any],
    number: int,
    delay: float,
) -> bool:
    """Saves in a child process that gets a signal; returns False if it had finished by then."""
    child = _start_save(program, path, options)
    until = time.perf_counter() + delay
    while time.perf_counter() < until:  # sleeping is not exact to the microsecond
        pass
    os.kill(child, number)
    return os.waitpid(child, 0)[1] != 0


def _start_save(program: onnx_aot.ONNXProgram, path: Path, options: Mapping[str, Any]) -> int:
    """Starts a child process that saves, and returns when it begins."""
    begun, ready = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 1
        try:
            os.write(ready, b"1")
            program.save(path, **options)
            code = 0
        finally:
            os._exit(code)
    os.read(begun, 1)
    os.close(begun)
    os.close(ready)
    return child


def _identify(path: Path, answers: Sequence[torch.Tensor]) -> str:
    """Loads and runs the model at a path."""
    try:
        program = onnx_aot.ONNXProgram.load(path)
        (expected,) = onnxruntime.InferenceSession(path).run(None, {"input": X.numpy()})
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return "lost"
    same = torch.equal(program(X)[0], torch.from_numpy(expected))
    for name, answer in zip(("old", "new"), answers, strict=True):
        if same and torch.allclose(answer, torch.from_numpy(expected), atol=1e-5):
            return name
    return "lost"


def _has_leftovers(path: Path) -> bool:
    """True if there are files beside a model that it does not refer to."""
    graph = onnx.load(path, load_external_data=False).graph
    needed = {entry.value for t in graph.initializer for entry in t.external_data}
    if len({name for name in needed if name.endswith(".safetensors")}) > 1:
        first = min(name for name in needed if name.endswith(".safetensors"))
        needed.add(f"{first.rpartition('-00001-of-')[0]}.safetensors.index.json")
    return bool(set(os.listdir(path.parent)) - needed - {path.name})


if __name__ == "__main__":
    main()
