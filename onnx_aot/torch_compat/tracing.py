"""Fake tensors, tracing with them, decompositions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from onnx_aot.torch_compat.larger_sizes import answer_for_larger_sizes
from onnx_aot.torch_compat.names import private
from onnx_aot.torch_compat.zero_sizes import keep_small_sizes_dynamic

__all__ = [
    "decompositions",
    "fake_mode_of",
    "map_slices",
    "refuse_fixed_sizes",
    "trace_fake",
    "without_fake_mode",
    "without_recording",
    "writes_to",
]


def fake_mode_of(values: Any) -> FakeTensorMode | None:
    """The fake mode of the first FakeTensor in a nested structure."""
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return None


def without_fake_mode() -> contextlib.AbstractContextManager[Any]:
    """Suspends any active fake mode, so that tensors are real ones.

    Without ``unset_fake_temporarily`` weights must not be read inside a fake mode.
    """
    unset = private("torch._subclasses.fake_tensor", "unset_fake_temporarily")
    return unset() if unset is not None else contextlib.nullcontext()


def trace_fake(
    function: Callable[..., Any], arguments: list[Any], mode: FakeTensorMode | None
) -> torch.fx.GraphModule:
    """Records the ATen calls that ``function(*arguments)`` makes on fake tensors.

    Without ``make_fx`` no operator can be decomposed; every operator that has no translation of
    its own becomes an unsupported operator.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with keep_small_sizes_dynamic(), mode or contextlib.nullcontext():
        return make_fx(function, _allow_non_fake_inputs=True)(*arguments)


def writes_to(tensor: torch.Tensor) -> int:
    """How often the memory of a tensor was written to.

    Without ``Tensor._version`` no write is seen, and a model that keeps count in a buffer of one
    integer would be captured with what it holds now.
    """
    return 0 if tensor.is_inference() else int(getattr(tensor, "_version", 0))


def without_recording() -> contextlib.AbstractContextManager[Any]:
    """Runs on the fake tensors of a trace without adding to it.

    Without ``disable_proxy_modes_tracing`` calls are recorded, and nothing reads their results.
    """
    disable = private("torch.fx.experimental.proxy_tensor", "disable_proxy_modes_tracing")
    return disable() if disable is not None else contextlib.nullcontext()


def map_slices(function: Callable[..., Any], slices: Any, *others: Any) -> Any:
    """``function(slice, *others)`` for each slice along the first axis, stacked, as one operator.

    Torch asks whether there are slices, and refuses none; the translation takes none. Without
    ``torch._higher_order_ops.map`` it fails.
    """
    operator = private("torch._higher_order_ops.map", "map")
    if operator is None:
        raise NotImplementedError("this version of torch has no operator map")
    with answer_for_larger_sizes(None):
        return operator(function, slices, *others)


def decompositions(target: OpOverload) -> list[Callable[..., Any]]:
    """Torch's own rules that expand an operator into simpler ones, the preferred one first.

    Sources: ``torch._decomp.decomposition_table``, then the operator's CompositeImplicitAutograd
    kernel. Without them only operators with a translation can be exported.
    """
    table = private("torch._decomp", "decomposition_table") or {}
    rules = [table[target]] if target in table else []
    can_decompose = getattr(target, "_can_decompose", None)
    with contextlib.suppress(RuntimeError):  # operators of TorchScript have no dispatch table
        if can_decompose is not None and can_decompose():
            rules.append(target.decompose)
    return rules


@contextlib.contextmanager
def refuse_fixed_sizes() -> Iterator[None]:
    """Raises ``ValueError`` where code reads a symbolic size as a number, which would fix it.

    Without ``SymNode.guard_int`` a decomposition that computes with an example's size goes
    unnoticed, and is wrong at other sizes.
    """
    node = private("torch.fx.experimental.sym_node", "SymNode")
    names = [name for name in ("guard_int", "guard_float") if hasattr(node, name)]
    originals = {name: getattr(node, name) for name in names}

    def refusing(read: Callable[..., Any]) -> Callable[..., Any]:
        def guard(self: Any, *where: Any) -> Any:
            if getattr(self.expr, "free_symbols", ()):
                raise ValueError(f"the size {self.expr} is read as a number")
            return read(self, *where)

        return guard

    for name, read in originals.items():
        setattr(node, name, refusing(read))
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints what a kernel refuses
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled
        for name, read in originals.items():
            setattr(node, name, read)
