"""Exports random programs and compares them with eager PyTorch; counts the outcomes.

    python -m conformance.random_programs --programs 400
    python -m conformance.random_programs --programs 5000 --seeds 1 2 3 4 --jobs 4
    python -m conformance.random_programs --seeds 3 --first 517 --programs 1
    python -m conformance.random_programs --show 3:517

``tests/properties`` draws the programs: modules of up to ten statements, which are layers, losses,
control flow and indexing, or views and writes. Each is exported with static or dynamic sizes at a
random operator set, and runs at up to eight sizes. A seed and a number always draw the same
program. A failing program is reduced to the smallest one that fails, which is printed as a script.
With ``--output``, a run adds programs to those that the file counts, and tries its failures again.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from conformance.parts import ARTIFACTS, WARM, Work, run_cases
from tests.properties.check import check, reduce_failure
from tests.properties.generate import generate
from tests.properties.programs import Program

__all__ = ["Chunk", "Counted", "Judged", "draw", "judge", "judge_chunk"]

EXPLAINED = {
    "sizes at which torch.export's own program differs": (
        "torch.export's own program gives this result in PyTorch too"
    ),
    "sizes at which rounding decides": (
        "beyond the tolerance, and as near to float64 as PyTorch's result"
    ),
    "sizes at which an operator gets NaN": (
        "the report names the operator, and says that ONNX Runtime may lose NaN"
    ),
    "sizes of inputs that share memory": (
        "a warning says that a write to one input is not seen in others that share memory, if "
        "those of the example do"
    ),
    "sizes that the capture is not for": (
        "the report and the metadata of the model list the condition"
    ),
    "sizes that ONNX Runtime has no kernels for": "empty tensors; ONNX Runtime raises an error",
    "empty sizes at which ONNX Runtime raises an error": "the error of ONNX Runtime",
    "empty sizes that the export warns of": "a warning names the line",
    "sizes that eager refuses": "PyTorch raises an error",
}
"""Texts that users get about sizes at which nothing was compared, or results differ."""

CHUNK = 20  # programs that one process draws
JUDGE = "conformance.random_programs:judge_chunk"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Programs that one process draws, one after the other.

    Attributes:
        seed: Seed of all of them.
        first: Number of the first.
        count: Number of programs.
    """

    seed: int
    first: int
    count: int


@dataclasses.dataclass
class Judged:
    """Outcome of one program.

    Attributes:
        sizes: Number of sizes by outcome.
        refused: Error with which the export refused it, or an empty string.
        failed: What failed, and the smallest program that fails so; empty if nothing did.
    """

    sizes: dict[str, int]
    refused: str = ""
    failed: str = ""


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a program failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--programs", type=int, default=400, help="number of programs of each seed")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--first", type=int, default=0, help="number of the first program of each seed")
    add("--jobs", type=int, default=1, help="processes")
    add("--limit", type=float, default=300.0, help="seconds for one program, with its reduction")
    add("--save", type=Path, help="folder for what is printed of each failure")
    add("--output", type=Path, help="JSON file for the counts; a later run adds to them")
    add("--show", metavar="SEED:NUMBER", help="print a program, and do nothing else")
    arguments = parser.parse_args()
    if arguments.show:
        sys.stdout.write(repr(draw(*map(int, arguments.show.split(":")))))
        return
    numbers = range(arguments.first, arguments.first + arguments.programs, CHUNK)
    counted = Counted.read(arguments.output, arguments.save)
    chunks = counted.take_failures() + [  # a run that is ended early has programs of every seed
        Chunk(seed, first, min(CHUNK, arguments.first + arguments.programs - first))
        for first in numbers
        for seed in arguments.seeds
        if not counted.has(seed, first)
    ]
    start, before = time.monotonic(), counted.seconds

    def write_counts() -> str:
        counted.seconds = before + round(time.monotonic() - start)
        text = json.dumps({"torch": torch.__version__, **counted.summary()}, indent=2) + "\n"
        if arguments.output:
            arguments.output.write_text(text)
        return text

    named = {f"seed {chunk.seed}, programs from {chunk.first}": chunk for chunk in chunks}
    work = Work(JUDGE, "random programs", WARM, arguments.limit)
    asked = {name: dataclasses.asdict(chunk) for name, chunk in named.items()}
    for name, results in run_cases(asked, work, arguments.jobs, ARTIFACTS / "programs"):
        counted.add(named[name], results)
    sys.stdout.write(write_counts())
    sys.exit(bool(counted.failures))


