"""Measures how far one architecture gets."""

from __future__ import annotations

import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.timing import COLOURS, TooSlow, time_limit
from benchmarks.ways import Subject, as_hints, remove_dimensions
from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.peer import compare_with_torch, peer_exports, seconds_of_both

__all__ = [
    "FOLDERS",
    "NOT_CAPTURED",
    "RIGHT",
    "STAGES",
    "attempt",
    "check_outputs",
    "compare_outputs",
    "empty_row",
    "list_warnings",
    "measure",
    "measure_peer",
    "result_of",
    "shorten_reason",
    "warm_up",
]

STAGES = (
    "nothing",
    "runs in PyTorch",
    "captured",
    "exported",
    "loaded",
    "right",
    "right at both sizes",
)
"""Stages that a row can reach, in order."""

RIGHT = STAGES[-1]

# Dimensions to fix, in the order of the attempts, until torch.export or onnx_aot takes the rest.
FIXED = (
    (),
    ("seq", "target", "time", "frames"),
    ("height", "width"),
    ("seq", "target", "time", "frames", "height", "width"),
    ("batch",),
)
LIMIT = 400.0  # CPU seconds that one step may take
LONGEST = 240  # characters of a reason
LEAST_SPREAD = 2e-3  # twenty times the absolute tolerance of float32
NOT_CAPTURED = ("CaptureError", "DynamicShapeError", "InvalidOptionError", "TooSlow")
FOLDERS = re.compile(r"/\S*/(?=[\w.]+\.py)")


def empty_row(case: ZooCase) -> dict[str, Any]:
    """Returns a row without results."""
    return {
        "name": case.name,
        "group": case.group,
        "stage": STAGES[0],
        "reason": "",
        "torch_export": "",
        "fixed": [],
        "warnings": [],
        "seconds": {},
        "nodes": {},
        "max_absolute": None,
    }


def result_of(row: dict[str, Any], wanted: str = RIGHT) -> dict[str, Any]:
    """Returns the result of a row of a sweep: its status, figures, and the ``row`` itself.

    Args:
        row: As ``measure`` returns it.
        wanted: The stage that makes it right.
    """
    reached = STAGES.index(row["stage"])
    status = "failed" if reached == 0 else "refused" if reached < 3 else "wrong"
    return {
        "status": "right" if reached >= STAGES.index(wanted) else status,
        "stage": row["stage"],
        "reason": row["reason"],
        "nodes": row["nodes"].get("ours"),
        "max_absolute": row["max_absolute"],
        "export_cpu_seconds": row["seconds"].get("ours"),
        "row": row,
    }


def measure(
    case: ZooCase, plain: bool = True, peer: bool = False, compare: bool = True
) -> dict[str, Any]:
    """Measures the row of a model in this process.

    Args:
        case: The model.
        plain: Whether ``torch.export`` captures it too; the models that it refuses are counted
            separately.
        peer: Whether torch.onnx exports that capture too; needs ``plain``.
        compare: Whether the model is compared with PyTorch; a row gets no further than
            ``exported`` otherwise.

    Returns:
        JSON: the last ``stage``, the ``reason`` why no later one was reached, the reason why
        ``torch_export`` refuses the model, ``fixed`` dimensions, ``warnings`` of the export, CPU
        ``seconds`` by way, ``nodes``, and the largest absolute difference over both sizes;
        ``float64`` describes an output that exceeds its tolerance by rounding alone. With ``peer``,
        ``torch_onnx`` has its ``stage`` and ``reason``, ``nodes``, CPU ``seconds``, and the
        ``latency`` of both models in seconds.
    """
    warnings.simplefilter("ignore")
    row = empty_row(case)
    try:
        model = case.make()
        for index in range(2 if compare else 0):
            check_outputs(model, *case.sample(index))
    except Exception as error:  # the row itself is wrong and must be fixed
        return row | {"reason": shorten_reason(error)}
    row["stage"] = STAGES[1]
    if plain:
        warm_up()
    with tempfile.TemporaryDirectory() as folder:
        ours = os.path.join(folder, "ours.onnx")
        found = _export_model(case, model, ours, row, plain)
        if found.program is not None:
            row["stage"] = "exported"
            row["nodes"]["ours"] = sum(1 for _ in found.program.model.graph.all_nodes())
            if compare:
                compare_outputs(case, found.subject, found.program, row)
        if peer and found.captured is not None:
            path = os.path.join(folder, "peer.onnx")
            row["torch_onnx"] = measure_peer(
                case, found.subject, lambda: peer_exports(found.captured, path), (ours, path), row
            )
    return row


