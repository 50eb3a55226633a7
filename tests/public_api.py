"""Collects the public names with their signatures: ``python -m tests.public_api`` writes them.

``tests/public_api.json`` keeps them, and ``tests/test_public_api.py`` compares. docs/stability.md
says which changes a release may make.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

from onnx_aot.metadata import keys
from onnx_aot.reporting import report

__all__ = ["FILE", "MODULES", "collect", "read"]

FILE = Path(__file__).with_name("public_api.json")
API_PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MODULES = ("onnx_aot", "onnx_aot.errors", "onnx_aot.generation", "onnx_aot.sweep")
"""Modules whose ``__all__`` is public. Classes that docs/api.md lists besides are public too."""


def collect() -> dict[str, list[str]]:
    """Returns a line per parameter, attribute or method, by qualified name."""
    found: dict[str, list[str]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(module.__all__):
            value = getattr(module, public)
            if name == "onnx_aot.errors" and not inspect.isclass(value):
                continue  # used by the package itself
            described = _describe(value)
            if described is not None:
                found[f"{name}.{public}"] = described
    for name in re.findall(r"^::: (\S+)$", API_PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if inspect.isclass(value) and not any(key.endswith(f".{attribute}") for key in found):
            found[name] = _describe(value) or []
    found["keys of metadata in files"] = sorted(
        value
        for name, value in vars(keys).items()
        if name in keys.__all__ and isinstance(value, str) and value.startswith(("pkg.", "names"))
    )
    found["version of reports"] = [str(report.SCHEMA)]
    return dict(sorted(found.items()))


def _describe(value: Any) -> list[str] | None:
    if inspect.isclass(value):
        return _describe_class(value)
    if inspect.isroutine(value):
        return _describe_signature(value)
    if inspect.ismodule(value):
        return None
    return ["str"] if isinstance(value, str) else [repr(value)]  # the version; an alias of a type


def _describe_signature(function: Any) -> list[str]:
    """Returns a line per parameter, with its kind where it is not the usual one, and the result."""
    signature = inspect.signature(function)
    lines = []
    for parameter in signature.parameters.values():
        kind = "" if parameter.kind.name == "POSITIONAL_OR_KEYWORD" else parameter.kind.description
        lines.append(f"{parameter}{kind and f' [{kind}]'}")
    if signature.return_annotation is not signature.empty:
        lines.append(f"-> {signature.return_annotation}")
    return lines


def _describe_class(kind: type) -> list[str]:
    """Returns bases of this package, constructor, fields, and public methods and properties."""
    bases = [base.__name__ for base in kind.__mro__[1:] if base.__module__ != "builtins"]
    lines = [f"bases: {', '.join(b for b in bases if not b.startswith('_'))}"]
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "onnx_aot"]
    if dataclasses.is_dataclass(kind):
        frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        lines.append(f"dataclass, frozen={frozen}")
    members = sorted({name for base in own for name in vars(base)})
    for name in members:
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, functools.cached_property):
            value = property(value.func)
        if isinstance(value, property):
            result = inspect.signature(value.fget).return_annotation  # type: ignore[arg-type]
            lines.append(f"{name}: {result}")
        elif inspect.isfunction(value):
            lines.append(f"{name}({', '.join(_describe_signature(value))})")
        else:
            lines.append(f"{name} = {value!r}" if isinstance(value, (str, int)) else name)
    return lines


def read() -> dict[str, list[str]]:
    """Returns the names and signatures of the last release, as the file has them."""
    kept: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return kept


if __name__ == "__main__":
    FILE.write_text(json.dumps(collect(), indent=1) + "\n", encoding="utf-8")
