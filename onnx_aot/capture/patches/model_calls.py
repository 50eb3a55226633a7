"""Changes the model itself for a capture: its ``forward``, hooks, submodules and switches.

Side effects of tracing on the model, such as counted calls, are undone by ``preserved_state``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.capture.fake_quantization import quantize_only, quantizing_only
from onnx_aot.capture.inputs import Inputs, name_collected_inputs
from onnx_aot.capture.io_hooks import Boundary
from onnx_aot.capture.patches.assigned_buffers import AssignedBuffers
from onnx_aot.capture.patches.tensor_data import StateData
from onnx_aot.capture.patches.tensor_subclasses import as_fake_tensors
from onnx_aot.capture.python_random import SeededDraws
from onnx_aot.capture.scalar_inputs import with_floats
from onnx_aot.capture.sizes.declared_relations import with_promised_sizes
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.known_values import KnownValues, with_known_values
from onnx_aot.torch_compat import (
    Attribute,
    Entry,
    FakeTensor,
    FakeTensorMode,
    Hook,
    HookedForward,
    Patch,
    Place,
    Settings,
    fake_mode_of,
    has_symbols,
    recording_slice,
    registered_in,
    schema_of,
    symbols_of_its_own,
)

__all__ = ["MODEL", "ModelRows"]


@dataclasses.dataclass(frozen=True)
class ModelRows:
    """Facts about a capture that these rows need, ``Settings.model_rows``.

    Attributes:
        inputs: The example inputs.
        requested: The requested dynamic shapes.
        known: Values of tensors that do not depend on the inputs.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        boundary: Hooks for inputs and results.
        assigned: Buffers that ``forward`` assigns.
        replaced: State whose ``.data`` ``forward`` replaces.
        keeps_state: Whether plain tensor attributes are state of the exported model.
        seeded: Finds operators that draw after ``forward`` has set the seed.
    """

    inputs: Inputs
    requested: DynamicShapes
    known: KnownValues
    collected: tuple[str, ...] = ()
    boundary: Boundary = dataclasses.field(default_factory=Boundary)
    assigned: AssignedBuffers = dataclasses.field(default_factory=AssignedBuffers)
    replaced: StateData = dataclasses.field(default_factory=StateData)
    keeps_state: bool = False
    seeded: SeededDraws = dataclasses.field(default_factory=SeededDraws)


def _model_rows(settings: Settings) -> ModelRows:
    known: ModelRows = settings.model_rows
    return known


def _forward(settings: Settings) -> Iterator[Place]:
    yield Attribute(settings.module, "forward")


def _hooked_forward(settings: Settings) -> Iterator[Place]:
    place = HookedForward(settings.module)
    if place.has_hooks() and not isinstance(settings.module, torch.jit.ScriptModule):
        yield place


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


@dataclasses.dataclass(frozen=True)
class _TensorAttribute:
    """A tensor in a plain attribute of a module, which ``put`` makes a buffer, or an attribute."""

    owner: torch.nn.Module
    name: str

    def own(self) -> Any:
        """The dict entry that holds the attribute now, with its value."""
        return {self.name: vars(self.owner)[self.name]}

    def value(self) -> torch.Tensor:
        """The tensor."""
        tensor: torch.Tensor = vars(self.owner)[self.name]
        return tensor

    def put(self, value: Any) -> None:
        """Registers a tensor as a buffer; takes what ``own`` returned to undo that."""
        buffers = registered_in(self.owner, "buffers")
        if isinstance(value, dict):
            buffers.pop(self.name, None)
            vars(self.owner).update(value)
        else:
            vars(self.owner).pop(self.name, None)
            buffers[self.name] = value


def _tensor_attributes(settings: Settings) -> Iterator[Place]:
    for owner in settings.module.modules():
        if not isinstance(owner, torch.jit.ScriptModule):
            for name, value in list(vars(owner).items()):
                if isinstance(value, torch.Tensor):
                    yield _TensorAttribute(owner, name)


def _own_forwards(settings: Settings) -> Iterator[Place]:
    return (Attribute(layer, "forward") for layer in quantizing_only(settings.module))


def _carry_values(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    known, seeded = _model_rows(settings).known, _model_rows(settings).seeded

    def proxy_call(proxy_mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        with (
            as_fake_tensors(args, kwargs),
            recording_slice(func, proxy_mode.tracer),
            _views_made_again(func, args),
        ):
            result = known.call(original, proxy_mode, func, pre_dispatch, args, kwargs)
        seeded.note(func, args, kwargs, result)
        return result

    return proxy_call


def _note_seed(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    seeded = _model_rows(settings).seeded

    def manual_seed(seed: Any) -> Any:
        generator = original(seed)
        seeded.note_seed()
        return generator

    return manual_seed


def _set_seed(settings: Settings) -> Iterator[Place]:
    return (Attribute(module, "manual_seed") for module in (torch, torch.random))


def _views_made_again(func: Any, args: Any) -> contextlib.AbstractContextManager[Any]:
    """Lets torch make views again for their gradients, which it does after a write to one.

    If a view is a slice between numbers of data, the sizes of the new slice are symbols that are
    none of the results of the operator: one that writes, or that reads the view later.
    """
    if not torch.is_grad_enabled():
        return contextlib.nullcontext()
    given = [arg for arg in args if isinstance(arg, FakeTensor) and arg.requires_grad]
    writes = schema_of(func).is_mutable
    if given:
        mode: FakeTensorMode | None = given[0].fake_mode
    else:
        mode = fake_mode_of(args) if writes else None
    if mode is None or not has_symbols(mode):
        return contextlib.nullcontext()
    allowed = symbols_of_its_own(mode)
    if writes:
        return allowed
    with allowed:
        for tensor in given:
            tensor.grad_fn  # noqa: B018  # makes the view
    return contextlib.nullcontext()


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
        "forward: hooks of the model",
        lambda original, settings: original,
        "Hooks of the model that read numbers from its state or branch on its data are refused.",
        when=_is_python,
        places=_hooked_forward,
    ),
    Patch(
        "torch.manual_seed",
        _note_seed,
        "A seed in forward that torch has already, and has drawn nothing with, is not warned of.",
        when=_is_python,
        places=_set_seed,
        parameters="seed",
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
        "tensor attributes of a model with state",
        lambda original, settings: original,
        "Tensor attributes that forward assigns are no state of the exported model.",
        when=lambda settings: settings.model_rows is not None and settings.model_rows.keeps_state,
        places=_tensor_attributes,
    ),
    Patch(
        "forward of fake quantization that does not observe",
        lambda original, settings: quantize_only(original),
        "FusedMovingAvgObsFakeQuantize keeps operators that observe where it does not observe.",
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
        "forward: values that do not depend on the inputs",
        lambda original, settings: with_known_values(original, _model_rows(settings).known),
        "Models that read numbers from buffers, constants and sizes in tensors are refused.",
        when=_is_python,
        places=_forward,
    ),
    Patch(
        "forward: both ways of branches on data",
        lambda original, settings: settings.branches.wrap(original),
        "Models that branch on their data are refused.",
        when=lambda settings: settings.branches is not None,
        places=_forward,
    ),
    Patch(
        "torch.fx.experimental.proxy_tensor:proxy_call",
        _carry_values,
        "Models that read numbers from buffers, constants and sizes in tensors are refused.",
        when=_is_python,
        parameters="proxy_mode, func, pre_dispatch, args, kwargs",
    ),
    Patch(
        "torch.fx.experimental.proxy_tensor:CONSTANT_NUMEL_LIMIT",
        lambda original, settings: -1,
        "A number read from a constant that was written to through a view may be the old one.",
        when=_is_python,
    ),
)
"""Rows in order of application; the last ``forward`` is the outermost."""
