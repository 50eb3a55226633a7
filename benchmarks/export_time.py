"""Measures export time against the plain capture and against torch.onnx.

    python -m benchmarks.export_time [NAME ...]

Every model runs in a process of its own. After a warm-up, the ways of ``benchmarks/ways.py``
alternate there, the smaller the model the more often. The median of each is kept, in seconds of
wall time and of CPU time, and the median of each stage of onnx_aot. The report shows ratios to the
plain capture: with the model's dynamic dimensions, and static in CPU time, which for small models
tells more on a busy machine. If the plain capture refuses the requested dynamic dimensions, all
ways have them fixed; such rows get a remark and do not count in the means of dynamic exports.
Neither does ``linear_relu``, the smallest model, in any mean. The time after the capture is
reported per FX node, and that of the translation per emitted ONNX node.

For models with large weights, the disk dominates the time. Therefore a fourth way takes its turn,
which only replaces a file by one with as many bytes as our model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from benchmarks import ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, in_fresh_process, run
from benchmarks.stages import NAMES, seconds_of_stages
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, remark, table
from benchmarks.timing import alternate, geomean, median

# Seconds and largest numbers of runs; see ``alternate``.
SPEND = {"plain": 4.0, "ours": 4.0, "peer": 1.5, "write": 2.0}
SPEND |= {"static_plain": 4.0, "static_ours": 4.0}
MOST = 40
BLOCK = 64 << 20
WRITTEN = "written.bin"
STATIC = "static.onnx"
FILES = 4  # with weights, that a row leaves in its folder while it is measured
IMPORT = "import of onnx_aot"
LARGE = 100  # MB of weights from which saving is as fast as the disk


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def list_rows() -> list[str]:
    """Names of all rows: the import of the package, and every model."""
    return [IMPORT, *catalogue()]


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the medians of the ways for one model, in this process."""
    if name == IMPORT:
        runs = 3 if settings.quick else 9
        seconds = [in_fresh_process(__name__, "import_seconds") for _ in range(runs)]
        return {"import_seconds": median(seconds)}
    subject = ways.make_subject(case_of(name))
    with folder_of(name, settings) as folder, seconds_of_stages() as stages:
        to_call = subject.ways(folder)
        if not settings.peer:
            to_call.pop("peer", None)
        _warm_up(folder, "peer" in to_call)
        seen: dict[str, list[float]] = {}
        programs: dict[str, Any] = {}

        def call_ours() -> None:
            programs["ours"] = to_call_ours()
            for stage, seconds in stages.items():
                seen.setdefault(stage, []).append(seconds)

        to_call_ours, to_call["ours"] = to_call["ours"], call_ours
        static = os.path.join(folder, STATIC)
        to_call["static_plain"] = subject.plain_static
        to_call["static_ours"] = lambda: subject.ours_static(static)
        to_call["write"] = raw_write(folder)
        size = sum(weight.nbytes for weight in subject.model.state_dict().values())
        _claim_pages(folder, FILES * size)
        most = 1 if settings.quick else MOST
        times, errors = alternate(to_call, SPEND, settings.limit, most)
        for file in (WRITTEN, STATIC):
            os.unlink(os.path.join(folder, file))
    if subject.hints is False:
        errors = dict.fromkeys(("plain", "peer"), subject.remark) | errors
    return {
        "remark": subject.remark,
        "seconds": {way: median(t.wall for t in measured) for way, measured in times.items()},
        "cpu_seconds": {way: median(t.cpu for t in measured) for way, measured in times.items()},
        "runs": {way: len(measured) for way, measured in times.items()},
        "stages": {stage: median(seconds) for stage, seconds in seen.items()},
        **_count_nodes(programs["ours"], subject),
        "errors": errors,
    }


def raw_write(folder: str) -> Callable[[], None]:
    """Returns a function that replaces a file by one with as many bytes as our model."""
    block = memoryview(os.urandom(BLOCK))
    model, path = (os.path.join(folder, name) for name in ("ours.onnx", WRITTEN))

    def write() -> None:
        left = os.path.getsize(model)
        with open(f"{path}.tmp", "wb", buffering=0) as file:
            while left > 0:
                left -= file.write(block[:left])
        os.replace(f"{path}.tmp", path)

    return write


