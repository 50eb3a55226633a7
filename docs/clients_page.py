"""Writes ``docs/clients.md`` from the results of ``python -m benchmarks.clients``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.clients import NAME
from benchmarks.clients.cells import STAGES
from benchmarks.clients.summary import find_behind
from benchmarks.clients.table import (
    BYTES,
    CLIENTS,
    EXPORTERS,
    FOUR_BITS,
    HALF,
    MODELS,
    TOOLS,
    Client,
)
from benchmarks.results import read_json

__all__ = ["make_clients_page"]

Row = Mapping[str, Any]

HEAD = """# Clients and tools

Look up here whether a program that you deploy to runs the exported files, and whether a tool that
you use on ONNX files takes them. `python -m docs.generate` writes this page from
`benchmarks/results/clients.json`; `python -m nox -s clients` installs the clients and measures
again.

The models are rows of `benchmarks/models` with random weights. Each is exported by this package and
by torch.onnx (`torch.onnx.export(model, dynamo=True)`), with the same dynamic dimensions. Each file
then runs in each client, in a process and an environment of the client's own, at two sizes. *Right*
means that every output is within the tolerances of `onnx_aot/dtypes.py` at both sizes. For older
releases of ONNX Runtime, this package exports with that release as `target`, and for OpenCV with
`target="opencv"`. All other cells of a model use one file with the default options.

A tool gets the file, and its result runs in ONNX Runtime. float16 may change the outputs by
{half:.0%} of their norm, bytes by {bytes:.0%}, and four bits by {four:.0%}.

{measured}

Each pair of letters is this package's file, then torch.onnx's: `y` right, `1` right at the size of
the example and refused at the other one, `w` wrong, `n` not loaded or not run, `u` unchanged by a
quantizer, `x` not exported, `-` not measured because the client is not installed or has not been
run."""

NOT_MEASURED = "# Clients and tools\n\nNot measured yet: `python -m benchmarks.clients`.\n"
LETTERS = {
    "right": "y",
    "one size": "1",
    "wrong": "w",
    "unchanged": "u",
    "not run": "n",
    "not loaded": "n",
    "no file": "x",
    "missing": "-",
}
BEHIND = """Cells in which torch.onnx's file gets further than this package's, with the reasons of
the latter."""
OPSET_DOWN = """`opset up` converts with `onnx.version_converter` to opset 22, `opset down` to opset
18. The converter has no earlier form of `Gelu`, so do not convert down: export with
`opset_version=18` instead. `quantize_static` and `quantize_dynamic` get the file of
`quant_pre_process`, which runs again with `auto_merge=True` if it reports incomplete shapes."""


EXPLANATIONS = """A part of the reasons below, found in the clients and tools, and what to do:

* **symbolic_shape_infer and quant_pre_process**: `bert`, `distilbert`, `clip` and
  `word_language_model_transformer` cut a table of positions of a fixed length to the length of the
  input. ONNX Runtime infers `min(512, seq)` for it, and does not see that it equals `seq` where
  both are added. Pass `auto_merge=True`.
* **quantize_static**: `t5` takes the logarithm of a distance of 0, and does not use that element.
  The calibration takes -infinity for an end of the range. Exclude the nodes from the division
  before the `Log` to the multiplication behind it with `nodes_to_exclude`. tinygrad stops at the
  same -infinity.
* **onnxconverter float16** leaves a `Cast` to float32 as it is, and an output that other nodes
  read, but not what is computed from them. Use `onnxruntime.transformers.float16`.
* **float16 and bytes**: `mobilenet_v2` with random weights rounds by a little more than the limit,
  and so does `clip` with four bits, in the files of both exporters.
* **matmul_nbits and quantize_dynamic**: models whose weights are all those of convolutions, or of
  `Gemm`, have nothing for them to do.
* **ONNX reference** has no `GatherElements` from more than 64 elements, by which torch.onnx writes
  a lookup of `bert`.
* **OpenCV** merges a `HardSigmoid` and a `Mul` behind it into `HardSwish`, whatever the other
  factor is, which makes `mobilenet_v3_small` wrong. It has no `Abs` of int64, which `t5` takes of
  distances. `target="opencv"` avoids both.