def check_outputs(model: Any, args: Any, kwargs: Any) -> None:
    """Refuses tiny outputs and NaN, which would agree whatever the model does."""
    import torch
    from torch.utils import _pytree as pytree

    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel()]
    if not tensors or any(t.isnan().any() for t in tensors):
        raise ValueError("the row is not usable: outputs are empty or not numbers")
    floats = [t[t.isfinite()] for t in tensors if t.is_floating_point()]
    spreads = [float(t.std(unbiased=False) if len(t) > 1 else t.abs()) for t in floats if len(t)]
    if floats and max(spreads, default=0.0) < LEAST_SPREAD:
        raise ValueError("the row is not usable: outputs are too small to compare")


def warm_up() -> None:
    """Does the work that both ways do once per process."""
    import torch

    import onnx_aot

    smallest = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval()
    inputs = (torch.ones(2, 2),)
    onnx_aot.export(torch.export.export(smallest, inputs), inputs)


class _Found(NamedTuple):
    """The subject as it was exported, its ONNX program and its capture; None for failures."""

    subject: Subject
    program: Any
    captured: Any


def _export_model(case: ZooCase, model: Any, path: str, row: dict[str, Any], plain: bool) -> _Found:
    """Exports with as many dynamic dimensions as this package or ``torch.export`` accepts."""
    first = None
    for fixed in FIXED:
        shapes = remove_dimensions(case.dynamic_shapes, fixed)
        if fixed and shapes == case.dynamic_shapes:
            continue
        args, kwargs = case.sample(0)
        subject = Subject(model, args, kwargs, shapes, as_hints(shapes), "")
        # Ours comes first, so that work done once per process is counted in its time.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program, error, seconds = attempt(lambda s=subject: s.ours(path))
        captured, refused, alone = attempt(subject.plain) if plain else (None, None, 0.0)
        found = {
            "stage": STAGES[1] if type(error).__name__ in NOT_CAPTURED else STAGES[2],
            "reason": shorten_reason(error),
            "torch_export": shorten_reason(refused),
            "fixed": sorted(set(fixed) & case.sizes[0].keys()),
            "warnings": list_warnings(caught),
            "seconds": {},
        }
        if program is not None:
            found["seconds"]["ours"] = seconds
        if captured is not None:
            found["seconds"]["plain"] = alone
            found["nodes"] = {"fx": len(captured.graph.nodes)}
        first = first or found
        if program is not None or captured is not None:
            row |= found
            return _Found(subject, program, captured)
        if isinstance(error, TooSlow):
            break
    row |= first or {}
    return _Found(subject, None, None)


def attempt(
    call: Callable[[], Any], limit: float = LIMIT
) -> tuple[Any, BaseException | None, float]:
    """Calls a function for at most ``limit`` CPU seconds; returns result, error, and seconds."""
    start = time.process_time()
    try:
        with time_limit(limit, cpu=True):
            return call(), None, time.process_time() - start
    except (Exception, TooSlow) as error:  # reported in the row
        return None, error, time.process_time() - start


def shorten_reason(error: BaseException | None) -> str:
    """Returns the first line of an error, or two if a list follows, without folders."""
    if error is None:
        return ""
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines() if line.strip()]
    more = len(lines) > 1 and lines[0].endswith(":")
    text = f"{type(error).__name__}: {' '.join(lines[: 2 if more else 1])}"
    return FOLDERS.sub("", text)[:LONGEST]


