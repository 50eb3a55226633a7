"""Changes how torch traces functions of higher-order operators such as ``cond`` and ``scan``."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx.traceback
import torch.utils.checkpoint

from onnx_aot import torch_compat
from onnx_aot.torch_compat import Patch, Settings, applied

__all__ = ["HIGHER_ORDER", "WHILE_TRACED"]

_BODIES = "torch._higher_order_ops.utils"

_ANY_FUNCTION = Patch(
    "torch._inductor.utils:is_pointwise_use",
    lambda original, settings: lambda *args, **kwargs: True,
    "associative_scan refuses functions that a GPU kernel cannot be made of.",
)
WHILE_TRACED = (_ANY_FUNCTION,)
"""Rows that other rows apply while a function of a higher-order operator is traced."""


def _without_gradients(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves out backward graphs, which torch cannot trace for some carried values and nestings.

    Gradients are not exported, and without them functions may write to tensors outside. Nodes of
    the functions keep the user's lines.
    """

    def hop_compile_and_call(*args: Any, **kwargs: Any) -> Any:
        with torch_compat.without_gradients(), torch.fx.traceback.preserve_node_meta():
            return original(*args, **kwargs)

    return hop_compile_and_call


def _associative_scan(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Keeps the scan as one operator; torch's generic form unrolls while it is traced.

    ``operator`` is a partial function around the user's function under ``vmap``. Torch restricts
    the operator to functions that can become a GPU kernel, which does not matter here.
    """

    def generic_associative_scan(
        operator: Any, leaves: Sequence[torch.Tensor], dim: int = 0, additional_inputs: Any = ()
    ) -> Any:
        if torch.compiler.is_dynamo_compiling():  # Dynamo cannot inspect closures
            return original(operator, leaves, dim, additional_inputs)
        under_vmap = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals
        if "func" not in under_vmap:
            return original(operator, leaves, dim, additional_inputs)
        keywords = {**operator.keywords, "combine_fn": under_vmap["func"]}
        of_slices = functools.partial(operator.func, **keywords)

        def scan(combine: Any, values: Any) -> Any:
            return torch.ops.higher_order.associative_scan(combine, values, additional_inputs=())

        run = vars(sys.modules[_BODIES])["_maybe_compile_and_run_fn"]
        with applied((_ANY_FUNCTION,), Settings()):
            return torch_compat.pytree.tree_leaves(run(scan, of_slices, leaves))

    return generic_associative_scan


def _no_cache(original: Callable[..., Any], settings: Settings) -> Callable[[], None]:
    """Disables a cache whose keys repeat, so that it may return another function's graph."""
    return lambda: None


def _merge_by_sizes(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Merges contiguous results of two branches by their sizes, without comparing strides.

    Torch sorts the strides, which fixes a dimension whose example size is 1, and refuses those of
    sizes that may be zero.
    """

    def merge_output(a: Any, b: Any, mode: Any) -> Any:
        are_contiguous = all(isinstance(x, torch.Tensor) and _is_contiguous(x) for x in (a, b))
        if not are_contiguous or a.ndim != b.ndim or a.ndim < 2:
            return original(a, b, mode)
        pairs = zip(a.shape, b.shape, strict=True)
        lines = [original(a.new_empty(one), b.new_empty(two), mode) for one, two in pairs]
        sizes = [line.shape[0] for line in lines]
        with mode:
            return torch.empty(sizes, dtype=a.dtype, device=a.device)

    return merge_output


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """True if the strides are those of a new tensor, compared as expressions."""
    return str(tensor.stride()) == str(tensor.new_empty(tensor.shape).stride())


def _with_context(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Gives each checkpoint a context: torch reads one from all, but only some have one."""

    def reenter_make_fx(run: Any, *args: Any, **kwargs: Any) -> Any:
        module = getattr(getattr(run, "__self__", None), "module", None)
        if isinstance(module, torch.fx.GraphModule):
            no_context = torch.utils.checkpoint.noop_context_fn
            module.meta.setdefault("_checkpoint_context_fn", no_context)
        return original(run, *args, **kwargs)

    return reenter_make_fx


HIGHER_ORDER: tuple[Patch, ...] = (
    Patch(
        "torch._dynamo.config:inline_single_use_invoke_subgraph",
        lambda original, settings: False,
        "Regions that are called once become part of the graph around them.",
    ),
    Patch(
        f"{_BODIES}:_hop_compile_and_call",
        _without_gradients,
        "Branches and loops that write, or are nested, are refused.",
        parameters="fn, args, kwargs",
        imports=False,
    ),
    Patch(
        "torch._higher_order_ops.cond:_merge_output",
        _merge_by_sizes,
        "Dimensions of size 1 in the example are fixed at a branch; sizes of 0 are left out.",
        parameters="a, b, mode",
        imports=False,
    ),
    Patch(
        "torch._higher_order_ops.wrap:reenter_make_fx",
        _with_context,
        "Functions with several checkpoints, of which one has a context, are refused.",
        parameters="fn",
        imports=False,
    ),
    Patch(
        "torch._higher_order_ops.associative_scan:generic_associative_scan",
        _associative_scan,
        "associative_scan unrolls over its length, which fixes it.",
        parameters="operator, leaves, dim, additional_inputs",
        imports=False,
    ),
    Patch(
        "torch._higher_order_ops.invoke_subgraph:get_invoke_subgraph_cache",
        _no_cache,
        "Regions of different functions may get one graph, which is wrong for one of them.",
        parameters="",
        imports=False,
    ),
)
