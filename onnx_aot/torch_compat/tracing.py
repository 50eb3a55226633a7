"""Traces functions with fake tensors, and finds torch's decompositions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.captures import PROXY_NODES, QUIET
from onnx_aot.torch_compat.larger_sizes import LARGER_SIZES
from onnx_aot.torch_compat.lookup import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    private,
    private_attribute,
    pytree,
)
from onnx_aot.torch_compat.patching import Patch, Settings, applied, restored
from onnx_aot.torch_compat.places import find_place
from onnx_aot.torch_compat.zero_sizes import SMALL_SIZES

__all__ = [
    "FIXED_SIZES",
    "decompositions",
    "fake_mode_of",
    "map_slices",
    "refuse_fixed_sizes",
    "trace_fake",
    "without_recording",
    "writes_to",
]


def fake_mode_of(values: Any) -> FakeTensorMode | None:
    """Returns the fake mode of the first FakeTensor in a nested structure."""
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return None


def trace_fake(
    function: Callable[..., Any], arguments: list[Any], mode: FakeTensorMode | None
) -> torch.fx.GraphModule:
    """Records the ATen calls that ``function(*arguments)`` makes on fake tensors.

    Raises:
        NotImplementedError: This torch has no ``make_fx``.
    """
    make_fx = private("torch.fx.experimental.proxy_tensor:make_fx")
    if make_fx is None:
        raise NotImplementedError("this release of torch has no make_fx")
    with applied((SMALL_SIZES, PROXY_NODES), Settings()), mode or contextlib.nullcontext():
        traced: torch.fx.GraphModule = make_fx(function, _allow_non_fake_inputs=True)(*arguments)
    return traced


def writes_to(tensor: torch.Tensor) -> int:
    """Number of writes to the memory of a tensor."""
    return 0 if tensor.is_inference() else int(private_attribute(tensor, _VERSION, 0))


_VERSION = "torch:Tensor._version"


def without_recording() -> contextlib.AbstractContextManager[Any]:
    """Runs operators on the fake tensors of a trace without recording them."""
    disable = private("torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing")
    return disable() if disable is not None else contextlib.nullcontext()


def map_slices(function: Callable[..., Any], slices: Any, *others: Any) -> Any:
    """Stacks ``function(slice, *others)`` over the slices along the first axis, as one operator.

    Torch tests whether there are any slices, and refuses zero; the translation accepts zero.

    Raises:
        NotImplementedError: This torch has no such operator.
    """
    operator = private("torch._higher_order_ops.map:map")
    if operator is None:
        raise NotImplementedError("this release of torch has no operator map")
    # The answer has no consequence here but may elsewhere, so it is not kept.
    with restored(_forget_answers), applied((LARGER_SIZES,), Settings(larger_sizes=True)):
        return operator(function, slices, *others)


def _forget_answers() -> None:
    place = find_place("torch.fx.experimental.symbolic_shapes:ShapeEnv._inner_evaluate_expr")
    if place is not None:
        place.value().cache_clear()


def decompositions(target: OpOverload) -> list[Callable[..., Any]]:
    """Returns torch's own decompositions of an operator, the preferred one first.

    Sources: ``torch._decomp.decomposition_table``, then the operator's CompositeImplicitAutograd
    kernel.
    """
    table = private("torch._decomp:decomposition_table") or {}
    rules = [table[target]] if target in table else []
    can_decompose = private_attribute(target, "torch._ops:OpOverload._can_decompose")
    with contextlib.suppress(RuntimeError):  # TorchScript operators have no dispatch table
        if can_decompose is not None and can_decompose():
            rules.append(target.decompose)
    return rules


def _refuse_guards(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def guard(self: Any, *where: Any, **more: Any) -> Any:
        if getattr(self.expr, "free_symbols", ()):
            raise ValueError(f"the size {self.expr} is read as a number")
        return original(self, *where, **more)

    return guard


FIXED_SIZES: tuple[Patch, ...] = tuple(
    Patch(
        f"torch.fx.experimental.sym_node:SymNode.{name}",
        _refuse_guards,
        "A decomposition that computes with an example's size fixes the dimension, unnoticed.",
        parameters="self, file, line",
    )
    for name in ("guard_int", "guard_float")
)


@contextlib.contextmanager
def refuse_fixed_sizes() -> Iterator[None]:
    """Raises ``ValueError`` if code reads a symbolic size as a number, a specialization."""
    with applied((*FIXED_SIZES, QUIET), Settings()):  # torch logs the errors of a kernel
        yield
