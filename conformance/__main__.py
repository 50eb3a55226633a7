"""Measures conformance: exports PyTorch's own operator samples and compares the answers.

    python -m conformance --match '^(sort|topk)$' --dtype float32 -v
    python -m conformance --output conformance/results/onnx_aot.json
    python -m conformance --dynamic --dtype float32
    python -m conformance --modules --exporter torch
    python -m conformance --opset 17 --opset 25 --samples 2 --dtype float32
    python -m conformance --release 1.16 --dtype float32

Each operator with a data type is a row of a sweep in ``artifacts/conformance``, whose page shows
them. What has been judged with the same code is not judged again, also after an interrupt. Prints
failures and a summary. With --output the results are written to a JSON file, where they replace
older results of the same operators; other results stay. Results by opset have a file of their own.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

from conformance.cases import Settings, judge_cases
from conformance.exporters import EXPORTERS
from conformance.opsets import opset_row, opset_table, write_opsets
from conformance.other_releases import find_release
from conformance.outcome import Result
from conformance.parts import ARTIFACTS
from conformance.report import format_table, row_of, summarize, write_results
from conformance.samples import DTYPES, Case, all_cases


def main() -> None:
    """Runs what the command line asks for."""
    parser = _make_parser()
    arguments = parser.parse_args()
    groups = ["dynamic"] if arguments.dynamic else ["static"]
    if arguments.modules:
        groups = ["modules"]
    dtypes = arguments.dtype or (["float32"] if groups != ["static"] else list(DTYPES))
    pattern = re.compile(arguments.match)
    cases = [case for case in all_cases(dtypes, groups) if pattern.search(case.name)]
    if not cases:
        if arguments.modules:  # the nox session uses one expression for operators and modules
            print("no module matches")
            return
        sys.exit("no operator matches")
    opsets = tuple(arguments.opset or ())
    if arguments.release and arguments.output:
        parser.error("--output is for the installed ONNX Runtime; leave it or --release out")
    release = find_release(arguments.release) if arguments.release else None
    settings = Settings(
        arguments.exporter, arguments.samples, arguments.limit, opsets or (None,), release
    )
    folder = Path(ARTIFACTS, "conformance", arguments.exporter, arguments.release or "")
    rows: list[dict[str, Any]] = []
    for case, results in judge_cases(cases, settings, arguments.jobs, folder, arguments.again):
        rows.append(opset_row(case, results, opsets) if opsets else row_of(case, results))
        shown = arguments.verbose and arguments.not_captured
        for index, result in enumerate(results):
            if result.outcome != "pass" and (shown or result.outcome != "not_captured"):
                sample, at = divmod(index, len(settings.opsets))
                where = f"[{sample}]" + (f" opset {opsets[at]}" if opsets else "")
                _print_failure(case, where, result, arguments.verbose)
    if arguments.output and opsets:
        write_opsets(arguments.output, settings.samples, rows)
    elif arguments.output:
        write_results(arguments.output, settings.exporter, settings.samples, rows)
    print(opset_table(rows) if opsets else format_table(summarize(rows)))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "conformance", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--match", default="", help="regular expression that is searched in the operator's name")
    add("--dtype", action="append", choices=DTYPES, help="may be repeated; all by default")
    add("--dynamic", action="store_true", help="every dimension of 2 and more is dynamic")
    add("--modules", action="store_true", help="torch.nn's modules instead of operators")
    add("--opset", action="append", type=int, help="may be repeated; the default one otherwise")
    add("--release", help="release of ONNX Runtime; `nox -s targets` makes its environment")
    add("--samples", type=int, default=3, help="samples of each operator and data type")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    add("--limit", type=float, default=60.0, help="seconds for one sample")
    add("--again", action="store_true", help="also what has been judged with the same code")
    add("--exporter", choices=EXPORTERS, default=EXPORTERS[0])
    add("--output", help="JSON file that the results are put into")
    add("--not-captured", action="store_true", help="with -v, what torch.export refuses too")
    add("-v", "--verbose", action="store_true", help="whole messages")
    return parser


def _print_failure(case: Case, which: str, result: Result, verbose: bool) -> None:
    where = f"{case.name} {case.dtype}{'' if case.group == 'static' else ' ' + case.group}"
    print(f"{where} {which} {result.outcome}: {result.reason}", flush=True)
    print(f"    {result.sample}", flush=True)
    if verbose and result.detail:
        print("    " + result.detail.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    main()
