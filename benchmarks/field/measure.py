"""Measures the row of one model: this package beside plain capture and torch.onnx."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.field.case import FieldCase, read_versions
from benchmarks.ways import Subject, as_hints
from benchmarks.zoo_models.measure import (
    FOLDERS,
    NOT_CAPTURED,
    STAGES,
    attempt,
    check_outputs,
    compare_outputs,
    empty_row,
    list_warnings,
    measure_peer,
    shorten_reason,
)

__all__ = ["empty_field_row", "export_case", "measure_field_row"]

LONGEST = 3000  # characters of a message


def empty_field_row(case: FieldCase) -> dict[str, Any]:
    """Returns a row without results."""
    version = read_versions().get(case.package.lower(), "")
    package = {"package": case.package, "version": version, "weights": case.weights}
    return empty_row(case) | package | {"torch_static": "", "message": ""}


def measure_field_row(case: FieldCase, peer: bool = False) -> Iterator[dict[str, Any]]:
    """Measures a model in this process: this package first, then plain capture, and the peer.

    Some models are captured plainly in minutes only, so there is a row after each of them.

    Args:
        case: The model.
        peer: Whether torch.onnx exports it too, from the module as its users call it.

    Yields:
        JSON as ``benchmarks.zoo_models.measure.measure`` returns it, with the ``package``, its
        ``version``, ``weights``, the whole ``message`` of an error, and the reason why
        ``torch.export`` refuses the model with the dynamic dimensions, ``torch_export``, and
        without them, ``torch_static``. ``float64`` describes an output of a right row that exceeds
        its tolerance, but is as near to PyTorch in float64 as PyTorch itself.
    """
    warnings.simplefilter("ignore")
    row = empty_field_row(case)
    try:
        model = case.make()
        for index in range(2):
            check_outputs(model, *case.sample(index))
        model = case.make()  # a model that keeps a state is exported as it is before its first call
    except Exception as error:  # the row itself is wrong and must be fixed
        yield row | {"reason": shorten_reason(error)}
        return
    row["stage"] = STAGES[1]
    args, kwargs = case.sample(0)
    hints = as_hints(case.dynamic_shapes)
    subject = Subject(model, args, kwargs, case.dynamic_shapes, hints, "", case.options)
    with tempfile.TemporaryDirectory() as folder:
        ours, path = (os.path.join(folder, f"{way}.onnx") for way in ("ours", "peer"))
        program = export_case(subject, ours, row)
        if program is not None:
            compare_outputs(case, subject, program, row)
        yield row
        # Plain captures leave fake tensors in models that write to themselves, so each way has a
        # model of its own.
        _capture_plainly(_build_again(case, subject), row)
        yield row
        if peer:
            theirs = _build_again(case, subject)
            row["torch_onnx"] = measure_peer(
                case, subject, lambda: _export_with_torch(theirs, path), (ours, path), row
            )
            yield row


def _build_again(case: FieldCase, subject: Subject) -> Subject:
    """Returns the subject with a new module."""
    return dataclasses.replace(subject, model=case.make())


def export_case(subject: Subject, path: str, row: dict[str, Any]) -> Any:
    """Exports with this package and writes the outcome to the row."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program, error, seconds = attempt(lambda: subject.ours(path))
    row["warnings"] = list_warnings(caught)
    row["seconds"]["ours"] = seconds
    row["reason"] = shorten_reason(error)
    if error is None:
        row["stage"] = STAGES[3]
        row["nodes"]["ours"] = sum(1 for _ in program.model.graph.all_nodes())
    else:
        row["message"] = FOLDERS.sub("", str(error))[:LONGEST]
        row["stage"] = STAGES[1] if type(error).__name__ in NOT_CAPTURED else STAGES[2]
    return program


def _capture_plainly(subject: Subject, row: dict[str, Any]) -> None:
    """Captures with ``torch.export`` alone, dynamically and statically."""
    captured, error, row["seconds"]["plain"] = attempt(subject.plain)
    row["torch_export"] = shorten_reason(error)
    if captured is not None:
        row["nodes"]["fx"] = len(captured.graph.nodes)
    else:
        row["torch_static"] = shorten_reason(attempt(subject.plain_static)[1])


def _export_with_torch(subject: Subject, path: str) -> int:
    """Exports with torch.onnx; returns the number of nodes."""
    import onnx

    subject.peer(path)
    return len(onnx.load(path, load_external_data=False).graph.node)
