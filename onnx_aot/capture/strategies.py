"""Captures a model with ``torch.export``, non-strict first, then strict.

The changes to torch that ``patches`` lists make the capture cheap and keep it general.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch

from onnx_aot.capture.error_hints import Explanation, explain, page
from onnx_aot.capture.fake_quantization import observing
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.io_hooks import Boundary
from onnx_aot.capture.module_state import preserved_state
from onnx_aot.capture.patches import PATCHES
from onnx_aot.capture.patches.model_calls import ModelRows
from onnx_aot.capture.python_random import draws_observed
from onnx_aot.capture.scalar_inputs import floats_as_tensors
from onnx_aot.capture.scripted.children import is_scripted
from onnx_aot.capture.sizes.data_dependent import (
    NeedsData,
    describe_data_dependent,
    describe_larger,
)
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.empty_inputs import (
    contradicts_example,
    is_derived_from_zero,
    may_be_wrong,
)
from onnx_aot.capture.sizes.guards import (
    Decision,
    DecisionLog,
    as_places,
    is_ours,
    location_of_error,
    with_line,
)
from onnx_aot.capture.sizes.scalar_tensor_values import ConstantWritten, constants_of
from onnx_aot.capture.sizes.specialization import (
    describe_torch,
    findings,
    is_delivered,
    refusal,
    relaxed,
)
from onnx_aot.errors import CaptureError, DynamicShapeError, InvalidOptionError
from onnx_aot.pytrees.containers import unwrap_constants
from onnx_aot.torch_compat import (
    EXPECTED_WARNINGS,
    SILENT,
    Settings,
    applied,
    missing_fake_kernels,
    needs_data,
    only_says,
    pytree,
    violates_constraints,
)

__all__ = ["DEFAULT", "STRATEGIES", "Captured", "capture", "capture_conditions", "check_strategies"]

logger = logging.getLogger(__name__)

STRATEGIES: dict[str, str] = {
    "non-strict": "torch.export.export(strict=False)",  # traces through Python, refuses least
    "strict": "torch.export.export(strict=True)",  # analyses bytecode, sees the branches themselves
    "draft": "torch.export.draft_export",  # follows the example where data decides
    "trace": "torch.jit.trace",  # records what is computed for the example
}

DEFAULT = ("non-strict", "strict")


@dataclasses.dataclass(frozen=True)
class Captured:
    """The captured program and how it was obtained.

    Attributes:
        program: The captured program.
        strategy: The call of torch that produced it.
        requested: The request, less what the model does not deliver and the user accepts.
        decisions: Decisions of the capture about sizes, with the user's lines.
        given_up: A sentence for every dimension that came out differently from the request.
        warning: What holds for a part of the data only: values that ``draft`` and ``trace`` fix to
            those of the example, and answers about sizes that depend on data.
        drawn: Generators of Python and numpy that the model drew random numbers from.
        above_zero: Whether it may be wrong for empty tensors.
        off: Sentences about what this package could not change in torch.
        retried: Why the capture was repeated without the optional changes to torch, in a sentence.
    """

    program: torch.export.ExportedProgram
    strategy: str
    requested: DynamicShapes
    decisions: tuple[Decision, ...]
    given_up: tuple[str, ...] = ()
    warning: str | None = None
    drawn: tuple[str, ...] = ()
    above_zero: bool = False
    off: tuple[str, ...] = ()
    retried: str | None = None


@dataclasses.dataclass(frozen=True)
class _Model:
    """The model to capture, with everything that one or several attempts need.

    Attributes:
        module: The model.
        inputs: Example inputs.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        strategies: Names from ``STRATEGIES``, in the order in which they are tried.
        constants: Values of buffers that the capture treats as numbers, by name.
        small_sizes: Whether dimensions whose example size is 0 or 1 stay dynamic.
        plain: Whether the optional changes to torch are left out.
    """

    module: torch.nn.Module
    inputs: Inputs
    collected: tuple[str, ...]
    strategies: tuple[str, ...]
    constants: Mapping[str, int] = dataclasses.field(default_factory=dict)
    small_sizes: bool = True
    plain: bool = False


def check_strategies(given: Sequence[str]) -> tuple[str, ...]:
    """The strategies as a tuple.

    Raises:
        InvalidOptionError: They are not a list of known names.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in names if name not in STRATEGIES]
    if isinstance(given, str) or unknown or not names:
        raise InvalidOptionError(
            f"strategies is {given!r}; it is a tuple of {', '.join(map(repr, STRATEGIES))}, tried "
            f"in its order, such as {(*DEFAULT, 'draft')!r}"
        )
    return names


@dataclasses.dataclass(frozen=True)
class _Failure:
    """One strategy that failed."""

    strategy: str
    error: Exception
    decisions: tuple[Decision, ...]


