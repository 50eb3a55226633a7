"""Captures tensors of which a model makes a subclass of ``torch.Tensor``, ``x.as_subclass(Pose)``.

Such a class has methods and ``__torch_function__``, and no data of its own. Torch refuses to make
one of a fake tensor. Here the tensor becomes an instance of a class derived from both, so that the
methods run while the model is captured, and the operators that they call are recorded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

from onnx_aot.torch_compat import (
    Attribute,
    FakeTensor,
    Patch,
    Settings,
    pytree,
    registered_in,
)

__all__ = ["TENSOR_SUBCLASSES", "as_fake_tensors", "class_in_model", "is_of_subclass"]

Tensor = torch.Tensor


class _StandIn(FakeTensor):
    """Base of the classes that stand for one of the model.

    Attributes:
        stands_for: The class of the model, which is the other base.
    """

    stands_for: type


def is_of_subclass(tensor: Any) -> bool:
    """True for a traced tensor of which the model made a subclass."""
    return isinstance(tensor, _StandIn)


def _model_class(kind: type) -> type:
    """The class of the model that a class stands for, or the class itself."""
    return kind.stands_for if issubclass(kind, _StandIn) else kind


def class_in_model(tensor: FakeTensor) -> type:
    """The class that a traced tensor has when the model runs."""
    kind = type(tensor)
    if kind is FakeTensor:
        return torch.nn.Parameter if isinstance(tensor, torch.nn.Parameter) else Tensor
    return _model_class(kind)


def _stand_in(kind: type) -> type:
    """The class that stands for one of the model; it lives as long as its instances."""
    known = (made for made in _StandIn.__subclasses__() if made.stands_for is kind)
    return next(known, None) or _make_stand_in(kind)


def _make_stand_in(kind: type) -> type:
    def handle(
        cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        real: Any = kind
        return real.__torch_function__(func, tuple(map(_model_class, types)), args, kwargs or {})

    body = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__torch_function__": classmethod(handle),
        "stands_for": kind,
    }
    return type(kind.__name__, (kind, _StandIn), body)


@contextlib.contextmanager
def as_fake_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Lets the arguments of an operator be plain fake tensors while torch computes its shapes.

    Its Python kernels call methods, which the class of the model may replace.
    """
    if not _StandIn.__subclasses__():
        yield
        return
    given = [(leaf, type(leaf)) for leaf in pytree.tree_leaves((args, dict(kwargs)))]
    given = [(leaf, kind) for leaf, kind in given if issubclass(kind, _StandIn)]
    for leaf, _ in given:
        leaf.__class__ = FakeTensor
    try:
        yield
    finally:
        for leaf, kind in given:
            leaf.__class__ = kind


def _is_plain(kind: type) -> bool:
    """True for a class whose operators are those of ``torch.Tensor``."""
    return kind.__torch_dispatch__ is Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def _make_subclass(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def as_subclass(self: Tensor, cls: type) -> Any:
        kind = _model_class(cls)
        if not isinstance(self, FakeTensor) or not _is_plain(kind):
            return original(self, kind)
        with as_fake_tensors((self,), {}):
            alias: Any = torch.ops.aten.alias.default(self)
        if kind is not Tensor:
            alias.__class__ = _stand_in(kind)
        return alias

    return as_subclass


# --- parameters and buffers ----------------------------------------------------------------------


def _find_state(module: torch.nn.Module) -> list[tuple[MutableMapping[str, Any], str, type, Any]]:
    """Parameters and buffers of a subclass: where they are, their class and attributes."""
    registers = (
        register
        for owner in module.modules()
        if not isinstance(owner, torch.jit.ScriptModule)
        for register in (registered_in(owner, "parameters"), registered_in(owner, "buffers"))
    )
    return [
        (register, name, type(tensor), vars(tensor).copy())
        for register in registers
        for name, tensor in register.items()
        if tensor is not None and _is_of_model(type(tensor)) and _is_plain(type(tensor))
    ]


def _is_of_model(kind: type) -> bool:
    return kind.__module__.partition(".")[0] != "torch"


def _find_forward(settings: Settings) -> list[Attribute]:
    return [Attribute(settings.module, "forward")] if _find_state(settings.module) else []


def _keep_classes(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Torch traces with fake tensors in place of the state, which have no class of the model."""
    state = _find_state(settings.module)

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        changed = []
        for register, name, kind, attributes in state:
            tensor = register.get(name)
            if type(tensor) is FakeTensor:
                changed.append((tensor, attributes))
                vars(tensor).update(attributes)
                tensor.__class__ = _stand_in(kind)
        try:
            return original(*args, **kwargs)
        finally:
            for tensor, attributes in changed:
                tensor.__class__ = FakeTensor
                for name in attributes:
                    vars(tensor).pop(name, None)

    return forward


TENSOR_SUBCLASSES = (
    Patch(
        "torch:Tensor.as_subclass",
        _make_subclass,
        "Models that make a subclass of torch.Tensor of a tensor are refused.",
        when=lambda settings: not settings.strict,
    ),
    Patch(
        "forward: subclasses of torch.Tensor in the state",
        _keep_classes,
        "Models with buffers of a subclass of torch.Tensor compute with them as with plain ones.",
        when=lambda settings: settings.model_rows is not None and not settings.strict,
        places=_find_forward,
    ),
)
"""Rows for subclasses that a model makes, or has in its state."""
