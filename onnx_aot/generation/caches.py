"""Finds the states that a transformers model keeps between steps, by calls of the model."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.generation.layers import keep_windows, window_of
from onnx_aot.pytrees.containers import INPUTS, has_parts, own_caches, register_containers
from onnx_aot.torch_compat import pytree

__all__ = ["Layout", "State", "cache_parameter", "cached_states"]

Path = tuple[Any, ...]
"""Attributes, keys and indices that lead from a cache to a tensor of it."""

KEYS_AND_VALUES = ("keys", "values")
LENGTH = 2
"""Axis of the positions in keys and values, ``[batch, heads, length, size of a head]``."""


@dataclasses.dataclass(frozen=True)
class State:
    """A tensor that a model keeps between steps.

    Attributes:
        path: Where the cache holds it.
        name: Name of the input for it, such as ``past_key_values.0.key`` or ``past_conv.0``.
        like: The tensor after one token in each of two rows.
        axis: The axis of positions; None if its size is fixed.
        window: The most positions that are kept; None if all are.
        first: What the model begins with in every row, if that is not zeros.
    """

    path: Path
    name: str
    like: torch.Tensor
    axis: int | None
    window: int | None = None
    first: torch.Tensor | None = None

    @property
    def present(self) -> str:
        """Name of the output for it: ``past_key_values`` becomes ``present``, ``past`` too."""
        prefix = "past_key_values" if self.name.startswith("past_key_values") else "past"
        return "present" + self.name.removeprefix(prefix)

    def make(self, batch: int, length: int, numbers: torch.Generator | None) -> torch.Tensor:
        """Returns a state for so many rows and earlier tokens: random, or zeros if there are none.

        A state of fixed size is zeros before the first token.
        """
        sizes = [batch, *self.like.shape[1:]]
        if self.axis is not None:
            sizes[self.axis] = length if self.window is None else min(length, self.window)
        if numbers is None or not length:
            return torch.zeros(sizes, dtype=self.like.dtype)
        return torch.randn(sizes, generator=numbers).to(self.like.dtype)


@dataclasses.dataclass(frozen=True)
class Layout:
    """States of a cache, in the order in which it is taken apart.

    Attributes:
        states: The states.
        template: A cache after one token in each of two rows.
        leaves: For each part into which ``torch.export`` takes the cache, its state; None for one
            that is no tensor.
    """

    states: tuple[State, ...]
    template: Any
    leaves: tuple[State | None, ...]

    @property
    def is_recurrent(self) -> bool:
        """True if some states have a fixed size for any number of tokens."""
        return any(state.axis is None for state in self.states)

    @property
    def sums_up(self) -> bool:
        """True if some states sum up all earlier tokens; those of convolutions do not."""
        return any(state.axis is None and "conv_states" not in state.path for state in self.states)

    @property
    def windows(self) -> list[int]:
        """The different numbers of positions that states keep, if not all."""
        return sorted({state.window for state in self.states if state.window is not None})

    @property
    def has_all_positions(self) -> bool:
        """True if some states keep all positions, and so tell how many tokens there were."""
        return any(s.axis is not None and s.window is None for s in self.states)

    def fill(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Returns a cache with other tensors, one for each state."""
        cache = _copy_of(self.template)
        for state, tensor in zip(self.states, tensors, strict=True):
            *holders, last = state.path
            holder = read(cache, holders)
            if isinstance(holder, (list, dict)):
                holder[last] = tensor
            else:
                setattr(holder, last, tensor)
        return cache

    def make(self, batch: int, length: int, device: torch.device, empty: bool = False) -> Any:
        """Returns a cache for so many rows and earlier tokens, of random numbers or of zeros."""
        numbers = None if empty else torch.Generator().manual_seed(0)
        return self.fill([s.make(batch, length, numbers).to(device) for s in self.states])

    def tensors_of(self, cache: Any) -> list[torch.Tensor]:
        """Returns the tensors of a cache in the order of the states."""
        return [read(cache, state.path) for state in self.states]


