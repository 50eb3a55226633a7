"""Puts nodes into the modules that they were called in, one box for each call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx_aot.inspection.scopes import Scope, relative_name
from onnx_aot.inspection.view.tree import Item

__all__ = ["Nesting"]


class Nesting:
    """Knows which groups hold an item, and which groups it depends on.

    A module that is called twice, as one ReLU often is, has two boxes: in one box, it would take
    what is made from its own results. Nodes do not say which call they are of; a new box begins
    where a node takes something that depends on the present one.
    """

    def __init__(self) -> None:
        self._above: dict[Item, Item] = {}
        self._bits: dict[Item, int] = {}
        self._inside: dict[Item, int] = {}  # bits of the groups around an item, and its own
        self._needs: dict[Item, int] = {}  # bits of the groups that it depends on
        self._modules: dict[tuple[Item, str], Item] = {}

    def add(self, group: Item, item: Item, sources: Iterable[Item] = ()) -> None:
        """Appends an item to a group.

        Args:
            group: Where.
            item: What.
            sources: The items that make what it takes.
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

    def module(self, group: Item, scopes: Sequence[Scope], sources: Sequence[Item]) -> Item:
        """The box for a node in calls of modules within a group, made where there is none.

        Args:
            group: Where the outermost of them is.
            scopes: The modules, outermost first.
            sources: The items that make what the node takes.
        """
        around: list[str] = []
        for scope in scopes:
            found = self._modules.get((group, scope.path))
            if found is None or self._would_loop(found, sources):
                found = self._call(group, scope, around)
            around.append(scope.path)
            group = found
        return group

    def _call(self, group: Item, scope: Scope, around: Sequence[str]) -> Item:
        title = relative_name(scope.path, around)
        call = Item("module", title, scope.class_name.rpartition(".")[2], path=scope.path)
        call.details["class"] = scope.class_name
        self._bits[call] = 1 << len(self._bits)
        self.add(group, call)
        self._modules[group, scope.path] = call
        return call

    def _would_loop(self, group: Item, sources: Sequence[Item]) -> bool:
        """Whether a box beside the group, from which it would take, depends on it."""
        bit = self._bits[group]
        for source in sources:
            if self._inside.get(source, 0) & bit:
                continue
            beside = self._beside(group, source)
            if beside is not None and self._needs.get(beside, 0) & bit:
                return True
        return False

    def _beside(self, group: Item, item: Item) -> Item | None:
        """The box next to a group that is, or holds, an item; None where that is further out."""
        parent = self._above[group]
        at: Item | None = item
        while at is not None and self._above.get(at) is not parent:
            at = self._above.get(at)
        return at
