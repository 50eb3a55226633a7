"""Groups nodes into the modules that they were called in, one box for each call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx_aot.inspection.scopes import Scope, relative_name
from onnx_aot.inspection.view.tree import Item

__all__ = ["Nesting"]


class Nesting:
    """Tracks the groups around each item, and the groups that it depends on.

    A module that is called twice, as one ReLU often is, gets two boxes: a single box would take
    values computed from its own results. Nodes do not record which call they belong to; a new box
    begins at a node that takes a value that depends on the current box.
    """

    def __init__(self) -> None:
        self._above: dict[Item, Item] = {}
        self._bits: dict[Item, int] = {}
        self._inside: dict[Item, int] = {}  # bits of an item and the groups around it
        self._needs: dict[Item, int] = {}  # bits of the groups that it depends on
        self._modules: dict[tuple[Item, str], Item] = {}

    def add(self, group: Item, item: Item, sources: Iterable[Item] = ()) -> None:
        """Appends an item to a group.

        Args:
            group: The group.
            item: The item.
            sources: The items that compute its inputs.
        """
        group.children.append(item)
        self._above[item] = group
        self._inside[item] = self._inside.get(group, 0) | self._bits.get(item, 0)
        needs = 0
        for source in sources:
            needs |= self._inside.get(source, 0) | self._needs.get(source, 0)
        at: Item | None = item
        while at is not None and needs:
            self._needs[at] = self._needs.get(at, 0) | needs
            at = self._above.get(at)

    def find_box(self, group: Item, scopes: Sequence[Scope], sources: Sequence[Item]) -> Item:
        """Returns the innermost box for a node in nested modules, creating boxes as needed.

        Args:
            group: The group that holds the box of the outermost module.
            scopes: The modules, outermost first.
            sources: The items that compute the node's inputs.
        """
        around: list[str] = []
        for scope in scopes:
            found = self._modules.get((group, scope.path))
            if found is None or self._would_loop(found, sources):
                found = self._add_call_box(group, scope, around)
            around.append(scope.path)
            group = found
        return group

    def _add_call_box(self, group: Item, scope: Scope, around: Sequence[str]) -> Item:
        title = relative_name(scope.path, around)
        call = Item("module", title, scope.class_name.rpartition(".")[2], path=scope.path)
        call.details["class"] = scope.class_name
        self._bits[call] = 1 << len(self._bits)
        self.add(group, call)
        self._modules[group, scope.path] = call
        return call

    def _would_loop(self, group: Item, sources: Sequence[Item]) -> bool:
        """True if a box beside the group that has one of the sources depends on the group."""
        bit = self._bits[group]
        for source in sources:
            if self._inside.get(source, 0) & bit:
                continue
            beside = self._find_sibling(group, source)
            if beside is not None and self._needs.get(beside, 0) & bit:
                return True
        return False

    def _find_sibling(self, group: Item, item: Item) -> Item | None:
        """The sibling of a group that is or holds an item; None if the item is further out."""
        parent = self._above[group]
        at: Item | None = item
        while at is not None and self._above.get(at) is not parent:
            at = self._above.get(at)
        return at
