"""Captures ``torch.autograd.grad`` inside of a model, such as forces from an energy.

Autograd computes the derivatives from tensors that it saved below the recorded operators, such as
transposed weights and the results of ``exp``, which the graph does not know. Here the recorded
operators that lead from the inputs to the outputs are run once more as a function, whose derivative
is recorded as one of ``torch.func`` is. What they compute twice is merged in the ONNX model.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.error_hints import RefusedError
from onnx_aot.capture.patches.derivatives import TracedCall
from onnx_aot.torch_compat import (
    SETS_GRADIENTS,
    FakeTensor,
    OpOverload,
    Patch,
    Settings,
    current_tracer,
    draws_random_numbers,
    is_recording_calls,
    last_node,
    node_of,
    nodes_after,
    refuse_gradients,
    schema_of,
    storage_key,
    track_copy,
    without_recording,
)

__all__ = ["HOOKS", "RECORDED_GRADIENTS"]

Tensor = torch.Tensor

_hooked: weakref.WeakSet[Any] = weakref.WeakSet()
"""Tracers of models that may have hooks on gradients, which the graph does not know."""


def _note_hooks() -> None:
    tracer = current_tracer()
    if tracer is not None:
        _hooked.add(tracer)


def _register_hook(self: Tensor, hook: Any) -> Any:
    """Notes that a gradient may be changed on its way."""
    _note_hooks()
    return self.register_hook(hook)  # type: ignore[no-untyped-call]


def _read_grad_fn(self: Tensor) -> Any:
    """Notes that the model holds a node of autograd, which takes hooks, too."""
    _note_hooks()
    return self.grad_fn


HOOKS: dict[Any, Callable[..., Any]] = {
    Tensor.register_hook: _register_hook,
    Tensor.grad_fn.__get__: _read_grad_fn,  # type: ignore[union-attr]
}
"""Functions by the original, as in ``functions.REDIRECTED``."""


class _Part:
    """The operators of a graph that lead from some of its values to others.

    Args:
        graph: The graph that is being recorded.
        inputs: Nodes at which the part begins.
        outputs: Nodes whose values it computes.
        begins_enabled: Whether the graph begins with gradients switched on.

    Attributes:
        nodes: The operators in their order.
        read: Nodes outside of the part that it reads.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        inputs: Sequence[torch.fx.Node],
        outputs: Sequence[torch.fx.Node],
        begins_enabled: bool,
    ) -> None:
        self._inputs, self._outputs = inputs, outputs
        needed, waiting = set(inputs), [node for node in outputs if node not in inputs]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting += node.all_input_nodes
        is_enabled, reached = begins_enabled, set(inputs)
        for node in graph.nodes:
            if node.target is SETS_GRADIENTS:
                is_enabled = bool(node.args[0])
            elif is_enabled and node in needed and not reached.isdisjoint(_sources(node)):
                reached.add(node)
        for node in [node for node in reached if _writes(node) and node not in inputs]:
            reached.update(_chain(node))  # what it wrote to must be made anew
        self.nodes = [node for node in graph.nodes if node in reached and node not in inputs]
        read = (source for node in self.nodes for source in node.all_input_nodes)
        self.read = [node for node in dict.fromkeys(read) if node not in reached]

    def is_repeatable(self, graph: torch.fx.Graph) -> bool:
        """True if the operators compute the same again, and write to no memory but their own."""
        if any(draws_random_numbers(node) for node in self.nodes):
            return False
        chains = [_chain(node) for node in self.nodes if _writes(node)]
        if any(chain[-1].op != "call_function" for chain in chains):
            return False
        own = {node for chain in chains for node in chain}
        memory = {_memory(node) for node in (*self._inputs, *self.nodes, *self.read)} - {None}
        written = {_memory(node) for node in own}
        for node in graph.nodes:
            if node not in own and _memory(node) in written:
                return False  # another view of memory that an operator of the part writes to
            used = {_memory(source) for source in node.all_input_nodes}
            if node not in own and _writes(node) and not memory.isdisjoint(used):
                return False
        return True

    def depends_on(self, place: int) -> bool:
        """True if an operator of the part reads the input at a place, or an output is the input."""
        start = self._inputs[place]
        return start in self._outputs or any(start in _sources(node) for node in self.nodes)

    def run(self, inputs: Sequence[Any], read: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs for other values of the inputs, given the values of ``read``."""
        values = dict(zip(self.read, read, strict=True))
        values.update(zip(self._inputs, inputs, strict=True))
        for node in self.nodes:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            function: Any = node.target
            values[node] = function(*args, **kwargs)
        return tuple(values[node] for node in self._outputs)


def _sources(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that an operator's result is differentiated by: none behind ``detach``."""
    cut = node.op != "call_function" or node.target is torch.ops.aten.detach.default
    return [] if cut else node.all_input_nodes


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and bool(schema_of(node.target).is_mutable)


def _chain(node: torch.fx.Node) -> list[torch.fx.Node]:
    """An operator that writes, what it writes to, and so on, until what made the memory."""
    chain = [node]
    while _writes(chain[-1]) and chain[-1].all_input_nodes:
        chain.append(chain[-1].all_input_nodes[0])
    return chain


def _memory(node: torch.fx.Node) -> int | None:
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, Tensor) else None


