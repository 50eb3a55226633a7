"""Refuses writes whose effect depends on whether ``reshape`` copies, which depends on sizes."""

from __future__ import annotations

from collections.abc import Container

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import aten, example_size, storage_key

__all__ = ["check_copies"]

_RESHAPES = (aten.reshape.default, aten.reshape_as.default, aten.flatten.using_ints)
_MAY_COPY = (*_RESHAPES, aten.contiguous.default)


def check_copies(graph: torch.fx.Graph, written: Container[int | None]) -> None:
    """Raises an error if a recorded copy shares memory for the example, and one is written.

    With dynamic sizes, the capture takes a reshape for a copy if it cannot tell that it is a view
    for all sizes. Such is ``x.t().reshape(n, -1)`` of a square matrix.

    Args:
        graph: The captured graph.
        written: Keys of the storages that it writes to.

    Raises:
        FunctionalizationError: There is such a reshape; with the user's line.
    """
    for node in graph.nodes:
        if node.target not in _MAY_COPY:
            continue
        source, result = node.args[0].meta.get("val"), node.meta.get("val")
        if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor):
            continue
        keys = storage_key(source), storage_key(result)
        if keys[0] == keys[1] or not any(key in written for key in keys):
            continue
        if _shares_memory_for_example(source, result, node.target in _RESHAPES):
            name = node.target.__name__.partition(".")[0]
            raise FunctionalizationError(
                f"a tensor is written to that {name} may or may not copy, depending on the sizes; "
                f"write x.clone().{name}(...) for a copy, or x.view(...) to share memory",
                torch_has_one=False,
            ).with_line(location(node))


def _shares_memory_for_example(source: torch.Tensor, result: torch.Tensor, reshapes: bool) -> bool:
    sizes = [example_size(n) for n in (*source.shape, *source.stride(), *result.shape)]
    known = [n for n in sizes if n is not None]
    if len(known) < len(sizes):
        return False
    rank = source.dim()
    like = torch.empty_strided(known[:rank], known[rank : 2 * rank], device="meta")
    made = like.reshape(known[2 * rank :]) if reshapes else like.contiguous()
    return made is like or made._base is like
