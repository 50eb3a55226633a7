"""Derives example inputs and dynamic dimensions from real calls of a model."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import Dim

from onnx_aot.errors import InvalidOptionError
from onnx_aot.pytrees.containers import INPUTS, register_containers
from onnx_aot.pytrees.paths import mirror_containers
from onnx_aot.torch_compat import pytree

__all__ = ["CallsAlike", "Observed", "observe"]


@dataclasses.dataclass(frozen=True)
class CallsAlike:
    """Calls with the same arguments, except for sizes and numbers.

    Attributes:
        kwargs: Copies of the arguments of the call with the largest tensors, by parameter.
        dynamic_shapes: Nested like ``kwargs``: ``Dim.DYNAMIC`` for each dimension and each number
            that was not the same in all calls. None if there is none.
        count: Number of calls.
    """

    kwargs: dict[str, Any]
    dynamic_shapes: dict[str, Any] | None
    count: int

    def __str__(self) -> str:
        tensors = []
        for name, value in self.kwargs.items():
            leaves = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            shown = ", ".join(str(list(leaf.shape)) for leaf in leaves[:2])
            tensors.append(f"{name} {shown}{', ...' if len(leaves) > 2 else ''}".rstrip())
        return f"{self.count} calls with {'; '.join(tensors)}"


class _Kind:
    """Calls of one kind: the arguments of the largest, and the sizes and numbers of each."""

    def __init__(self) -> None:
        self.elements = -1
        self.values: dict[str, Any] = {}
        self.seen: list[tuple[Any, ...]] = []

    def add(self, values: dict[str, Any], leaves: list[Any]) -> None:
        """Adds a call; its tensors are copied if they are the largest so far."""
        self.seen.append(tuple(map(_leaf_sizes, leaves)))
        elements = sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
        if elements > self.elements:
            self.elements = elements
            self.values = pytree.tree_map(_copy_tensor, values)

    def summarize(self) -> CallsAlike:
        """Summarizes the calls."""
        hints = [_infer_hint(sizes) for sizes in zip(*self.seen, strict=True)]
        remaining = iter(hints)
        shapes = {name: mirror_containers(value, remaining) for name, value in self.values.items()}
        return CallsAlike(self.values, shapes if any(hints) else None, len(self.seen))


class Observed:
    """The calls that ``observe`` saw, sorted into kinds.

    Calls are of one kind if their arguments are nested alike, with tensors of the same types and
    ranks and the same Python constants: a decoder's first call, without a cache, is of another kind
    than the following ones. ``kwargs`` and ``dynamic_shapes`` are those of the kind with the most
    calls; ``kinds`` has all of them.
    """

    def __init__(self) -> None:
        self._kinds: dict[Any, _Kind] = {}

    @property
    def kinds(self) -> tuple[CallsAlike, ...]:
        """All kinds of calls, the one with the most calls first."""
        found = (kind.summarize() for kind in self._kinds.values())
        return tuple(sorted(found, key=lambda alike: alike.count, reverse=True))

    @property
    def kwargs(self) -> dict[str, Any]:
        """Example inputs by parameter; raises InvalidOptionError if there was no call."""
        return self._find_most_frequent().kwargs

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """Dimensions that differed; raises InvalidOptionError if there was no call."""
        return self._find_most_frequent().dynamic_shapes

    def __str__(self) -> str:
        return "\n".join(map(str, self.kinds)) or "no calls"

    def _find_most_frequent(self) -> CallsAlike:
        if not self._kinds:
            raise InvalidOptionError(
                "no call of the model was observed; call the model, or the code that calls it, "
                "inside the `with onnx_aot.observe(model) as observed:` block",
                code="OA704",
            )
        return self.kinds[0]

    def _add(self, values: dict[str, Any]) -> None:
        leaves, structure = pytree.tree_flatten(values)
        kind = str(structure), tuple(map(_leaf_signature, leaves))
        self._kinds.setdefault(kind, _Kind()).add(values, leaves)


@contextlib.contextmanager
def observe(model: torch.nn.Module) -> Iterator[Observed]:
    """Records the calls of a model within the context.

    Examples:
        >>> with onnx_aot.observe(model) as observed:
        ...     model.generate(tokens)
        >>> program = onnx_aot.export(
        ...     model, kwargs=observed.kwargs, dynamic_shapes=observed.dynamic_shapes
        ... )

    Args:
        model: The module, which is called as usual, also by modules around it. Direct calls of
            its ``forward`` are not seen.

    Yields:
        The calls seen so far, also available after the context. Tensors are copied when a call
        begins, so that caches, which grow in place, are as the call got them.

    Raises:
        InvalidOptionError: ``model`` is not a module, or an argument is of an unsupported class.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidOptionError(
            f"observe takes an nn.Module, not {type(model).__name__}", code="OA704"
        )
    observed = Observed()
    signature = inspect.signature(model.forward)

    def record_call(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observed._add(_by_parameter(signature, args, kwargs))

    hook = model.register_forward_pre_hook(record_call, with_kwargs=True)
    try:
        yield observed
    finally:
        hook.remove()


def _by_parameter(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by parameter, without those that are None."""
    values: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidOptionError(
                f"forward{signature} takes *{name}; observe needs parameters with names",
                code="OA704",
            )
        elif value is not None:
            values[name] = value
    for name, value in values.items():
        register_containers(value, name, INPUTS)
    return values


def _copy_tensor(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)


def _leaf_signature(leaf: Any) -> Any:
    """The part of a leaf that is the same in all calls of one kind; numbers may differ."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.dim()
    return type(leaf) if _is_number(leaf) else repr(leaf)


def _leaf_sizes(leaf: Any) -> Any:
    """The part of a leaf that may differ between calls: the sizes, or a number."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape)
    return leaf if _is_number(leaf) else None


def _infer_hint(seen: tuple[Any, ...]) -> Any:
    """The varying dimensions of one input, in the form of ``dynamic_shapes``."""
    if not isinstance(seen[0], tuple):
        return None if len(set(seen)) == 1 else Dim.DYNAMIC
    sizes = zip(*seen, strict=True)
    return {axis: Dim.DYNAMIC for axis, all_ in enumerate(sizes) if len(set(all_)) > 1} or None
