"""Captures ``torch.autograd.grad``, which differentiates what the model has computed before.

Autograd's engine calls the kernels of derivatives where nothing is recorded. Here the nodes that
have been recorded between the inputs and the outputs become a function. ``torch.func.vjp`` of it,
traced apart, gives plain operators, which are carried out on the values of the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.error_hints import RefusedError
from onnx_aot.torch_compat import (
    FakeTensor,
    OpOverload,
    Patch,
    Settings,
    TensorCopies,
    current_tracer,
    differentiating,
    is_recording_calls,
    node_of,
    schema_of,
    sets_grad_mode,
    trace_below_transforms,
    track_copy,
)

__all__ = ["RECORDED_DERIVATIVES"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CODE = "OA120"


class _Recorded:
    """The nodes between tensors of the capture, as a function.

    Args:
        tracer: The tracer, whose graph has the nodes.
        inputs: Nodes of the inputs.
        outputs: Nodes of the outputs.

    Attributes:
        read: Nodes outside of the function whose values it reads.
        reached: Which of the inputs the outputs depend on.
    """

    def __init__(
        self, tracer: Any, inputs: Sequence[torch.fx.Node], outputs: Sequence[torch.fx.Node]
    ) -> None:
        graph, made = torch.fx.Graph(), {}
        given = [graph.placeholder(f"given_{place}") for place in range(len(inputs))]
        steps = _find_dependent(tracer.graph, inputs)
        computed = {node for node in steps if not sets_grad_mode(node)}
        self.read = _find_read(steps, {*inputs, *computed})
        for node in self.read:
            made[node] = graph.placeholder(node.name)
        pairs = zip(inputs, given, strict=True)
        made |= {node: placeholder for node, placeholder in pairs if node not in computed}
        for node in (n for step in steps for n in (*_attributes_of(step), step)):
            if node in made:
                continue
            made[node] = graph.node_copy(node, made.__getitem__)
            if node in inputs:  # which depends on another input: only its own share varies
                placeholder = given[inputs.index(node)]
                fixed = graph.call_method("detach", (placeholder,))
                share = graph.call_function(torch.sub, (placeholder, fixed))
                made[node] = graph.call_function(torch.add, (made[node], share))
        missing = [node for node in outputs if node not in made]
        graph.output(tuple(made[node] for node in outputs if node in made))
        self._constants = frozenset(missing)
        graph.eliminate_dead_code()
        self._module = torch.fx.GraphModule(tracer.root, graph)
        self.reached = [bool(placeholder.users) for placeholder in given]
        for node in graph.nodes:
            if _draws_numbers(node):
                raise RefusedError(
                    f"torch.autograd.grad differentiates {node.target}, which draws random "
                    "numbers, and they would be drawn again",
                    "export the model in eval() mode, or use torch.func.grad",
                    _CODE,
                )

    def is_constant(self, output: torch.fx.Node) -> bool:
        """True if an output depends on none of the inputs."""
        return output in self._constants

    def run(self, given: Sequence[Any], read: Sequence[Any]) -> Any:
        """Computes the outputs that depend on the inputs."""
        with torch.enable_grad():  # restored at the end, whatever the nodes do
            return torch.fx.Interpreter(self._module).run(*given, *read)


def _find_dependent(graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Nodes that depend on the inputs, and those that switch gradients on and off."""
    found: dict[torch.fx.Node, None] = {}
    dependent = set(inputs)
    for node in graph.nodes:
        if sets_grad_mode(node):
            found[node] = None
        elif any(argument in dependent for argument in node.all_input_nodes):
            dependent.add(node)
            found[node] = None
    return list(found)


def _attributes_of(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [argument for argument in node.all_input_nodes if argument.op == "get_attr"]


def _find_read(steps: Sequence[torch.fx.Node], known: set[torch.fx.Node]) -> list[torch.fx.Node]:
    """Nodes that are read and not among the known ones; those of submodules are copied."""
    read = dict.fromkeys(argument for step in steps for argument in step.all_input_nodes)
    return [
        node
        for node in read
        if node not in known and isinstance(node.meta.get("val"), (torch.Tensor, *_SYMBOLIC))
    ]


def _draws_numbers(node: torch.fx.Node) -> bool:
    """True if an operator draws random numbers, which dropout does in training only."""
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in schema_of(target).arguments]
    values = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    trains = values.get("train", values.get("training", True))
    share = values.get("dropout_p", values.get("dropout", values.get("p", 1.0)))
    return bool(trains and share != 0.0)


