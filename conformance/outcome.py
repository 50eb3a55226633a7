"""Judges one sample: captures, exports, checks, loads, runs and compares it."""

from __future__ import annotations

import copy
import dataclasses
import re
import traceback
from collections.abc import Sequence
from typing import Any

import onnx
import torch

from conformance import equivalence, exporters
from conformance.other_releases import Release
from conformance.samples import Call, Case, Sample
from onnx_aot.errors import OpsetError, UnsupportedOperatorError
from onnx_aot.inspection.differences import compare_outputs

__all__ = ["OUTCOMES", "Result", "judge"]

OUTCOMES = (
    "pass",
    "not_captured",
    "unsupported_operator",
    "opset_error",
    "conversion_error",
    "checker_error",
    "ort_load_error",
    "run_error",
    "wrong_dtype",
    "wrong_shape",
    "wrong_value",
    "timeout",
    "crash",
)


# Prefixes of ONNX Runtime's messages, before the problem itself.
RUNTIME_PREFIX = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (Non-zero status code returned while running )?"
    r"|\S+/onnxruntime/\S+ (\S* )?"
)


@dataclasses.dataclass
class Result:
    """The outcome of one sample.

    Attributes:
        outcome: One of ``OUTCOMES``.
        reason: One line; empty for a pass.
        sample: The call, in short.
        detail: The whole error; not kept in files.
        flag: ``"random"`` or ``"uninitialized"`` if only type and shape are compared,
            ``"equivalent"`` if the answer is another one of several right ones, ``"exact"``
            if it agrees with PyTorch's in double precision and not with eager's own.
        targets: The operators of the captured program.
    """

    outcome: str
    reason: str = ""
    sample: str = ""
    detail: str = ""
    flag: str = ""
    targets: tuple[str, ...] = ()


