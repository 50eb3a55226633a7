"""Recomputes one value of the captured graph in float64, to tell rounding from an error.

A fused operator rounds elsewhere than the operators that it replaces: a convolution with a folded
normalization has other weights, and multiplies before it adds. Where large numbers cancel, both
results are far from each other, and both as far from the exact one.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.fx

from onnx_aot.inspection.fx_run import placeholder_getters
from onnx_aot.inspection.rounding import measure_rounding
from onnx_aot.inspection.value_mapping import Pair
from onnx_aot.torch_compat import OpOverload, in_double_precision, pytree, to_double

__all__ = ["explain_by_rounding"]

logger = logging.getLogger(__name__)

STEPS = frozenset(
    {"ceil", "fix", "floor", "floor_divide", "fmod", "frac", "heaviside", "remainder", "round"}
    | {"sgn", "sign", "trunc"}
)
"""Operators on real numbers that turn rounding into a step, as comparisons and sorts do. A step may
hide any error."""

ROUNDED = "from PyTorch's inputs it is as near to PyTorch's result in float64 as PyTorch's is: {}"


def explain_by_rounding(
    pair: Pair,
    expected: Any,
    actual: torch.Tensor,
    source: Any,
    held: Mapping[str, torch.Tensor],
    pieces: Collection[str],
) -> str:
    """Explains a difference by rounding, if that is what it is.

    Args:
        pair: The captured value and the ONNX value that holds it.
        expected: PyTorch's result.
        actual: Result of the ONNX nodes from PyTorch's inputs.
        source: The program and inputs that are compared.
        held: PyTorch's results by the name of the ONNX value.
        pieces: Names of the ONNX values that the nodes read.

    Returns:
        The distances of both results from float64, or an empty string if they are not alike.
    """
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
        return ""
    given = {
        (other.node, other.index): held[name]
        for other in source.pairs()
        if (name := other.onnx_name) in pieces and name in held and len(other.values) == 1
    }
    try:
        exact = _Exact(source, given)
        value = exact.compute(pair)
    except Exception as error:
        logger.info("%s does not run in float64: %s", pair.name, error)
        return ""
    if expected.shape != actual.shape or not isinstance(value, torch.Tensor):
        return ""
    rounding = measure_rounding(expected, actual, value)
    if rounding is None or not rounding.alike or not (rounding.small or exact.is_continuous):
        return ""
    return ROUNDED.format(rounding)


class _Exact:
    """Computes nodes in float64 from given results of others."""

    def __init__(
        self, source: Any, given: Mapping[tuple[torch.fx.Node, int | None], torch.Tensor]
    ) -> None:
        self._given = given
        self._getters = placeholder_getters(source.program, source.inputs)
        self._done: dict[torch.fx.Node, Any] = {}

    def compute(self, pair: Pair) -> Any:
        with torch.no_grad(), in_double_precision():
            return pair.select_from(self._compute(pair.node))

    @property
    def is_continuous(self) -> bool:
        """True if the nodes that were computed give real numbers without a step between them."""
        results = pytree.tree_leaves([r for n, r in self._done.items() if n.op == "call_function"])
        called = [node.target for node in self._done if node.op == "call_function"]
        names = {
            target.overloadpacket.__name__ for target in called if isinstance(target, OpOverload)
        }
        return not names & STEPS and all(
            tensor.is_floating_point() for tensor in results if isinstance(tensor, torch.Tensor)
        )

    def _compute(self, node: torch.fx.Node) -> Any:
        if node not in self._done:
            self._done[node] = self._run(node)
        return self._done[node]

    def _run(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            return to_double(self._getters[node.name]())
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._read)
        assert callable(node.target)
        return node.target(*args, **kwargs)

    def _read(self, node: torch.fx.Node) -> Any:
        found = self._given.get((node, None))
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            index: Any = node.args[1]
            found = self._given.get((node.args[0], index), found)
        return self._compute(node) if found is None else to_double(found)
