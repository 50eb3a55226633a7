"""Describes why an export failed: the cause, its place in the user's code, and the fix."""

from __future__ import annotations

import dataclasses

from onnx_aot.errors import (
    CaptureError,
    ConversionError,
    DynamicShapeError,
    InvalidOptionError,
    OnnxExporterError,
    OpsetError,
    SourceLocation,
    TranslationError,
    UnsupportedOperatorError,
    message_of,
)

__all__ = ["Failure", "FailureDetail", "failure_of"]

# Used where an error has no advice of its own.
FIXES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidOptionError, "call export as the message says"),
    (CaptureError, "do as the message or the page of its code says"),
    (DynamicShapeError, "change dynamic_shapes or the model as the message says"),
    (
        TranslationError,
        "correct the translation if it is yours; otherwise pass your own for the operator, "
        "custom_translation_table={operator: function}, and report this as a bug of onnx_aot",
    ),
    (ConversionError, "do as the message or the page of its code says"),
    (OnnxExporterError, "do as the message says"),
    (KeyboardInterrupt, "it was interrupted; export again"),
    (
        MemoryError,
        "make the model within onnx_aot.enable_fake_mode(), which needs no memory for "
        "weights; program.apply_weights(path) reads them while saving",
    ),
)
BUG = "this may be a bug of onnx_aot: report it with this file"


@dataclasses.dataclass(frozen=True)
class FailureDetail:
    """One of several problems that made an export fail.

    Attributes:
        what: The operator, with how often it occurs.
        places: Every line of the user's code that it comes from.
        reason: What is missing.
        stub: Code to start a translation from, or an empty string.
    """

    what: str
    places: tuple[SourceLocation, ...] = ()
    reason: str = ""
    stub: str = ""


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why an export failed.

    Attributes:
        error: Name of the exception's class.
        code: Code of the page that explains it; empty for errors of other packages.
        stage: Name of the stage that failed, or an empty string.
        cause: What was found, in a few sentences.
        places: Lines of the user's code, the one that matters most first.
        fix: What to do.
        message: The whole message.
        details: One entry per problem, if there can be several; else empty.
        traceback: Python's traceback.
    """

    error: str
    code: str
    stage: str
    cause: str
    places: tuple[SourceLocation, ...]
    fix: str
    message: str
    details: tuple[FailureDetail, ...]
    traceback: str


def failure_of(error: BaseException, stage: str, traceback: str) -> Failure:
    """Describes an exception, given the stage that it ended and its traceback as text."""
    name, message = type(error).__name__, message_of(error)
    ours = error if isinstance(error, OnnxExporterError) else OnnxExporterError()
    cause, places, fix = ours.cause, ours.places, ours.fix
    first = message.strip().partition("\n\n")[0]
    cause = cause or "\n".join(first.splitlines()[:4]) or name
    if not isinstance(error, OnnxExporterError):
        cause = f"{name}: {cause}"
    fix = fix or next((text for kind, text in FIXES if isinstance(error, kind)), BUG)
    return Failure(
        name, ours.code, stage, cause, places, fix, message, _list_details(error), traceback
    )


def _list_details(error: BaseException) -> tuple[FailureDetail, ...]:
    if isinstance(error, UnsupportedOperatorError):
        return tuple(
            FailureDetail(
                f"{operator.target} ({operator.count}x)",
                operator.places,
                operator.reason or "has neither a translation nor a decomposition",
                operator.stub,
            )
            for operator in error.operators
        )
    if isinstance(error, OpsetError):
        return tuple(
            FailureDetail(
                ", ".join(f"{target} ({count}x)" for target, count in entry.targets)
                or entry.operator,
                entry.places,
                entry.problem,
            )
            for entry in error.missing
        )
    return ()
