"""Replaces kernels that torch runs on fake tensors, which only compute shapes, by faster rules."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from onnx_aot.torch_compat.lookup import FakeTensor, private, pytree
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.symbolic_sizes import expression_key, storage_key
from onnx_aot.torch_compat.zero_sizes import may_be_zero

__all__ = [
    "META_TENSORS",
    "Results",
    "ShapeRule",
    "axis_above_zero",
    "recording_slice",
    "shape_rule_patches",
]

ShapeRule = Callable[..., Any]
"""``rule(new, *args, **kwargs)`` returns an operator's results, or None to let torch compute them.

``new`` is a ``Results``.
"""


class Results:
    """Makes results of operators, and remembers which tensors are contiguous."""

    def __init__(self) -> None:
        self.mode: Any = None
        self._layouts: Any = WeakIdKeyDictionary()  # tensor -> (layout, is contiguous)
        self._in_kernel = private("torch._subclasses.fake_tensor:in_kernel_invocation_manager")
        self._test = private("torch._prims_common:is_contiguous_for_memory_format_or_false")

    def __call__(self, shape: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
        """Returns a new contiguous tensor with the dtype and device of ``like``."""
        meta = torch.empty(shape, dtype=like.dtype, device="meta")
        made: torch.Tensor = FakeTensor(self.mode, meta, device=like.device)
        self._layouts[made] = layout_of(made), True
        return made

    def view(
        self,
        tensor: torch.Tensor,
        sizes: Sequence[Any],
        strides: Sequence[Any],
        offset: Any = None,
        contiguous: bool = False,
    ) -> torch.Tensor | None:
        """Returns a view of a tensor's memory; None if torch has to make it.

        Args:
            tensor: The viewed tensor.
            sizes: Sizes of the view.
            strides: Strides of the view.
            offset: Storage offset of its first element; by default the tensor's own.
            contiguous: Whether these strides are those of a contiguous tensor.
        """
        if self._in_kernel is None or tensor.layout != torch.strided or tensor.dtype.is_complex:
            return None
        with self._in_kernel(self.mode):
            meta = torch.ops.aten.as_strided.default(tensor, sizes, strides, offset)
        made: torch.Tensor = FakeTensor(self.mode, meta, device=tensor.device)
        if contiguous:
            self._layouts[made] = layout_of(made), True
        return made

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Returns True if a tensor is known to be contiguous for all sizes."""
        layout = layout_of(tensor)
        if all(type(size) is int for size in layout):
            return tensor.is_contiguous()
        known = self._layouts.get(tensor)
        if known is not None and known[0] == layout:
            return bool(known[1])
        test = self._test
        found = test is not None and test(tensor, memory_format=torch.contiguous_format)
        self._layouts[tensor] = layout, bool(found)
        return bool(found)


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Key that is equal for equal sizes and strides; comparing these would cost time and guards."""
    return tuple(map(_key, (*tensor.shape, *tensor.stride())))


def _key(size: Any) -> Any:
    return expression_key(size) if isinstance(size, torch.SymInt) else size


class _Slices:
    """Sizes, strides and offsets of slices that a tracer recorded.

    Torch makes symbols for those that it cannot tell. Equal slices of the same memory get the same
    ones, so that ``x[a:b] += y``, which slices twice, asks no question about two sizes.
    """

    def __init__(self) -> None:
        self._by_tracer: Any = weakref.WeakKeyDictionary()
        self._made: dict[Any, Any] | None = None
        self._numbers: Any = WeakIdKeyDictionary()  # slice -> its axis

    def axis_above_zero(self, tensor: torch.Tensor) -> int | None:
        """See ``axis_above_zero``."""
        found: int | None = self._numbers.get(tensor)
        return found

    @contextlib.contextmanager
    def recording(self, tracer: Any) -> Iterator[None]:
        self._made = self._by_tracer.setdefault(tracer, {})
        try:
            yield
        finally:
            self._made = None

    def make(
        self,
        slice_torch: Callable[..., torch.Tensor],
        tensor: torch.Tensor,
        dim: int = 0,
        start: Any = None,
        end: Any = None,
        step: Any = 1,
    ) -> torch.Tensor:
        """Slices a tensor, by torch's function if no equal slice is known."""
        result = self._make(slice_torch, tensor, dim, start, end, step)
        if type(result.shape[dim]) is int and may_be_zero(tensor.shape[dim]):
            self._numbers[result] = dim % tensor.dim()
        return result

    def _make(
        self,
        slice_torch: Callable[..., torch.Tensor],
        tensor: torch.Tensor,
        dim: int,
        start: Any,
        end: Any,
        step: Any,
    ) -> torch.Tensor:
        start, end = 0 if start is None else start, sys.maxsize if end is None else end
        given = tensor, dim, start, end, step
        if self._made is None or not any(isinstance(b, torch.SymInt) for b in (start, end)):
            return slice_torch(*given)
        place = *layout_of(tensor), tensor.storage_offset(), start, end, step
        key = storage_key(tensor), dim % tensor.dim(), *map(_key, place)
        if key in self._made:
            return tensor.as_strided(*self._made[key][:3])
        result = slice_torch(*given)
        layout = result.shape, result.stride(), result.storage_offset()
        self._made[key] = *layout, tensor.untyped_storage()  # kept so that its key stays its own
        return result


