"""Profiles one export by stage, after a warm-up.

    python -m benchmarks.profile_export NAME [--top 12] [--stage translate ...]

Prints the functions with the most own time, stage by stage. The profiler slows calls down, small
ones most; the seconds of the stages are from a run without it.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks import ways
from benchmarks.stages import NAMES, observe_stages, seconds_of_stages
from benchmarks.subjects import case_of

__all__ = ["profile"]

REPEAT = 5  # exports under the profiler; the fastest run of each function counts


def main() -> None:
    """Prints the profile of the model named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", help="a model of the benchmarks: llama_16_layers")
    parser.add_argument("--top", type=int, default=12, help="functions per stage")
    parser.add_argument("--stage", action="append", choices=NAMES, help="these only")
    options = parser.parse_args()
    print(profile(options.name, options.top, options.stage or NAMES))


def profile(name: str, top: int = 12, stages: Sequence[str] = NAMES) -> str:
    """Returns the functions of each stage, sorted by own time, as text."""
    subject = ways.make_subject(case_of(name))
    running: dict[str, cProfile.Profile] = {}
    runs: dict[str, list[cProfile.Profile]] = {stage: [] for stage in stages}

    def begin(stage: str) -> None:
        if stage in runs:
            running[stage] = cProfile.Profile()
            running[stage].enable()

    def end(stage: str, seconds: float) -> None:
        if stage in running:
            running[stage].disable()
            runs[stage].append(running.pop(stage))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        subject.ours(path)
        with seconds_of_stages() as seconds:
            program = subject.ours(path)
        with observe_stages(begin, end):
            for _ in range(REPEAT):
                subject.ours(path)
    assert program.exported_program is not None
    fx, emitted = len(program.exported_program.graph.nodes), len(program.model.graph)
    parts = [f"{name}: {fx} FX nodes, {emitted} ONNX nodes"]
    for stage in stages:
        milliseconds = 1e3 * seconds[stage]
        parts.append(
            f"\n{stage}: {milliseconds:.2f} ms, {1e3 * milliseconds / fx:.1f} µs per FX node"
        )
        parts += _format_functions(runs[stage], top, fx)
    return "\n".join(parts)


def _format_functions(runs: list[cProfile.Profile], top: int, fx: int) -> list[str]:
    """Formats a line for each of the ``top`` functions by own time."""
    seen: dict[Any, list[tuple[float, float, int]]] = {}
    for profiler in runs:
        statistics: Any = pstats.Stats(profiler)
        for where, (_, calls, own, total, _) in statistics.stats.items():
            seen.setdefault(where, []).append((own, total, calls))
    found = [(*min(measured), where) for where, measured in seen.items()]
    lines = ["    own ms   µs per FX node     with callees, ms      calls  function"]
    for own, total, calls, where in sorted(found, reverse=True)[:top]:
        lines.append(
            f"{1e3 * own:10.3f} {1e6 * own / fx:16.2f} {1e3 * total:20.3f} {calls:10}  "
            f"{_format_place(*where)}"
        )
    return lines


def _format_place(path: str, line: int, function: str) -> str:
    return function if path == "~" else f"{'/'.join(path.split('/')[-3:])}:{line} {function}"


if __name__ == "__main__":
    main()
