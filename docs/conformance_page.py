"""Writes ``docs/conformance.md`` from the results of ``python -m conformance``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.opsets import count_totals, read_opsets
from conformance.report import count_captured, is_right, read_results, share, summarize
from conformance.samples import DTYPES

__all__ = ["dtypes_of_operators", "make_conformance_page", "read_exporter", "summary_table"]

RESULTS = Path(__file__).parent.parent / "conformance" / "results"
OURS, PEER = "onnx_aot", "torch_onnx"
ORDER = [f"static {dtype}" for dtype in DTYPES] + ["dynamic float32", "modules float32"]

HEAD = """# Conformance

Look up here which of PyTorch's operators export correctly, by data type and opset, and why the
others fail. `python -m docs.generate` writes this page from `conformance/results`, and
`python -m nox -s conformance` measures again.

PyTorch has a database of its operators and modules with the inputs that they are tested with
(`op_db` and `module_db` of `torch.testing._internal`). For each operator variant, and each data
type that it supports on the CPU, up to {samples} samples are chosen from the first
sixty{fewer}.
Each sample is captured with `torch.export.export(strict=False)`, exported, checked by
`onnx.checker`, and run in ONNX Runtime {runtime}. The data types and shapes of all outputs must
equal those of eager PyTorch, and the values must be within the tolerances of `onnx_aot/dtypes.py`.
Samples that `torch.export` refuses are not counted. A variant is right if all of its samples are.

In the dynamic rows all dimensions are `Dim.AUTO`. The model is then also run at other sizes, if the
database has samples for which the captured program is valid. torch.onnx is
`torch.onnx.export(dynamo=True, optimize=True)` of torch {torch}, with the same captured programs.
"""

OPSETS = """Up to {samples} static samples of each variant are captured once and exported at each
opset. The table lists the shares of variants that are right.
"""

RELEASES = """The table lists the shares of the captured variants that are right, and the number of
captured variants. `python -m nox -s conformance-torch -- 2.15.0` measures another release with its
own database.
"""

PROGRAMS = """`tests/properties` draws modules of up to ten statements: layers, losses, control flow
on sizes, autocast regions, hooks, indexing, views and writes in place, with inputs and results in
containers. Each is exported with static or dynamic sizes at a random opset, and compared with eager
PyTorch at up to eight sizes, empty ones included. `python -m conformance.random_programs` counted
with torch {torch} and the seeds {seeds}:

| Programs | Right | Refused with an error that names the line | Failures |
| ---: | ---: | ---: | ---: |
| {programs} | {right} | {refused} | {failures} |

