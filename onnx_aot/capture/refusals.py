"""Explains why a model could not be captured: reason, place in the user's code, and fix."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import torch

from onnx_aot.capture.attempts import Failure
from onnx_aot.capture.error_hints import UnjoinableError, explain, make_explained_error
from onnx_aot.capture.failing_models import explain_failing
from onnx_aot.capture.fake_quantization import describe_observers, describe_packed
from onnx_aot.capture.module_state import error_of_model, preserved_state
from onnx_aot.capture.sizes.data_dependent import (
    Branching,
    NeedsData,
    describe_data_dependent,
    describe_way,
)
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.guards import (
    Location,
    as_places,
    location_in_dynamo,
    location_of_error,
    with_line,
)
from onnx_aot.capture.sizes.specialization import relax_request
from onnx_aot.capture.sizes.validating_branches import Validation
from onnx_aot.capture.strategies import STRATEGIES, Model, Run, run_strategy
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import CaptureError
from onnx_aot.pytrees.containers import unwrap_constants
from onnx_aot.torch_compat import (
    SILENT,
    Settings,
    applied,
    missing_fake_kernels,
    needs_data,
    only_says,
)

__all__ = ["check_example", "describe_retry", "refuse_model"]

logger = logging.getLogger(__name__)


def describe_retry(failure: Failure) -> str:
    """Describes why a model was captured without the optional changes to torch."""
    return (
        "the capture failed in the code of this package, and was made again with as few changes to "
        "torch as possible. That is a bug of onnx_aot; please report it. As a result, the export "
        f"may be slower or reject more models: {_shorten_error(failure.error, 2)}"
    )


def check_example(model: Model, validations: Sequence[Validation]) -> None:
    """Runs the model if its capture skipped checks, in case the example does not pass them.

    Raises:
        CaptureError: A check of the model raises an error for the example.
    """
    checks = [each for each in validations if each.raises]
    error = error_of_model(model.module, model.inputs) if checks else None
    location = None if error is None else location_of_error(error)
    if error is None or not any(check.contains(location) for check in checks):
        return
    cause = "the example inputs do not pass a check of the model"
    fix = "export with inputs that the model accepts"
    lines = [f"{cause}:", *with_line(location, "  "), f"    {_shorten_error(error, 2)}"]
    raise CaptureError(
        "\n".join([*lines, f"fix: {fix}"]),
        cause=cause,
        places=as_places([location], model.module),
        fix=fix,
    ) from error


def refuse_model(
    model: Model,
    requested: DynamicShapes,
    failures: Sequence[Failure],
    plain: bool,
    limit: TimeLimit,
    conversions: frozenset[tuple[str, str]] = frozenset(),
) -> CaptureError:
    """The error about a model that cannot be captured: reason, place in the user's code, edit.

    Args:
        model: The model.
        requested: The requested dynamic shapes.
        failures: Failures of its strategies, at least one.
        plain: Whether the optional changes to torch are left out when it is examined.
        limit: The time left. Explanations that exceed it are left out.
        conversions: Modules in which ``int`` or ``float`` kept numbers symbolic, so that these
            need no edit.
    """
    first = failures[0]
    observes = describe_observers(model.module) or describe_packed(model.module)
    if observes is None:
        described = (
            _find_data_questions(model, requested, first, plain, limit, conversions)
            if needs_data(first.error) or first.is_refusal
            else None
        )
        if described is not None:
            return CaptureError(
                f"the model could not be captured; {described.message}",
                cause=described.cause,
                places=as_places(described.locations, model.module),
                fix=described.fix,
                code=described.codes[0],
            )
        for failure in failures:
            explained = explain(failure.error)
            if explained is not None:
                location = location_of_error(failure.error) or location_of_error(first.error)
                said = f"    {_shorten_error(failure.error, 2)}"
                details = ("", f"  {failure.strategy}", said)
                return make_explained_error(explained, location, model.module, *details)
    return _report_failures(model, requested, failures, observes, limit)


def _report_failures(
    model: Model,
    requested: DynamicShapes,
    failures: Sequence[Failure],
    observes: str | None,
    limit: TimeLimit,
) -> CaptureError:
    """The error in torch's own words, which tells whether the model, torch or onnx_aot failed."""
    shown = _select_telling(failures)
    first = shown[0]
    location = _locate(first)
    if observes is not None:
        what, head, fix = observes, f"the model could not be captured: {observes}", ""
    elif (alone := error_of_model(model.module, model.inputs)) is not None:
        return explain_failing(model.module, model.inputs, alone)
    elif limit.allows("a comparison with torch.export alone"):
        what, head, fix = _compare_with_torch(model, requested, first)
    else:
        what = "torch.export fails"
        head = "the model could not be captured:"
        fix = "run torch.export.export(model, args), which shows whether it fails by itself"
    lines = [
        head,
        "",
        f"  {first.strategy}",
        f"    {_shorten_error(first.error, 8)}",
        *with_line(location),
    ]
    for failure in shown[1:]:
        lines += ["", f"  {failure.strategy}", f"    {_shorten_error(failure.error, 2)}"]
        lines += with_line(_locate(failure))
    lines += ["", f"fix: {fix}"] if fix else [""]
    lines.append(f"The failure of {failures[0].strategy} is chained, with its traceback")
    return CaptureError(
        "\n".join(lines),
        cause=f"{what}: {_shorten_error(first.error, 2)}",
        places=as_places([location], model.module),
        fix=fix or "onnx-aot explain OA199 describes how to find the cause",
    )


