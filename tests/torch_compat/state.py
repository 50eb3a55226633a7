"""State that an export must leave unchanged."""

from __future__ import annotations

import gc
import logging
import warnings
from typing import Any

import torch
from torch.nn.modules import module as modules

from onnx_aot.capture import fake_weights
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.io_hooks import Boundary
from onnx_aot.capture.patches import ALL_PATCHES
from onnx_aot.capture.patches.model_calls import ModelRows
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.known_values import KnownValues
from onnx_aot.torch_compat import Settings, patching
from onnx_aot.torch_compat.places import Contents, Members

__all__ = ["every_row", "everything"]


def every_row(model: torch.nn.Module) -> Settings:
    """Returns capture settings for which all rows apply, if the model has their places."""
    return Settings(
        module=model,
        dynamic=True,
        from_zero=True,
        larger_sizes=True,
        decided=print,
        zero_ignored=print,
        model_rows=ModelRows(
            Inputs((), {}), DynamicShapes(None, ()), KnownValues({}), (), Boundary()
        ),
    )


def everything(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the contents of every place in the table, and other state of torch and Python.

    Two results are equal only if the objects are identical.
    """
    settings = every_row(model)
    found: dict[str, Any] = {}
    for patch in ALL_PATCHES:
        for number, place in enumerate(patch.found(settings)):
            kept = isinstance(place, (Contents, Members)) or patch.name.endswith("of the thread")
            found[f"{patch.name} {number}"] = place.own() if kept else _identity(place.own())
    for name, part in model.named_modules():
        found[f"attributes of {name}"] = {key: _identity(v) for key, v in vars(part).items()}
        found[f"hooks of {name}"] = [*part._forward_pre_hooks, *part._forward_hooks]
    found |= {f"weight {name}": id(p) for name, p in model.state_dict(keep_vars=True).items()}
    names = [name for name in sorted(logging.root.manager.loggerDict) if name.startswith("torch")]
    loggers = [logging.getLogger(name) for name in names]
    found["filters"] = {logger.name: list(logger.filters) for logger in loggers if logger.filters}
    found["disabled"] = [logger.name for logger in loggers if logger.disabled]
    found["warnings"] = list(warnings.filters)
    found["gradients"] = torch.is_grad_enabled()
    found["compiling"] = torch.compiler.is_compiling(), torch.compiler.is_exporting()
    found["tracing"] = torch._guards.TracingContext.try_get()
    found["global hooks"] = {
        name: dict(value) for name, value in vars(modules).items() if name.endswith("_hooks")
    }
    found["collecting"] = gc.isenabled()
    found["ours"] = patching._thread, list(patching._undo), dict(fake_weights._keeping)
    return found


def _identity(value: Any) -> Any:
    """Includes the contents of a container."""
    if isinstance(value, dict):
        return id(value), {key: id(item) for key, item in value.items()}
    if isinstance(value, list):  # made for the call, of objects that stay
        return list(map(_identity, value))
    return id(value)
