"""Makes docs/figures.md, the table of all measured figures with their commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["make_figures_page"]

ROOT = Path(__file__).parent.parent
HEAD = """# Figures

Look up here where a figure comes from: the command that measures it, the day on which it did, and
the page that explains it. `python -m docs.generate` writes this page from the results that the
commands store.

Ratios compare what was measured in one run on one machine, so that they hold on others.
"""

Figures = Mapping[str, Any]


class Source(NamedTuple):
    """A file of results: its title, path, command and page, and how its figures are read."""

    title: str
    path: str
    command: str
    page: str
    read: Callable[[dict[str, Any]], Figures] = lambda results: results["summary"]


def _read_clients(results: dict[str, Any]) -> Figures:
    models = len(results["rows"])
    return {
        f"{client}: {name} right": f"{counts[way].get('right', 0)} of {sum(counts[way].values())}"
        for client, counts in results["summary"].items()
        for way, name in (("ours", "onnx_aot"), ("peer", "torch.onnx"))
        if counts.get(way)
    } | {"models": models}


def _read_ways(results: dict[str, Any]) -> Figures:
    ways = {name: counts for name, counts in results["summary"].items() if name != "models"}
    models = results["summary"]["models"]
    return {
        f"{name}: right at both sizes": f"{counts['right at both sizes']} of {models}"
        for name, counts in ways.items()
    }


def _read_totals(results: dict[str, Any]) -> Figures:
    return {
        f"{name}: variants right": f"{total['right']} of {total['captured']}"
        for name, total in results["totals"].items()
    }


def _read_programs(results: dict[str, Any]) -> Figures:
    named = ("programs", "right", "sizes compared")
    return {name: results[name] for name in named} | {"failures": len(results["failures"])}


def _read_nnsmith(results: dict[str, Any]) -> Figures:
    kinds = ("static", "dynamic")
    right = {f"{kind} sizes: models right": results[kind]["right"] for kind in kinds}
    return {"models": results["models"], **right, "failures": len(results["failures"])}


def _read_saves(results: dict[str, Any]) -> Figures:
    forms = results["forms"].values()
    return {
        "interrupted saves": sum(form["interrupted"] for form in forms),
        "files lost": sum(form["lost"] for form in forms),
    }


def _read_trials(results: dict[str, Any]) -> Figures:
    return {"trials": results["trials"], "failures": len(results["failures"])}


def _read_releases(results: dict[str, Any]) -> Figures:
    return {
        f"onnxruntime {release}: models right": f"{_count_right(rows)} of {len(rows)}"
        for release, rows in results["releases"].items()
    }


def _count_right(rows: Mapping[str, str]) -> int:
    return sum(outcome == "right" for outcome in rows.values())


def _read_cluster(results: dict[str, Any]) -> Figures:
    return {f"{name}: seconds": seconds for name, seconds in results["seconds"].items()}


def _benchmark(title: str, name: str) -> Source:
    path, command = f"benchmarks/results/{name}.json", f"python -m benchmarks.{name}"
    return Source(title, path, command, "benchmarks.md")


def _session(
    title: str,
    name: str,
    page: str,
    read: Callable[[dict[str, Any]], Figures] = lambda results: results["summary"],
) -> Source:
    return Source(title, f"benchmarks/results/{name}.json", f"python -m nox -s {name}", page, read)


def _conformance(
    title: str, name: str, read: Callable[[dict[str, Any]], Figures], command: str = ""
) -> Source:
    path = f"conformance/results/{name}.json"
    return Source(title, path, command or f"python -m conformance.{name}", "conformance.md", read)


SOURCES = (
    _benchmark("Export time", "export_time"),
    _benchmark("Growth with depth", "scaling"),
    _benchmark("Memory", "memory"),
    _benchmark("Models that do not fit into memory", "big_model"),
    _benchmark("Bundles of checkpoints", "bundle_memory"),
    _benchmark("Size of graphs", "graph_size"),
    _benchmark("What optimizers remove", "optimizers"),
    _benchmark("Latency", "latency"),
    _benchmark("Latency by opset", "opset_latency"),
    _benchmark("A GPU", "gpu"),
    _benchmark("Time to a refusal", "refusals"),
    _benchmark("What an export says", "remarks"),
    _session("Architectures", "zoo", "models.md"),
    _session("Models of other packages", "field", "field.md"),
    Source(
        "In transformers' own exporter",
        "benchmarks/results/transformers_exporters.json",
        "python -m benchmarks.transformers_exporters",
        "migrating-from-torch-onnx.md",
        _read_ways,
    ),
    _session("Clients and tools", "clients", "clients.md", _read_clients),
    Source(
        "Language models of transformers",
        "benchmarks/results/decoders.json",
        "python -m benchmarks.decoders",
        "generation.md",
    ),
    _session("Language models in other programs", "bundles", "generation.md"),
    Source(
        "Speed of language models in other programs",
        "benchmarks/results/bundle_speed.json",
        "python -m nox -s bundle-speed",
        "generation.md",
    ),
    Source(
        "A sweep of many rows",
        "benchmarks/results/sweep_scale.json",
        "python -m benchmarks.sweep_scale",
        "sweep.md",
        lambda results: results["simulated"],
    ),
    Source(
        "A sweep on a cluster",
        "benchmarks/results/sweep_cluster.json",
        "python -m benchmarks.sweep_cluster",
        "sweep.md",
        _read_cluster,
    ),
    _conformance("Operators", "onnx_aot", _read_totals, "python -m nox -s conformance"),
    _conformance(
        "Operators in torch.onnx", "torch_onnx", _read_totals, "python -m nox -s conformance"
    ),
    _conformance("Models in older releases of ONNX Runtime", "release_models", _read_releases),
    _conformance("Random programs", "random_programs", _read_programs),
    _conformance("Models of nnsmith", "nnsmith_models", _read_nnsmith),
    _conformance("Damaged graphs", "mutated_graphs", _read_trials),
    _conformance("Damaged files", "mutated_files", _read_trials),
    _conformance("Interrupted saves", "interrupted_saves", _read_saves),
)


def make_figures_page() -> str:
    """Returns the page: a table per command."""
    parts = [HEAD]
    for source in SOURCES:
        path = ROOT / source.path
        if not path.exists():
            continue
        results = json.loads(path.read_text(encoding="utf-8"))
        day = results.get("machine", results).get("date", "")
        parts.append(f"## {source.title}\n")
        measured = f"Measured {day} by" if day else "Measured by"
        command = results.get("command", source.command)
        parts.append(f"{measured} `{command}`; see [{source.page}]({source.page}).\n")
        parts += ["| Figure | Value |", "| --- | ---: |"]
        parts += [f"| {name} | {_as_text(value)} |" for name, value in source.read(results).items()]
        parts.append("")
    return "\n".join(parts)


def _as_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
