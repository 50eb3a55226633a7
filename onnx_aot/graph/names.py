"""Makes unique names, in constant time each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from onnx_aot.graph.traversal import all_graphs

__all__ = ["Names", "names_in"]


class Names:
    """Hands out names that are unique in the graph; reserved names are never handed out."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """Returns ``wanted``, with the first free number appended if it is taken: ``wanted_1``."""
        name = wanted
        while name in self._taken:
            number = self._next.get(wanted, 0) + 1
            self._next[wanted] = number
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def names_in(model: ir.Model) -> Iterator[str]:
    """Yields the names of all values and nodes of a model, including functions and subgraphs."""
    for graph in all_graphs(model):
        yield from map(str, graph.initializers)
        yield from (str(value.name) for value in graph.inputs)
        for node in graph:
            yield str(node.name)
            yield from (str(value.name) for value in node.outputs)
