"""Traces functions with fake tensors, and finds torch's decompositions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from onnx_aot.torch_compat.overloads import aten, schema_of
from onnx_aot.torch_compat.patching import Patch, Settings, applied, restored
from onnx_aot.torch_compat.places import find_place
from onnx_aot.torch_compat.zero_sizes import SMALL_SIZES

__all__ = [
    "FIXED_SIZES",
    "attributes_kept",
    "current_tracer",
    "decompositions",
    "fake_mode_of",
    "find_python_kernel",
    "forget_answers",
    "has_elements",
    "is_computed_from",
    "is_input_of_trace",
    "is_recording",
    "is_recording_calls",
    "is_traced",
    "map_slices",
    "rebind_traced",
    "record_copy",
    "refuse_fixed_sizes",
    "takes_fakes_only",
    "trace_below_transforms",
    "trace_fake",
    "without_recording",
    "write_counts",
]


def fake_mode_of(values: Any) -> FakeTensorMode | None:
    """Returns the fake mode of the first FakeTensor in a nested structure."""
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return None


def takes_fakes_only() -> bool:
    """True inside of a ``FakeTensorMode`` in which operators refuse real tensors."""
    mode = fake_mode_of(torch.empty(0))
    return mode is not None and not getattr(mode, "allow_non_fake_inputs", True)


@contextlib.contextmanager
def attributes_kept(inputs: Sequence[Any]) -> Iterator[None]:
    """Removes the marks of dynamic dimensions that torch sets on example tensors.

    It leaves some of them, and all if a capture fails; a later capture would find them.
    """
    tensors = [leaf for leaf in inputs if isinstance(leaf, torch.Tensor)]
    before = [set(vars(tensor)) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, names in zip(tensors, before, strict=True):
            for name in vars(tensor).keys() - names:
                delattr(tensor, name)


def has_elements(tensor: torch.Tensor) -> bool:
    """False for fake tensors and for those on the device ``meta``."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def write_counts(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Numbers that grow whenever a tensor is written to."""
    return [tensor._version for tensor in tensors]


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


def trace_below_transforms(
    function: Callable[..., Any], arguments: list[Any]
) -> torch.fx.GraphModule:
    """Records the ATen calls of a function of a model that is being traced, apart from the model.

    Transforms of ``torch.func`` inside of the function leave only what they compute.
    """
    disabled = private("torch._C:DisableTorchFunction") or contextlib.nullcontext
    with without_recording(), disabled():
        return trace_fake(function, arguments, None)


def is_recording_calls() -> bool:
    """True if operators are recorded as a model calls them, before autograd and transforms."""
    mode = private(f"{_PROXIES}:get_proxy_mode")
    return bool(mode is not None and getattr(mode(), "pre_dispatch", False))


def without_recording() -> contextlib.AbstractContextManager[Any]:
    """Runs operators on the fake tensors of a trace without recording them."""
    disable = private("torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing")
    return disable() if disable is not None else contextlib.nullcontext()


_PROXIES = "torch.fx.experimental.proxy_tensor"


def _can_rebind() -> bool:
    names = ("get_proxy_mode", "get_proxy_slot", "set_proxy_slot")
    return all(private(f"{_PROXIES}:{name}") is not None for name in names)


def current_tracer() -> Any:
    """The tracer that records operators now, or None."""
    mode = private(f"{_PROXIES}:get_proxy_mode")
    active = None if mode is None else mode()
    return None if active is None else active.tracer


def recorded_number(value: Any) -> torch.fx.Proxy | None:
    """What stands for a symbolic number in the graph that is recorded; None if nothing does."""
    try:
        proxy = current_tracer().unwrap_proxy(value)
    except Exception:  # torch has different ones for values that it cannot compute from others
        return None
    return proxy if isinstance(proxy, torch.fx.Proxy) else None


def _recorded(tensor: torch.Tensor) -> Any:
    """The entry of a tensor in the tracer that records operators now; None if it has none."""
    find, tracer = private(f"{_PROXIES}:get_proxy_slot"), current_tracer()
    return None if find is None or tracer is None else find(tensor, tracer, None)


def is_recording() -> bool:
    """True if operators are recorded now, or this torch cannot tell."""
    return not _can_rebind() or current_tracer() is not None