def list_warnings(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    """Returns the warnings of this package, shortened."""
    ours = (str(w.message) for w in caught if w.category.__name__ == "OnnxExporterWarning")
    return sorted({FOLDERS.sub("", text.partition(":")[0])[:LONGEST] for text in ours})


def compare_outputs(case: ZooCase, subject: Subject, program: Any, row: dict[str, Any]) -> None:
    """Loads the model and compares it with PyTorch at both sizes."""
    from onnx_aot.capture.module_state import preserved_state
    from onnx_aot.inspection.verify import verify_against

    _, error, _ = attempt(program.initialize_inference_session)
    if error is not None:
        row["reason"] = shorten_reason(error)
        return
    row["stage"] = "loaded"
    worst = 0.0
    for index, stage in enumerate(STAGES[-2:]):
        args, kwargs = case.sample(index, row["fixed"])
        with preserved_state(subject.model):  # each size from the state at the export
            differences, error, _ = attempt(
                lambda a=args, k=kwargs: verify_against(program, subject.model, a, k)
            )
        if error is not None:
            row["reason"] = shorten_reason(error)
            return
        wrong = [index for index, d in enumerate(differences) if not d.right]
        if wrong:
            worst_one = differences[wrong[0]]
            more = _explain_difference(program, subject.model, args, kwargs, wrong[0])
            row["reason"] = f"{worst_one.name}: {worst_one.details}{more}"
            return
        rounded = [f"{d.name}: {d.details}" for d in differences if not d.within]
        if rounded:
            row["float64"] = FOLDERS.sub("", rounded[0])
        if any(d.choice for d in differences):
            row["choice"] = True
        row["stage"] = stage
        worst = max(worst, *(d.max_absolute for d in differences))
        row["max_absolute"] = worst


def _explain_difference(program: Any, model: Any, args: Any, kwargs: Any, index: int) -> str:
    """Describes how far PyTorch's output is from that of the captured graph."""
    import torch
    from torch.utils import _pytree as pytree

    def run_output(model: Any) -> Any:
        with torch.no_grad():
            leaves = pytree.tree_leaves(model(*args, **kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)][index].double()

    both, error, _ = attempt(
        lambda: (run_output(model), run_output(program.exported_program.module()))
    )
    if error is not None or both[0].shape != both[1].shape:
        return ""
    return f"; what torch.export captures is off by {float((both[0] - both[1]).abs().max()):.1g}"


def measure_peer(
    case: ZooCase,
    subject: Subject,
    export: Callable[[], Any],
    paths: tuple[str, str],
    row: dict[str, Any],
) -> dict[str, Any]:
    """Measures torch.onnx on the same model.

    Args:
        case: The model's row.
        subject: The model, its example and its dynamic dimensions.
        export: Writes torch.onnx's file and returns its number of nodes.
        paths: File of this package, and file of torch.onnx.
        row: Results of this package.

    Returns:
        JSON: ``stage`` and ``reason``, and once exported ``nodes`` and CPU ``seconds``; the
        ``latency`` of both files if both are right.
    """
    ours, path = paths
    nodes, error, seconds = attempt(export)
    if error is not None:
        while error.__cause__ is not None:  # the outer errors explain how to report an issue
            error = error.__cause__
        return {"stage": "captured", "reason": shorten_reason(error), "seconds": seconds}
    result = {"stage": "exported", "reason": "", "nodes": nodes, "seconds": seconds}
    for index, stage in enumerate(STAGES[-2:]):
        given = case.sample(index, row["fixed"])
        wrong, error, _ = attempt(lambda g=given: compare_with_torch(path, subject.model, *g))
        if error is not None:
            return result | {"reason": shorten_reason(error)}
        # A file has no captured values that could show that a choice made the difference. Where the
        # program's have shown it, that is held true of this file too.
        excused = [d for d in wrong if "choice" in row and d.rounding and d.rounding.alike]
        worst = next((d for d in wrong if not (d.right or d in excused)), None)
        if worst:
            return result | {"reason": f"{worst.name}: {worst.details}"}
        result["stage"] = stage
    if row["stage"] == RIGHT:
        result["latency"] = seconds_of_both(ours, path, *case.sample(0))
    return result
