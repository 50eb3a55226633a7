"""Finds the user's lines that decided about a size."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision, Location
from onnx_aot.dimensions.conditions import holds

__all__ = ["find_symbol", "lines_fixing", "lines_on", "says_the_same"]


def find_symbol(
    dim: RequestedDim, requested: DynamicShapes, decisions: Sequence[Decision]
) -> str | None:
    """Returns the symbol of a dimension in the decisions."""
    for decision in decisions:
        for symbol, (sources, _) in decision.symbols.items():
            if any(requested.at(source) == dim for source in sources):
                return symbol
    return None


def lines_on(
    dim: RequestedDim,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
    condition: str | None = None,
) -> tuple[Location, ...]:
    """Up to 3 lines that decided about a dimension; with a condition, one, if possible its own."""
    symbol = find_symbol(dim, requested, decisions)
    about = [d for d in decisions if d.kind == "guard" and symbol in d.symbols]
    if condition is not None and symbol is not None:
        on_n = condition.replace(dim.size, "n")
        same = [d for d in about if says_the_same(d, symbol, on_n)]
        about = same or [d for d in about if _fixes_size(d, symbol)] or about
    places = [decision.location for decision in about if decision.location is not None]
    return tuple(dict.fromkeys(places))[: 1 if condition is not None else 3]


def says_the_same(decision: Decision, symbol: str, condition: str) -> bool:
    """True if a decision is about this symbol alone and agrees with a condition on ``n``."""
    if set(decision.symbols) != {symbol}:
        return False
    return all(
        bool(decision.holds({symbol: n})) == bool(holds(condition, {"n": n})) for n in range(64)
    )


def lines_fixing(
    symbol: str | None, decisions: Sequence[Decision], seen: frozenset[str] = frozenset()
) -> tuple[Location, ...]:
    """Returns the lines after which a symbol can only be the example's size.

    This is one line, or two if one equates the symbol with another one, and the other fixes that,
    or if they are the nearest limits below and above, such as ``n > 3`` and ``n <= 4``.
    """
    if symbol is None or symbol in seen:
        return ()
    guards = [d for d in decisions if d.kind == "guard" and symbol in d.symbols and d.location]
    alone = [d for d in guards if len(d.symbols) == 1 and _fixes_size(d, symbol)]
    for decision in alone:
        return (decision.location,) if decision.location else ()
    for decision in guards:
        for other in decision.symbols:
            if other != symbol and _fixes_size(decision, symbol):
                further = lines_fixing(other, decisions, seen | {symbol})
                if further and decision.location:
                    return tuple(dict.fromkeys((decision.location, *further)))
    limits = [_line_excluding(symbol, guards, step) for step in (-1, 1)]
    return tuple(dict.fromkeys(line for line in limits if line is not None))


def _line_excluding(symbol: str, guards: Sequence[Decision], step: int) -> Location | None:
    """Returns the first line that excludes the next size after, or before, the example's."""
    for decision in guards:
        example = decision.symbols[symbol][1]
        if example is not None and decision.holds({symbol: example + step}) is False:
            return decision.location
    return None


def _fixes_size(decision: Decision, symbol: str) -> bool:
    """True if only the example's size is accepted, with other symbols as in the example."""
    example = decision.symbols[symbol][1]
    if example is None:
        return False
    others = {0, 1, 2, 3, example // 2, example - 1, example + 1, 2 * example, 3 * example + 2}
    tried = [n for n in others if n >= 0 and n != example]
    return all(decision.holds({symbol: n}) is False for n in tried)
