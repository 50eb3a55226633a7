"""``torch.export``, non-strict first, then strict, made cheap and kept general."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.boundary import observed
from onnx_aot.capture.delivered import SIZE_TERM
from onnx_aot.capture.inputs import Inputs, name_collected
from onnx_aot.capture.module_state import preserved_state
from onnx_aot.capture.stand_ins import stand_ins
from onnx_aot.capture.tracing import tracing
from onnx_aot.errors import CaptureError, DynamicShapeError

__all__ = ["STRATEGIES", "Captured", "capture"]

logger = logging.getLogger(__name__)

TORCH_FOLDER = os.path.dirname(torch.__file__)

STRATEGIES: tuple[tuple[str, bool], ...] = (
    ("torch.export.export(strict=False)", False),  # traces through Python, refuses least
    ("torch.export.export(strict=True)", True),  # analyses bytecode, sees branches as they are
)


@dataclasses.dataclass(frozen=True)
class Captured:
    """The captured program and how it was obtained."""

    program: torch.export.ExportedProgram
    strategy: str


def capture(
    module: torch.nn.Module, inputs: Inputs, dynamic_shapes: Any, collected: tuple[str, ...] = ()
) -> Captured:
    """Captures ``module(*args, **kwargs)`` as a graph of ATen operators.

    Args:
        module: It is the same afterwards.
        inputs: Example inputs.
        dynamic_shapes: As ``torch.export`` takes them, by parameter name.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.

    Raises:
        DynamicShapeError: The model is not free in a dimension that was asked to be dynamic.
        CaptureError: Every strategy failed otherwise; the first failure is chained.
    """
    failures: list[tuple[str, Exception]] = []
    for name, strict in STRATEGIES:
        try:
            with (
                capture_conditions(lazy=not strict),
                torch_compat.keep_frames_of(module.forward),
                preserved_state(module),
                observed(module, strict),
            ):
                name_collected(module, collected)
                program = torch.export.export(
                    module,
                    inputs.args,
                    inputs.kwargs,
                    dynamic_shapes=dynamic_shapes,
                    strict=strict,
                )
        except Exception as error:
            logger.info("%s failed: %s", name, _first_line(error))
            failures.append((name, error))
            continue
        return Captured(program, name)
    if str(failures[0][1]).startswith("Constraints violated"):
        raise DynamicShapeError(_describe_violations(failures)) from failures[0][1]
    raise CaptureError(_describe(failures)) from failures[0][1]


@contextlib.contextmanager
def capture_conditions(lazy: bool = True) -> Iterator[None]:
    """Everything that holds while torch.export traces a model.

    ``lazy`` is for all but strict capture, which reads what only generated code has.
    """
    with (
        tracing(),
        torch_compat.marked_as_onnx_export(),
        torch_compat.cheap_recompilation() if lazy else contextlib.nullcontext(),
        torch_compat.keep_small_sizes_dynamic(),
        stand_ins(),
        warnings.catch_warnings(),
    ):
        # Recurrent layers reassign their list of weights in forward; nothing is lost by it.
        warnings.filterwarnings("ignore", message="The tensor attributes? .*_flat_weights")
        yield


def _describe(failures: list[tuple[str, Exception]]) -> str:
    lines = ["the model could not be captured:"]
    for name, error in failures:
        lines += ["", f"  {name}", f"    {type(error).__name__}: {error}".rstrip()]
    lines += [
        "",
        "Run torch.export.export(model, args) for the full story; torch.export.draft_export lists "
        "every place that needs a change.",
    ]
    return "\n".join(lines)


_FIXED = re.compile(
    r"You marked (.+) as dynamic but your code specialized it to be a constant \((.+?)\)"
)
_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)')


def _describe_violations(failures: list[tuple[str, Exception]]) -> str:
    """What torch found, by the user's names, and the user's line where strict capture saw it."""
    text = str(failures[0][1])
    found, _, suggested = text.partition("Suggested fixes:\n")
    lines = ["the model is not free in dimensions that were asked to be dynamic:"]
    for line in found.splitlines():
        if line.startswith("  - "):
            finding = SIZE_TERM.sub(r"\1\2, axis \3", line[4:])
            fixed = _FIXED.match(finding)
            lines.append(f"  {fixed[1]}: fixed at {fixed[2]}" if fixed else f"  {finding}")
    frames = [frame for _, error in failures for frame in _FRAME.findall(str(error))]
    of_user = [f for f in frames if not f[0].startswith((TORCH_FOLDER, "<"))]
    if of_user:
        file, number, function = of_user[-1]
        lines.append(f"  at {file}:{number} in {function}")
    lines += [f"  torch suggests {line.strip()}" for line in suggested.splitlines() if "=" in line]
    lines.append(
        "Make the model use x.shape there instead of Python numbers, narrow the dimension with "
        "torch.export.Dim(name, min=..., max=...), or leave it out of dynamic_shapes."
    )
    return "\n".join(lines)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