def import_seconds() -> float:
    """Seconds that ``import onnx_aot`` takes in this process, after torch."""
    import time

    import torch  # noqa: F401

    start = time.perf_counter()
    import onnx_aot  # noqa: F401

    return time.perf_counter() - start


def _claim_pages(folder: str, size: int) -> None:
    """Writes files of this size and removes them, so that the kernel has pages for those to come.

    A virtual machine gets memory when it first touches it, which takes several times as long as
    the write; without this, the ways that come first pay for it.
    """
    paths = [os.path.join(folder, f"pages{number}.bin") for number in range(2)]
    block = memoryview(bytes(BLOCK))
    for path in paths:
        with open(path, "wb", buffering=0) as file:
            for start in range(0, size, BLOCK):
                file.write(block[: size - start])
    for path in paths:
        os.unlink(path)


def _warm_up(folder: str, with_peer: bool) -> None:
    """Does imports and fills registries, once per process; the plain capture has already run."""
    smallest = ways.make_subject(case_of("linear_relu"))
    for way in ("ours", "peer") if with_peer else ("ours",):
        smallest.ways(folder)[way]()


def _count_nodes(program: Any, subject: ways.Subject) -> dict[str, Any]:
    """Counts FX nodes, ONNX nodes as translated, before optimization, and MB of weights."""
    import onnx_aot

    emitted = onnx_aot.export(program.exported_program, optimize=False, target=None)
    weights = [*subject.model.parameters(), *subject.model.buffers()]
    return {
        "fx_nodes": len(program.exported_program.graph.nodes),
        "emitted_nodes": sum(1 for _ in emitted.model.graph.all_nodes()),
        "weights_mb": sum(weight.nbytes for weight in weights) / 1e6,
    }


