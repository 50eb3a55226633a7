"""Captures a model with everything that depends on data fixed to the example's values.

Used on request only. The result agrees with PyTorch for some inputs and not for others, so each
strategy comes with a warning that lists what was fixed.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.scripted.module import ScriptedModel
from onnx_aot.capture.sizes.guards import Decision, is_question
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import missing_fake_kernels, pytree

__all__ = ["describe_draft", "trace_model"]


def describe_draft(program: torch.export.ExportedProgram, decisions: Sequence[Decision]) -> str:
    """The warning about a program captured with draft export."""
    places = {str(d.location): _place(d) for d in decisions if d.kind == "assumed"}
    assumed = [*places.values()]
    assumed += [
        f"the result of {name} is as its kernel gives it for the example"
        for name in missing_fake_kernels(program)
    ]
    return (
        "the model was captured with torch.export.draft_export, which follows the example inputs "
        "at every data-dependent branch. The ONNX model is right only where the same "
        f"holds{_list_places(assumed)}"
    )


def trace_model(model: torch.nn.Module, inputs: Inputs) -> tuple[ScriptedModel, str]:
    """Traces the model with ``torch.jit.trace``; returns the result and the warning about it.

    Raises:
        CaptureError: An input is neither a tensor nor a container of tensors.
    """
    bound = inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs)
    if any(not isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(bound.arguments)):
        raise CaptureError(
            "torch.jit.trace takes tensors, and containers of them; an input is something else. "
            "Bind it with functools.partial and export the function",
            code="OA003",
        )
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        script: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
            copy.deepcopy(model),  # tracing runs it, and it may write to its buffers
            example_kwarg_inputs=dict(bound.arguments) if inputs.kwargs else None,
            example_inputs=None if inputs.kwargs else bound.args,
            check_trace=False,
            strict=False,
        )
    found = [w for w in caught if w.category.__name__ == "TracerWarning"]
    fixed = dict.fromkeys(f"{_first_sentence(w.message)} ({w.filename}:{w.lineno})" for w in found)
    return ScriptedModel(script), (
        "the model was captured with torch.jit.trace, which records what was computed for the "
        "example inputs: branches, loops, and numbers taken from tensors are fixed to what they "
        f"were{_list_places(list(fixed))}"
    )


def _place(decision: Decision) -> str:
    """Describes a condition, or a number read from a tensor, with the user's line."""
    where = decision.location
    shown = "" if where is None else f" at {where}: {where.text.strip()}"
    if is_question(decision.expression):
        return f"{decision.text}{shown}"
    return f"a number is what it was for the example{shown}"


def _list_places(places: list[str]) -> str:
    return (
        ". None were found" if not places else ":\n" + "\n".join(f"  {place}" for place in places)
    )


def _first_sentence(message: Any) -> str:
    return str(message).partition(". ")[0]
