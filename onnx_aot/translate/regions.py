"""Branches and loops of scripted models: ONNX If and Loop, whose bodies are translated in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot import dtypes
from onnx_aot.scripted_operators import REGIONS, SequenceVal, branch
from onnx_aot.translate.dimensions import scalar_dtype

if TYPE_CHECKING:
    from onnx_aot.translate.walker import Walker

__all__ = ["bodies", "emit_region", "every_node"]


def bodies(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """The graph modules that a branch or loop runs."""
    owner = node.graph.owning_module
    assert owner is not None, "a graph with bodies belongs to a module"
    names = [a.target for a in node.args if isinstance(a, torch.fx.Node) and a.op == "get_attr"]
    return [owner.get_submodule(str(name)) for name in names]  # type: ignore[misc]


def every_node(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """The nodes of a graph, and of the bodies of its branches and loops."""
    for node in graph.nodes:
        yield node
        if node.target in REGIONS:
            for body in bodies(node):
                yield from every_node(body.graph)


def emit_region(walker: Walker, node: torch.fx.Node) -> list[ir.Value]:
    """Emits the node; returns its results."""
    emit = _emit_branch if node.target is branch else _emit_loop
    return emit(walker, node)


def _emit_branch(walker: Walker, node: torch.fx.Node) -> list[ir.Value]:
    condition, _, _, *given = node.args
    recorded = node.meta["val"]

    def way(index: int) -> Any:
        def run() -> list[ir.Value]:
            inputs = walker._argument(given[index])
            returned = walker.translate_body(bodies(node)[index].graph, inputs)
            return _typed(walker, returned, recorded)

        return run

    value = walker.op.cast(walker._argument(condition), ir.DataType.BOOL)
    return walker.op.if_(value, way(0), way(1))


def _emit_loop(walker: Walker, node: torch.fx.Node) -> list[ir.Value]:
    count, proceed, _, carried, given = node.args
    op = walker.op
    recorded = node.meta["val"]
    (module,) = bodies(node)
    placeholders = [piece for piece in module.graph.nodes if piece.op == "placeholder"]
    initial = _typed(walker, walker._argument(carried), recorded)
    condition = None if proceed is None else op.cast(walker._argument(proceed), ir.DataType.BOOL)

    def body(step: ir.Value, *values: ir.Value) -> list[ir.Value]:
        for value, placeholder in zip(values, placeholders[1:], strict=False):
            if isinstance(placeholder.meta["val"], torch.Tensor):
                walker._dimensions.describe(value, placeholder.meta["val"])
        inputs = [step, *values, *walker._argument(given)]
        again, *after = walker.translate_body(module.graph, inputs)
        results = _typed(walker, after, recorded)
        return results if condition is None else [op.cast(again, ir.DataType.BOOL), *results]

    return op.loop(walker._argument(count), initial, body, condition=condition)


def _typed(walker: Walker, values: Sequence[Any], recorded: Sequence[Any]) -> list[ir.Value]:
    """Python numbers as constants of the recorded types; others are cast to them."""
    typed = []
    for value, val in zip(values, recorded, strict=True):
        if isinstance(val, SequenceVal):
            typed.append(value)
            continue
        is_tensor = isinstance(val, torch.Tensor)
        dtype = dtypes.to_onnx(val.dtype) if is_tensor else scalar_dtype(val)
        typed.append(walker.op.cast(value, dtype))
    return typed
