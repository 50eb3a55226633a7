"""Reads the versions of the clients from their environments."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from benchmarks.clients.table import COLUMNS, FOLDER, Client

__all__ = ["REQUIREMENTS", "list_packages", "read_versions"]

REQUIREMENTS = FOLDER / "requirements"


def list_packages(environment: str) -> list[str]:
    """Names of the packages that an environment of Python is made for."""
    lines = (REQUIREMENTS / f"{environment}.txt").read_text(encoding="utf-8").splitlines()
    return [line.split("==")[0].strip() for line in lines if "==" in line]


def read_versions() -> dict[str, dict[str, str]]:
    """Returns the versions of the packages in each environment that is there."""
    environments = {column.environment: column for column in COLUMNS.values()}
    found = {}
    for name, column in environments.items():
        versions = _versions_of_node(column) if column.kind == "node" else _versions(column)
        if versions:
            found[name] = versions
    return found


def _versions(column: Client) -> dict[str, str]:
    places = [str(path) for path in column.interpreter.parent.parent.glob("lib/*/site-packages")]
    places += [str(column.interpreter.parent.parent / "Lib" / "site-packages")]
    wanted = list_packages(column.environment)
    held = {found.metadata["Name"]: found.version for found in metadata.distributions(path=places)}
    return {name: held[name] for name in wanted if name in held}


def _versions_of_node(column: Client) -> dict[str, str]:
    found = {}
    for path in sorted(column.interpreter.parent.glob("onnxruntime-*/package.json")):
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        found[held["name"]] = held["version"]
    return found
