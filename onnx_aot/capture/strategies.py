"""``torch.export``, non-strict first, then strict, made cheap and kept general."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.inputs import Inputs, name_collected
from onnx_aot.capture.module_state import preserved_state
from onnx_aot.capture.stand_ins import stand_ins
from onnx_aot.capture.tracing import tracing
from onnx_aot.errors import CaptureError

__all__ = ["STRATEGIES", "Captured", "capture"]

logger = logging.getLogger(__name__)

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
        CaptureError: Every strategy failed; the first failure is chained.
    """
    failures: list[tuple[str, Exception]] = []
    for name, strict in STRATEGIES:
        try:
            with capture_conditions(), preserved_state(module):
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
    raise CaptureError(_describe(failures)) from failures[0][1]


@contextlib.contextmanager
def capture_conditions() -> Iterator[None]:
    """Everything that holds while torch.export traces a model."""
    with (
        tracing(),
        torch_compat.marked_as_onnx_export(),
        torch_compat.cheap_recompilation(),
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


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
