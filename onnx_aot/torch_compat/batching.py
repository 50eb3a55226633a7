"""Batches operators under ``torch.vmap`` without reading sizes.

Torch's own rules of some operators are in C++ and read the size of the batch as a number, which
fixes the dimension: ``torch.vmap(lambda row: torch.cat([row, row]))``. The rules here pass the
batch as one more axis in front, which these operators take as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, pytree
from onnx_aot.torch_compat.overloads import aten, schema_of
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.places import Entry, Place
from onnx_aot.torch_compat.tracing import is_recording_calls, without_recording

__all__ = ["BATCHING", "RULES"]

_OPERATORS = (
    aten.cat.default,
    aten.gather.default,
    aten.gelu_backward.default,
    aten.index_add.default,
    aten.index_copy.default,
    aten.linalg_cross.default,
    aten.native_layer_norm.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.select_scatter.default,
)

# The axis of a batch of other operators is merged with their own batch.
_MERGED = (aten.convolution.default, aten.native_group_norm.default)

# Arguments that have no axis for the batch.
_SHARED = {
    aten.index_add.default: ("index",),
    aten.index_copy.default: ("index",),
    aten.native_layer_norm.default: ("weight", "bias"),
    aten.convolution.default: ("weight", "bias"),
    aten.native_group_norm.default: ("weight", "bias"),
}


@dataclasses.dataclass(frozen=True)
class _Native:
    """The rule of torch for an operator."""

    operator: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.operator._op_dk(torch._C.DispatchKey.FuncTorchBatched, *args, **kwargs)


def _batch(original: _Native, settings: Settings) -> Callable[..., Any]:
    operator = original.operator
    find_interpreter = private(_INTERPRETER)
    call_rule = private(_HELPER)
    names = [argument.name for argument in schema_of(operator).arguments]
    shared = [names.index(name) for name in _SHARED.get(operator, ())]
    compute = _merge if operator in _MERGED else _put_in_front

    def rule(*args: Any, **kwargs: Any) -> Any:
        interpreter = find_interpreter()
        if not _is_plain(operator, args, shared, interpreter.level()):
            return original(*args, **kwargs)

        def run(info: Any, axes: Any, *given: Any, **options: Any) -> tuple[Any, Any]:
            results = compute(operator, names, info.batch_size, axes, given, options)
            return results, pytree.tree_map(lambda _: 0, results)

        return call_rule(interpreter, run, operator, *args, **kwargs)

    return rule


def _is_plain(operator: Any, args: tuple[Any, ...], shared: list[int], level: int) -> bool:
    """True if the operands have equally many axes, more than 0, and the others have no batch."""
    if any(_is_batched(args[place], level) for place in shared if place < len(args)):
        return False
    first = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    ranks = {tensor.dim() for tensor in first}
    if operator in _MERGED:
        return _is_batched(args[0], level)
    return len(ranks) == 1 and 0 not in ranks


def _is_batched(value: Any, level: int) -> bool:
    functorch = torch._C._functorch
    return isinstance(value, torch.Tensor) and functorch.maybe_get_level(value) == level


def _put_in_front(
    operator: Any, names: list[str], size: Any, axes: Any, args: tuple[Any, ...], options: Any
) -> Any:
    """Calls an operator with the batch as the first axis of all tensors that may have it."""
    filled = []
    for name, value, axis in zip(names, args, axes, strict=False):
        if name in _SHARED.get(operator, ()):
            filled.append(value)
        elif name == "dim" and value >= 0:
            filled.append(value + 1)
        elif isinstance(value, torch.Tensor):
            filled.append(_with_batch(value, axis, size))
        elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            filled.append([_with_batch(v, a, size) for v, a in zip(value, axis, strict=True)])
        else:
            filled.append(value)
    if names[1] == "dim" and len(filled) == 1:
        filled.append(1)  # the default is the first axis
    if options.get("dim", -1) >= 0:
        options = {**options, "dim": options["dim"] + 1}
    return operator(*filled, **options)


def _with_batch(tensor: torch.Tensor, axis: int | None, size: Any) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)


def _merge(
    operator: Any, names: list[str], size: Any, axes: Any, args: tuple[Any, ...], options: Any
) -> Any:
    """Calls an operator with the batch as a part of the first axis of the first tensor."""
    tensor = _with_batch(args[0], axes[0], size)
    rows = tensor.shape[1]
    others = [rows * size if name == "N" else v for name, v in zip(names, args, strict=False)]
    results = operator(tensor.flatten(0, 1), *others[1:], **options)
    return pytree.tree_map(lambda one: one.unflatten(0, (size, rows)), results)


def _places(settings: Settings) -> Iterator[Place]:
    key = getattr(torch._C.DispatchKey, "FuncTorchBatched", None)
    if key is None or private(_INTERPRETER) is None or private(_HELPER) is None:
        return
    for operator in _OPERATORS + _MERGED:
        table = getattr(operator, "py_kernels", None)
        cache = getattr(operator, "_dispatch_cache", None)
        if table is not None and cache is not None:
            yield Entry(table, key, _Native(operator), cache.clear)


_INTERPRETER = "torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter"
_HELPER = "torch._functorch.autograd_function:custom_function_call_vmap_helper"


def _hide_move(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Moves the axis of the batch of a result without recording that.

    The call that takes the batch out of a function is recorded as a whole. The move within it is of
    a tensor that the capture does not know, which would become a constant.
    """

    def remove(*args: Any, **kwargs: Any) -> Any:
        if not is_recording_calls():  # but the operators of each
            return original(*args, **kwargs)
        with without_recording():
            return original(*args, **kwargs)

    return remove


RULES = Patch(
    "rules of torch.vmap",
    _batch,
    "cat, gather, scatter, convolutions and normalizations fix the dimension that torch.vmap maps.",
    when=lambda settings: settings.dynamic,
    places=_places,
    exists=lambda: bool(list(_places(Settings()))),
)

BATCHING: tuple[Patch, ...] = (
    RULES,
    Patch(
        "torch._functorch.predispatch:_remove_batch_dim_impl",
        _hide_move,
        "torch.vmap of a product of a matrix with a vector, or with other out_dims than 0, is "
        "refused.",
        when=lambda settings: settings.module is not None and not settings.strict,
    ),
)
"""Rows for ``torch.vmap``, of which the first also holds while a program is retraced."""
