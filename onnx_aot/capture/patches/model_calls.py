"""Changes the model itself for a capture: its ``forward``, hooks, submodules and switches.

Side effects of tracing on the model, such as counted calls, are undone by ``preserved_state``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from onnx_aot.capture.fake_quantization import quantize_only, quantizing_only, switches
from onnx_aot.capture.inputs import Inputs, name_collected_inputs
from onnx_aot.capture.io_hooks import Boundary
from onnx_aot.capture.patches.tensor_data import StateData
from onnx_aot.capture.scalar_inputs import with_floats
from onnx_aot.capture.sizes.declared_relations import with_promised_sizes
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.scalar_tensor_values import with_followed_sizes
from onnx_aot.torch_compat import (
    Attribute,
    Entry,
    Hook,
    Patch,
    Place,
    Settings,
    registered_in,
)

__all__ = ["MODEL", "ModelRows"]


@dataclasses.dataclass(frozen=True)
class ModelRows:
    """Facts about a capture that these rows need, ``Settings.model_rows``.

    Attributes:
        inputs: The example inputs.
        requested: The requested dynamic shapes.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        constants: Buffers treated as numbers, from ``scalar_tensor_values.constants_of``.
        boundary: Hooks for inputs and results.
        written: Constants that ``forward`` was seen to write to.
        replaced: State whose ``.data`` ``forward`` replaces.
    """

    inputs: Inputs
    requested: DynamicShapes
    collected: tuple[str, ...] = ()
    constants: Mapping[str, int] = dataclasses.field(default_factory=dict)
    boundary: Boundary = dataclasses.field(default_factory=Boundary)
    written: list[str] = dataclasses.field(default_factory=list)
    replaced: StateData = dataclasses.field(default_factory=StateData)


def _model_rows(settings: Settings) -> ModelRows:
    known: ModelRows = settings.model_rows
    return known


def _forward(settings: Settings) -> Iterator[Place]:
    yield Attribute(settings.module, "forward")


def _is_python(settings: Settings) -> bool:
    """True if ``forward`` runs in Python; strict capture analyses its bytecode instead."""
    return settings.model_rows is not None and not settings.strict


# --- submodules ----------------------------------------------------------------------------------


def _scripted_children(settings: Settings) -> Iterator[Place]:
    if settings.module is None:
        return
    for parent in list(settings.module.modules()):
        if not isinstance(parent, torch.jit.ScriptModule):
            for name, child in parent.named_children():
                if isinstance(child, torch.jit.ScriptModule):
                    yield Entry(registered_in(parent, "modules"), name)


def _without_script(original: Any, settings: Settings) -> Any:
    from onnx_aot.capture.scripted.module import ScriptedModel

    return ScriptedModel(original)


def _switches(settings: Settings) -> Iterator[Place]:
    for layer, name in switches(settings.module):
        yield Entry(vars(layer), name, default=getattr(layer, name))


def _own_forwards(settings: Settings) -> Iterator[Place]:
    return (Attribute(layer, "forward") for layer in quantizing_only(settings.module))


# --- hooks ---------------------------------------------------------------------------------------


def _entry_hook(settings: Settings) -> Iterator[Place]:
    register = settings.module.register_forward_pre_hook
    yield Hook(lambda hook: register(hook, with_kwargs=True, prepend=True))


def _return_hook(settings: Settings) -> Iterator[Place]:
    register = settings.module.register_forward_hook
    yield Hook(lambda hook: register(hook, with_kwargs=True))


MODEL: tuple[Patch, ...] = (
    Patch(
        "scripted submodules",
        _without_script,
        "Models with scripted submodules are refused.",
        when=lambda settings: settings.model_rows is not None,
        places=_scripted_children,
        optional=False,
    ),
    Patch(
        "constants among the arguments of the model",
        lambda original, settings: _model_rows(settings).boundary.on_entry,
        "The model gets its dtypes, enums and the like inside of Constant.",
        when=lambda settings: settings.model_rows is not None,
        places=_entry_hook,
        optional=False,
    ),
    Patch(
        "containers among the results of the model",
        lambda original, settings: _model_rows(settings).boundary.on_return,
        "Models that return dataclasses, caches and the like are refused.",
        when=_is_python,
        places=_return_hook,
        optional=False,
    ),
    Patch(
        "switches of fake quantization",
        lambda original, settings: [int(original[0])],
        "Models with fake quantization are refused, because its switches are data.",
        when=lambda settings: settings.model_rows is not None,
        places=_switches,
    ),
    Patch(
        "forward of fake quantization that does not observe",
        lambda original, settings: quantize_only(original),
        "FusedMovingAvgObsFakeQuantize is refused where it does not observe.",
        when=lambda settings: settings.model_rows is not None,
        places=_own_forwards,
    ),
    Patch(
        "forward: keyword inputs by name",
        lambda original, settings: name_collected_inputs(original, _model_rows(settings).collected),
        "Inputs that **kwargs takes cannot have dynamic dimensions.",
        when=lambda settings: bool(settings.model_rows and settings.model_rows.collected),
        places=_forward,
        optional=False,
    ),
    Patch(
        "forward: floats that are inputs",
        lambda original, settings: with_floats(
            original, _model_rows(settings).inputs, _model_rows(settings).requested.floats
        ),
        "Python floats cannot be inputs.",
        when=lambda settings: bool(settings.model_rows and settings.model_rows.requested.floats),
        places=_forward,
        optional=False,
    ),
    Patch(
        "forward: sizes that names say follow from others",
        lambda original, settings: with_promised_sizes(original, _model_rows(settings).requested),
        "A model that compares past + seq with a mask's length limits these dimensions.",
        when=_is_python,
        places=_forward,
    ),
    Patch(
        "forward: sizes worked out with tensors",
        lambda original, settings: with_followed_sizes(
            original,
            settings.module,
            _model_rows(settings).constants,
            _model_rows(settings).written,
        ),
        "Models that compute their padding with tensors, such as Encodec and Mimi, are refused.",
        when=lambda settings: _is_python(settings) and bool(settings.model_rows.constants),
        places=_forward,
    ),
)
"""Rows in order of application; the last ``forward`` is the outermost."""