def is_traced(tensor: torch.Tensor) -> bool:
    """True if a tensor is a value of the graph that is recorded now, or this torch cannot tell."""
    if not isinstance(tensor, FakeTensor):
        return False
    return not _can_rebind() or _recorded(tensor) is not None


def is_input_of_trace(tensor: torch.Tensor) -> bool:
    """True if a tensor is an input, parameter or buffer of the graph that is recorded now."""
    entry = _recorded(tensor)
    return entry is not None and entry.proxy.node.op != "call_function"


def rebind_traced(tensor: torch.Tensor, to: torch.Tensor) -> None:
    """Makes each later use of a traced tensor a use of another one; both share memory from then on.

    Raises:
        NotImplementedError: This torch cannot record that.
    """
    if not _can_rebind():
        raise NotImplementedError("this release of torch cannot record tensor.data = value")
    private(f"{_PROXIES}:set_proxy_slot")(tensor, current_tracer(), _recorded(to))
    _DATA.__set__(tensor, to)
    tensor.constant = getattr(to, "constant", None)  # type: ignore[attr-defined]


_DATA: Any = torch._C.TensorBase.data


def record_copy(to: torch.Tensor, value: torch.Tensor) -> None:
    """Records a write of a value to a traced tensor, without comparing their shapes.

    Torch records the same for a buffer that a model assigns. ``to.copy_(value)`` would fix a size
    of the value that is dynamic.
    """
    own, new = _recorded(to), _recorded(value)
    if own is None or new is None:
        to.copy_(value)
        return
    source = new.proxy.node
    graph = source.graph
    node = graph.call_function(torch.ops.aten.copy_.default, (own.proxy.node, source))
    node.meta = dict(source.meta)


