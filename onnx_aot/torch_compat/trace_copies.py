"""Reads the graph that is being traced, and makes copies of fake tensors for copied nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import FakeTensor, OpOverload, private
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.places import find_place
from onnx_aot.torch_compat.symbolic_sizes import storage_key

__all__ = [
    "MODULE_CALLS",
    "TensorCopies",
    "can_copy",
    "copy_constant",
    "has_foreign_modes",
    "is_size_of_tensor",
    "last_node",
    "node_of",
    "nodes_after",
    "requested_name",
    "traced_module",
    "track_copy",
    "users_lines",
]

_PROXIES = "torch.fx.experimental.proxy_tensor"
_CALL = f"{_PROXIES}:_ModuleStackTracer.call_module"
_NEEDED = (
    f"{_PROXIES}:get_proxy_slot",
    f"{_PROXIES}:track_tensor",
    "torch.fx.experimental.symbolic_shapes:is_accessor_node",
    "torch.fx.proxy:CapturedTraceback",
    "torch.utils._python_dispatch:_disable_current_modes",
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
    "torch.overrides:_get_current_function_mode_stack",
    "torch._C:DisableTorchFunction",
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager",
    "torch:_C._functions.DelayedError",
    "torch:_lazy_clone",
)
_OF_TRACER = (
    "proxy_modules",
    "num_calls",
    "module_stack",
    "torch_fn_counts",
    "tensor_tracker",
    "graph",
    "root",
)


def _reuse_parts(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    reuse = settings.reuse

    def call_module(self: Any, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        return reuse.call(self, m, args, kwargs, lambda: original(self, m, forward, args, kwargs))

    return call_module


def _is_wanted(settings: Settings) -> bool:
    return settings.reuse is not None and all(private(name) is not None for name in _NEEDED)


MODULE_CALLS = Patch(
    _CALL,
    _reuse_parts,
    "Layers that repeat are all traced; the export of 64 equal layers takes twice as long.",
    when=_is_wanted,
    parameters="self, m, forward, args, kwargs",
)


def can_copy(tracer: Any) -> bool:
    """True if a tracer has the attributes that copies need."""
    return all(hasattr(tracer, name) for name in _OF_TRACER)


def has_foreign_modes() -> bool:
    """True if the user's code has functions or operators of torch do something else."""
    modes = (
        *private("torch.overrides:_get_current_function_mode_stack")(),
        *private("torch.utils._python_dispatch:_get_current_dispatch_mode_stack")(),
    )
    places = (type(mode).__module__ for mode in modes)
    return any(p.partition(".")[0] not in _OWN_MODES or p == _DEVICES for p in places)


_OWN_MODES = ("torch", "onnx_aot")
_DEVICES = "torch.utils._device"  # of ``with torch.device(...)``, which users may put anywhere


def traced_module(module: torch.nn.Module, tracer: Any) -> torch.nn.Module:
    """Returns the module that a stand-in of the tracer's is for; other modules are returned."""
    found: torch.nn.Module = tracer.proxy_modules.get(module, module)
    return found


def node_of(tensor: torch.Tensor, tracer: Any) -> torch.fx.Node | None:
    """Returns the node of a traced tensor; None if it is not traced, or a constant."""
    entry = private(f"{_PROXIES}:get_proxy_slot")(tensor, tracer, None)
    if entry is None or entry.constant is not None:
        return None
    node: torch.fx.Node = entry.proxy.node
    return node


def last_node(graph: torch.fx.Graph) -> torch.fx.Node | None:
    """Returns the last node of a graph; None if it is empty."""
    return next(iter(reversed(graph.nodes)), None)


