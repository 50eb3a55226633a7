"""The task of an ordinary row: exports a model, and checks what the plan asks for."""

from __future__ import annotations

import glob
import logging
import math
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_aot.errors import VerificationError
from onnx_aot.integrations.subjects import look_up
from onnx_aot.sweep.sources import build
from onnx_aot.sweep.worker import REPORT, Progress

if TYPE_CHECKING:
    from onnx_aot.integrations.subjects import Subject

__all__ = ["MODEL", "VIEW", "export_model"]

MODEL, VIEW = "model.onnx", "view.html"
SPEND = 0.5  # seconds for the latency of a model
RUNS = 5  # least number of runs


def export_model(settings: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Exports the model of a row, and runs its checks.

    Args:
        settings: ``model``, ``inputs``, ``dynamic``, ``dynamic_shapes``, ``dtype``, ``export`` and
            ``checks``, as the plan makes them.
        progress: Told the stages and figures.

    Returns:
        The status, if not everything is right, with its reason.

    Raises:
        Exception: Whatever the model, the export or a check raises.
    """
    import onnx_aot
    from onnx_aot.pipeline.recording import logged_to

    progress.begin("build")
    begun = time.perf_counter()
    subject = build(settings)
    progress.note(build_seconds=round(time.perf_counter() - begun, 3))
    checks = settings.get("checks", {})
    path = str(progress.folder / MODEL)
    progress.begin("export")
    begun, cpu = time.perf_counter(), time.process_time()
    try:
        with logged_to(_StageHandler(progress)):
            program = onnx_aot.export(
                subject.model,
                subject.args,
                path,
                kwargs=subject.kwargs,
                dynamic_shapes=subject.dynamic_shapes,
                report=checks.get("report", True),
                artifacts_dir=progress.folder,
                **settings.get("export", {}),
            )
    finally:
        _name_report(progress.folder)
    progress.note(
        export_seconds=round(time.perf_counter() - begun, 3),
        export_cpu_seconds=round(time.process_time() - cpu, 3),
        nodes=sum(1 for _ in program.model.graph.all_nodes()),
        bytes=sum(os.path.getsize(file) for file in glob.glob(glob.escape(path) + "*")),
    )
    if checks.get("view"):
        progress.begin("view")
        program.view(progress.folder / VIEW)
    try:
        found = _check(subject, path, program, checks, progress)
    except BaseException:
        _keep_model(path, progress.keep != "never")
        raise
    _keep_model(path, progress.keep == "always" or (progress.keep == "failed" and bool(found)))
    return found


class _StageHandler(logging.Handler):
    """Tells the progress each stage of the export."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.begin(record.getMessage()[:80])


def _name_report(folder: Path) -> None:
    """Gives the report of the export its name in the folder of a row."""
    for path in sorted(folder.glob("onnx_export_*.md")):
        path.replace(folder / REPORT)


def _keep_model(path: str, keep: bool) -> None:
    if not keep:
        for file in glob.glob(glob.escape(path) + "*"):
            Path(file).unlink()


def _check(
    subject: Subject, path: str, program: Any, checks: Mapping[str, Any], progress: Progress
) -> dict[str, Any]:
    """Runs the checks in the order of their cost; the first that finds a difference ends them."""
    import onnx_aot

    sizes = checks.get("verify", True)
    differences: list[float] = []  # in all runtimes
    for runtime in checks.get("runtimes", ["onnxruntime"]) if sizes else ():
        progress.begin(f"verify in {runtime}")
        found = onnx_aot.verify(
            path,
            subject.model,
            subject.args,
            subject.kwargs,
            sizes=sizes != "example",
            runtime=runtime,
        )
        differences += [d.max_absolute for result in found.results for d in result.differences]
        worst = max(differences, default=0.0)
        worst_known = worst if math.isfinite(worst) else None
        progress.note(max_absolute=worst_known, sizes=len(found.results))
        if not found.ok:
            return {"status": "wrong", "error": VerificationError.__name__, "reason": str(found)}
    for reference in checks.get("call", ()):
        progress.begin(reference)
        returned = look_up(reference)(path, subject.model, subject.args, subject.kwargs) or {}
        reason = returned.pop("wrong", "")
        progress.note(**returned)
        if reason:
            return {"status": "wrong", "reason": f"{reference}: {reason}"}
    if checks.get("latency"):
        progress.begin("latency")
        progress.note(latency_ms=_latency(program, subject))
    if checks.get("torch_onnx"):
        progress.begin("torch.onnx")
        progress.note(torch_onnx=_measure_torch_onnx(subject, progress, checks))
    return {}


def _latency(program: Any, subject: Subject) -> float:
    """Median of the milliseconds of a call on the example inputs."""
    program.initialize_inference_session()
    program(*subject.args, **subject.kwargs)
    times: list[float] = []
    while len(times) < RUNS or sum(times) < SPEND:
        begun = time.perf_counter()
        program(*subject.args, **subject.kwargs)
        times.append(time.perf_counter() - begun)
    return round(1000 * statistics.median(times), 4)


def _measure_torch_onnx(
    subject: Subject, progress: Progress, checks: Mapping[str, Any]
) -> dict[str, Any]:
    """Exports the same with torch.onnx: status, reason, seconds, nodes, latency."""
    import torch

    from onnx_aot.program.program import ONNXProgram

    path = str(progress.folder / "torch_onnx.onnx")
    begun = time.perf_counter()
    try:
        torch.onnx.export(
            subject.model,
            subject.args,
            path,
            kwargs=subject.kwargs,
            dynamic_shapes=subject.dynamic_shapes,
            dynamo=True,
            verbose=False,
        )
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - begun, 3)}
        program = ONNXProgram.load(path)
        found["nodes"] = sum(1 for _ in program.model.graph.all_nodes())
        result = program.verify(subject.model, subject.args, subject.kwargs, sizes=False)
        found |= {"status": "right" if result.ok else "wrong"}
        if not result.ok:
            found["reason"] = str(result)[:1000]
        elif checks.get("latency"):
            found["latency_ms"] = _latency(program, subject)
        return found
    except Exception as error:  # a result about the other exporter
        while error.__cause__ is not None and isinstance(error.__cause__, Exception):
            error = error.__cause__  # the outer ones say how to report an issue
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:1000]}
    finally:
        _keep_model(path, keep=False)
