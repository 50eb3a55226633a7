"""Records autocast regions where they are, also in branches and while a capture is traced again.

Torch records the beginning and the end of a region in the outermost graph, and only records them
when it traces a graph again that has them, as with ``strict=True``. Such a region would be computed
in another type than in PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat.calls import AUTOCAST_BEGINS, AUTOCAST_ENDS
from onnx_aot.torch_compat.lookup import private
from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["AUTOCAST_BODIES", "AUTOCAST_MARKS"]


def _record_region(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    active = private("torch.overrides:_get_current_function_mode_stack")
    opened: list[contextlib.ExitStack] = []

    @functools.wraps(original)
    def torch_function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if active is None or name not in (AUTOCAST_BEGINS, AUTOCAST_ENDS):
            return original(self, func, types, args, kwargs)
        modes = [mode for mode in active() if isinstance(mode, type(self))]
        if any(mode is self for mode in modes):  # torch.autocast calls the outermost mode
            return original(modes[-1], func, types, args, kwargs)
        with torch._C.DisableTorchFunction():  # the region is only recorded once
            if name == AUTOCAST_BEGINS:
                opened.append(contextlib.ExitStack())
                opened[-1].enter_context(torch.autocast(*args))
            elif opened:
                opened.pop().close()
        return original(self, func, types, args, kwargs)

    return torch_function


AUTOCAST_MARKS = Patch(
    "torch.fx.experimental.proxy_tensor:PreDispatchTorchFunctionMode.__torch_function__",
    _record_region,
    "torch.autocast in branches, and with strict=True, has no effect on the captured types.",
    parameters="self, func, types, args, kwargs",
)


def _keep_around_bodies(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves the marks of regions as they are if a graph with regions has branches or loops.

    Torch moves the nodes of a region to a module of their own, and loses bodies in nested ones.
    """

    def replace(module: torch.fx.GraphModule, signature: Any) -> Any:
        graphs = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]
        if any(_has_region(graph) and _has_body(graph) for graph in graphs):
            return module, signature
        return original(module, signature)

    return replace


def _has_region(graph: torch.fx.Graph) -> bool:
    return any(getattr(node.target, "__name__", "") == AUTOCAST_BEGINS for node in graph.nodes)


def _has_body(graph: torch.fx.Graph) -> bool:
    references = graph.find_nodes(op="get_attr")
    owner = graph.owning_module
    return any(isinstance(getattr(owner, n.target, None), torch.fx.GraphModule) for n in references)


AUTOCAST_BODIES = Patch(
    "torch._export.passes.replace_autocast_with_hop_pass:replace_autocast_with_hop_pass",
    _keep_around_bodies,
    "Some branches in autocast regions are refused, as torch loses their bodies.",
    parameters="gm, graph_signature",
)