class Counted:
    """Counts of all programs so far; prints each failure as it comes.

    Attributes:
        ranges: Numbers of the programs that are counted, by seed: first, and after the last.
        seconds: Duration of all runs.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.programs = self.right = self.seconds = 0
        self.sizes: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.failures: list[dict[str, str]] = []
        self.ranges: dict[int, list[list[int]]] = {}
        self._folder = folder

    @classmethod
    def read(cls, output: Path | None, folder: Path | None = None) -> Counted:
        """Reads the counts of earlier runs, if there is a file."""
        counted = cls(folder)
        if output is None or not output.exists():
            return counted
        found = json.loads(output.read_text())
        counted.programs, counted.right = found["programs"], found["right"]
        counted.seconds, counted.failures = found["seconds"], found["failures"]
        counted.refused.update(found["refused"])
        counted.sizes["sizes compared"] = found["sizes compared"]
        counted.sizes.update({name: row["sizes"] for name, row in found["explained"].items()})
        counted.ranges = {int(seed): ranges for seed, ranges in found["seeds"].items()}
        return counted

    def has(self, seed: int, number: int) -> bool:
        """True if a program is counted."""
        return any(first <= number < end for first, end in self.ranges.get(seed, ()))

    def take_failures(self) -> list[Chunk]:
        """Removes the failures from the counts, and returns their programs."""
        names = [failure["program"].split(":") for failure in self.failures]
        self.programs -= len(self.failures)
        self.failures = []
        return [Chunk(int(seed), int(number), 1) for seed, number in names]

    def add(self, chunk: Chunk, results: Sequence[Any]) -> None:
        """Adds the outcomes of a chunk; one with an ``outcome`` is of a process that has ended."""
        self._add_range(chunk)
        for number, found in enumerate(results, chunk.first):
            self.programs += 1
            lost = "outcome" in found
            failed = f"{found['outcome']}: {found['reason']}" if lost else ""
            result = Judged({}, failed=failed) if lost else Judged(**found)
            self.sizes.update(result.sizes)
            name = f"{chunk.seed}:{number}"
            if result.refused:
                self.refused[result.refused] += 1
                sys.stderr.write(f"program {name} is refused: {result.refused}\n")
            elif not result.failed:
                self.right += 1
            else:
                self._keep(name, result.failed)
        sys.stderr.write(f"{self.programs} programs, {len(self.failures)} failures\n")

    def _add_range(self, chunk: Chunk) -> None:
        if self.has(chunk.seed, chunk.first):  # a failure that is judged again
            return
        merged: list[list[int]] = []
        ranges = [*self.ranges.get(chunk.seed, ()), [chunk.first, chunk.first + chunk.count]]
        for first, end in sorted(ranges):
            if merged and merged[-1][1] == first:
                merged[-1][1] = end
            else:
                merged.append([first, end])
        self.ranges[chunk.seed] = merged

    def _keep(self, name: str, text: str) -> None:
        self.failures.append({"program": name, "error": text.partition("\n")[0][:300]})
        sys.stderr.write(f"program {name}: {text}\n")
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"program_{name.replace(':', '_')}.txt").write_text(text)

    def summary(self) -> dict[str, Any]:
        """Returns the counts for the JSON file."""
        return {
            "seeds": {str(seed): ranges for seed, ranges in sorted(self.ranges.items())},
            "programs": self.programs,
            "captured": self.programs - sum(self.refused.values()),
            "right": self.right,
            "refused": dict(self.refused.most_common()),
            "sizes compared": self.sizes["sizes compared"],
            "explained": {
                name: {"sizes": self.sizes[name], "told": told} for name, told in EXPLAINED.items()
            },
            "failures": self.failures,
            "seconds": self.seconds,
        }


def draw(seed: int, number: int) -> Program:
    """Draws a program; the same for the same numbers."""
    return generate(random.Random(f"{seed}:{number}"))


def judge(seed: int, number: int) -> Judged:
    """Exports a program and compares it; a failing one is reduced."""
    program = draw(seed, number)
    try:
        checked = check(program)
    except Exception as error:
        smallest = reduce_failure(program, error)
        trace = "".join(traceback.format_exception(error)[-3:])
        return Judged({}, failed=f"{type(error).__name__}: {error}\n{trace}\n{smallest!r}")
    return Judged(dict(checked.sizes), checked.refused)


def judge_chunk(chunk: Mapping[str, int], first: int) -> Iterator[Any]:
    """Judges the programs of a chunk; see ``parts.Work``."""
    yield chunk["count"]
    for index in range(first, chunk["count"]):
        yield dataclasses.asdict(judge(chunk["seed"], chunk["first"] + index))


if __name__ == "__main__":
    main()
