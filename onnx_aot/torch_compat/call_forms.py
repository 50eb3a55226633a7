"""Tells whether a function takes given arguments, faster than ``inspect.Signature.bind``."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["CallForm", "call_form"]

_Parameter = inspect.Parameter


@dataclasses.dataclass(frozen=True)
class CallForm:
    """The arguments that a function takes.

    Attributes:
        positional: Names of arguments that may be given by position.
        nameless: How many of them may only be given by position.
        more: Whether further ones may be given by position.
        keywords: Names of arguments that may be given by name; None for any.
        required: Names of arguments that have to be given.
        fewest: How many have to be given by position if none is given by name.
    """

    positional: tuple[str, ...]
    nameless: int
    more: bool
    keywords: frozenset[str] | None
    required: frozenset[str]
    fewest: float

    @property
    def takes_all(self) -> bool:
        """True if any arguments are taken."""
        return self.more and self.keywords is None and not self.required

    @property
    def usual_count(self) -> int:
        """A number of arguments by position that is taken if none is given by name; -1 if none."""
        count = len(self.positional)
        return count if count >= self.fewest else -1

    def takes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """True if these arguments are taken."""
        count = len(args)
        if count > len(self.positional) and not self.more:
            return False
        if not kwargs:
            return count >= self.fewest
        named = kwargs.keys() - self.positional[: self.nameless]
        if self.keywords is not None and not kwargs.keys() <= self.keywords:
            return False
        given = self.positional[:count]
        return named.isdisjoint(given) and self.required <= named.union(given)


_FORMS: dict[Any, CallForm] = {}


def call_form(function: Callable[..., Any]) -> CallForm:
    """Returns the form of a call; that of closures and methods with the same code is found once."""
    called: Any = function
    if isinstance(function, types.MethodType):
        called = function.__func__
    is_method = called is not function
    if not isinstance(called, types.FunctionType) or hasattr(called, "__signature__"):
        return _find_form(function)
    named = tuple(called.__kwdefaults__ or ())
    key = (called.__code__, len(called.__defaults__ or ()), named, is_method)
    if key not in _FORMS:
        _FORMS[key] = _find_form(function)
    return _FORMS[key]


def _find_form(function: Callable[..., Any]) -> CallForm:
    found = inspect.signature(function, follow_wrapped=False).parameters.values()
    by_kind: dict[Any, list[inspect.Parameter]] = {}
    for parameter in found:
        by_kind.setdefault(parameter.kind, []).append(parameter)
    nameless = by_kind.get(_Parameter.POSITIONAL_ONLY, [])
    positional = nameless + by_kind.get(_Parameter.POSITIONAL_OR_KEYWORD, [])
    only_named = by_kind.get(_Parameter.KEYWORD_ONLY, [])
    names = {parameter.name for parameter in positional[len(nameless) :] + only_named}
    required = [p.name for p in positional + only_named if p.default is _Parameter.empty]
    needs_names = any(parameter.default is _Parameter.empty for parameter in only_named)
    return CallForm(
        tuple(parameter.name for parameter in positional),
        len(nameless),
        _Parameter.VAR_POSITIONAL in by_kind,
        None if _Parameter.VAR_KEYWORD in by_kind else frozenset(names),
        frozenset(required),
        float("inf") if needs_names else len(required),
    )