def capture(
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    collected: tuple[str, ...] = (),
    on_specialized: Literal["error", "warn", "allow"] = "error",
    strategies: tuple[str, ...] = DEFAULT,
) -> Captured:
    """Captures ``module(*args, **kwargs)`` as a graph of ATen operators.

    Args:
        module: The model, which is left unchanged.
        inputs: Example inputs.
        requested: The requested dynamic shapes.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        on_specialized: With ``"error"``, a dimension that the model fixes, or limits to less than
            its ``Dim`` allows, is an error; otherwise it is captured as the model needs it, and
            ``given_up`` says so.
        strategies: Names from ``STRATEGIES``, which are tried in this order.

    Raises:
        DynamicShapeError: The model fixes or limits a dimension that was requested as dynamic.
        InvalidOptionError: The model returns an object of an unsupported class.
        CaptureError: Every strategy failed for another reason; the first failure is chained.
    """
    if is_scripted(module):  # its graph is interpreted, so there is only one strategy
        strategies = ("non-strict",)
    constants = {} if is_scripted(module) else constants_of(module)
    model = _Model(module, inputs, collected, strategies, constants)
    captured = _captured(model, requested)
    if not isinstance(captured, Captured) and any(is_ours(f.error) for f in captured):
        failure = next(f for f in captured if is_ours(f.error))
        model = dataclasses.replace(model, plain=True)
        again = _captured(model, requested)
        if isinstance(again, Captured):
            captured = dataclasses.replace(again, retried=_describe_retry(failure))
    if isinstance(captured, Captured):
        found = findings(captured.program, requested, captured.decisions)
        if not found:
            return captured
        if on_specialized == "error":
            raise refusal(found, module)
        given_up = tuple(map(str, found))
        again = _captured(model, relaxed(requested, found))
    else:
        first = next((f for f in captured if violates_constraints(f.error)), None)
        if first is None:
            raise _refusal(model, requested, captured) from captured[0].error
        free = _captured(model, relaxed(requested))
        if not isinstance(free, Captured):
            raise DynamicShapeError(
                describe_torch(first.error, requested, first.decisions)
            ) from first.error
        found = findings(free.program, requested, free.decisions, refused=True)
        given_up = tuple(map(str, found))
        if not found and not is_delivered(first.error, requested, first.decisions):
            given_up = (describe_torch(first.error, requested, first.decisions),)
        if given_up and on_specialized == "error":
            raise (
                refusal(found, module) if found else DynamicShapeError(given_up[0])
            ) from first.error
        again = _captured(model, relaxed(requested, found, first.error))
        if not isinstance(again, Captured):
            again = free
    if not isinstance(again, Captured):
        raise refusal(found, module) from again[0].error
    return dataclasses.replace(again, given_up=given_up)


def _captured(model: _Model, requested: DynamicShapes) -> Captured | list[_Failure]:
    """The result of the first strategy that succeeds, or why each failed.

    Dimensions whose example size is 0 or 1 stay dynamic, unless the captured sizes then contradict
    the example.
    """
    found = _right_when_empty(model, requested)
    if isinstance(found, Captured) and contradicts_example(found.program):
        return _attempt(dataclasses.replace(model, small_sizes=False), requested, from_zero=False)
    return found


def _right_when_empty(model: _Model, requested: DynamicShapes) -> Captured | list[_Failure]:
    """The result of the first strategy that succeeds, or why each failed.

    If that may be wrong for empty tensors, the model is captured again in a way that is right for
    them. The second result is used unless it fails or restricts the dimensions more. The first
    capture stops as soon as the problem is seen, and is completed only if the second is not used.
    """
    derived = is_derived_from_zero(requested)
    try:
        first = _attempt(model, requested, from_zero=derived, whole=derived)
    except _MayBeWrong:
        second = _attempt(model, requested, from_zero=True)
        if isinstance(second, Captured) and not _limits(second, requested):
            return second
        first = _attempt(model, requested, from_zero=False)
        return second if isinstance(second, Captured) and not isinstance(first, Captured) else first
    if isinstance(first, Captured):
        limited = derived and findings(first.program, requested, first.decisions)
        if not first.above_zero and not limited:
            return first
    elif not derived:
        return first
    second = _attempt(model, requested, from_zero=not derived)
    if isinstance(first, Captured) and isinstance(second, Captured):
        return first if _limits(second, requested) else second
    return first if isinstance(first, Captured) else second


def _limits(captured: Captured, requested: DynamicShapes) -> bool:
    return bool(findings(captured.program, requested, captured.decisions, refused=True))