_SLICES = _Slices()


def axis_above_zero(tensor: torch.Tensor) -> int | None:
    """The axis along which a tensor is a slice whose size is a number only if none is 0.

    That of ``x[:1]`` is 1 in a capture that assumes sizes above zero.
    """
    return _SLICES.axis_above_zero(tensor)


def recording_slice(operator: Any, tracer: Any) -> contextlib.AbstractContextManager[None]:
    """Lets a slice that a tracer records have the sizes of an equal one that it recorded."""
    if operator is not torch.ops.aten.slice.Tensor:
        return contextlib.nullcontext()
    return _SLICES.recording(tracer)


# When these are computed a second time, for a decomposition, they read sizes as numbers, which
# makes the dimensions static; the first time, while the model is traced, they do not.
_CACHED = (
    "aten._fft",
    "aten.fft_",
    "aten.constant_pad_nd",
    "aten._linalg",
    "aten.linalg_",
    "aten.pinverse",
)


def shape_rule_patches(rules: Mapping[Any, ShapeRule]) -> tuple[Patch, ...]:
    """Makes rows that apply shape rules and disable torch's cache if sizes are symbolic.

    The cache computes each result twice to see whether it can be kept, and rarely hits with
    symbolic sizes: without it captures took 54 to 97 % of the time, over a dozen models.
    """

    def with_rules(original: Callable[[], Any], settings: Settings) -> Callable[[], Any]:
        table = dict(original())
        new = Results()
        # Strict captures do not run the model, so that it is not seen where it reads a size.
        note_zero = settings.zero_ignored if settings.strict else None
        table.update({o: _kernel(table, o, rule, new, note_zero) for o, rule in rules.items()})
        return lambda: table

    return (
        Patch(
            "torch._subclasses.fake_tensor:get_fast_op_impls",
            with_rules,
            "Captures with symbolic sizes take longer.",
            when=lambda settings: settings.dynamic,
            behaves=lambda original: isinstance(original(), dict),
        ),
        Patch(
            "torch._subclasses.fake_tensor:FakeTensorMode._cached_dispatch_impl",
            _bypass_cache,
            "Captures with symbolic sizes take up to twice as long.",
            when=lambda settings: settings.dynamic,
            parameters="self, func, types, args, kwargs",
        ),
    )


def _kernel(
    table: Any,
    operator: Any,
    rule: ShapeRule,
    new: Results,
    note_zero: Callable[[bool], None] | None,
) -> Callable[..., Any]:
    usual = table.get(operator)

    def results(mode: Any, *args: Any, **kwargs: Any) -> Any:
        new.mode = mode
        found = rule(new, *args, **kwargs)
        if found is not None:
            return found
        if usual is not None:
            return usual(mode, *args, **kwargs)
        del table[operator]  # as if there were no rule
        try:
            with mode:
                if operator is not torch.ops.aten.slice.Tensor:
                    return operator(*args, **kwargs)
                made = _SLICES.make(operator, *args, **kwargs)
                if note_zero is not None and axis_above_zero(made) is not None:
                    note_zero(True)
                return made
        finally:
            table[operator] = results

    return results


def _bypass_cache(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def dispatch(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if str(func).startswith(_CACHED):
            return original(self, func, types, args, kwargs)
        return self._dispatch_impl(func, types, args, kwargs)

    return dispatch


def _on_device(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Traces meta tensors as if they were on the device of the tensors that have elements."""
    tensors = [*_tensors_of_model(settings), *pytree.tree_leaves(settings.inputs)]
    devices = (t.device for t in tensors if isinstance(t, torch.Tensor) and not t.is_meta)
    device = next(devices, torch.device("cpu"))

    def describe_tensor(self: Any, tensor: torch.Tensor, **options: Any) -> Any:
        described = original(self, tensor, **options)
        if described.device.type != "meta":
            return described
        return dataclasses.replace(described, device=device)

    return describe_tensor


def _tensors_of_model(settings: Settings) -> list[torch.Tensor]:
    module = settings.module
    return [] if module is None else [*module.parameters(), *module.buffers()]


META_TENSORS = Patch(
    "torch._subclasses.meta_utils:MetaTensorDescriber.describe_tensor",
    _on_device,
    "A model is refused that joins parameters on the device meta with tensors that have elements.",
    when=lambda settings: any(tensor.is_meta for tensor in _tensors_of_model(settings)),
    parameters="self, t",
)