def is_computed_from(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """True if a traced tensor depends on others or their sizes, or this torch cannot tell."""
    entry = _recorded(tensor)
    entries = [_recorded(other) for other in others]
    if entry is None:
        return not _can_rebind()
    sources = {found.proxy.node for found in entries if found is not None}
    waiting, seen = [entry.proxy.node], set()
    while waiting:
        node = waiting.pop()
        if node in sources:
            return True
        if node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return False


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
    with restored(forget_answers), applied((LARGER_SIZES,), Settings(larger_sizes=True)):
        return operator(function, slices, *others)


def forget_answers() -> None:
    """Empties the cache of answers to questions about sizes."""
    place = find_place("torch.fx.experimental.symbolic_shapes:ShapeEnv._inner_evaluate_expr")
    if place is not None:
        place.value().cache_clear()


def decompositions(target: OpOverload) -> list[Callable[..., Any]]:
    """Returns torch's own decompositions of an operator, the preferred one first.

    Sources: ``torch._decomp.decomposition_table``, then the operator's CompositeImplicitAutograd
    kernel. Where those read sizes as numbers, a rule of this module comes first.
    """
    table = private("torch._decomp:decomposition_table") or {}
    own = _cross_entropy if target is aten.cross_entropy_loss.default else None
    same = {own: None, _as_many_axes(target, table): None, table.get(target): None}
    rules = [rule for rule in same if rule is not None]
    if is_composite(target):
        rules.append(target.decompose)
    return rules


def is_composite(target: OpOverload) -> bool:
    """True if eager PyTorch runs an operator as calls of others, each with a kernel of its own."""
    can_decompose = private_attribute(target, "torch._ops:OpOverload._can_decompose")
    with contextlib.suppress(RuntimeError):  # TorchScript operators have no dispatch table
        return can_decompose is not None and bool(can_decompose())
    return False


def _as_many_axes(
    target: OpOverload, table: Mapping[Any, Callable[..., Any]]
) -> Callable[..., Any] | None:
    """Returns the rule of ``fft_fftn`` for ``fft_fft2``, and for the other transforms of two axes.

    Torch's rule of ``fft_fft2`` calls ``torch.fft.fftn``, whose kernel reads sizes as numbers.
    """
    name = schema_of(target).name
    if not (name.startswith("aten::fft_") and name.endswith("2")):
        return None
    rule = table.get(getattr(getattr(aten, name[len("aten::") : -1] + "n"), "default", None))
    if rule is None:
        return None

    def transform(
        self: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, **others: Any
    ) -> Any:
        if s is not None and not name.startswith(("aten::fft_irfft", "aten::fft_hfft")):
            for axis, length in zip(dim, s, strict=True):
                if length != -1:  # torch would ask which of both sizes is larger
                    sizes = list(self.shape)
                    sizes[axis] = length
                    self = torch.cat([self, self.new_zeros(sizes)], axis).narrow(axis, 0, length)
            s = None
        return rule(self, s, dim, norm, **others)

    return transform


def _cross_entropy(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: Any = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """``cross_entropy_loss`` with probabilities of classes; its kernel counts them as numbers.

    Source: ``cross_entropy_loss_prob_target`` in ATen/native/LossNLL.cpp.

    Raises:
        NotImplementedError: The target has indices of classes.
    """
    if not target.is_floating_point():
        raise NotImplementedError
    axis = 0 if self.dim() == 1 else 1
    classes = self.shape[axis]
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    loss = -torch.log_softmax(self, axis) * target
    if weight is not None:
        loss = loss * weight.reshape([-1 if each == axis else 1 for each in range(self.dim())])
    if reduction == 0:
        return loss.sum(axis)
    return loss.sum() / (self.numel() // classes) if reduction == 1 else loss.sum()


def find_python_kernel(target: OpOverload) -> Callable[..., Any] | None:
    """Returns the Python function behind a custom operator; None for other operators.

    Functions that write to their arguments are left out, because the operator's result does not
    hold what they write.
    """
    schema = schema_of(target)
    if schema.is_mutable:
        return None
    definition = (private("torch._library.custom_ops:OPDEFS") or {}).get(schema.name)
    if definition is None:
        return _find_registered_kernel(target)
    name = "torch._library.custom_ops:CustomOpDef._init_fn"
    kernel: Callable[..., Any] | None = private_attribute(definition, name)
    return kernel


def _find_registered_kernel(target: OpOverload) -> Callable[..., Any] | None:
    """Returns a call of the kernel for CPU tensors, if ``torch.library.impl`` registered it.

    Kernels in C++ are left out: they read the memory of tensors, and fake tensors have none.
    """
    registered = private("torch.library:_impls") or ()
    key_set, key = private("torch._C:DispatchKeySet"), private("torch._C:DispatchKey")
    if key_set is None or key is None:
        return None
    schema = schema_of(target)
    name = ".".join(filter(None, (schema.name.replace("::", "/"), schema.overload_name)))
    explicit = f"{name}/CompositeExplicitAutograd" in registered
    if f"{name}/CPU" in registered or (
        explicit and not target.has_kernel_for_dispatch_key(key.CPU)
    ):
        return functools.partial(target.redispatch, key_set(key.CPU))
    return None


def _refuse_guards(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def guard(self: Any, *where: Any, **more: Any) -> Any:
        if getattr(self.expr, "free_symbols", ()):
            raise ValueError(f"the size {self.expr} is read as a number")
        return original(self, *where, **more)

    return guard


def _take_symbolic_roots(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def apply_norm(x: Any, norm: Any, signal_numel: Any, forward: bool) -> Any:
        if norm == "ortho" and isinstance(signal_numel, torch.SymInt):
            root: Any = torch.sym_sqrt(torch.sym_float(signal_numel))  # type: ignore[no-untyped-call]
            return x * (1 / root)
        return original(x, norm, signal_numel, forward)

    return apply_norm


FIXED_SIZES: tuple[Patch, ...] = (
    *(
        Patch(
            f"torch.fx.experimental.sym_node:SymNode.{name}",
            _refuse_guards,
            "A decomposition that computes with an example's size fixes the dimension, unnoticed.",
            parameters="self, file, line",
        )
        for name in ("guard_int", "guard_float")
    ),
    Patch(
        "torch._refs.fft:_apply_norm",
        _take_symbolic_roots,
        'Fourier transforms of several dynamic sizes with norm="ortho" are refused.',
        parameters="x, norm, signal_numel, forward",
    ),
)


@contextlib.contextmanager
def refuse_fixed_sizes() -> Iterator[None]:
    """Raises ``ValueError`` if code reads a symbolic size as a number, a specialization."""
    with applied((*FIXED_SIZES, QUIET), Settings()):  # torch logs the errors of a kernel
        yield