# --- results -------------------------------------------------------------------------------------


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns means and extremes of the ratios to the plain capture, and costs per node."""
    models = [row for row in rows if "seconds" in row]
    counted = [row for row in models if row["name"] != "linear_relu" and not row["remark"]]
    summary: dict[str, Any] = {}
    for way in ("ours", "peer"):
        label = ways.LABELS[way]
        ratios = {row["name"]: r for row in counted if (r := ratio(row, way)) is not None}
        cpu = [r for row in counted if (r := ratio(row, way, "cpu_seconds")) is not None]
        if ratios:
            worst = max(ratios, key=ratios.__getitem__)
            summary[f"{label} / capture, geometric mean of {len(ratios)} models"] = geomean(
                ratios.values()
            )
            summary[f"{label} / capture in CPU time, geometric mean"] = geomean(cpu)
            summary[f"{label} / capture, largest: {worst}"] = ratios[worst]
    summary |= _static_figures(models)
    bare = {row["name"]: r for row in counted if (r := without_writing(row)) is not None}
    if bare:
        most = max(bare, key=bare.__getitem__)
        summary[f"onnx_aot less a raw write of its bytes / capture, largest: {most}"] = bare[most]
    summary |= _stage_figures(counted)
    smallest = [r for row in models if row["name"] == "linear_relu" and (r := ratio(row, "ours"))]
    if smallest:
        summary["onnx_aot / capture, Linear + ReLU"] = smallest[0]
    static = {row["name"]: r for row in models if (r := static_ratio(row)) is not None}
    if "linear_relu" in static:
        summary["static: onnx_aot / capture in CPU time, Linear + ReLU"] = static["linear_relu"]
    for row in rows:
        if "import_seconds" in row:
            summary["import of onnx_aot after torch, s"] = row["import_seconds"]
    return {key: round(value, 3) for key, value in summary.items()}


def _static_figures(models: list[dict[str, Any]]) -> dict[str, float]:
    """Means over all models but the smallest; static exports have no remarks."""
    ratios = {row["name"]: r for row in models if (r := static_ratio(row)) is not None}
    ratios.pop("linear_relu", None)
    if not ratios:
        return {}
    worst = max(ratios, key=ratios.__getitem__)
    label = "static: onnx_aot / capture in CPU time"
    return {
        f"{label}, geometric mean of {len(ratios)} models": geomean(ratios.values()),
        f"{label}, largest: {worst}": ratios[worst],
    }


def _stage_figures(counted: list[dict[str, Any]]) -> dict[str, float]:
    captures = [
        row["stages"]["capture"] / row["seconds"]["plain"]
        for row in counted
        if "plain" in row["seconds"]
    ]
    if not captures:
        return {}
    after = {row["name"]: after_capture(row) for row in counted if row["weights_mb"] < LARGE}
    emit = {row["name"]: per_onnx_node(row) for row in counted}
    slowest, costly = (max(d, key=d.__getitem__) for d in (after, emit))
    return {
        "onnx_aot's capture / capture, geometric mean": geomean(captures),
        "after the capture, ms per FX node, geometric mean": geomean(after.values()),
        f"after the capture, ms per FX node, largest: {slowest}": after[slowest],
        "translation, µs per ONNX node, geometric mean": geomean(emit.values()),
        f"translation, µs per ONNX node, largest: {costly}": emit[costly],
    }


def ratio(
    row: dict[str, Any], way: str, key: str = "seconds", plain: str = "plain"
) -> float | None:
    """Ratio of a way to the plain capture, or None if one was not measured."""
    seconds = row[key]
    return seconds[way] / seconds[plain] if way in seconds and plain in seconds else None


def static_ratio(row: dict[str, Any]) -> float | None:
    """Ratio of CPU times of static exports; None where they were not measured."""
    return ratio(row, "static_ours", "cpu_seconds", "static_plain")


def without_writing(row: dict[str, Any]) -> float | None:
    """Our time without that of writing as many bytes, relative to the plain capture."""
    ours, write = ratio(row, "ours"), ratio(row, "write")
    return None if ours is None or write is None else ours - write


def after_capture(row: dict[str, Any]) -> float:
    """Milliseconds per FX node of everything after the capture, including saving."""
    return 1e3 * (row["seconds"]["ours"] - row["stages"]["capture"]) / row["fx_nodes"]


def per_onnx_node(row: dict[str, Any]) -> float:
    """Microseconds of the translation per emitted ONNX node."""
    return 1e6 * row["stages"]["translate"] / max(row["emitted_nodes"], 1)


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation: figures, ratios and stages per model."""
    models = [row for row in rows if "seconds" in row]
    has_static = any(static_ratio(row) for row in models)  # older results have none
    ratios = [
        [
            row["name"],
            number(row["seconds"].get("plain")),
            number(ratio(row, "ours")),
            number(without_writing(row)),
            number(ratio(row, "peer")),
            *(_static_cells(row) if has_static else ()),
            remark(row["remark"], row["errors"]),
        ]
        for row in models
    ]
    stages = [
        [
            row["name"],
            row["fx_nodes"],
            row["emitted_nodes"],
            *(f"{1e3 * row['stages'].get(stage, 0):.0f}" for stage in NAMES),
            number(after_capture(row)),
            f"{per_onnx_node(row):.0f}",
        ]
        for row in models
    ]
    head = ["Model", "Plain capture, s", "onnx_aot / capture", "less a raw write of its bytes"]
    head += ["torch.onnx / capture"]
    head += ["static: plain capture, CPU s", "static: onnx_aot / capture"] if has_static else []
    head += ["Remark"]
    stage_head = ["Model", "FX nodes", "ONNX nodes emitted", *NAMES]
    stage_head += ["after capture, ms per FX node", "translate, µs per ONNX node"]
    return "\n\n".join(
        (
            facts(summary),
            "![Export time over capture time](plots/export_time.svg)",
            table(head, ratios),
            "Stages of onnx_aot in milliseconds:",
            table(stage_head, stages),
        )
    )


def _static_cells(row: dict[str, Any]) -> list[str]:
    return [number(row["cpu_seconds"].get("static_plain"), 3), number(static_ratio(row))]


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots the ratios to the plain capture, by model."""
    measured = [row for row in rows if "seconds" in row and ratio(row, "ours")]
    models = sorted(measured, key=lambda row: ratio(row, "ours"))
    return Plot(
        "Export time over plain capture",
        "seconds / seconds of torch.export.export",
        {
            ways.LABELS[way]: [(row["name"], ratio(row, way)) for row in models if ratio(row, way)]
            for way in ("ours", "peer")
        },
        by_name=True,
        log=True,
    )


BENCHMARK = Benchmark("export_time", list_rows, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
