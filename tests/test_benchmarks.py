"""The benchmarks run, and their stored results agree with the page and the plots."""

from __future__ import annotations

import importlib
import math
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    decoders,
    export_time,
    graph_size,
    page,
    profile_export,
    remarks,
    results,
    timing,
)
from benchmarks.bundles import SPEED, speed
from benchmarks.plots import make_plots
from benchmarks.run import Settings, in_fresh_process
from benchmarks.stages import NAMES
from benchmarks.ways import LABELS
from benchmarks.zoo_models.generating import NOTHING, REFUSED, RIGHT, generate_both


@pytest.mark.parametrize("name", results.BENCHMARKS)
def test_results_are_those_of_the_script(name: str) -> None:
    """The test of generated pages checks that the page is made from these results."""
    script: Any = importlib.import_module(f"benchmarks.{name}")
    assert set(script.BENCHMARK.quick) <= set(script.BENCHMARK.rows())
    kept = results.read_json(name)
    if kept is None:
        assert f"python -m benchmarks.{name}" in page.make_page()  # results are missing
        return
    assert {row["name"] for row in kept["rows"]} <= set(script.BENCHMARK.rows())
    assert kept["summary"] == script.BENCHMARK.summarize(kept["rows"])
    assert script.render(kept["rows"], kept["summary"]) in page.PAGE.read_text(encoding="utf-8")


def test_speed_of_bundles_is_that_of_the_rows() -> None:
    kept = results.read_json(SPEED)
    assert kept["summary"] == speed.summarize(kept["rows"])
    assert {(row["name"], row["client"], row["weights"]) for row in kept["rows"]} == {
        (family, *cell) for family in speed.MODELS for cell in speed.CELLS
    }
    same = [
        row["tokens equal"] for row in kept["rows"] if "error" not in row and "fp" in row["weights"]
    ]
    assert same
    assert all(same)  # else steps of different texts would be compared


def test_decoders_give_the_tokens_of_transformers() -> None:
    kept = results.read_json(decoders.NAME)
    assert kept["summary"] == decoders.summarize(kept["rows"])
    outcomes = [row["outcome"] for row in kept["rows"]]
    compared, right = len(outcomes) - outcomes.count(NOTHING), outcomes.count(RIGHT)
    assert right > 0.9 * compared
    assert {*outcomes} == {RIGHT, REFUSED, NOTHING}
    readme = " ".join((results.ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"Of the {len(outcomes)} types of language models in transformers, {compared} " in readme
    assert f" {right} of these generate the same tokens" in readme
    assert f"the other {compared - right} are refused." in readme


@pytest.mark.parametrize(
    ("kind", "outcome"), [("llama", RIGHT), ("t5, with an encoder", RIGHT), ("xlnet", REFUSED)]
)
def test_outcome_of_a_decoder(kind: str, outcome: str) -> None:
    assert generate_both(kind)["outcome"] == outcome


def test_plots_show_the_results() -> None:
    for path, plot in make_plots().items():
        assert plot.digest in path.read_text(encoding="utf-8"), path
        assert f"plots/{path.name}" in page.PAGE.read_text(encoding="utf-8")


def test_export_time_of_the_smallest_model(tmp_path: Path) -> None:
    settings = Settings(quick=True, peer=False, files=str(tmp_path))
    row = {"name": "linear_relu", **export_time.measure("linear_relu", settings)}
    assert set(row["seconds"]) == {"plain", "ours", "static_plain", "static_ours", "write"}
    assert not row["errors"]
    assert set(row["stages"]) == set(NAMES)
    assert 0 < sum(row["stages"].values()) <= row["seconds"]["ours"]
    assert (row["fx_nodes"], row["emitted_nodes"]) == (6, 2)
    rendered = export_time.render([row], export_time.summarize([row]))
    assert "Linear + ReLU" in rendered
    assert "static: onnx_aot / capture" in rendered
    assert list(tmp_path.rglob("*.onnx")) == [tmp_path / "linear_relu" / "ours.onnx"]
    both = [{"name": export_time.IMPORT, "import_seconds": 0.02}, row]
    assert "import of onnx_aot after torch, s" in export_time.summarize(both)
    assert export_time.plot(both).series[LABELS["ours"]][0][0] == "linear_relu"
    kept = graph_size.measure("linear_relu", Settings(files=str(tmp_path)))
    assert kept["nodes"] == {"ours": 2}  # from the file that export_time left behind


def say_something() -> dict[str, Any]:
    """Says four lines in three ways, in a process that pytest does not listen to."""
    with tempfile.TemporaryFile() as said, remarks.output_to(said):
        with remarks.warnings_seen() as seen:
            sys.stdout.write("one\n\n")
            os.write(2, b"two\n")  # as native code does
            warnings.warn("three\nfour", stacklevel=1)
            warnings.warn("not shown by default", DeprecationWarning, stacklevel=1)
        said.seek(0)
        return {"seen": seen, "text": said.read().decode()}


def test_what_an_export_says_is_counted() -> None:
    heard = in_fresh_process(__name__, "say_something")
    assert heard["seen"] == ["UserWarning: three"]
    assert {"one", "two", "four"} <= set(heard["text"].splitlines())
    row = {"name": "linear_relu", **remarks.measure("linear_relu", Settings(peer=False))}
    assert row["remark"] == ""
    assert row["ours"] == {"lines": 0, "warnings": [], "error": "", "noted": []}
    assert remarks.summarize([row]) == {}  # nothing to compare with
    assert "| linear_relu | 0 | - | 0 | - |  |" in remarks.render([row], {})
    loud = row | {"peer": {"lines": 10, "warnings": ["FutureWarning: old"], "error": ""}}
    summary = remarks.summarize([loud])
    assert summary["torch.onnx: lines per export"] == 10
    assert summary["onnx_aot: exports that print nothing"] == 1


def test_profile_names_functions_of_the_stages() -> None:
    text = profile_export.profile("linear_relu", 12, ("translate", "save"))
    assert "6 FX nodes, 2 ONNX nodes" in text
    translate, save = text.split("\nsave: ")
    assert "call_op" in translate
    assert "onnx_aot/serialization" in save


def test_alternating_takes_the_slow_once_and_stops_at_errors() -> None:
    calls = []

    def fails() -> None:
        raise ValueError("first line\nsecond")

    ways = {"quick": lambda: calls.append("q"), "hangs": lambda: time.sleep(5), "fails": fails}
    spend = {"quick": 1.0, "hangs": 1.0, "fails": 1.0}
    times, errors = timing.alternate(ways, spend, limit=0.05, most=2)
    assert set(times) == {"quick"}
    assert len(times["quick"]) == len(calls) == 2
    assert errors == {"hangs": "takes longer than 0.05 s", "fails": "ValueError: first line"}


def test_exponent_is_the_slope() -> None:
    assert timing.exponent({4: 16.0, 8: 64.0, 32: 1024.0}) == pytest.approx(2.0)
    assert timing.geomean([2.0, 8.0]) == pytest.approx(4.0)


def test_a_limit_of_cpu_seconds_does_not_count_waiting() -> None:
    def compute() -> None:
        while True:
            math.sqrt(2.0)

    with timing.time_limit(0.2, cpu=True):
        time.sleep(0.5)
    with pytest.raises(timing.TooSlow), timing.time_limit(0.2, cpu=True):
        compute()
