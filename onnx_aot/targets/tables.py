"""Writes tables of kernels; ``kernels`` describes and reads them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Release", "Types", "merge_kernels", "store_releases", "write_table"]

Types = dict[str, set[str]]
"""Names of element types by type variable."""


@dataclasses.dataclass(frozen=True)
class Release:
    """Describes what a release of a runtime has.

    Attributes:
        version: The release in full, such as ``1.18.1``.
        about: Its opset and IR version.
        kernels: Kernels by operator and version.
        inlined: Types of operators that it replaces by their definitions, by operator and opset.
    """

    version: str
    about: Mapping[str, int]
    kernels: Mapping[tuple[str, str], Sequence[Types]]
    inlined: Mapping[tuple[str, str], Sequence[str]]

    @property
    def name(self) -> str:
        """The first two numbers of the release."""
        return ".".join(self.version.split(".")[:2])


def store_releases(runtime: str, releases: Iterable[Release]) -> dict[str, Any]:
    """Makes the table of a runtime.

    An entry that does not change from a release to the next is stored once, with the first release
    that has it.
    """
    sets: dict[str, int] = {}

    def add_types(types: Iterable[str]) -> int:
        return sets.setdefault(" ".join(sorted(types)), len(sets))

    by_operator: dict[str, dict[str, dict[str, Any]]] = {}
    inlined: dict[str, dict[str, dict[str, Any]]] = {}
    listed: dict[str, Any] = {}
    for release in sorted(releases, key=lambda one: [*map(int, one.name.split("."))]):
        listed[release.name] = {"version": release.version, **release.about}
        found = {
            key: [{name: add_types(types) for name, types in one.items()} for one in kernels]
            for key, kernels in release.kernels.items()
        }
        _note_changes(by_operator, found, release.name, [])
        replaced = {key: add_types(types) for key, types in release.inlined.items()}
        _note_changes(inlined, replaced, release.name, None)
    return {
        "runtime": runtime,
        "releases": listed,
        "types": list(sets),
        "kernels": by_operator,
        "inlined": inlined,
    }


def _note_changes(
    table: dict[str, dict[str, dict[str, Any]]],
    found: Mapping[tuple[str, str], Any],
    release: str,
    nothing: Any,
) -> None:
    """Adds the entries of a release that differ from those of the release before."""
    known = {(name, version) for name, versions in table.items() for version in versions}
    for name, version in sorted(known | found.keys(), key=lambda key: (key[0], int(key[1]))):
        entries = table.setdefault(name, {}).setdefault(version, {})
        before = entries[next(reversed(entries))] if entries else nothing
        entry = found.get((name, version), nothing)
        if entry != before or not entries:
            entries[release] = entry


def merge_kernels(kernels: Iterable[Types]) -> list[Types]:
    """Merges kernels that differ in the types of one variable."""
    merged: list[Types] = []
    for kernel in kernels:
        for other in merged:
            if other.keys() == kernel.keys():
                differing = [name for name in kernel if kernel[name] != other[name]]
                if len(differing) <= 1:
                    for name in differing:
                        other[name] |= kernel[name]
                    break
        else:
            merged.append({name: set(types) for name, types in kernel.items()})
    return merged


def write_table(table: dict[str, Any]) -> str:
    """Returns the text of the file, with an operator in each line."""
    parts = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
