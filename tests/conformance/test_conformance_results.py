"""Cases that pass in ``conformance/results`` still pass: a sample of them."""

from __future__ import annotations

import os
from pathlib import Path

import conformance
from conformance.cases import Settings, judge_cases
from conformance.report import is_right, read_results
from conformance.samples import DTYPES, Case, all_cases
from tests.releases import failure_expected

RESULTS = Path(conformance.__file__).parent / "results" / "onnx_aot.json"
EVERY = 61  # prime, so that an operator's data types take turns


def test_what_was_right_is_right() -> None:
    kept = read_results(str(RESULTS))
    # Other releases of torch have other operators: renamed, added or removed.
    present = set(all_cases(list(DTYPES), ["static", "dynamic", "modules"]))
    listed = [Case(r["op"], r["dtype"], r["group"]) for r in kept["rows"] if is_right(r)]
    right = [case for case in listed if case in present]
    wrong: list[str] = []

    cases = sorted(right, key=lambda case: (case.name, case.group, case.dtype))[::EVERY]
    settings = Settings(samples=kept["samples"])
    for case, results in judge_cases(cases, settings, os.cpu_count() or 1):
        if failure_expected(f"conformance {case.name} {case.dtype} {case.group}"):
            continue
        wrong.extend(
            f"{case.name} {case.dtype} {case.group} ({r.sample}): {r.outcome}: {r.reason}"
            for r in results
            if r.outcome not in ("pass", "not_captured")
        )
        if not any(r.outcome == "pass" for r in results):  # a pass needs one
            wrong.append(f"{case.name} {case.dtype} {case.group}: no sample passes")
    assert not wrong, "\n".join(wrong)
