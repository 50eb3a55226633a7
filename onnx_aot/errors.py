"""Exceptions and warnings of onnx_aot.

    OnnxExporterError (RuntimeError)
    |-- InvalidOptionError            an argument of a public function is not accepted
    |-- CaptureError                  torch.export could not capture the model
    |-- DynamicShapeError             a dimension asked to be dynamic is not
    |-- ConversionError               the captured graph could not become ONNX
    |   |-- UnsupportedOperatorError  operators without a translation, all of them at once
    |   |-- FunctionalizationError    an in-place write without a functional form
    |   |-- OpsetError                operators, or types of them, that the opset lacks
    |   `-- TranslationError          one node could not be translated
    |-- SaveError                     the file could not be written; nothing was changed on disk
    |-- InferenceError                the inputs do not fit the ONNX model, or it cannot run
    |-- VerificationError             the ONNX model answers differently from PyTorch
    `-- SweepError                    a sweep could not start its processes or keep its results

    OnnxExporterWarning (UserWarning)

A message says what was found, where in the user's code, what is accepted, and what to do next. Its
last line names the page of its code, which is in ``explanations/``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

__all__ = [
    "CaptureError",
    "ConversionError",
    "DynamicShapeError",
    "FunctionalizationError",
    "InferenceError",
    "InvalidOptionError",
    "MissingInOpset",
    "OnnxExporterError",
    "OnnxExporterWarning",
    "OpsetError",
    "SaveError",
    "SourceLocation",
    "SweepError",
    "TranslationError",
    "UnsupportedOperator",
    "UnsupportedOperatorError",
    "VerificationError",
    "add_line",
    "innermost_message",
    "message_of",
    "reference",
    "warn",
    "warnings_held",
]

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def reference(code: str) -> str:
    """Returns the line that names the page of a code.

    >>> reference("OA101")
    'See: onnx-aot explain OA101'
    """
    return f"See: onnx-aot explain {code}"


@dataclasses.dataclass(frozen=True)
class SourceLocation:
    """A line of the user's code, with the module and the captured node that it belongs to.

    Attributes:
        file: Its file.
        line: Its number, from 1.
        function: The function it is in.
        code: The line itself, or an empty string if its source is not available.
        module: Path of the module that runs it, such as ``"encoder.layers.0"``; empty for the model
            itself, or if it is not known.
        node: Name of the node in the captured graph, or an empty string.
        caller: The nearest line that calls it from outside of installed packages, if it is in one
            or has no source.
    """

    file: str
    line: int
    function: str
    code: str = ""
    module: str = ""
    node: str = ""
    caller: SourceLocation | None = None

    def __str__(self) -> str:
        called = "" if self.caller is None else f", called from {self.caller}"
        return f"{self.file}:{self.line} in {self.function}{called}"

    @property
    def with_code(self) -> str:
        """``file:line in function: code``, and the same of the caller."""
        own = str(dataclasses.replace(self, caller=None))
        shown = f"{own}: {self.code}" if self.code else own
        return shown if self.caller is None else f"{shown}; called from {self.caller.with_code}"


class OnnxExporterError(RuntimeError):
    """Base class of every error raised by onnx_aot.

    The attributes hold what a report shows first, if it is known; the message has all of it.

    Attributes:
        code: Code of the page that explains it: ``onnx_aot.explain(error.code)``. It is stable.
        message: The text without the last line, which names that page.
        cause: What was found, in a sentence.
        places: Lines of the user's code, the one that matters most first.
        fix: What to do about it.
    """

    code = ""  # of errors of the class that have none of their own

    def __init__(
        self,
        message: str = "",
        *,
        cause: str = "",
        places: Sequence[SourceLocation] = (),
        fix: str = "",
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.places = tuple(places)
        self.fix = fix
        self.code = code or type(self).code

    @property
    def message(self) -> str:  # noqa: D102 - an attribute of the class
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.message}\n{reference(self.code)}" if self.code else self.message


class OnnxExporterWarning(UserWarning):
    """Category of every warning issued by onnx_aot.

    Attributes:
        code: Code of the page that explains it: ``onnx_aot.explain(warning.code)``. It is stable.
        message: The text without the last line, which names that page.
    """

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n{reference(self.code)}" if self.code else self.message


_held: ContextVar[list[tuple[str, str]] | None] = ContextVar("_held", default=None)


@contextlib.contextmanager
def warnings_held() -> Iterator[list[tuple[str, str]]]:
    """Context in which ``warn`` only collects, for attempts that may be given up.

    Yields the messages with their codes, to be passed to ``warn``.
    """
    found: list[tuple[str, str]] = []
    token = _held.set(found)
    try:
        yield found
    finally:
        _held.reset(token)


def warn(message: str, code: str) -> None:
    """Issues an ``OnnxExporterWarning`` for the user's line that called this package.

    Args:
        message: The text.
        code: Code of the page that explains it.
    """
    held = _held.get()
    if held is not None:
        held.append((message, code))
        return
    depth = 1
    while depth < 50:  # frames; calls within this package are never nested as deep
        try:
            frame = sys._getframe(depth)
        except ValueError:  # nothing but this package is on the stack
            break
        if not frame.f_code.co_filename.startswith(PACKAGE):
            break
        depth += 1
    warnings.warn(OnnxExporterWarning(message, code), stacklevel=depth + 1)


def innermost_message(error: BaseException) -> str:
    """Class and text of the error that others were raised from, which only say where it was."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """Text of an error to be part of another message: without the page of its code."""
    return error.message if isinstance(error, OnnxExporterError) else str(error)


def add_line(error: BaseException, line: str) -> None:
    """Appends a line to the message of an error.

    Errors of other packages get a note, which Python prints from 3.11 on.
    """
    if isinstance(error, OnnxExporterError) and error.args:
        error.args = (f"{error.args[0]}\n{line}", *error.args[1:])
    elif hasattr(error, "add_note"):
        error.add_note(line)


class InvalidOptionError(OnnxExporterError, ValueError):
    """An argument of a public function is not accepted; nothing has been done."""

    code = "OA001"


class CaptureError(OnnxExporterError):
    """``torch.export`` could not capture the model; the cause is chained."""

    code = "OA199"


class DynamicShapeError(OnnxExporterError):
    """A dimension that was asked to be dynamic came out static, or the request is malformed."""

    code = "OA201"


class ConversionError(OnnxExporterError):
    """The captured graph could not be turned into ONNX."""

    code = "OA304"


class FunctionalizationError(ConversionError):
    """An in-place write has no functional form that this exporter knows.

    Attributes:
        torch_has_one: Whether torch's ``run_decompositions`` may have one. It loses writes through
            views that an operator's schema does not declare, and some writes to repeated elements.
    """

    code = "OA301"

    def __init__(self, message: str, *, torch_has_one: bool = True, code: str = "") -> None:
        self.torch_has_one = torch_has_one
        super().__init__(message, code=code)

    def with_line(self, line: SourceLocation | None) -> FunctionalizationError:
        """Returns the error with the line that writes, unless it names one."""
        if line is None or f"{line.file}:" in self.message:
            return self
        message = f"{self.message} (at {line})"
        return FunctionalizationError(message, torch_has_one=self.torch_has_one, code=self.code)


@dataclasses.dataclass(frozen=True)
class MissingInOpset:
    """An ONNX operator, or a form of it, that the opset asked for does not have.

    Attributes:
        operator: The ONNX operator, such as ``"BitwiseAnd"``.
        problem: What is missing, and which opset has it.
        since: The lowest opset that has it; None if no supported opset does.
        targets: The model's operators that need it, with the number of nodes that call each.
        locations: Lines of the user's code as ``"file:line in function"``, without repetition.
        places: The same lines, with modules and captured nodes.
    """

    operator: str
    problem: str
    since: int | None = None
    targets: tuple[tuple[str, int], ...] = ()
    locations: tuple[str, ...] = ()
    places: tuple[SourceLocation, ...] = ()


class OpsetError(ConversionError):
    """The opset asked for lacks ONNX operators, or lacks them for a type of input.

    An export collects all of them in one error.

    Attributes:
        missing: One entry per operator and form of it that is missing.
        lowest: The lowest opset that has all of them; None if no supported opset does.
    """

    code = "OA402"

    def __init__(self, *missing: MissingInOpset) -> None:
        self.missing = missing
        sinces = [entry.since for entry in missing]
        known = [since for since in sinces if since is not None]
        self.lowest = max(known) if len(known) == len(sinces) else None
        problems = "; ".join(entry.problem for entry in missing[:3])
        super().__init__(
            _describe_missing(missing, self.lowest),
            cause=problems + (f"; and {len(missing) - 3} more" if len(missing) > 3 else ""),
            places=[place for entry in missing for place in entry.places],
            fix="" if self.lowest is None else f"pass opset_version={self.lowest} or higher",
        )


class TranslationError(ConversionError):
    """A translation failed on one node; the cause is chained."""

    code = "OA403"


@dataclasses.dataclass(frozen=True)
class UnsupportedOperator:
    """One operator that has no translation.

    Attributes:
        target: The ATen or custom operator, such as ``"mylib.gadget.default"``.
        schema: Its schema, or an empty string if it has none.
        count: Number of nodes that call it.
        locations: Lines of the user's code as ``"file:line in function"``, without repetition.
        reason: Known reason why it is not translated, or an empty string.
        parameters: Parameters that a translation of it takes after ``op``.
        stub: Code to start a translation from, or an empty string if it has no schema.
        places: The lines of ``locations``, with modules and captured nodes.
    """

    target: str
    schema: str
    count: int
    locations: tuple[str, ...]
    reason: str = ""
    parameters: tuple[str, ...] = ()
    stub: str = ""
    places: tuple[SourceLocation, ...] = ()


class UnsupportedOperatorError(ConversionError):
    """Operators that have neither a translation nor a decomposition, all of them at once.

    Attributes:
        operators: One entry per operator, most frequent first.
    """

    code = "OA401"

    def __init__(self, operators: tuple[UnsupportedOperator, ...]) -> None:
        self.operators = operators
        names = ", ".join(f"{operator.target} ({operator.count}x)" for operator in operators)
        register = "; ".join(
            f"onnx_aot.register({target}, {name})"
            for target, name in map(_registration, operators[:1])
        )
        super().__init__(
            _describe_unsupported(operators),
            cause=f"no ONNX translation for {len(operators)} operator(s) of the model: {names}",
            places=[place for operator in operators for place in operator.places],
            fix=f"write a translation, starting from the stub below, and call {register}, or "
            "pass it to export in custom_translation_table; or export the operator under "
            'its own name for a runtime that has it: unsupported="emit"',
        )


class SaveError(OnnxExporterError):
    """The model could not be saved; files that existed before are untouched."""

    code = "OA501"


class InferenceError(OnnxExporterError):
    """An ONNX program cannot run, in most cases because the inputs do not fit its model."""

    code = "OA601"


class VerificationError(OnnxExporterError):
    """The ONNX model's outputs differ from PyTorch's beyond the tolerance, or it does not run."""

    code = "OA605"


class SweepError(OnnxExporterError):
    """A sweep could not go on: no process for its rows starts, or its folder is in use.

    Results of rows that have ended are kept. A row that fails raises nothing: it is a result.
    """

    code = "OA802"


def _describe_unsupported(operators: tuple[UnsupportedOperator, ...]) -> str:
    lines = [
        f"{len(operators)} operator(s) of the model have no ONNX translation:",
        "",
    ]
    for operator in operators:
        lines.append(f"  {operator.target}  ({operator.count}x)")
        lines.extend(f"      at {location}" for location in operator.locations)
        if operator.schema:
            lines.append(f"      {operator.schema}")
        if operator.reason:
            lines.append(f"      {operator.reason}")
    return "\n".join(lines + _stubs([o for o in operators if o.stub]))


def _describe_missing(missing: tuple[MissingInOpset, ...], lowest: int | None) -> str:
    lines = []
    if len(missing) > 1:
        lines.append(f"the requested opset lacks {len(missing)} features that the model needs:")
    for entry in missing:
        lines.append(entry.problem)
        if entry.targets:
            lines.append("    for " + ", ".join(f"{name} ({n}x)" for name, n in entry.targets))
        lines += [f"    at {location}" for location in entry.locations]
    if lowest is not None:
        lines.append(f"Pass opset_version={lowest} or higher")
    return "\n".join(lines)


def _registration(operator: UnsupportedOperator) -> tuple[str, str]:
    """Python expression for the operator, and the name of its stub."""
    name = operator.target.replace(".", "_").replace("::", "_")
    return f"torch.ops.{operator.target.replace('::', '.')}", name


STUBS = 5
"""Number of operators for which an error shows the code of a translation."""


def _stubs(operators: list[UnsupportedOperator]) -> list[str]:
    """Code to paste; only the returned values have to be filled in."""
    if not operators:
        return []
    lines = ["", "Add a translation for each, starting from this code:"]
    entered = []
    for operator in operators[:STUBS]:
        lines += ["", *(f"    {line}" for line in operator.stub.splitlines())]
        entered.append(_registration(operator))
    table = ", ".join(f"{target}: {name}" for target, name in entered)
    return [
        *lines,
        "",
        "Register it for every export, or pass it to one:",
        "",
        *(f"    onnx_aot.register({target}, {name})" for target, name in entered),
        f"    onnx_aot.export(model, args, custom_translation_table={{{table}}})",
        "",
        'unsupported="emit" exports such operators as nodes of their own names, which the runtime '
        "must provide",
    ]
