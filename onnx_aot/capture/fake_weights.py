"""Models that are built without the elements of their parameters."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary

from onnx_aot.torch_compat import restored

__all__ = ["enable_fake_mode", "parameters_kept"]

_keeping: dict[object, int] = {}  # threads that keep parameters, by context


@contextlib.contextmanager
def enable_fake_mode() -> Iterator[None]:
    """A context in which this thread builds modules without memory for their parameters.

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
    here = threading.get_ident()

    def leave_out(module: torch.nn.Module, name: str, parameter: Any) -> Any:
        lazy = isinstance(parameter, torch.nn.UninitializedParameter)
        if threading.get_ident() != here or here in _keeping.values():
            return None
        if parameter is None or lazy or parameter.is_meta:
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
    context = object()
    with restored(lambda: _keeping.pop(context, None)):
        _keeping[context] = threading.get_ident()
        yield
