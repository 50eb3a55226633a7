"""Spares work of torch's own, around and after tracing, on which no result depends."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch.fx

from onnx_aot.torch_compat.lookup import FakeTensor, private, private_attribute, pytree
from onnx_aot.torch_compat.patching import Patch, Settings, in_capturing_thread
from onnx_aot.torch_compat.symbolic_sizes import is_data_symbol
from onnx_aot.torch_compat.trace_copies import has_foreign_modes

__all__ = ["SPARED_WORK", "without_function_modes"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


@contextlib.contextmanager
def without_function_modes() -> Iterator[None]:
    """Reads shapes and memory of tensors without going through the modes that trace a model.

    Each of them is called for each attribute, which takes ten times as long as to read it. Classes
    with functions of their own keep them: those of FX, which stand for values, rely on that.
    """
    length, pop, push = map(private, _STACK)
    if length is None or pop is None or push is None:
        yield
        return
    modes: list[Any] = []
    try:
        while length():
            modes.append(pop())
        yield
    finally:
        while modes:
            push(modes.pop())


_STACK = (
    "torch:_C._len_torch_function_stack",
    "torch:_C._pop_torch_function_stack",
    "torch:_C._push_on_torch_function_stack",
)


def _track_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Tracks the inputs and weights of a program, all of them before the model is called."""

    def track_tensor_tree(inner_res: Any, proxy_res: Any, *, constant: Any, tracer: Any) -> Any:
        if not isinstance(inner_res, list) or _has_foreign_modes():
            return original(inner_res, proxy_res, constant=constant, tracer=tracer)
        with without_function_modes():
            return original(inner_res, proxy_res, constant=constant, tracer=tracer)

    return track_tensor_tree


def _produce_at_once(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def produce(**options: Any) -> Any:
        if _has_foreign_modes():
            return original(**options)
        with without_function_modes():
            return original(**options)

    return produce


def _has_foreign_modes() -> bool:
    stacks = (
        "torch.overrides:_get_current_function_mode_stack",
        "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
    )
    return any(private(name) is None for name in stacks) or has_foreign_modes()


def _bind_if_any(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Looks for sizes of data in the nodes of a graph only if the capture has met one."""

    def replace_unbacked_bindings(gm: torch.fx.GraphModule) -> None:
        found = (node.meta.get("val") for node in gm.graph.nodes)
        mode = next((value.fake_mode for value in found if isinstance(value, FakeTensor)), None)
        limits = private_attribute(
            getattr(mode, "shape_env", None), f"{_SHAPES}:ShapeEnv.var_to_range"
        )
        if limits is None or any(map(is_data_symbol, limits)):
            original(gm)
            return
        for node in gm.graph.nodes:
            node.meta.pop("unbacked_bindings", None)

    return replace_unbacked_bindings


class _Trees:
    """Torch's module for nested structures, with a shorter way through the modules of a node.

    Torch removes the name of its own root from each path in ``nn_module_stack``, node by node.
    """

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def tree_map(self, func: Callable[[Any], Any], tree: Any, *rests: Any, **options: Any) -> Any:
        if rests or options or type(tree) not in _DICTS or not in_capturing_thread():
            return self._original.tree_map(func, tree, *rests, **options)
        if not all(type(value) is tuple and all(map(_is_leaf, value)) for value in tree.values()):
            return self._original.tree_map(func, tree)
        return type(tree)((key, tuple(map(func, value))) for key, value in tree.items())


_DICTS = (dict, OrderedDict)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (str, type))


def _without_source(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    lazy = private("torch.fx._lazy_graph_module:_LazyGraphModule")
    return original if lazy is None else lazy


SPARED_WORK: tuple[Patch, ...] = (
    Patch(
        "torch.fx.experimental.proxy_tensor:track_tensor_tree",
        _track_at_once,
        "Captures of models with many weights take a tenth longer.",
        when=lambda settings: not settings.strict,
        parameters="inner_res, proxy_res, constant, tracer",
    ),
    Patch(
        "torch.export._trace:_produce_aten_artifact",
        _produce_at_once,
        "Captures of models with many weights take a tenth longer.",
        when=lambda settings: not settings.strict,
        parameters="gm, mod",
    ),
    Patch(
        "torch.export._trace:_replace_unbacked_bindings",
        _bind_if_any,
        "Captures take a hundredth longer.",
        parameters="gm",
    ),
    Patch(
        "torch.export._trace:pytree",
        lambda original, settings: _Trees(original),
        "Captures take a fiftieth longer.",
        when=lambda settings: not settings.strict,
        behaves=lambda original: original is pytree,
    ),
    Patch(
        "torch.export.exported_program:_create_graph_module_for_export",
        _without_source,
        "The source of each captured program is generated and compiled, though nothing runs it.",
        when=lambda settings: settings.lazy,
        parameters="root, graph",
    ),
)
