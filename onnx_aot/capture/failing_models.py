"""Explains why a model fails on the example inputs by itself, without an export.

``torch.export`` captures some such models: its fake tensors do not test the types of all operators.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from onnx_aot.capture.inputs import Inputs, bind_arguments
from onnx_aot.capture.module_state import error_of_model
from onnx_aot.capture.sizes.guards import as_places, location_of_error, with_line
from onnx_aot.capture.training import modes_kept
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import is_about_types, pytree, wants_integers

__all__ = ["explain_failing", "explain_types"]


def explain_failing(module: torch.nn.Module, inputs: Inputs, error: Exception) -> CaptureError:
    """Makes the error about a model that could not be captured, as it fails by itself.

    Args:
        module: The model.
        inputs: The example inputs.
        error: What the model raises.
    """
    by_types = explain_types(module, inputs, error)
    if by_types is not None:
        return by_types
    location = location_of_error(error)
    given = dict(_find_tensors(module, inputs))
    said = "\n    ".join(line for line in str(error).strip().splitlines()[:4] if line.strip())
    shown = [f"{path}: {_name(t.dtype)}{list(t.shape)}" for path, t in given.items()]
    lines = [
        "the model could not be captured; it fails on the example inputs by itself:",
        *with_line(location, "  "),
        f"    {type(error).__name__}: {said}".rstrip(": "),
        f"  example inputs: {', '.join(shown) or 'no tensors'}",
    ]
    if module.training and _runs_in_evaluation(module, inputs):
        fix = "call model.eval() before the export: the model runs on these inputs then"
    elif not given and (inputs.args or inputs.kwargs):
        fix = "pass tensors, such as torch.randn(2, 3); Python values are constants of the model"
    else:
        fix = "run model(*args), and correct the model or the inputs"
    return CaptureError(
        "\n".join([*lines, f"fix: {fix}"]),
        cause="the model fails on the example inputs by itself, without an export: "
        f"{type(error).__name__}: {said}",
        places=as_places([location], module),
        fix=fix,
    )


def _runs_in_evaluation(module: torch.nn.Module, inputs: Inputs) -> bool:
    with modes_kept(module):
        module.eval()
        return error_of_model(module, inputs) is None


def explain_types(
    module: torch.nn.Module, inputs: Inputs, error: Exception | None = None
) -> CaptureError | None:
    """Explains the failure of a model on its example inputs, if their types are why it fails.

    Args:
        module: The model.
        inputs: The example inputs.
        error: What the model raises; None runs it.
    """
    error = error or error_of_model(module, inputs)
    if error is None or not is_about_types(error):
        return None
    location = location_of_error(error)
    if location is not None and "raise " in location.text:
        return None  # it is the model's own error
    given = dict(_find_tensors(module, inputs))
    weights: dict[torch.dtype, list[str]] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            weights.setdefault(tensor.dtype, []).append(name)
    cause = "the model fails by itself, since types of its tensors do not fit each other"
    said = str(error).strip().partition("\n")[0]
    shown = [f"{path}: {_name(tensor.dtype)}" for path, tensor in given.items()]
    held = [f"{_name(dtype)} ({_shorten(names)})" for dtype, names in weights.items()]
    lines = [
        f"{cause}:",
        *with_line(location, "  "),
        f"    {type(error).__name__}: {said}",
        f"  example inputs: {', '.join(shown) or 'no tensors'}",
        *([f"  weights: {', '.join(held)}"] if held else []),
    ]
    fix = _find_fix(given, list(weights), error)
    return CaptureError(
        "\n".join([*lines, f"fix: {fix}"]),
        cause=f"{cause}: {said}",
        places=as_places([location], module),
        fix=fix,
        code="OA128",
    )


def _find_fix(given: dict[str, torch.Tensor], weights: list[torch.dtype], error: Exception) -> str:
    floats = {path: t.dtype for path, t in given.items() if t.is_floating_point()}
    if wants_integers(error) and floats:
        longs = " or ".join(f"{path}.long()" for path in floats)
        return f"pass integers where the model looks up by index: {longs}"
    others = [path for path, dtype in floats.items() if dtype not in weights]
    if len(weights) == 1 and others:
        wanted = _name(weights[0])
        fix = f"pass {' and '.join(f'{path}.to(torch.{wanted})' for path in others)}"
        types = {floats[path] for path in others}
        if len(types) == 1:
            (only,) = types
            fix += f", or convert the model, model.to(torch.{_name(only)})"
        return fix
    integers = [path for path, t in given.items() if path not in floats and not t.is_complex()]
    if integers and not floats:
        wanted = _name(weights[0]) if weights else "float32"
        return f"pass floats: {' and '.join(f'{path}.to(torch.{wanted})' for path in integers)}"
    return "convert one of the operands on that line, as in y.to(x.dtype)"


def _find_tensors(module: torch.nn.Module, inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in bind_arguments(module, inputs).values.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                yield name + pytree.keystr(path), leaf


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shorten(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
