"""Builds models without allocating their parameters."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary

from onnx_aot.errors import InvalidOptionError
from onnx_aot.torch_compat import FakeTensor, pytree, restored, takes_fakes_only

__all__ = ["enable_fake_mode", "parameters_kept", "refuse_real_tensors"]

_keeping: dict[object, int] = {}  # by context, the thread that keeps parameters


@contextlib.contextmanager
def enable_fake_mode() -> Iterator[None]:
    """A context in which this thread builds modules without memory for their parameters.

    A parameter is moved to torch's ``meta`` device as soon as it is assigned to a module. It keeps
    its shape and type; initializing it afterwards has no effect. Buffers, such as frequencies and
    masks, and other tensors that are not parameters, including example inputs, are computed as
    usual. A parameter that two modules share stays shared.

    The model is exported like any other, inside this context or after it. The weights are passed to
    the program later, with ``ONNXProgram.apply_weights``. Parameters that a lazy module creates
    while it runs are not left out.

    Yields:
        Nothing.
    """
    empty = WeakIdKeyDictionary()  # by original parameter, so that shared ones stay shared
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

    For captures, which create modules that hold the parameters of the given model.
    """
    context = object()
    with restored(functools.partial(_keeping.pop, context, None)):
        _keeping[context] = threading.get_ident()
        yield


def refuse_real_tensors(model: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Checks that a model that is exported inside of torch's ``FakeTensorMode`` was made there.

    Raises:
        InvalidOptionError: A weight or an input is a real tensor.
    """
    if not takes_fakes_only():
        return
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    named = [(f"weight {name} of the model", tensor) for name, tensor in weights.items()]
    inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    named += [(f"example input {number}", tensor) for number, tensor in enumerate(inputs)]
    real = next((name for name, tensor in named if not isinstance(tensor, FakeTensor)), None)
    if real is not None:
        raise InvalidOptionError(
            f"the export runs inside of torch's FakeTensorMode, and {real} is a real tensor. Leave "
            "the block before the export, or make the model and the inputs in it too; "
            "onnx_aot.enable_fake_mode() makes models without memory for weights, and takes inputs "
            "from anywhere",
            code="OA502",
        )
