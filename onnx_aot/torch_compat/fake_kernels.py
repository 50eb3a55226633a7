"""What torch runs on fake tensors while it traces: kernels that only work out shapes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.torch_compat.names import private

__all__ = ["ShapeRule", "contiguous_like", "faster_shapes", "meta_tensors_on"]

ShapeRule = Callable[..., Any]
"""``rule(new, *args, **kwargs)`` gives an operator's results, or None for torch to work them out.

``new(shape, like)`` makes a contiguous result of a tensor's dtype and device.
"""

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

    def kernel(operator: Any, rule: ShapeRule) -> Callable[..., Any]:
        usual = before.get(operator)

        def results(mode: Any, *args: Any, **kwargs: Any) -> Any:
            def new(shape: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
                return fake(  # type: ignore[no-any-return]
                    mode, torch.empty(shape, dtype=like.dtype, device="meta"), device=like.device
                )

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


def contiguous_like(tensor: torch.Tensor) -> bool:
    """Whether a tensor is contiguous for all sizes; without torch's function, it is not known."""
    test = private("torch._prims_common", "is_contiguous_for_memory_format_or_false")
    return test is not None and bool(test(tensor, memory_format=torch.contiguous_format))


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