class _MayBeWrong(BaseException):
    """Ends a capture whose result would be wrong for empty tensors.

    A BaseException, so that no ``except Exception`` in the model or in torch swallows it. Raised in
    the capturing thread and caught by ``_right_when_empty``.
    """


def _attempt(
    model: _Model, requested: DynamicShapes, from_zero: bool, whole: bool = True
) -> Captured | list[_Failure]:
    """The result of the first strategy that succeeds, or why each failed.

    Raises:
        _MayBeWrong: ``whole`` is False, and the first strategy's result would be wrong for empty
            tensors.
    """
    failures: list[_Failure] = []
    for name in model.strategies:
        ignored: list[bool] = []  # True: matters even if no size is computed
        ends = not whole and name == "non-strict" and not failures

        def ignore(everywhere: bool, ignored: list[bool] = ignored, ends: bool = ends) -> None:
            ignored.append(everywhere)
            if everywhere and ends:
                raise _MayBeWrong

        decisions = DecisionLog(sys._getframe().f_code)
        settings = _settings(model, requested, name)
        settings.from_zero, settings.zero_ignored = from_zero, ignore
        settings.decided, settings.larger_sizes = decisions.seen, name == "non-strict"
        try:
            program, warning, drawn = _run(name, model, requested, decisions, settings)
        except (CaptureError, InvalidOptionError):  # our own messages need no explanation
            raise
        except ConstantWritten:
            model = dataclasses.replace(model, constants={})
            return _attempt(model, requested, from_zero, whole)
        except Exception as error:
            logger.info("%s failed: %s", name, _first_line(error))
            failures.append(_Failure(STRATEGIES[name], error, tuple(decisions)))
            continue
        return Captured(
            program,
            STRATEGIES[name],
            requested,
            tuple(decisions),
            warning=warning or describe_larger(decisions),
            drawn=tuple(drawn),
            above_zero=any(ignored) or may_be_wrong(program, bool(ignored)),
            off=tuple(f"{p.name}: {why}. {p.without}" for p, why in settings.off.items()),
        )
    return failures


def _run(
    name: str,
    model: _Model,
    requested: DynamicShapes,
    decisions: list[Decision],
    settings: Settings,
) -> tuple[torch.export.ExportedProgram, str | None, Sequence[str]]:
    """Runs one strategy; returns its program, its warning, and the generators drawn from."""
    inputs = floats_as_tensors(model.inputs, requested.floats)
    spec, warning = requested.spec, None
    if name in ("draft", "trace"):
        from onnx_aot.capture.draft_and_trace import describe_draft, traced
    if name == "trace":
        script, warning = traced(model.module, inputs)
        model = dataclasses.replace(model, module=script, collected=(), constants={})
        settings.module, settings.model_rows = script, _rows(model, requested, strict=False)
    with _changed(model, settings), draws_observed() as drawn:
        if name == "draft":
            program = torch.export.draft_export(
                model.module, inputs.args, inputs.kwargs, dynamic_shapes=spec
            )
            return program, describe_draft(program, decisions), drawn
        program = torch.export.export(
            model.module, inputs.args, inputs.kwargs, dynamic_shapes=spec, strict=settings.strict
        )
    return program, warning, drawn


def _settings(model: _Model, requested: DynamicShapes, name: str) -> Settings:
    """Settings with which a strategy captures a model."""
    strict = name == "strict"
    return Settings(
        module=model.module,
        inputs=(model.inputs.args, model.inputs.kwargs),
        strict=strict,
        lazy=not strict,  # strict capture reads the generated code
        dynamic=requested.spec is not None,
        small_sizes=model.small_sizes,
        keeps_log=name != "draft",
        plain=model.plain,
        model_rows=_rows(model, requested, strict),
    )


def _rows(model: _Model, requested: DynamicShapes, strict: bool) -> ModelRows:
    return ModelRows(model.inputs, requested, model.collected, model.constants, Boundary(strict))


@contextlib.contextmanager
def _changed(model: _Model, settings: Settings) -> Iterator[None]:
    """Changes torch, packages and the model for a capture and restores everything afterwards."""
    with preserved_state(model.module), capture_conditions(settings):
        yield


@contextlib.contextmanager
def capture_conditions(settings: Settings | None = None) -> Iterator[None]:
    """Applies the patches and silences expected warnings while torch traces a program."""
    with applied(PATCHES, settings or Settings()), warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield


def _refusal(model: _Model, requested: DynamicShapes, failures: list[_Failure]) -> CaptureError:
    """The error about a model that cannot be captured: reason, place in the user's code, edit."""
    first = failures[0]
    observes = observing(model.module)
    if observes is None:
        described = _draft(model, requested, first) if needs_data(first.error) else None
        if described is not None:
            return CaptureError(
                f"the model could not be captured; {described.message}",
                cause=described.cause,
                places=as_places(described.locations, model.module),
                fix=described.fix,
            )
        for failure in failures:
            explained = explain(failure.error)
            if explained is not None:
                return _explained(explained, failure, first, model)
    return _unexplained(model, requested, failures, observes)