class StopJudging(Exception):  # noqa: N818 - an outcome, not always an error
    """An outcome other than a pass was reached."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def judge(
    case: Case,
    sample: Sample,
    exporter: str,
    opset: int | None = None,
    release: Release | None = None,
) -> Result:
    """Captures, exports, checks, loads, runs and compares one sample.

    The capture is kept in the sample and used again at other opsets. The model runs in the
    installed ONNX Runtime, or in another ``release``.
    """
    result = Result("pass", sample=sample.describe())
    try:
        _judge_sample(case, sample, exporter, opset, release, result)
    except StopJudging as stop:
        cause = stop.__cause__
        result.outcome = stop.outcome
        result.reason = one_line(str(stop))
        result.detail = "" if cause is None else "".join(traceback.format_exception(cause))
    except Exception as error:  # the outputs cannot even be compared
        result.outcome = "wrong_value"
        result.reason = one_line(f"not comparable: {_describe_error(error)}")
        result.detail = traceback.format_exc()
    return result


def _judge_sample(
    case: Case,
    sample: Sample,
    exporter: str,
    opset: int | None,
    release: Release | None,
    result: Result,
) -> None:
    if sample.captured is None:
        sample.captured = _capture(case, sample)
    captured, expected = sample.captured
    result.targets = _called_operators(captured)
    result.flag = equivalence.find_flag(case.name, captured, sample.inputs)
    try:
        program = exporters.export(exporter, captured, opset, release)
    except Exception as error:
        kind = "unsupported_operator" if exporters.is_unsupported(error) else "conversion_error"
        kind = "opset_error" if isinstance(error, OpsetError) else kind
        raise StopJudging(kind, _describe_error(error)) from error
    try:
        onnx.checker.check_model(program.model_proto, full_check=True)
    except Exception as error:
        raise StopJudging("checker_error", _describe_error(error)) from error
    try:
        exporters.load(program, release)
    except Exception as error:
        raise StopJudging("ort_load_error", _describe_error(error)) from error
    try:
        actual = exporters.run(program, _clone_inputs(sample.inputs))
    except Exception as error:
        raise StopJudging("run_error", _describe_error(error)) from error
    actual = exporters.as_complex(exporter, expected, actual)
    _compare(case, sample.module, sample.inputs, expected, actual, result)
    for inputs in sample.others if case.group == "dynamic" else ():
        _compare_other_sizes(case, sample.module, captured, program, inputs, result)


def _compare_other_sizes(
    case: Case,
    module: Call,
    captured: torch.export.ExportedProgram,
    program: Any,
    inputs: tuple[torch.Tensor, ...],
    result: Result,
) -> None:
    """Compares the same model at other sizes, if the captured program accepts them."""
    try:
        with torch.no_grad():
            expected = list(module(*_clone_inputs(inputs)))
            captured.module()(
                *_clone_inputs(inputs)
            )  # raises if the program does not accept a size
    except Exception:
        return
    sizes = ", ".join(str(list(x.shape)) for x in inputs)
    try:
        actual = exporters.run(program, _clone_inputs(inputs))
    except Exception as error:
        raise StopJudging("run_error", f"at {sizes}: {_describe_error(error)}") from error
    try:
        _compare(case, module, inputs, expected, actual, result)
    except StopJudging as stop:
        raise StopJudging(stop.outcome, f"at {sizes}: {stop}") from stop.__cause__


def _capture(
    case: Case, sample: Sample
) -> tuple[torch.export.ExportedProgram, list[torch.Tensor | complex]]:
    if any(x.layout != torch.strided for x in sample.inputs):
        raise StopJudging("not_captured", "a sparse input")
    dynamic = None
    if case.group == "dynamic":
        shapes = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in sample.inputs)
        dynamic = {"inputs": shapes} if shapes else None
    try:
        with torch.no_grad():
            expected = list(sample.module(*_clone_inputs(sample.inputs)))
        captured = torch.export.export(
            sample.module, _clone_inputs(sample.inputs), dynamic_shapes=dynamic, strict=False
        )
    except Exception as error:
        raise StopJudging("not_captured", _describe_error(error)) from error
    if not expected:
        raise StopJudging("not_captured", "no tensor or number is returned")
    if any(isinstance(x, torch.Tensor) and x.layout != torch.strided for x in expected):
        raise StopJudging("not_captured", "a sparse output")
    return captured, expected


def _compare(
    case: Case,
    module: Call,
    inputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor | complex],
    actual: Sequence[torch.Tensor],
    result: Result,
) -> None:
    if len(actual) < len(expected):
        raise StopJudging("wrong_shape", f"{len(actual)} outputs instead of {len(expected)}")
    right, ours = [], []
    for one, other in zip(expected, actual, strict=False):
        right.append(one if isinstance(one, torch.Tensor) else _as_tensor(one, other))
        ours.append(other)
    for i, (one, other) in enumerate(zip(right, ours, strict=True)):
        if one.dtype != other.dtype:
            raise StopJudging("wrong_dtype", f"output {i}: {other.dtype} instead of {one.dtype}")
    for i, (one, other) in enumerate(zip(right, ours, strict=True)):
        if one.shape != other.shape:
            raise StopJudging(
                "wrong_shape", f"output {i}: {list(other.shape)} instead of {list(one.shape)}"
            )
    unique = equivalence.unique_part(case.name)
    if result.flag == "uninitialized" or (result.flag == "random" and unique is None):
        wrong = (
            equivalence.out_of_range(result.targets, right, ours) if result.flag == "random" else ""
        )
        if wrong:
            raise StopJudging("wrong_value", wrong)
        return
    wrong = _describe_differences(right, ours)
    if not wrong:
        return
    if unique is not None:
        parts = unique(module, inputs, right), unique(module, inputs, ours)
        if not _describe_differences(*parts):
            result.flag = "equivalent"
            return
    exact = _compute_exactly(module, inputs, right)
    if exact is not None and not _describe_differences(exact, ours):
        result.flag = "exact"
        return
    raise StopJudging("wrong_value", wrong)


def _compute_exactly(
    module: Call, inputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Computes PyTorch's answer in double precision, rounded at the end; None if there is none.

    Eager PyTorch in half precision rounds intermediate results, and may be further from the right
    answer than a model that does not.
    """
    wider = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
    wider |= dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)
    if not any(x.dtype in wider for x in inputs):
        return None
    try:
        with torch.no_grad():
            wide = (
                copy.deepcopy(module).double() if any(True for _ in module.parameters()) else module
            )
            answers = wide(*(x.to(wider.get(x.dtype, x.dtype)) for x in inputs))
    except Exception:
        return None
    exact = [torch.as_tensor(x).to(e.dtype) for x, e in zip(answers, expected, strict=True)]
    same = all(x.shape == e.shape for x, e in zip(exact, expected, strict=True))
    return exact if same else None


def _describe_differences(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> str:
    names = [f"output {i}" for i in range(len(expected))]
    return "; ".join(
        f"{d.name} {d.expected}: max abs {d.max_absolute:.3g}, max rel {d.max_relative:.3g}"
        for d in compare_outputs(names, expected, actual)
        if not d.within
    )


def _as_tensor(number: complex, other: torch.Tensor) -> torch.Tensor:
    """Converts a number to a tensor, with the data type of ``other`` if it is of the same kind."""
    tensor = torch.tensor(number)
    return tensor.to(other.dtype) if _kind_of_dtype(tensor) == _kind_of_dtype(other) else tensor


def _kind_of_dtype(tensor: torch.Tensor) -> tuple[bool, bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex(), tensor.dtype == torch.bool


def _called_operators(captured: torch.export.ExportedProgram) -> tuple[str, ...]:
    targets = {
        str(node.target): None
        for module in captured.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    }
    return tuple(targets)


def _clone_inputs(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(x.clone() for x in inputs)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, UnsupportedOperatorError):
        return ", ".join(operator.target for operator in error.operators)
    if isinstance(error, OpsetError):
        return "; ".join(entry.problem for entry in error.missing)
    while error.__cause__ is not None and str(error).startswith(("Failed to", "Error when")):
        error = error.__cause__  # torch.onnx's messages begin with advice
    lines = str(error).strip().splitlines()
    text = " ".join(line.strip() for line in lines[:4] if line.strip())
    text = RUNTIME_PREFIX.sub("", text).replace(" Status Message:", ":")
    return f"{type(error).__name__}: {text}"


def one_line(text: Any, length: int = 240) -> str:
    """Joins a text into one line and truncates it."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
