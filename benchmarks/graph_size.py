"""Measures the size of exported graphs: nodes, and bytes without the weights.

    python -m benchmarks.graph_size [NAME ...]

Nodes of branches, loops and local functions count. Bytes are those of the file, including metadata
but not the data of initializers. Both models have the same dynamic dimensions.
"""

from __future__ import annotations

import collections
from typing import Any

from benchmarks import ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, table
from benchmarks.timing import geomean

BOTH = ("ours", "peer")


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Counts the nodes of both models by operator."""
    case = case_of(name)
    with folder_of(name, settings) as folder:
        _, paths = ways.export_both(case, folder)
        sizes = {way: _measure_size(path) for way, path in paths.items()}
    return {
        "library": type_of(name),
        "nodes": {way: sum(operators.values()) for way, (operators, _) in sizes.items()},
        "bytes": {way: count for way, (_, count) in sizes.items()},
        "more": _extra_operators({way: operators for way, (operators, _) in sizes.items()}),
    }


def type_of(name: str) -> str:
    """Name of the library that a model comes from."""
    from benchmarks.models import transformer, vision

    if name.startswith("timm_"):
        return "timm"
    if name in {case.name for case in (*transformer.CASES, *transformer.MORE)}:
        return "transformers"
    if name in {case.name for case in (*vision.CASES, *vision.MORE)}:
        return "torchvision"
    return "written out"


def _measure_size(path: str) -> tuple[collections.Counter[str], int]:
    import onnx

    model = onnx.load(path, load_external_data=False)
    operators: collections.Counter[str] = collections.Counter()
    for graph in (model.graph, *model.functions):
        _count(graph, operators)
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
    return operators, model.ByteSize()


def _count(graph: Any, operators: collections.Counter[str]) -> None:
    for node in graph.node:
        operators[node.op_type] += 1
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _count(inner, operators)


def _extra_operators(operators: dict[str, collections.Counter[str]]) -> dict[str, int]:
    """Operators that our model has more of, and how many more."""
    if len(operators) < len(BOTH):
        return {}
    return dict((operators["ours"] - operators["peer"]).most_common())


def ratio(row: dict[str, Any], key: str = "nodes") -> float | None:
    """Ratio of ours to torch.onnx's, or None if one is missing."""
    values = row[key]
    return values["ours"] / values["peer"] if len(values) == len(BOTH) else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means and the largest of the ratios."""
    nodes = {row["name"]: r for row in rows if (r := ratio(row)) is not None}
    if not nodes:
        return {}
    worst = max(nodes, key=nodes.__getitem__)
    summary: dict[str, Any] = {
        f"nodes, onnx_aot / torch.onnx, geometric mean of {len(nodes)} models": geomean(
            nodes.values()
        ),
        f"nodes, onnx_aot / torch.onnx, largest: {worst}": nodes[worst],
        "models with more nodes than torch.onnx's": sum(r > 1 for r in nodes.values()),
    }
    for library in ("transformers", "torchvision", "timm"):
        some = [nodes[row["name"]] for row in rows if row["library"] == library and ratio(row)]
        if some:
            summary[f"nodes, geometric mean of {len(some)} models of {library}"] = geomean(some)
    sizes = [r for row in rows if (r := ratio(row, "bytes")) is not None]
    summary["bytes without weights, onnx_aot / torch.onnx, geometric mean"] = geomean(sizes)
    return {key: round(value, 3) for key, value in summary.items()}


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            *(row["nodes"].get(way, "-") for way in BOTH),
            number(ratio(row)),
            *(_format_kb(row["bytes"].get(way)) for way in BOTH),
            number(ratio(row, "bytes")),
            _describe_excess(row),
        ]
        for row in rows
    ]
    head = ["Model", "Nodes, onnx_aot", "Nodes, torch.onnx", "Ratio"]
    head += ["kB, onnx_aot", "kB, torch.onnx", "Ratio", "Remark"]
    image = "![Nodes beside torch.onnx's](plots/graph_size.svg)"
    return "\n\n".join((facts(summary), image, table(head, body)))


def _format_kb(value: float | None) -> str:
    return number(None if value is None else value / 1e3, 0)


def _describe_excess(row: dict[str, Any]) -> str:
    found = ratio(row)
    if found is None:
        return f"{ways.LABELS['peer']} does not export it"
    if found <= 1:
        return ""
    most = list(row["more"].items())[:3]
    return "more of " + ", ".join(f"{operator} ({count})" for operator, count in most)


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots both ratios, by model."""
    models = sorted((row for row in rows if ratio(row)), key=ratio)
    series = {
        label: [(row["name"], ratio(row, key)) for row in models]
        for key, label in (("nodes", "nodes"), ("bytes", "bytes without weights"))
    }
    return Plot("Size of the graph", "onnx_aot / torch.onnx", series, by_name=True)


BENCHMARK = Benchmark("graph_size", catalogue, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