def _describe_retry(failure: _Failure) -> str:
    return (
        "the capture failed in the code of this package, and was made again with as few changes to "
        "torch as possible. That is a bug of onnx_aot; please report it. The export may be slower, "
        f"or refuse more, for it: {_short(failure.error, 2)}"
    )


def _unexplained(
    model: _Model, requested: DynamicShapes, failures: list[_Failure], observes: str | None
) -> CaptureError:
    """The error in torch's own words, which tells whether the model, torch or onnx_aot failed."""
    first = failures[0]
    location = location_of_error(first.error)
    if observes is not None:
        what, head, fix = observes, f"the model could not be captured: {observes}", ""
    elif _fails_alone(model):
        what = "the model fails on the example inputs by itself, without an export"
        head = "the model could not be captured; it fails on the example inputs by itself:"
        fix = "run model(*args), and correct the model or the inputs"
    else:
        what, head, fix = _compared_with_torch(model, requested, first)
    lines = [head, "", f"  {first.strategy}", f"    {_short(first.error, 8)}", *with_line(location)]
    for failure in failures[1:]:
        lines += ["", f"  {failure.strategy}", f"    {_short(failure.error, 2)}"]
    lines += ["", f"fix: {fix}"] if fix else [""]
    lines.append("The first failure is chained, with its traceback. " + _OTHERS)
    return CaptureError(
        "\n".join(lines),
        cause=f"{what}: {_short(first.error, 2)}",
        places=as_places([location], model.module),
        fix=f"{fix}. {_OTHERS}" if fix else _OTHERS,
    )


def _compared_with_torch(
    model: _Model, requested: DynamicShapes, failure: _Failure
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
        shows = "shows the failure" if same else f"fails too ({_short(error, 1)})"
        return what, "the model could not be captured:", f"{call} {shows} without this package"
    what = "torch.export captures the model and onnx_aot does not, which is a bug of onnx_aot"
    fix = f"export what it gives, onnx_aot.export({call}), and report the traceback below"
    return what, f"the model could not be captured; {what}:", fix


_OTHERS = page("other-failures")


def _fails_alone(model: _Model) -> bool:
    """True if the model raises without any capture. Its state is restored."""
    inputs = (model.inputs.args, model.inputs.kwargs)
    tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    buffers = [(buffer, buffer.clone()) for buffer in model.module.buffers()]
    if any(tensor.is_meta for tensor in (*tensors, *model.module.parameters())):
        return False  # without values the model fails for other reasons
    args, kwargs = unwrap_constants(
        pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)
    )
    with preserved_state(model.module), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            model.module(*args, **kwargs)
        except Exception:
            return True
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
    return False


def _explained(
    explained: Explanation, failure: _Failure, first: _Failure, model: _Model
) -> CaptureError:
    location = location_of_error(failure.error) or location_of_error(first.error)
    lines = [
        f"the model could not be captured; {explained.reason}:",
        *with_line(location, "  "),
        f"fix: {explained.fix}",
        page(explained.anchor),
        "",
        f"  {failure.strategy}",
        f"    {_short(failure.error, 2)}",
    ]
    return CaptureError(
        "\n".join(lines),
        cause=explained.reason,
        places=as_places([location], model.module),
        fix=f"{explained.fix}. {page(explained.anchor)}",
    )


def _draft(model: _Model, requested: DynamicShapes, first: _Failure) -> NeedsData | None:
    """All places that need the values of data, found with draft export if it succeeds."""
    inputs = floats_as_tensors(model.inputs, requested.floats)
    decisions = DecisionLog(sys._getframe().f_code)
    settings = _settings(model, requested, "draft")
    settings.decided = decisions.seen
    try:
        with _changed(model, settings):
            program = torch.export.draft_export(
                model.module, inputs.args, inputs.kwargs, dynamic_shapes=requested.spec
            )
    except (Exception, ConstantWritten) as error:
        logger.info("torch.export.draft_export failed: %s", _first_line(error))
    else:
        missing = missing_fake_kernels(program)
        described = describe_data_dependent(decisions, missing, complete=True)
        if described is not None:
            return described
    return describe_data_dependent(first.decisions, (), complete=False)


def _short(error: Exception, most: int) -> str:
    """An error in a few lines."""
    lines = [line for line in only_says(error).strip().splitlines() if line.strip()]
    shown = "\n    ".join(lines[:most]) + (" ..." if len(lines) > most else "")
    return f"{type(error).__name__}: {shown}".rstrip()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