def _copy_of(held: Any) -> Any:
    """Copies a cache, its layers and their containers, but no tensors."""
    if isinstance(held, dict):
        return {key: _copy_of(value) for key, value in held.items()}
    if isinstance(held, list):
        return [_copy_of(item) for item in held]
    if not has_parts(held):
        return held
    made = copy.copy(held)
    vars(made).update({name: _copy_of(value) for name, value in vars(held).items()})
    return made


def read(holder: Any, path: Sequence[Any]) -> Any:
    """Returns what a path leads to."""
    for key in path:
        holder = holder[key] if isinstance(holder, (list, tuple, dict)) else getattr(holder, key)
    return holder


def cache_parameter(forward: Callable[..., Any]) -> str | None:
    """Returns the name of the parameter of ``forward`` that takes the states, or None.

    It is ``cache`` since transformers 5.24, and ``past_key_values`` before; ``state`` takes tensors
    without a class around them. The output of a model has an attribute of the same name.
    """
    taken = inspect.signature(forward).parameters
    names = ("cache", "past_key_values", "state")
    return next((name for name in names if name in taken), None)


def cached_states(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    part: str | None = None,
    bounded: bool = True,
) -> Layout:
    """Returns the states that a model keeps between steps.

    Args:
        model: The model, which is called with its own cache. If weights have no values, a copy is
            called whose buffers have none either.
        inputs: Keyword inputs of the call, for one token in each of two rows.
        part: ``"decoder"`` or ``"encoder"``, for the keys and values of one side of an
            encoder-decoder; None for a decoder alone.
        bounded: Let layers with a window keep no positions outside it.

    Raises:
        InvalidOptionError: The model takes or returns no cache; or it fails, and the cause is
            chained.
    """
    name = type(model).__name__
    parameter = cache_parameter(model.forward)
    if parameter is None:
        raise InvalidOptionError(
            f"{name}.forward takes none of cache, past_key_values and state, so it keeps nothing "
            "between steps. Export it without: onnx_aot.export(model, kwargs=...)",
            code="OA701",
        )
    if any(weight.is_meta for weight in model.parameters()):
        model = copy.deepcopy(model).to("meta")
        inputs = {name: _on_meta(value) for name, value in inputs.items()}
    with _first_argument(model, parameter) as before:
        cache = _cache_after(model, inputs, parameter, part)
    found = _tensors_by_path(cache)
    if not found:
        raise InvalidOptionError(
            f"{name} returns no states ({parameter} is a {type(cache).__name__}). A decoder "
            "returns a cache. If the model can be a decoder or an encoder, set "
            "config.is_decoder=True. States that a model keeps in its modules, and does not "
            "return, cannot be inputs. Export other models with onnx_aot.export(model, kwargs=...)",
            code="OA701",
        )
    axes = dict.fromkeys(found, LENGTH)
    if not all(path[-1] in KEYS_AND_VALUES for path in found):
        longer = {**inputs, "input_ids": inputs["input_ids"].repeat(1, 2)}
        grown = _tensors_by_path(_cache_after(model, longer, parameter, part))
        axes |= {path: _axis(path, tensor, grown[path]) for path, tensor in found.items()}
    keep_windows(cache, bounded)
    states: dict[Path, State] = {}
    for path, tensor in found.items():
        window = window_of(read(cache, path[:-1])) if path[-1] in KEYS_AND_VALUES else None
        name = _name(path, part, cache, model)
        states[path] = State(path, name, tensor, axes[path], window, before.get(path))
    leaves = tuple(states.get(path) for path, _ in _leaves(cache))
    return Layout(tuple(states.values()), cache, leaves)