def _has_own_functions(outputs: Sequence[Tensor]) -> bool:
    """True if a derivative runs the ``backward`` of an autograd function written in Python."""
    waiting, seen = [output.grad_fn for output in outputs], set()
    while waiting:
        function: Any = waiting.pop()
        if function is None or function in seen:
            continue
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            refuse_gradients(function)
            return True
        seen.add(function)
        waiting += [before for before, _ in function.next_functions]
    return False


def _record_gradients(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    begins_enabled = torch.is_grad_enabled()

    def grad(
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> Any:
        gradients = None
        if is_recording_calls() and not is_grads_batched and not isinstance(inputs, dict):
            are_optional = bool(allow_unused) or materialize_grads
            gradients = _record(
                _as_list(outputs), _as_list(inputs), grad_outputs, are_optional, begins_enabled
            )
        if gradients is None:
            with _refusing_saved_tensors():
                return original(
                    outputs,
                    inputs,
                    grad_outputs,
                    retain_graph,
                    create_graph,
                    only_inputs,
                    allow_unused,
                    is_grads_batched,
                    materialize_grads,
                )
        if materialize_grads:
            gradients = [
                torch.zeros_like(start) if gradient is None else gradient
                for gradient, start in zip(gradients, _as_list(inputs), strict=True)
            ]
        if not create_graph:
            gradients = [None if gradient is None else gradient.detach() for gradient in gradients]
        return tuple(gradients)

    return grad


def _record(
    outputs: list[Any],
    inputs: list[Any],
    weights: Any,
    are_optional: bool,
    begins_enabled: bool,
) -> list[Tensor | None] | None:
    """Records the gradients of outputs by inputs, where None stands for one that is not used.

    Returns:
        None if the graph does not tell the gradients.
    """
    tensors = [*inputs, *outputs]
    if not all(isinstance(one, Tensor) and one.requires_grad for one in tensors):
        return None
    tracer = current_tracer()
    if tracer in _hooked:
        return None
    has_own_functions = _has_own_functions(outputs)
    _hooked.discard(tracer)  # that has read the nodes of autograd, too
    if has_own_functions:
        return None
    nodes = [node for node in (node_of(tensor, tracer) for tensor in tensors) if node is not None]
    if len(nodes) != len(tensors):
        return None
    part = _Part(tracer.graph, nodes[: len(inputs)], nodes[len(inputs) :], begins_enabled)
    used = [place for place in range(len(inputs)) if part.depends_on(place)]
    if not (are_optional or len(used) == len(inputs)):
        return None
    if not used:
        return [None] * len(inputs)
    if not part.is_repeatable(tracer.graph):
        return None
    read = [_value_of(node, tracer) for node in part.read]
    cotangents = [None] * len(outputs) if weights is None else _as_list(weights)
    call = TracedCall(_pull_back, (part, inputs, read, outputs, cotangents), {})
    found: list[Tensor | None] = list(call.record())
    return [found[place] if place in used else None for place in range(len(inputs))]


@contextlib.contextmanager
def _refusing_saved_tensors() -> Iterator[None]:
    """Refuses derivatives that autograd computes from tensors that the graph does not know.

    Raises:
        RefusedError: The graph has got such a tensor as a constant.
    """
    tracer = current_tracer() if is_recording_calls() else None
    last = None if tracer is None else last_node(tracer.graph)
    yield
    if tracer is None:
        return
    for node in nodes_after(last, tracer.graph):
        value = getattr(tracer.root, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(value, FakeTensor):
            raise RefusedError(
                "it calls torch.autograd.grad, whose derivative leads through an autograd function "
                "of its own, a hook, a random operator, or a write to a part of a tensor",
                "use torch.func.grad or torch.func.vjp of a function without hooks, in which "
                "autograd functions have setup_context, and compute with torch.cat or torch.where "
                "instead of writing",
                "OA114",
            )


def _as_list(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _pull_back(
    part: _Part, inputs: Any, read: Sequence[Any], outputs: Any, weights: Sequence[Any]
) -> Sequence[Tensor]:
    cotangents = tuple(
        torch.ones_like(output) if weight is None else weight
        for output, weight in zip(outputs, weights, strict=True)
    )
    pull_back = torch.func.vjp(lambda *values: part.run(values, read), *inputs)[1]
    gradients: Sequence[Tensor] = pull_back(cotangents)
    return gradients


def _value_of(node: torch.fx.Node, tracer: Any) -> Any:
    """A value of the graph, as a tensor that operators may be called with."""
    value = getattr(tracer.root, str(node.target)) if node.op == "get_attr" else node.meta["val"]
    if isinstance(value, Tensor):
        with without_recording():
            value = value.detach()
        track_copy(value, node, tracer)
    return value


RECORDED_GRADIENTS = Patch(
    "torch.autograd:grad",
    _record_gradients,
    "Models that call torch.autograd.grad are refused unless autograd saves recorded values only.",
    when=lambda settings: settings.module is not None and not settings.strict,
    parameters="outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, "
    "allow_unused, is_grads_batched, materialize_grads",
)
