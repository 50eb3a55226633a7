"""Refuses writes whose effect depends on whether ``reshape`` copies, which depends on sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import MAY_COPY, RESHAPES, sizes_nearby, storage_key

__all__ = ["check_copies"]


def check_copies(
    graph: torch.fx.Graph, writes: Mapping[torch.fx.Node, Sequence[torch.fx.Node]]
) -> None:
    """Raises an error if a recorded copy shares memory for some sizes, and it matters.

    With dynamic sizes, the capture takes a reshape for a copy if it cannot tell that it is a view
    for all sizes. Such is ``x.t().reshape(n, -1)`` of a square matrix, or
    ``x[:, -2:].contiguous()`` of two columns. It matters if the memory of one is written to, and
    that of the other is read afterwards.

    Args:
        graph: The captured graph.
        writes: The nodes that write, each with the nodes whose memory it writes to.

    Raises:
        FunctionalizationError: There is such a reshape; with the user's line.
    """
    written = {key for nodes in writes.values() for key in map(_key, nodes)} - {None}
    order: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        keys = (_key(node.args[0]), _key(node)) if node.target in MAY_COPY else (None, None)
        if None in keys or keys[0] == keys[1] or written.isdisjoint(keys):
            continue
        source, result = node.args[0].meta["val"], node.meta["val"]
        if not _may_share_memory(source, result, node.target in RESHAPES):
            continue
        order = order or {each: position for position, each in enumerate(graph.nodes)}
        if any(
            _is_read_after(order, other, position)
            for writer, position in order.items()
            for one, other in (keys, keys[::-1])
            if one in map(_key, writes.get(writer, ())) and position > order[node]
        ):
            name = node.target.__name__.partition(".")[0]
            raise FunctionalizationError(
                f"a tensor is written to that {name} may or may not copy, depending on the sizes; "
                f"write x.clone().{name}(...) for a copy, or x.view(...) to share memory",
                torch_has_one=False,
            ).with_line(location(node))


def _key(node: Any) -> int | None:
    """The key of the memory of a node's tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return storage_key(value)


def _is_read_after(order: Mapping[torch.fx.Node, int], key: int | None, position: int) -> bool:
    """True if a node after a position reads some memory, or a caller, whose tensor it is."""
    return any(
        node.op == "placeholder" or any(order[user] > position for user in node.users)
        for node in order
        if _key(node) == key
    )


def _may_share_memory(source: torch.Tensor, result: torch.Tensor, reshapes: bool) -> bool:
    """True if a copy shares memory for the example, or for one near the smallest that is allowed.

    Sizes below 2 do not count: a tensor with such an axis lies in memory in any order.
    """
    sizes = [*source.shape, *source.stride(), *result.shape]
    rank = source.dim()
    for numbers in sizes_nearby(sizes, _NEARBY):
        like = torch.empty_strided(numbers[:rank], numbers[rank : 2 * rank], device="meta")
        made = like.reshape(numbers[2 * rank :]) if reshapes else like.contiguous()
        if storage_key(made) == storage_key(like):
            return True
    return False


_NEARBY = range(2, 9)