def _differentiate_recorded(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Records the derivative by its operators."""

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
        tracer = current_tracer() if is_recording_calls() else None
        results, sources = _as_tuple(outputs), _as_tuple(inputs)
        nodes = [_find_node(one, tracer) for one in (*results, *sources)]
        if None in nodes or is_grads_batched:
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
        ends, starts = nodes[: len(results)], nodes[len(results) :]
        recorded = _Recorded(tracer, starts, ends)  # type: ignore[arg-type]
        if not all(recorded.reached) and not (allow_unused or materialize_grads):
            raise RefusedError(
                "torch.autograd.grad is asked for the derivative by a tensor that the outputs do "
                "not depend on",
                "pass allow_unused=True, which gives None, or materialize_grads=True, which gives "
                "zeros",
                _CODE,
            )
        factors = (None,) * len(results) if grad_outputs is None else _as_tuple(grad_outputs)
        given = [
            torch.ones_like(result) if factor is None else factor
            for result, factor, end in zip(results, factors, ends, strict=True)
            if not recorded.is_constant(end)  # type: ignore[arg-type]
        ]
        slopes = _carry_out(recorded, sources, given, tracer)
        found = []
        for source, slope, is_reached in zip(sources, slopes, recorded.reached, strict=True):
            unused = torch.zeros_like(source) if materialize_grads else None
            found.append(slope if is_reached else unused)
        return tuple(found)

    return grad


def _find_node(value: Any, tracer: Any) -> torch.fx.Node | None:
    is_recorded = tracer is not None and isinstance(value, torch.Tensor)
    return node_of(value, tracer) if is_recorded else None


def _as_tuple(tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)


def _carry_out(
    recorded: _Recorded, sources: Sequence[Any], factors: Sequence[Any], tracer: Any
) -> list[Any]:
    """Traces the derivative apart, and runs its operators where they are recorded."""
    read = _values_of(recorded.read, tracer)
    first, last = len(sources), len(sources) + len(read)

    def pull(*given: Any) -> list[Any]:
        with differentiating():
            outside = given[first:last]
            function = lambda *varied: recorded.run(varied, outside)  # noqa: E731
            return list(torch.func.vjp(function, *given[:first])[1](tuple(given[last:])))

    given = [*sources, *read, *factors]
    module = trace_below_transforms(pull, given)
    module.graph.eliminate_dead_code()
    for node in module.graph.nodes:
        if _writes_to_placeholder(node):
            raise RefusedError(
                f"torch.autograd.grad differentiates {node.target}, which writes to a tensor that "
                "is older than the inputs, and would write twice",
                "compute a new tensor instead, or use torch.func.grad",
                _CODE,
            )
    return list(torch.fx.Interpreter(module).run(*given))


def _writes_to_placeholder(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    arguments = zip(schema_of(node.target).arguments, node.args, strict=False)
    return any(
        argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(value, torch.fx.Node)
        and value.op == "placeholder"
        for argument, value in arguments
    )


def _values_of(nodes: Sequence[torch.fx.Node], tracer: Any) -> list[Any]:
    """Values of nodes for operators that are recorded now: a model may have dropped its own."""
    values = []
    copies = TensorCopies()
    with copies:
        for node in nodes:
            value = node.meta["val"]
            if isinstance(value, FakeTensor):
                value = copies.copy(value)
                track_copy(value, node, tracer)
            values.append(value)
    return values


def _is_python(settings: Settings) -> bool:
    return settings.module is not None and not settings.strict


RECORDED_DERIVATIVES = (
    Patch(
        "torch.autograd:grad",
        _differentiate_recorded,
        "Models that call torch.autograd.grad are refused.",
        when=_is_python,
        parameters="outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, "
        "allow_unused, is_grads_batched, materialize_grads",
    ),
)
