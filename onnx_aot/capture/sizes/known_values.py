"""Carries the values of small tensors that a model computes from constants, buffers and sizes.

While a model is captured, tensors have no elements. But ``if self.initialized:`` and
``torch.cumsum(torch.tensor(lengths), 0).tolist()`` read numbers that do not depend on the inputs.
Each ATen call whose operands are known is carried out a second time, with real tensors that have
the values, or with expressions of symbolic sizes (``symbolic_elements.py``). Where the model reads
a number, it gets the value.

A parameter, buffer or tensor attribute is known unless ``forward`` writes to it. The capture ends
if it was read before a write, and is repeated without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_aot.capture.error_hints import RefusedError
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.capture.sizes.known_sources import (
    LIMIT,
    Source,
    copy_elements,
    has_elements,
    has_memory,
)
from onnx_aot.capture.sizes.symbolic_elements import Elements, Logarithm, compute_elements
from onnx_aot.torch_compat import (
    computes_real_tensors,
    is_making_fresh_size,
    known_number,
    memory_keys,
    pytree,
    schema_of,
    storage_key,
    with_real_tensors,
    without_function_modes,
)

__all__ = [
    "OUTSIDE",
    "KnownValueWrittenError",
    "KnownValues",
    "Reading",
    "with_known_values",
]

OUTSIDE = "a tensor outside of the model"
"""Name of tensors that are neither buffers nor attributes of the model, such as globals."""


class KnownValueWrittenError(Exception):
    """Ends a capture in which the model wrote to a tensor whose value it had read before."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A number that the capture took from a tensor of the model.

    Attributes:
        name: The parameter, buffer or attribute, such as ``encoder.stride``.
        value: Its elements at the time of the capture, shortened.
        location: The user's line.
        elements: A copy of the tensor; None for tensors outside of the model.
    """

    name: str
    value: str
    location: Location | None
    elements: torch.Tensor | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        where = "" if self.location is None else f" ({self.location})"
        return f"{self.name} = {self.value}{where}"


def with_known_values(forward: Callable[..., Any], known: KnownValues) -> Callable[..., Any]:
    """Wraps ``forward`` so that values are known while it runs.

    The result raises ``KnownValueWrittenError`` if ``forward`` wrote to a tensor that was read.
    """

    @functools.wraps(forward)
    def forward_with_known_values(*args: Any, **kwargs: Any) -> Any:
        with known.tracking():
            return forward(*args, **kwargs)

    forward_with_known_values.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward_with_known_values


# --- values --------------------------------------------------------------------------------------

Value = torch.Tensor | Elements


@dataclasses.dataclass(eq=False)
class _Known:
    """A traced tensor whose value is known.

    Attributes:
        value: A real tensor, or expressions of sizes.
        origins: Names of the sources that it was computed from.
        scope: The tracer that made it, since a loop's body runs more than once; None for sources.
        storage: Its memory, kept so that the key stays its own. The tensor itself is not kept:
            torch takes over a tensor that nothing else holds, instead of a copy without a proxy.
        forgotten: Whether something unknown was written to that memory.
    """

    value: Value
    origins: frozenset[str]
    scope: Any
    storage: Any
    forgotten: bool = False


_UNKNOWN = object()
# Names of ATen operators.
_NOT_COMPUTED = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)
_FILLED_LIKE: dict[str, float | None] = {  # the operand gives only shape and dtype
    "full_like": None,
    "new_full": None,
    "new_ones": 1,
    "new_zeros": 0,
    "ones_like": 1,
    "zeros_like": 0,
}
_READ_BY_TORCH = frozenset(("resolve_conj", "resolve_neg"))  # tolist() and numpy() call them


class KnownValues:
    """Values of the tensors of one capture.

    Args:
        sources: Buffers and attributes that are known, by name.
        unknown: Names of further ones that are not, because ``forward`` writes to them.
        locate: Returns the user's current line.

    Attributes:
        readings: Numbers that the model read from sources, in order.
        written: Names of sources that were read and are written to.
        reads: How often the model read a number, from any tensor.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        unknown: Collection[str] = (),
        locate: Callable[[], Location | None] = lambda: None,
    ) -> None:
        self._sources, self._unknown = sources, frozenset(unknown)
        self._locate = locate
        self._active = False
        self.readings: dict[tuple[str, Location | None], Reading] = {}
        self.written: set[str] = set()
        self.reads = 0
        self._reset()

    def _reset(self) -> None:
        self._known: Any = WeakTensorKeyDictionary()
        self._by_storage: dict[int, list[_Known]] = {}
        self._storages: dict[int, int] = {}  # of values: the key of the tensors' memory
        self._owners: dict[int, str] = {}
        self._outside: set[int] = set()  # memory of tensors that the model did not compute
        self._fakes: dict[int, int] = {}  # of the fake tensor that torch made of a real one
        self._changed = set(self._unknown)

    @contextlib.contextmanager
    def tracking(self) -> Iterator[None]:
        """Carries values while ``forward`` runs, and tests at its end what it assigned.

        Raises:
            KnownValueWrittenError: The model replaced a tensor that was read.
        """
        if self._active or not computes_real_tensors():  # forward calls itself
            yield
            return
        self._reset()
        held = {name: source.held() for name, source in self._sources.items()}
        with without_function_modes():
            before = {n: storage_key(t) for n, t in held.items() if isinstance(t, torch.Tensor)}
            for name, storage in before.items():
                self._owners[storage] = self._owners[self._sources[name].memory] = name
                self._keep(held[name], self._sources[name].value, frozenset({name}), None)
        self._active = True
        try:
            yield
        finally:
            self._active = False
        for name in {name for name, _ in self.readings} & before.keys():
            now = self._sources[name].held()
            if now is not held[name] or storage_key(now) != before[name]:
                self._note_written([name])

    def call(
        self,
        original: Callable[..., Any],
        mode: Any,
        func: Any,
        pre_dispatch: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Traces an ATen call with ``original``, and computes its results if they are known.

        Raises:
            KnownValueWrittenError: It writes to a tensor that was read before.
        """
        if not self._active or is_making_fresh_size():
            return original(mode, func, pre_dispatch, args, kwargs)
        self._watch_torch(func, args, mode.tracer)
        operands = self._find_operands(func, args, kwargs, mode.tracer)
        if operands:
            number = self._read(mode, func, operands, args, kwargs)
            if number is not _UNKNOWN:
                return number
            chosen = self._select(func, operands, args, kwargs)
            if chosen is not _UNKNOWN:
                literal = torch.ops.aten.lift_fresh.default
                return pytree.tree_map(
                    lambda value: self.call(original, mode, literal, pre_dispatch, (value,), {}),
                    chosen,
                )
        result = original(mode, func, pre_dispatch, args, kwargs)
        name = func.overloadpacket.__name__
        if name == "lift_fresh" and has_elements(args[0]):  # torch.tensor([1, 2])
            self._keep(result, copy_elements(args[0]), frozenset(), mode.tracer)
        elif name != "detach_" and (written := list(_written_tensors(func, args, kwargs))):
            self._follow_write(func, args, kwargs, written, operands, mode.tracer)
        elif operands is not None and name not in _NOT_COMPUTED:
            self._follow(func, args, kwargs, operands, result, mode.tracer)
        return result

    def forget_computed(self) -> None:
        """Forgets all values that were computed so far, and not those of sources."""
        for known in (one for shared in self._by_storage.values() for one in shared):
            known.forgotten = known.forgotten or known.scope is not None

    def is_known(self, tensor: torch.Tensor, tracer: Any) -> bool:
        """True if the value of a traced tensor is known."""
        return self._active and self._find(tensor, tracer) is not None

    # --- look-ups ---

    def _find_operands(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], scope: Any
    ) -> list[_Known] | None:
        """The values that the result of a call depends on; None if one is unknown."""
        name = func.overloadpacket.__name__
        if func.namespace != "aten" or name == "lift_fresh":
            return None
        tensors = [] if name in _FILLED_LIKE else _find_tensors((*args, *kwargs.values()))
        operands = []
        for tensor in tensors:
            known = self._find(tensor, scope)
            if known is None:
                return None
            operands.append(known)
        return operands

    def _find(self, tensor: torch.Tensor, scope: Any) -> _Known | None:
        known: _Known | None = self._known.get(tensor)
        if known is None:
            return self._find_constant(tensor)
        if known.forgotten or known not in self._sharing(tensor):  # tensor.data was assigned
            return None
        if known.scope is not None and known.scope is not scope:
            return None
        return None if known.origins & self._changed else known

    def _find_constant(self, tensor: torch.Tensor) -> _Known | None:
        """A tensor with elements that the model did not compute, such as a literal or a global."""
        if not has_elements(tensor):
            return None
        owner = self._owners.get(storage_key(tensor), OUTSIDE)
        if owner in self._changed:
            return None
        return self._keep(tensor, copy_elements(tensor), frozenset({owner}), None)

    def _keep(
        self, tensor: torch.Tensor, value: Value, origins: frozenset[str], scope: Any
    ) -> _Known:
        storage = self._memory(tensor)
        if scope is None:
            self._outside.add(storage)
        known = _Known(value, origins, scope, tensor.untyped_storage())
        self._known[tensor] = known
        self._by_storage.setdefault(storage, []).append(known)
        if isinstance(value, torch.Tensor):
            self._storages[storage_key(value)] = storage
        return known

    def _sharing(self, tensor: torch.Tensor) -> Sequence[_Known]:
        """The known tensors that share memory with a tensor, itself included."""
        return self._by_storage.get(self._memory(tensor), ())

    def _memory(self, tensor: torch.Tensor) -> int:
        """The key of a tensor's memory; for the fake of a real tensor, that of the real one."""
        key = storage_key(tensor)
        return self._fakes.get(key, key)

    def _shares_alike(self, tensor: torch.Tensor, value: Value) -> bool:
        """True if a value shares memory with the same values as its tensor with their tensors."""
        if isinstance(value, Elements):
            return True
        memory = self._storages.get(storage_key(value))
        if memory is None:
            return not self._sharing(tensor)
        if memory in self._outside and not self._sharing(tensor):  # a view of a real tensor
            self._fakes[storage_key(tensor)] = memory
        return self._memory(tensor) == memory

    # --- operators ---

    def _read(
        self,
        mode: Any,
        func: Any,
        operands: Sequence[_Known],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The Python value that a call returns if it reads its operands; else ``_UNKNOWN``."""
        name = func.overloadpacket.__name__
        if torch.Tag.data_dependent_output not in func.tags and name != "is_nonzero":
            return _UNKNOWN
        first = operands[0].value
        if isinstance(first, Elements) and len(operands) == 1:
            with mode:  # so that the arithmetic of sizes is recorded
                number = _read_element(name, first, args[0].dtype)
        else:
            number = self._compute(func, args, kwargs)
            number = number if isinstance(number, (bool, int, float, complex)) else _UNKNOWN
        if number is not _UNKNOWN:
            self._note_reading(operands)
        return number

    def _watch_torch(self, func: Any, args: tuple[Any, ...], scope: Any) -> None:
        """Notes that torch itself reads the elements of a tensor, as ``tolist()`` does.

        Raises:
            RefusedError: The model writes to the tensor.
        """
        if func.overloadpacket.__name__ not in _READ_BY_TORCH or not has_elements(args[0]):
            return
        known = self._find(args[0], scope)
        if known is not None:
            self._note_reading([known])
            return
        name = self._owners.get(storage_key(args[0]), OUTSIDE)
        raise RefusedError(
            f"it reads numbers from {name}, to which it also writes",
            "make the tensor a buffer with self.register_buffer(name, tensor), so that the capture "
            "sees the writes",
            "OA105",
        )

    def _select(
        self,
        func: Any,
        operands: Sequence[_Known],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The real results of a call whose shape depends on its operands; else ``_UNKNOWN``."""
        if torch.Tag.dynamic_output_shape not in func.tags:
            return _UNKNOWN
        masks = (torch.bool, torch.uint8)
        if func.overloadpacket.__name__ == "index" and all(
            index.dtype not in masks for index in _find_tensors(args[1:])
        ):
            return _UNKNOWN  # of integers, which do not select
        found = self._compute(func, args, kwargs)
        if found is _UNKNOWN or not all(map(has_elements, pytree.tree_leaves(found))):
            return _UNKNOWN
        self._note_reading(operands)
        return found

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Carries a call out with real tensors; ``_UNKNOWN`` if that is not possible."""
        given = self._replace((args, dict(kwargs)))
        leaves = pytree.tree_leaves(given)
        if any(isinstance(leaf, (Elements, *_SYMBOLIC)) for leaf in leaves):
            return _UNKNOWN
        try:
            with with_real_tensors():
                return func(*given[0], **given[1])
        except Exception:  # the example's values do not fit; PyTorch says so when the model runs
            return _UNKNOWN

    def _replace(self, values: Any) -> Any:
        """The values in place of the tensors."""

        def replace(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            known = self._known.get(leaf)
            return leaf if known is None else known.value

        return pytree.tree_map(replace, values)

    def _follow(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        operands: Sequence[_Known],
        result: Any,
        scope: Any,
    ) -> None:
        """Computes the values of the results of a call whose operands are known."""
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not results or not all(_is_small(one) and has_memory(one) for one in results):
            return
        if torch.Tag.nondeterministic_seeded in func.tags:
            return
        origins = frozenset().union(*(one.origins for one in operands))
        values = self._compute_results(func, args, kwargs, results)
        for tensor, value in zip(results, values, strict=False):
            if self._known.get(tensor) in operands:  # it returned its operand
                continue
            if tuple(value.shape) == tuple(tensor.shape) and self._shares_alike(tensor, value):
                self._keep(tensor, value, origins, scope)

    def _compute_results(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        results: Sequence[torch.Tensor],
    ) -> Sequence[Value]:
        """Values of the results, or an empty list."""
        name = func.overloadpacket.__name__
        if name in _FILLED_LIKE:
            number = _FILLED_LIKE[name]
            number = kwargs.get("fill_value", args[-1]) if number is None else number
            func, args = (
                torch.ops.aten.full.default,
                (list(map(known_number, results[0].shape)), number),
            )
            kwargs = {"dtype": results[0].dtype, "device": results[0].device}
        found = self._compute(func, args, kwargs)
        if found is not _UNKNOWN:
            leaves = pytree.tree_leaves(found)
            same = len(leaves) == len(results) and all(
                isinstance(leaf, torch.Tensor) and leaf.dtype == result.dtype
                for leaf, result in zip(leaves, results, strict=True)
            )
            return leaves if same else []
        given_args, given_kwargs = self._replace((args, dict(kwargs)))
        try:
            with with_real_tensors():
                return compute_elements(func, given_args, given_kwargs, results) or []
        except Exception:
            return []

    def _follow_write(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: Sequence[torch.Tensor],
        operands: Sequence[_Known] | None,
        scope: Any,
    ) -> None:
        """Repeats a write on the values, or forgets the values of the memory written to."""
        keys = {key for tensor in written for key in memory_keys(tensor)}
        storages = keys | {self._fakes[key] for key in keys & self._fakes.keys()}
        self._note_written([self._owners[key] for key in storages & self._owners.keys()])
        changed = [one for key in storages for one in self._by_storage.get(key, ())]
        if any(one.origins == {OUTSIDE} and one.scope is None for one in changed):
            self._note_written([OUTSIDE])
        is_followed = (
            bool(changed)
            and operands is not None
            and torch.Tag.nondeterministic_seeded not in func.tags
            and all(one.scope is scope and not isinstance(one.value, Elements) for one in changed)
            and self._compute(func, args, kwargs) is not _UNKNOWN
        )
        if is_followed:
            origins = frozenset().union(*(one.origins for one in operands or ()))
            for one in changed:
                one.origins |= origins
        else:
            for one in changed:
                one.forgotten = True

    # --- records ---

    def _note_reading(self, operands: Iterable[_Known]) -> None:
        self.reads += 1
        location = self._locate()
        for name in sorted(frozenset().union(*(one.origins for one in operands))):
            source = self._sources.get(name)
            value = None if source is None else source.value
            shown = "a constant" if value is None else _shorten(value)
            self.readings.setdefault((name, location), Reading(name, shown, location, value))

    def _note_written(self, names: Iterable[str]) -> None:
        names = set(names)
        self._changed |= names
        read = names & {name for name, _ in self.readings}
        if read:
            self.written |= read
            raise KnownValueWrittenError(", ".join(sorted(read)))


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _find_tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _find_tensors(value)


def _is_small(tensor: torch.Tensor) -> bool:
    sizes = [known_number(size) for size in tensor.shape]
    return None not in sizes and math.prod(size or 0 for size in sizes) <= LIMIT


def _read_element(name: str, elements: Elements, dtype: torch.dtype) -> Any:
    """A symbolic element as a Python or symbolic number; ``_UNKNOWN`` if it is rounded."""
    values = elements.read()
    if values is None or len(values) != 1:
        return _UNKNOWN
    (value,) = values
    if isinstance(value, Logarithm):
        return _UNKNOWN
    if name == "is_nonzero":
        return bool(value if isinstance(value, (bool, torch.SymBool)) else value.numerator != 0)
    if isinstance(value, (bool, torch.SymBool)):
        return value
    if value.denominator != 1:
        return _UNKNOWN
    if dtype.is_floating_point:
        return torch.sym_float(value.numerator)  # type: ignore[no-untyped-call]
    return value.numerator


def _written_tensors(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """The tensors that a call writes to."""
    schema = schema_of(func)
    names = [argument.name for argument in schema.arguments]
    if not schema.is_mutable and "running_mean" not in names:
        return
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("training") is True or given.get("use_input_stats") is True:
        # Normalizations update these, which their schema does not say.
        yield from _find_tensors((given.get("running_mean"), given.get("running_var")))
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _find_tensors((given.get(argument.name),))


def _shorten(value: torch.Tensor) -> str:
    """The elements as Python, at most the first eight."""
    with with_real_tensors():
        elements = value.tolist() if value.numel() <= 8 else value.flatten()[:8].tolist()
    if value.numel() <= 8:
        return str(elements)
    first = ", ".join(map(str, elements))
    return f"[{first}, ...] (shape {tuple(value.shape)})"