@contextlib.contextmanager
def _first_argument(model: torch.nn.Module, parameter: str) -> Iterator[dict[Path, torch.Tensor]]:
    """Context that notes the tensors in which a model's first block is given the states to fill.

    Yields a row of each that is not zeros; caches of transformers are empty then.
    """
    found: dict[Path, torch.Tensor] = {}
    seen: list[Any] = []

    def note(_: torch.nn.Module, __: Any, kwargs: dict[str, Any]) -> None:
        if not seen and isinstance(kwargs.get(parameter), list):
            seen.append(kwargs[parameter])
            tensors = _tensors_by_path(kwargs[parameter]).items()
            found.update({path: t[0].clone() for path, t in tensors if not t.is_meta and t.any()})

    hooks = [
        block.register_forward_pre_hook(note, with_kwargs=True)
        for block in model.modules()
        if block is not model
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _cache_after(
    model: torch.nn.Module, inputs: Mapping[str, Any], parameter: str, part: str | None
) -> Any:
    """Calls a model without a cache, and returns the one that it makes, or a part of that."""
    try:
        with torch.no_grad():
            returned = model(**inputs, use_cache=True)
    except Exception as error:
        raise InvalidOptionError(
            f"{type(model).__name__} fails on one token or two with its own cache, even without "
            f"an export: {error}",
            code="OA701",
        ) from error
    cache = getattr(returned, parameter, None)
    sides = {"decoder": "self_attention_cache", "encoder": "cross_attention_cache"}
    return getattr(cache, sides[part], cache) if part else cache


def _axis(path: Path, one: torch.Tensor, two: torch.Tensor) -> int | None:
    """Returns the axis that is longer after two tokens than after one."""
    if path[-1] in KEYS_AND_VALUES:
        return LENGTH
    axes = [i for i, size in enumerate(one.shape) if size != two.shape[i]]
    return axes[0] if axes else None


def _tensors_by_path(cache: Any) -> dict[Path, torch.Tensor]:
    """Returns the tensors of a cache, or of a list of tensors, in the order of ``torch.export``."""
    return {path: leaf for path, leaf in _leaves(cache) if isinstance(leaf, torch.Tensor)}


def _leaves(cache: Any) -> list[tuple[Path, Any]]:
    """Returns the parts into which ``torch.export`` takes a cache."""
    if cache is None:
        return []
    with own_caches(cache):
        register_containers(cache, "cache", INPUTS)
        leaves, _ = pytree.tree_flatten_with_path(cache)
    return [(tuple(map(_step_of, path)), leaf) for path, leaf in leaves]


def _step_of(key: Any) -> Any:
    """Returns the attribute, key or index that an entry of a path of torch's pytree is for."""
    named = (name for name in ("name", "key", "idx") if hasattr(key, name))
    return getattr(key, next(named))


def _name(path: Path, part: str | None, cache: Any, model: Any) -> str:
    """Returns the name of the input for a state.

    Keys and values have optimum's names, and others transformers.js': ``past_conv.0``,
    ``past_ssm.0`` and ``past_recurrent.0``.
    """
    if path[0] != "layers":  # a tensor beside the layers, or one of a plain list
        kind, *rest = path if isinstance(path[0], str) else ("state", *path)
        return ".".join([f"past_{kind}", *map(str, rest)])
    _, layer, attribute, *rest = path
    if attribute in KEYS_AND_VALUES:
        side = f"{part}." if part else ""
        return f"past_key_values.{layer}.{side}{attribute.removesuffix('s')}"
    kind = attribute.rpartition("_")[0] or attribute  # conv_states, recurrent_states
    if kind == "recurrent" and _has_state_size(model.config):
        kind = "ssm"
    is_one = not rest or len(read(cache, path[:-1])) == 1
    return ".".join([f"past_{kind}", str(layer), *([] if is_one else map(str, rest))])


def _has_state_size(config: Any) -> bool:
    """True if a configuration gives the size of a state, as those of state space models do."""
    names = vars(config.get_text_config(decoder=True))
    return any(name.endswith(("d_state", "state_size")) for name in names)


def _on_meta(value: Any) -> Any:
    """Moves a tensor, or an output of transformers that holds some, to the meta device."""
    if isinstance(value, Mapping):
        return type(value)(**{key: _on_meta(held) for key, held in value.items()})
    return value.to("meta") if isinstance(value, torch.Tensor) else value
