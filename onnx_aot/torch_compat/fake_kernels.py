"""What torch runs on fake tensors while it traces: kernels that only work out shapes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from onnx_aot.torch_compat.names import private
from onnx_aot.torch_compat.sizes import expression_key

__all__ = ["Results", "ShapeRule", "faster_shapes", "meta_tensors_on"]

ShapeRule = Callable[..., Any]
"""``rule(new, *args, **kwargs)`` gives an operator's results, or None for torch to work them out.

``new`` is a ``Results``.
"""


class Results:
    """Makes the results of operators, and tells what is known of operands."""

    def __init__(self) -> None:
        self.mode: Any = None
        self._layouts: Any = WeakIdKeyDictionary()  # and whether they are contiguous, by tensor
        self._fake = private("torch._subclasses.fake_tensor", "FakeTensor")
        self._in_kernel = private("torch._subclasses.fake_tensor", "in_kernel_invocation_manager")
        self._test = private("torch._prims_common", "is_contiguous_for_memory_format_or_false")

    def __call__(self, shape: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor of its own, of another's dtype and device."""
        meta = torch.empty(shape, dtype=like.dtype, device="meta")
        made: torch.Tensor = self._fake(self.mode, meta, device=like.device)
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
        """Other sizes and strides of a tensor's memory; None where torch has to make it.

        Args:
            tensor: What it is a view of.
            sizes: Of the view.
            strides: Of the view.
            offset: Of its first element in the memory; by default the tensor's own.
            contiguous: Whether these strides are those of a contiguous tensor.
        """
        if self._in_kernel is None or tensor.layout != torch.strided or tensor.dtype.is_complex:
            return None
        with self._in_kernel(self.mode):
            meta = torch.ops.aten.as_strided.default(tensor, sizes, strides, offset)
        made: torch.Tensor = self._fake(self.mode, meta, device=tensor.device)
        if contiguous:
            self._layouts[made] = layout_of(made), True
        return made

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is contiguous for all sizes; without torch's test, it is not known."""
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
    """Equal for equal sizes and strides; cheaper than to compare them, which is to decide."""
    return tuple(
        size if type(size) is int else expression_key(size)
        for size in (*tensor.shape, *tensor.stride())
    )


_CACHED = (
    "aten._fft",
    "aten.fft_",
    "aten.constant_pad_nd",
    "aten._linalg",
    "aten.linalg_",
    "aten.pinverse",
)


@contextlib.contextmanager
def faster_shapes(rules: Mapping[Any, ShapeRule]) -> Iterator[None]:
    """Applies shape rules where sizes are symbolic, and keeps no cache of the others' shapes.

    The cache of shapes makes each result a second time to see whether it can be kept, and hits
    rarely where sizes are symbolic: without it captures took 54 to 97 % of the time (measured over
    a dozen models). Without ``get_fast_op_impls``, or ``_cached_dispatch_impl``, they take longer.
    """
    get_table = private("torch._subclasses.fake_impls", "get_fast_op_impls")
    table: dict[Any, Callable[..., Any]] = {} if get_table is None else get_table()
    fake = private("torch._subclasses.fake_tensor", "FakeTensor")
    mode_type = private("torch._subclasses.fake_tensor", "FakeTensorMode")
    cached = getattr(mode_type, "_cached_dispatch_impl", None)
    before = dict(table)
    new = Results()

    def kernel(operator: Any, rule: ShapeRule) -> Callable[..., Any]:
        usual = before.get(operator)

        def results(mode: Any, *args: Any, **kwargs: Any) -> Any:
            new.mode = mode
            found = rule(new, *args, **kwargs)
            if found is not None:
                return found
            if usual is not None:
                return usual(mode, *args, **kwargs)
            del table[operator]
            try:
                with mode:
                    return operator(*args, **kwargs)
            finally:
                table[operator] = results

        return results

    def uncached(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        # Worked out a second time, for a decomposition, these read sizes as numbers, which fixes
        # them; the first time, while the model is traced, they do not.
        if cached is not None and str(func).startswith(_CACHED):
            return cached(self, func, types, args, kwargs)
        return self._dispatch_impl(func, types, args, kwargs)

    if fake is not None:
        table.update({operator: kernel(operator, rule) for operator, rule in rules.items()})
    if cached is not None and hasattr(mode_type, "_dispatch_impl"):
        mode_type._cached_dispatch_impl = uncached
    try:
        yield
    finally:
        table.clear()
        table.update(before)
        if cached is not None:
            mode_type._cached_dispatch_impl = cached


@contextlib.contextmanager
def meta_tensors_on(device: torch.device) -> Iterator[None]:
    """Tensors without elements are traced as if they were on a device, beside those that are.

    Without ``MetaTensorDescriber.describe_tensor`` a model is not captured that joins parameters on
    the device meta with tensors that have elements; one that is there as a whole is.
    """
    describer = private("torch._subclasses.meta_utils", "MetaTensorDescriber")
    describe = getattr(describer, "describe_tensor", None)
    if describe is None:
        yield
        return

    def moved(self: Any, tensor: torch.Tensor, **options: Any) -> Any:
        described = describe(self, tensor, **options)
        if described.device.type != "meta":
            return described
        return dataclasses.replace(described, device=device)

    describer.describe_tensor = moved
    try:
        yield
    finally:
        describer.describe_tensor = describe
