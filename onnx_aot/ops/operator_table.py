"""Lists the operator table with files and opsets, for documentation and commands."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx_aot.graph.opset_range import MAX_OPSET
from onnx_aot.ops import registry
from onnx_aot.ops.complex.pairs import COMPLEX
from onnx_aot.ops.families import FAMILIES, LATE_FAMILIES, import_namespace, operator_name

__all__ = ["Entry", "entries"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One translation of one operator.

    Attributes:
        target: The operator; ``name`` is its text, such as ``aten.roll.default``.
        path: The file of the translation; ``line`` is its line there.
        since: Lowest opset for which it is used; ``until`` is the highest.
        is_complex: Whether it is the translation for complex numbers.
        limits: Differences from PyTorch's results, or "".
    """

    target: Any
    name: str
    path: Path
    line: int
    since: int
    until: int
    is_complex: bool
    limits: str

    @property
    def family(self) -> str:
        """Name of the file, such as ``movement``."""
        return self.path.stem


def entries(load: dict[str, Callable[[], Any]] | None = None) -> list[Entry]:
    """Returns all entries of both tables, for real and for complex numbers.

    Args:
        load: Functions that import packages with their own operators, by namespace. Of other
            packages, only operators that are already imported are listed.

    Raises:
        ModuleNotFoundError: A package of ``load`` is not installed.
    """
    for namespace, importing in (load or {}).items():
        if importing() is None:
            raise ModuleNotFoundError(f"the operators of {namespace} cannot be listed")
        import_namespace(namespace)
    found = []
    for target, translations in registry.translations().items():
        until = MAX_OPSET
        for translation in translations:  # newest first
            found.append(_entry(target, translation, until, is_complex=False))
            until = translation.since - 1
    found += [_entry(target, t, MAX_OPSET, is_complex=True) for target, t in COMPLEX.items()]
    return found


def _entry(target: Any, translation: Any, until: int, is_complex: bool) -> Entry:
    path, line = _source(target, translation.function)
    limits = registry.LIMITS.get(target, "")
    name = operator_name(target)
    return Entry(target, name, path, line, translation.since, until, is_complex, limits)


def _source(target: Any, function: Any) -> tuple[Path, int]:
    """Returns file and line of a translation; one-to-one operators are rows of a family's file."""
    code = inspect.unwrap(function)
    if code.__module__ != registry.__name__:
        return Path(inspect.getfile(code)), code.__code__.co_firstlineno
    for family in (*FAMILIES, *LATE_FAMILIES):
        path = Path(registry.__file__).parent.joinpath(*family.split(".")).with_suffix(".py")
        for number, text in enumerate(_lines(path), 1):
            if f"{target}:" in text:
                return path, number
    raise LookupError(str(target))


@functools.cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines())