def _select_telling(failures: Sequence[Failure]) -> list[Failure]:
    """The first failure at each line of the user's code; all, if none has a line.

    Strategies that fail at one line do so for one reason, which the later ones wrap in more of
    torch's words. A failure without a line is one inside of torch.
    """
    by_line = {_locate(failure): failure for failure in reversed(failures)}
    return [f for f in failures if by_line[_locate(f)] is f and _locate(f)] or list(failures)


def _locate(failure: Failure) -> Location | None:
    return location_of_error(failure.error) or location_in_dynamo(failure.error)


def _compare_with_torch(
    model: Model, requested: DynamicShapes, failure: Failure
) -> tuple[str, str, str]:
    """The party at fault, the beginning of a message about it, and what to do.

    Captures the model once more with ``torch.export`` alone, without this package's changes.
    """
    args, kwargs = unwrap_constants((model.inputs.args, model.inputs.kwargs))
    strict = failure.strategy == STRATEGIES["strict"]
    call = f"torch.export.export(model, args{', strict=True' if strict else ''})"
    try:
        with preserved_state(model.module), applied(SILENT, Settings()):
            torch.export.export(
                model.module, args, kwargs, dynamic_shapes=requested.spec, strict=strict
            )
    except Exception as error:
        what = "torch.export refuses the model"
        same = _first_line(error) == _first_line(failure.error)
        shows = "shows the failure" if same else f"fails too ({_shorten_error(error, 1)})"
        return what, "the model could not be captured:", f"{call} {shows} without this package"
    what = "torch.export captures the model and onnx_aot does not, which is a bug of onnx_aot"
    fix = f"export what it gives, onnx_aot.export({call}), and report the traceback below"
    return what, f"the model could not be captured; {what}:", fix


def _find_data_questions(
    model: Model,
    requested: DynamicShapes,
    first: Failure,
    plain: bool,
    limit: TimeLimit,
    conversions: frozenset[tuple[str, str]],
) -> NeedsData | None:
    """All places that need the values of data, found with draft export if it succeeds."""
    free = relax_request(requested)  # with a dimension that data fixes, torch would draft twice
    run = Run.prepare("draft", model, free, plain=plain, limit=limit, conversions=conversions)
    branches = Branching(
        [d.location for d in first.decisions if d.kind == "both"],
        way=describe_way(first.decisions, first.error),
    )
    if isinstance(first.error, UnjoinableError):
        branches = dataclasses.replace(branches, reason=str(first.error), fix=first.error.fix)
    described = None
    if limit.allows(_ALL_PLACES):
        limit.begin_run()
        missing: Sequence[str] = ()
        is_drafted = False
        try:
            program = run_strategy(run)
        except Exception as error:
            logger.info("torch.export.draft_export failed: %s", _first_line(error))
            is_drafted = limit.ended
        else:
            missing, is_drafted = missing_fake_kernels(program), True
        if limit.ended:
            limit.left_out.append(_ALL_PLACES)
        if is_drafted:
            described = describe_data_dependent(run.decisions, missing, True, branches)
    return described or describe_data_dependent(first.decisions, (), False, branches)


_ALL_PLACES = "the search for all places that need values of data"


def _shorten_error(error: Exception, most: int) -> str:
    """An error in a few lines."""
    lines = [line for line in only_says(error).strip().splitlines() if line.strip()]
    shown = "\n    ".join(lines[:most]) + (" ..." if len(lines) > most else "")
    return f"{type(error).__name__}: {shown}".rstrip()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
