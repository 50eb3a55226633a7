"""Places that patches change during a capture: attributes, dict entries, set members, hooks."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

__all__ = [
    "ABSENT",
    "Added",
    "Attribute",
    "Contents",
    "Entries",
    "Entry",
    "Hook",
    "Members",
    "Option",
    "Place",
    "find_place",
]


class _Absent:
    """Stands for the contents of a place that is empty."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Any = _Absent()


class Place(Protocol):
    """Something that can be read, replaced and restored."""

    def own(self) -> Any:
        """The stored object itself, or ``ABSENT``; ``put`` takes it to restore the place."""

    def value(self) -> Any:
        """The value that a reader gets, perhaps inherited; ``ABSENT`` if there is none."""

    def put(self, value: Any) -> None:
        """Replaces the contents; ``ABSENT`` empties the place."""


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute of a module, a class or an object."""

    owner: Any
    name: str

    def own(self) -> Any:
        """The object in the owner's ``__dict__``, perhaps a descriptor such as ``staticmethod``."""
        return vars(self.owner).get(self.name, ABSENT)

    def value(self) -> Any:
        """The value that ``getattr`` returns."""
        return getattr(self.owner, self.name, ABSENT)

    def put(self, value: Any) -> None:
        """Sets or deletes the attribute."""
        if value is not ABSENT:
            setattr(self.owner, self.name, value)
        elif self.name in vars(self.owner):
            delattr(self.owner, self.name)


@dataclasses.dataclass(frozen=True)
class Option:
    """An attribute that is computed and never absent.

    Examples are options of torch's configuration modules and the code of a function.
    """

    owner: Any
    name: str

    def own(self) -> Any:
        """The value of the attribute."""
        return getattr(self.owner, self.name)

    value = own

    def put(self, value: Any) -> None:
        """Sets the attribute."""
        setattr(self.owner, self.name, value)


@dataclasses.dataclass(frozen=True)
class Entries:
    """One entry in each of several dicts that have none, all with the same value."""

    tables: Sequence[MutableMapping[Any, Any]]
    key: Any
    default: Any
    """The value that readers get if there is no entry."""

    def own(self) -> Any:
        """Nothing."""
        return ABSENT

    def value(self) -> Any:
        """The default."""
        return self.default

    def put(self, value: Any) -> None:
        """Sets or removes the entries."""
        for table in self.tables:
            if value is ABSENT:
                table.pop(self.key, None)
            else:
                table[self.key] = value


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a dict."""

    table: MutableMapping[Any, Any]
    key: Any
    default: Any = ABSENT
    """The value that readers get if there is no entry."""
    changed: Callable[[], None] | None = None
    """Called after every change, for tables from which caches are derived."""

    def own(self) -> Any:
        """The entry."""
        return self.table.get(self.key, ABSENT)

    def value(self) -> Any:
        """The entry or the default."""
        return self.table.get(self.key, self.default)

    def put(self, value: Any) -> None:
        """Sets or removes the entry."""
        if value is ABSENT:
            self.table.pop(self.key, None)
        else:
            self.table[self.key] = value
        if self.changed is not None:
            self.changed()


@dataclasses.dataclass(frozen=True)
class Members:
    """Membership of some elements in a set; the contents are those of them that are in it."""

    members: set[Any]
    elements: frozenset[Any]

    def own(self) -> Any:
        """Those of the elements that the set has."""
        return self.elements & self.members

    value = own

    def put(self, value: Any) -> None:
        """Leaves only the given ones of the elements in the set; ``ABSENT`` leaves none."""
        self.members.difference_update(self.elements)
        self.members.update(value or ())


@dataclasses.dataclass(frozen=True)
class Contents:
    """All entries of a dict."""

    table: MutableMapping[Any, Any]

    def own(self) -> Any:
        """A copy of the entries."""
        return dict(self.table)

    value = own

    def put(self, value: Any) -> None:
        """Replaces the entries of the same dict."""
        if dict(self.table) != value:
            self.table.clear()
            self.table.update(value)


@dataclasses.dataclass
class Added:
    """An object that is added to others of its kind, which stay unchanged.

    Attributes:
        add: Adds an object.
        remove: Removes it, if present.
        added: The object that was added.
    """

    add: Callable[[Any], Any]
    remove: Callable[[Any], Any]
    added: Any = ABSENT

    def own(self) -> Any:
        """``ABSENT``, since the other objects stay unchanged."""
        return ABSENT

    value = own

    def put(self, value: Any) -> None:
        """Adds a value, or removes the one that was added."""
        if value is ABSENT:
            self.remove(self.added)
        else:
            self.added = value  # first, so that after an interrupt it can be removed
            self.add(value)


@dataclasses.dataclass
class Hook:
    """A hook that ``register(function)`` adds; the handle it returns removes it."""

    register: Callable[[Any], Any]
    handle: Any = None

    def own(self) -> Any:
        """``ABSENT``, since other hooks stay unchanged."""
        return ABSENT

    value = own

    def put(self, value: Any) -> None:
        """Registers a function, or removes the one that was registered."""
        if value is not ABSENT:
            self.handle = self.register(value)
        elif self.handle is not None:
            self.handle.remove()


def find_place(path: str, imports: bool = True) -> Place | None:
    """Returns the place that ``"module:Class.attribute"`` names, or None if it does not exist.

    Args:
        path: A module, a colon, and attributes from there.
        imports: Whether to import the module. If not, it must have been imported already.
    """
    module, outer, name = _parts(path)
    try:
        owner: Any = sys.modules.get(module)
        if owner is None and imports:
            owner = importlib.import_module(module)
        for part in outer:
            owner = getattr(owner, part)
        if owner is None or not hasattr(owner, name):
            return None
    except Exception:  # importing a broken package may raise anything
        return None
    place = _PLACES.get(path)
    if place is None or place.owner is not owner:
        is_stored = name in vars(owner) or isinstance(owner, type)
        is_computed = hasattr(owner, "get_config_copy") or hasattr(type(owner), name)
        kind = Option if is_computed and not is_stored else Attribute
        place = _PLACES[path] = kind(owner, name)
    return place


_PLACES: dict[str, Attribute | Option] = {}


@functools.cache
def _parts(path: str) -> tuple[str, Sequence[str], str]:
    module, _, names = path.partition(":")
    *outer, name = names.split(".")
    return module, outer, name