The right ones were compared at {compared} sizes. At others, users are told:
"""

NNSMITH = """`python -m conformance.nnsmith_models` exported {models} random models of
[nnsmith](https://github.com/ise-uiuc/nnsmith) {nnsmith}, a generator for testing compilers of
neural networks, with torch {torch}. Each is exported with static sizes and with `Dim.AUTO` in every
dimension, and compared with eager PyTorch at the sizes of the example and at others:

| | Right | Refused | Rounding made visible | NaN, as reported | Failures |
| --- | ---: | ---: | ---: | ---: | ---: |
"""

NNSMITH_DIFFERENCES = """
Rounding is made visible by a later operator such as `floor`. Differences count as reported if the
first wrong result is that of an operator on NaN that the report of the export names, such as the
position that `argmin` finds.
"""

CRASHES = """
ONNX Runtime crashes on empty inputs of LSTM, GRU, Einsum and group normalization. Programs with
these are not run at size 0.
"""

GRAPHS = """`python -m conformance.mutated_graphs` gives captured graphs of the zoo, with static or
dynamic sizes, another operator of the same signature or another number at a random node, and
exports those that PyTorch runs and captures. Of {trials} graphs, {right} are right at the sizes of
the example and at others, {refused} are refused with an error, {explained} differ by rounding,
{reported} differ for NaN as the report of the export says, and {failures} differ or fail otherwise.
A difference is rounding if no value is wrong by itself, but a later operator makes rounding
visible, or if PyTorch's own result of the first wrong value is as far from that of the whole graph
in float64 as the ONNX model's:
"""

RELEASES = """`python -m conformance.release_models` exports the models of the
[benchmarks](benchmarks.md) with `target="onnxruntime==RELEASE"`, runs the files in that release,
and compares them with PyTorch at the size of the example and at others. Right are {right}:
"""

SAVES = """`python -m conformance.interrupted_saves` saves over an existing model and interrupts the
save by SIGINT, SIGTERM or SIGKILL at a random moment. In each of {forms} forms (one file, data
file, safetensors, shards) {trials} saves were tried. Of all, {interrupted} were interrupted, and
{lost} left neither the old nor the new model.
"""

FILES = """`python -m conformance.mutated_files` changes bytes and fields of models, data files,
checkpoints and indexes, and gives them to `load`, `inspect`, `view`, `verify`, `compare` and
`apply_weights`. Of {trials} files, {read} reads gave a result and {refused} an error of onnx_aot;
{failures} ended otherwise. The longest took {seconds:.0f} s of the
processor and {megabytes} MB of memory.
"""

FLAGS = {
    "random": "Random values; types and shapes are compared, and ranges if they are known",
    "uninitialized": "Uninitialized memory; types and shapes are compared",
    "equivalent": "Results that differ from eager's as the definition allows, such as the sign of "
    "an eigenvector or the index of an equal element; the properties that it fixes are compared",
    "exact": "Results that agree with PyTorch in double precision; eager's are further from it",
}


def read_exporter(name: str = OURS) -> dict[str, Any]:
    """Reads the stored results of an exporter."""
    return read_results(str(RESULTS / f"{name}.json"))


def make_conformance_page() -> str:
    """Returns the text of the page."""
    ours = read_exporter()
    packages = ours.get("packages", {})
    head = HEAD.format(
        samples=ours.get("samples"),
        fewer=_describe_fewer(ours),
        runtime=packages.get("onnxruntime"),
        torch=packages.get("torch"),
    )
    parts = [
        head,
        "## Shares\n",
        summary_table(),
        "",
        "## Failures\n",
        _failures_table(ours["rows"]),
    ]
    parts += ["## Opsets\n", _opsets_section(str(RESULTS / "opsets.json"))]
    parts += _other_releases(ours)
    if (RESULTS / "random_programs.json").exists():
        parts += ["## Random programs\n", _random_programs()]
    parts += _describe_nnsmith()
    parts += _describe_damage()
    parts += ["## Partial comparisons\n", _list_flags(ours["rows"])]
    parts += ["## Variants that torch.export does not capture\n", _not_captured(ours["rows"])]
    return "\n".join(parts)


def _describe_fewer(results: dict[str, Any]) -> str:
    """Names the groups of which a run with fewer samples is the last."""
    most: dict[str, int] = {}
    for row in results["rows"]:
        name = f"{row['group']} {row['dtype']}"
        most[name] = max(most.get(name, 0), sum(row["outcomes"].values()))
    fewer = [f"{count} of {name}" for name, count in most.items() if count < results["samples"]]
    return f" ({', '.join(fewer)})" if fewer else ""


def _random_programs() -> str:
    """Returns the counts of random programs, and what users are told where nothing was compared."""
    found = json.loads((RESULTS / "random_programs.json").read_text())
    text = PROGRAMS.format(
        torch=found["torch"],
        seeds=", ".join(map(str, found["seeds"])),
        programs=found["programs"],
        right=found["right"],
        refused=found["programs"] - found["captured"],
        failures=len(found["failures"]),
        compared=found["sizes compared"],
    )
    explained = [
        f"* {row['sizes']} {name}: {row['told']}."
        for name, row in found["explained"].items()
        if row["sizes"]
    ]
    refused = [f"* {count} times: {_plain(reason)}" for reason, count in found["refused"].items()]
    return "\n".join([text, *explained, "\nReasons of the refusals:\n", *refused, CRASHES])


def _describe_nnsmith() -> list[str]:
    """Returns the section on models that nnsmith generates, if measured."""
    found = _read_counts("nnsmith_models")
    if not found:
        return []
    names = ("right", "refused", "explained", "reported", "wrong")
    rows = [
        f"| {variant} | {' | '.join(str(found[variant].get(name, 0)) for name in names)} |"
        for variant in ("static", "dynamic")
    ]
    table = NNSMITH.format(**found | {"torch": found["torch"].partition("+")[0]}) + "\n".join(rows)
    parts = ["## Models of nnsmith\n", table, NNSMITH_DIFFERENCES]
    refused = [
        f"* {count} times: {_plain(text).strip()}" for text, count in found["refused"].items()
    ]
    parts += ["Reasons of the refusals:\n", *refused, ""] if refused else []
    listed = [f"* `{row}`" for row in (*found["explained"], *found["failures"])]
    return parts + (["Differences by rounding, and failures:\n", *listed, ""] if listed else [])


def _describe_damage() -> list[str]:
    """Returns sections on mutated graphs, interrupted saves and damaged files, if measured."""
    parts = []
    if found := _read_counts("mutated_graphs"):
        outcomes = {"right": 0, "refused": 0, "explained": 0, "reported": 0} | found["outcomes"]
        outcomes |= {"trials": found["trials"], "failures": len(found["failures"])}
        listed = [f"* `{row}`" for row in (*found["explained"], *found["failures"])]
        parts += ["## Mutated graphs\n", GRAPHS.format(**outcomes), *(listed or ["* none"]), ""]
    if found := _read_counts("release_models"):
        releases = found["releases"]
        wrong = [
            f"* {release}, {model}: {_plain(outcome)}"
            for release, rows in releases.items()
            for model, outcome in rows.items()
            if outcome != "right"
        ]
        counts = [
            f"{sum(outcome == 'right' for outcome in rows.values())} of {len(rows)} in {release}"
            for release, rows in releases.items()
        ]
        text = RELEASES.format(right=" and ".join(counts))
        parts += ["## Older releases of ONNX Runtime\n", text, *(wrong or ["* no failure"]), ""]
    if found := _read_counts("interrupted_saves"):
        forms = list(found["forms"].values())
        sums = {name: sum(form[name] for form in forms) for name in ("interrupted", "lost")}
        text = SAVES.format(forms=len(forms), trials=found["trials"], **sums)
        parts += ["## Interrupted saves\n", text]
    if found := _read_counts("mutated_files"):
        readers = found["readers"].values()
        sums = {name: sum(row.get(name, 0) for row in readers) for name in ("read", "refused")}
        text = FILES.format(**found | sums | {"failures": len(found["failures"])})
        parts += ["## Damaged files\n", text]
    return parts


def _read_counts(name: str) -> dict[str, Any]:
    """Reads counts that ``conformance`` has written, or nothing."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _plain(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_")


