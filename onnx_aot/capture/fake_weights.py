"""Models that are built without the elements of their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary

from onnx_aot import torch_compat

__all__ = ["enable_fake_mode", "parameters_kept", "weights_in_place"]

_keeping: list[bool] = []  # not empty while parameters are kept


@contextlib.contextmanager
def enable_fake_mode() -> Iterator[None]:
    """A context in which modules are built without memory for their parameters.

    Each parameter keeps its shape and type, on torch's device ``meta``, from the moment that a
    module gets it; what initializes it afterwards does nothing. Buffers, such as frequencies and
    masks, are computed as always, and so are tensors that are no parameters, example inputs among
    them. A parameter that two modules share stays one.

    The model is exported as any other, in this context or after it; the weights are given to the
    program, ``ONNXProgram.apply_weights``. Parameters that a module made itself lazily, while it
    ran, are not left out.

    Yields:
        Nothing.
    """
    empty = WeakIdKeyDictionary()  # what became of a parameter that several modules get

    def leave_out(module: torch.nn.Module, name: str, parameter: Any) -> Any:
        lazy = isinstance(parameter, torch.nn.UninitializedParameter)
        if _keeping or parameter is None or lazy or parameter.is_meta:
            return None
        if parameter not in empty:
            empty[parameter] = torch.nn.Parameter(
                parameter.detach().to("meta"), requires_grad=parameter.requires_grad
            )
            empty[parameter].__dict__.update(parameter.__dict__)
        return empty[parameter]

    handle = register_module_parameter_registration_hook(leave_out)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def parameters_kept() -> Iterator[None]:
    """A context in which modules keep parameters inside ``enable_fake_mode`` too.

    A capture makes modules that hold the parameters of the model that it is given.
    """
    _keeping.append(True)
    try:
        yield
    finally:
        _keeping.pop()


def weights_in_place(
    module: torch.nn.Module, inputs: Any
) -> contextlib.AbstractContextManager[None]:
    """Weights without elements are traced on the device of the example inputs; CPU without any."""
    held = (*module.parameters(), *module.buffers())
    if not any(tensor.is_meta for tensor in held):
        return contextlib.nullcontext()
    leaves = [*torch_compat.pytree.tree_leaves(inputs), *held]
    devices = (t.device for t in leaves if isinstance(t, torch.Tensor) and not t.is_meta)
    return torch_compat.meta_tensors_on(next(devices, torch.device("cpu")))