* **tinygrad** has no `LSTM`."""


def make_clients_page() -> str:
    """Returns the text of the page."""
    results = read_json(NAME)
    if results is None:
        return NOT_MEASURED
    rows = results["rows"]
    measured = _describe_measurement(results)
    parts = [HEAD.format(half=HALF, bytes=BYTES, four=FOUR_BITS, measured=measured)]
    parts += ["## Clients", _count_table(CLIENTS, results), _matrix(CLIENTS, rows)]
    parts += ["## Tools", OPSET_DOWN, _count_table(TOOLS, results), _matrix(TOOLS, rows)]
    parts += ["## Where torch.onnx's file gets further", BEHIND, _behind_table(rows)]
    parts += ["## Explanations", EXPLANATIONS]
    parts += ["## Reasons", *_describe_reasons(rows)]
    return "\n\n".join(parts) + "\n"


def _describe_measurement(results: Row) -> str:
    packages = results["machine"]["packages"]
    exporters = f"torch {packages['torch']}, transformers {packages['transformers']}"
    rows = results["rows"]
    text = f"Measured {results['machine']['date']} with {exporters}, on {len(rows)} models."
    left = [name for name in MODELS if name not in {row["name"] for row in rows}]
    return text + (f" Not measured: {', '.join(left)}." if left else "")


def _count_table(columns: Sequence[Client], results: Row) -> str:
    lines = [
        "| Name | Version | onnx_aot right | torch.onnx right |",
        "| --- | --- | ---: | ---: |",
    ]
    for column in columns:
        counts = results["summary"][column.name]
        right = [
            f"{counts[exporter].get('right', 0)} of {sum(counts[exporter].values())}"
            for exporter in EXPORTERS
        ]
        lines.append(f"| {column.name} | {_version(column, results)} | {' | '.join(right)} |")
    return "\n".join(lines)


def _version(column: Client, results: Row) -> str:
    """The version of a client, or of the package that a tool belongs to."""
    versions = results["clients"].get(column.environment, {})
    return f"{column.package} {versions[column.package]}" if column.package in versions else "-"


def _matrix(columns: Sequence[Client], rows: Iterable[Row]) -> str:
    head = ["Model", *(column.name for column in columns)]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' :-: |' * len(columns)}"]
    for row in rows:
        cells = (_letters(row["cells"].get(column.name, {})) for column in columns)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _letters(cell: Mapping[str, Row]) -> str:
    letters = [
        LETTERS[cell[exporter]["stage"]] if exporter in cell else "-" for exporter in EXPORTERS
    ]
    return " ".join(letters)


def _behind_table(rows: Sequence[Row]) -> str:
    by_name = {row["name"]: row for row in rows}
    found = find_behind(rows)
    if not found:
        return "None."
    lines = ["| Model | Name | Reason |", "| --- | --- | --- |"]
    for name, column in found:
        cell = by_name[name]["cells"][column]["ours"]
        lines.append(f"| {name} | {column} | {_shorten(cell)} |")
    return "\n".join(lines)


def _describe_reasons(rows: Iterable[Row]) -> list[str]:
    """Returns, per client, the reasons of the cells that are not right, with their models."""
    parts = []
    found: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for column, cell in row["cells"].items():
            for exporter, entry in cell.items():
                if entry["stage"] != STAGES[-1]:
                    found[column][EXPORTERS[exporter], _shorten(entry)].append(row["name"])
    for column in (*CLIENTS, *TOOLS):
        if column.name not in found:
            continue
        lines = ["| File | Reason | Models |", "| --- | --- | --- |"]
        for (exporter, reason), names in sorted(found[column.name].items()):
            lines.append(f"| {exporter} | {reason} | {', '.join(names)} |")
        parts += [f"### {column.name}", "\n".join(lines)]
    return parts or ["Everything is right."]


def _shorten(entry: Row) -> str:
    text = f"{entry['stage']}: {entry['reason']}"
    return f"`{text.replace('`', '').replace('|', '/')}`"