def summary_table() -> str:
    """Returns the shares of both exporters as a table."""
    ours, peer = summarize(read_exporter()["rows"]), summarize(read_exporter(PEER)["rows"])
    lines = [
        "| | Variants captured | Right, onnx_aot | Right, torch.onnx "
        "| Samples right, onnx_aot | Samples right, torch.onnx |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for key in (key for key in ORDER if key in ours):
        one, other = ours[key], peer.get(key)
        cells = [key, str(one["captured"]), share(one["right"], one["captured"])]
        cells.append(share(other["right"], other["captured"]) if other else "-")
        cells.append(share(one["passed"], one["samples"]))
        cells.append(share(other["passed"], other["samples"]) if other else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def dtypes_of_operators() -> dict[str, list[str]]:
    """Maps each ATen operator to the data types of the right variants that contain it."""
    kept = read_exporter()
    right: dict[str, set[str]] = defaultdict(set)
    for row in kept["rows"]:
        if row["group"] == "static" and is_right(row):
            for target in kept["targets"].get(row["op"], ()):
                right[target].add(row["dtype"])
    return {target: [d for d in DTYPES if d in dtypes] for target, dtypes in right.items()}


def _failures_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns a table of failures by variant and outcome, each with the first reason."""
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for row in rows:
        where = row["dtype"] if row["group"] == "static" else row["group"]
        for _, outcome, reason, _ in row.get("failures", ()):
            found[row["op"], outcome].setdefault(where, _escape_cell(reason))
    if not found:
        return "None.\n"
    lines = ["| Variant | Outcome | With | Reason |", "| --- | --- | --- | --- |"]
    for (name, outcome), reasons in sorted(found.items()):
        reason = next(iter(reasons.values()))
        lines.append(f"| `{name}` | {outcome} | {', '.join(reasons)} | {reason} |")
    return "\n".join(lines) + "\n"


def _opsets_section(path: str) -> str:
    """Returns shares by data type and opset, and the variants that fail at some opsets only."""
    rows = read_opsets(path)
    by_dtype = count_totals(rows)
    opsets = sorted({opset for counts in by_dtype.values() for opset in counts})
    lines = [
        OPSETS.format(samples=max((row["samples"] for row in rows), default=0)),
        "| | " + " | ".join(map(str, opsets)) + " |",
        "| --- |" + " ---: |" * len(opsets),
    ]
    for dtype in (dtype for dtype in DTYPES if dtype in by_dtype):
        counts = [by_dtype[dtype].get(opset, Counter()) for opset in opsets]
        cells = [share(count["right"], count["captured"]) for count in counts]
        lines.append(f"| {dtype} | {' | '.join(cells)} |")
    lacking: dict[str, set[int]] = defaultdict(set)
    others: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for _, outcome, _, at in row.get("others", ()):
            if outcome == "opset_error":
                lacking[f"`{row['op']}`"].update(at)
            elif len(at) < len(row["opsets"]):  # failures at every opset are listed above
                others[f"{outcome} at opset {_format_span(at)}"][
                    f"`{row['op']}` ({row['dtype']})"
                ] = None
    lines.append("")
    refused: dict[str, list[str]] = defaultdict(list)
    for name, missing in lacking.items():
        refused[_format_span(sorted(missing))].append(name)
    for at, names in sorted(refused.items()):
        lines.append(
            f"At opsets {at}, an error names the missing ONNX operator and the lowest opset that "
            f"has it for: {', '.join(sorted(names))}.\n"
        )
    lines += [f"{what}: {', '.join(sorted(names))}.\n" for what, names in sorted(others.items())]
    return "\n".join(lines)


def _other_releases(reference: Mapping[str, Any]) -> list[str]:
    """Returns shares on other releases of torch; their databases have more or fewer variants."""
    found = [reference]
    found += [read_results(str(path)) for path in sorted(RESULTS.glob(f"{OURS}-torch-*.json"))]
    if len(found) == 1:
        return []
    names = [f"torch {kept['packages']['torch'].partition('+')[0]}" for kept in found]
    counts = [summarize(kept["rows"]) for kept in found]
    lines = [f"| | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for key in (key for key in ORDER if any(key in count for count in counts)):
        cells = [_share_of(count.get(key)) for count in counts]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    parts = ["## Releases of torch\n", RELEASES, *lines, ""]
    known = {_key_of_row(row) for row in reference["rows"] if row.get("failures")}
    for name, kept in zip(names[1:], found[1:], strict=True):
        others = [row for row in kept["rows"] if _key_of_row(row) not in known]
        parts += [f"Failures with {name} only:\n", _failures_table(others)]
    return parts


def _share_of(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "-"
    return f"{share(counts['right'], counts['captured'])} of {counts['captured']}"


def _key_of_row(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["op"], row["dtype"], row["group"]


def _format_span(opsets: Sequence[int]) -> str:
    first, last = min(opsets), max(opsets)
    return str(first) if first == last else f"{first} to {last}"


def _list_flags(rows: Iterable[Mapping[str, Any]]) -> str:
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for flag in row.get("flags", ()):
            names[flag][f"`{row['op']}`"] = None
    return "".join(
        f"* {text}: {', '.join(sorted(names[flag]))}.\n"
        for flag, text in FLAGS.items()
        if names[flag]
    )


def _not_captured(rows: Iterable[Mapping[str, Any]]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if not count_captured(row):
            where = row["dtype"] if row["group"] == "static" else row["group"]
            names[row["op"]].append(where)
    lines = [f"`{name}` ({', '.join(where)})" for name, where in sorted(names.items())]
    if not lines:
        return "torch.export captures all of them.\n"
    return f"torch.export captures no sample of these variants: {'; '.join(lines)}.\n"


def _escape_cell(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return escaped[:120]