def nodes_after(node: torch.fx.Node | None, graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yields the nodes after one, or all of them."""
    following = next(iter(graph.nodes), None) if node is None else node.next
    while following is not None and following.op != "root":
        yield following
        following = following.next


def copy_constant(name: str, tracer: Any) -> str:
    """Copies a tensor of the traced module, and returns the name of the copy."""
    new: str = tracer.get_fresh_qualname("_tensor_constant")
    setattr(tracer.root, new, getattr(tracer.root, name).clone())
    return new


def requested_name(node: torch.fx.Node, tracer: Any) -> str | None:
    """The name that torch asked for when it made a node; None for one made from the target."""
    if not isinstance(node.target, OpOverload):
        return None
    name: str = tracer.graph._target_to_str(node.target.overloadpacket.__name__)
    rest = node.name.removeprefix(name)
    return name if rest != node.name and (not rest or rest[1:].isdigit()) else None


def track_copy(tensor: torch.Tensor, node: torch.fx.Node, tracer: Any) -> None:
    """Makes a tensor the value of a node, so that operators on it use the node."""
    private(f"{_PROXIES}:track_tensor")(tensor, tracer.proxy(node), constant=None, tracer=tracer)


def is_size_of_tensor(node: torch.fx.Node) -> bool:
    """True if a node only reads a size, stride or offset of a tensor."""
    return bool(private("torch.fx.experimental.symbolic_shapes:is_accessor_node")(node))


def users_lines(tracer: Any) -> str:
    """The stack trace that the tracer would give a node made now."""
    if not tracer.record_stack_traces:
        return ""
    place = find_place("torch.fx.proxy:CapturedTraceback")  # as it is now: a patch replaces it
    assert place is not None
    lines = place.value().extract().summary()
    return "".join(tracer._filter_traceback_frames(lines).format()).strip()


class TensorCopies:
    """Makes fake tensors like given ones; copies share memory where the originals do.

    Operators are neither recorded nor run in fake modes while it is used: it is a context manager.
    """

    def __init__(self) -> None:
        self._memory: dict[int, torch.Tensor] = {}  # copies, by the memory of the originals

    def __enter__(self) -> TensorCopies:
        self._functions = private("torch._C:DisableTorchFunction")()
        self._modes = private("torch.utils._python_dispatch:_disable_current_modes")()
        self._functions.__enter__()
        self._modes.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._modes.__exit__(*error)
        self._functions.__exit__(*error)

    def share(self, original: torch.Tensor, copy: torch.Tensor) -> None:
        """Makes copies of what shares memory with ``original`` share memory with ``copy``."""
        self._memory.setdefault(storage_key(original), copy)

    def copy(self, tensor: FakeTensor) -> FakeTensor:
        """Makes a tensor of the same dtype, sizes, strides and device, without a gradient."""
        # Torch would compute sizes of memory from symbolic ones, which takes a hundred times longer
        # than copying what it has computed for the original.
        key = storage_key(tensor)
        in_kernel = private("torch._subclasses.fake_tensor:in_kernel_invocation_manager")
        with in_kernel(tensor.fake_mode), torch.no_grad():
            if key not in self._memory:
                elements = self._memory[key] = private("torch:_lazy_clone")(tensor)
            else:
                memory, start = self._memory[key], tensor.storage_offset()
                place = tensor.size(), tensor.stride()
                if memory.dtype == tensor.dtype:
                    elements = torch.as_strided(memory, *place, start)
                else:  # x.real, or x.view(dtype)
                    elements = torch.empty(0, dtype=tensor.dtype, device=memory.device)
                    elements.set_(memory.untyped_storage(), start, *place)
        return FakeTensor(tensor.fake_mode, elements, tensor.fake_device)

    def copy_result(self, tensor: FakeTensor) -> FakeTensor:
        """Makes a copy that requires a gradient if the original does, and is no leaf then."""
        copy = self.copy(tensor)
        if not tensor.requires_grad:
            return copy
        copy.requires_grad_()
        with torch.enable_grad():
            result: FakeTensor = _delayed_error()(copy)
        return result


def _delayed_error() -> Callable[[torch.Tensor], Any]:
    make: Any = private("torch:_C._functions.DelayedError")
    error: Callable[[torch.Tensor], Any] = make("a copied part has no gradient", 1)
    return error
