"""Expands ONE node with torch's own rules; nothing else of the program is touched.

Rules, in this order: ``torch._decomp.decomposition_table``, then the operator's
CompositeImplicitAutograd kernel, then the Python function of a custom operator, from
``torch.library.custom_op`` or ``torch.library.impl``. The rule runs on the fake tensors that the
capture recorded, which takes 10 to 15 ms; the pieces are cached by operator and argument metadata.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
import torch.fx

from onnx_aot import torch_compat
from onnx_aot.fx_passes.functionalize import functionalize_graph
from onnx_aot.torch_compat import OpOverload, pytree

__all__ = ["Decomposer", "Pieces", "has_decomposition", "make_distinct"]


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The expansion of one node.

    Attributes:
        graph: A graph whose placeholders stand for the FX nodes among the node's arguments, in
            ``inputs`` order, and whose output has the structure of the node's result.
        owner: Holds the tensors that the graph's ``get_attr`` nodes name.
        inputs: Positions of those arguments among the flattened arguments.
        measured: Whether the graph has unbacked symbols of its own, in which case two nodes must
            not share it.
        separate: Whether eager PyTorch runs the pieces one by one too, and not in one kernel.
    """

    graph: torch.fx.Graph
    owner: torch.fx.GraphModule
    inputs: tuple[int, ...]
    measured: bool = False
    separate: bool = False

    def arguments(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """The FX nodes of ``node`` that the placeholders stand for."""
        flat = pytree.tree_leaves((node.args, node.kwargs))
        return [flat[position] for position in self.inputs]


class Decomposer:
    """Expands nodes, once per operator and argument metadata.

    Args:
        custom: Whether custom operators are expanded by their Python functions.
    """

    def __init__(self, custom: bool = True) -> None:
        self._custom = custom
        self._cache: dict[Any, Pieces | None] = {}

    def expand(self, node: torch.fx.Node) -> Pieces | None:
        """Returns the pieces of a node, or None if there is no rule that works on fake tensors."""
        if not isinstance(node.target, OpOverload):
            return None
        rules = torch_compat.decompositions(node.target)
        kernel = torch_compat.find_python_kernel(node.target) if self._custom else None
        rules += [] if kernel is None else [kernel]
        if not rules:
            return None
        flat, structure = pytree.tree_flatten((node.args, node.kwargs))
        key = (node.target, structure, tuple(map(_argument_key, flat)))
        if key in self._cache:
            return self._cache[key]
        traced = (_trace(rule, node.target, flat, structure) for rule in rules)
        pieces = next((pieces for pieces in traced if pieces is not None), None)
        if pieces is None or not pieces.measured:
            self._cache[key] = pieces
        return pieces


def has_decomposition(target: OpOverload) -> bool:
    """True if torch has a rule for an operator; the rule may still fail on given arguments."""
    return bool(torch_compat.decompositions(target))


def _trace(rule: Any, target: OpOverload, flat: list[Any], structure: Any) -> Pieces | None:
    positions = tuple(i for i, a in enumerate(flat) if isinstance(a, torch.fx.Node))
    examples = [flat[position].meta["val"] for position in positions]

    def run(*values: Any) -> Any:
        filled = list(flat)
        for position, value in zip(positions, values, strict=True):
            filled[position] = value
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return rule(*args, **kwargs)

    mode = torch_compat.fake_mode_of(examples)
    examples = make_distinct(examples, mode)
    try:
        with torch_compat.refuse_fixed_sizes():
            module = torch_compat.trace_fake(run, examples, mode)
        # torch's own kernels of some composite operators write in place
        graph = functionalize_graph(module.graph)
    except Exception:  # a rule may raise anything; the operator then counts as unsupported
        return None
    calls = [n.target for n in graph.nodes if n.op == "call_function"]
    if target in calls:
        return None  # the rule calls the operator itself
    results = [n.meta.get("val") for n in graph.nodes]
    return Pieces(
        graph,
        module,
        positions,
        measured=bool(_collect_symbols(results) - _collect_symbols(examples)),
        separate=torch_compat.is_composite(target),
    )


def make_distinct(examples: list[Any], mode: torch_compat.FakeTensorMode | None) -> list[Any]:
    """Replaces repeated tensors by new ones, because a trace tells tensors apart by identity.

    The expansion of ``op(x, x)`` is also used for ``op(x, y)``.
    """
    seen: set[int] = set()
    distinct = []
    for example in examples:
        if isinstance(example, torch.Tensor) and id(example) in seen:
            like: dict[str, Any] = {"dtype": example.dtype, "device": example.device}
            with mode or contextlib.nullcontext():
                distinct.append(torch.empty_strided(example.shape, example.stride(), **like))
        else:
            seen.add(id(example))
            distinct.append(example)
    return distinct


def _collect_symbols(values: Any) -> set[str]:
    """The symbols in the sizes of tensors, and in numbers."""
    return {
        str(symbol)
        for leaf in pytree.tree_leaves(values)
        for size in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))
        if isinstance(size, torch.SymInt)
        for symbol in getattr(torch_compat.symbolic_expression(size), "free_symbols", ())
    }


def _argument_key(argument: Any) -> Any:
    """The properties of an argument that the expansion depends on."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    if isinstance(value, torch.Tensor):
        sizes = tuple(map(str, value.shape))
        return (value.dtype, sizes, tuple(map(str, value.stride())), value.device)
    return (type(value), str(value))
