"""Compares copies of layers that repeat with what is traced, over the architectures of the zoo.

    python -m conformance.repeated_layers --jobs 2
    python -m conformance.repeated_layers --row bert --output repeated_layers.json

Each architecture is exported with ``reuse="check"``, which traces every layer and compares it with
the copy that ``reuse="auto"`` would make: operators, arguments, types, sizes, modules and lines. It
is done with static sizes and with the dynamic ones of its row. Models of transformers have more
layers than elsewhere, where they can.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.parts import ARTIFACTS, ROOT
from onnx_aot import sweep

SECONDS = 400.0
"""An architecture that takes longer is ended, and counts as ``ended``."""

FOLDER = ARTIFACTS / "repeated_layers"
PRELOAD = ("benchmarks.zoo_models.preload",)


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a copy differs."""
    from benchmarks.zoo_models import ZOO

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--row", action="append", help="row of the zoo; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--output", help="JSON file for the result")
    options = parser.parse_args()
    swept = sweep.run(_make_plan(options.row or list(ZOO)), FOLDER, jobs=options.jobs)
    ended = {"outcome": "ended"}
    rows = {r.name: r.metrics.get("found") or [{**ended, "text": r.reason}] for r in swept.results}
    result = summarize(rows)
    for name, found in rows.items():
        sys.stderr.write(f"{name}: {found}\n")
    if options.output:
        Path(options.output).write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    sys.exit(bool(result["differences"]))


def summarize(rows: dict[str, Any]) -> dict[str, Any]:
    """Counts the outcomes of ``compare_row`` by architecture."""
    exports = [(name, export) for name, found in rows.items() for export in found]
    outcomes = collections.Counter(export["outcome"] for _, export in exports)
    differences = [f"{n}: {e['text']}" for n, e in exports if e["outcome"] == "differs"]
    with_copies = sum(any(export.get("copies") for export in found) for found in rows.values())
    return {
        "architectures": len(rows),
        "with layers that repeat": with_copies,
        "copies compared": sum(export.get("copies", 0) for _, export in exports),
        "exports": dict(sorted(outcomes.items())),
        "differences": differences,
    }


def _make_plan(names: Sequence[str]) -> sweep.Plan:
    rows = [
        sweep.Row(
            name,
            task="conformance.repeated_layers:measure_row",
            settings={"name": name},
            limits=sweep.Limits(seconds=SECONDS),
        )
        for name in names
    ]
    return sweep.Plan(tuple(rows), PRELOAD, folder=str(ROOT), name="layers that repeat")


def measure_row(settings: Mapping[str, str], progress: sweep.Progress) -> dict[str, Any]:
    """Exports an architecture in its own process; ``found`` is what ``compare_row`` returns."""
    found = compare_row(settings["name"])
    outcomes = {export["outcome"] for export in found}
    status = "wrong" if "differs" in outcomes else "refused" if "refused" in outcomes else "right"
    return {"status": status, "found": found}


def compare_row(row: str) -> list[dict[str, Any]]:
    """Exports an architecture with static and with dynamic sizes.

    Returns:
        For each export ``outcome``: ``same``, ``differs`` or ``refused``; the number of ``copies``
        that were compared; and the first line of an error as ``text``.
    """
    import torch

    from benchmarks.zoo_models import ZOO

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = ZOO[row]
    return [_export(*_make(case), shapes) for shapes in (None, case.dynamic_shapes)]


def _make(case: Any) -> tuple[Any, Any, Any]:
    """Makes a model of enough layers, and its inputs."""
    from benchmarks.zoo_models.tiny import deeper

    try:
        with deeper(layers=6, per_stage=4):
            model = case.make()
            args, kwargs = case.example()
            model(*args, **kwargs)
    except Exception:  # lists with an entry per layer, or caches of a fixed depth
        model = case.make()
        args, kwargs = case.example()
    return model, args, kwargs


def _export(model: Any, args: Any, kwargs: Any, shapes: Any) -> dict[str, Any]:
    import onnx_aot
    from onnx_aot.errors import OnnxExporterError

    options = {"dynamic_shapes": shapes, "on_specialized": "allow", "optimize": False}
    try:
        program = onnx_aot.export(model, args, kwargs=kwargs, reuse="check", **options)
    except OnnxExporterError as error:
        text = str(error)
        differs = "differs from its copy" in text
        return {"outcome": "differs" if differs else "refused", "text": text.partition("\n")[0]}
    assert program.report is not None
    notes = " ".join(note for note in map(str, program.report.notes) if "repeat" in note)
    copies = sum(map(int, re.findall(r"(\d+) copied", notes)))
    return {"outcome": "same", "copies": copies, "text": ""}


if __name__ == "__main__":
    main()
