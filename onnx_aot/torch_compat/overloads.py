"""Looks up operators by name, on releases of torch with and without them."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = [
    "ASSERTIONS",
    "MAY_COPY",
    "RESHAPES",
    "Missing",
    "Namespace",
    "aten",
    "exported",
    "higher_order",
    "missing_operators",
    "overload_name",
    "prims",
    "schema_of",
]


class Missing:
    """An operator that this release of torch does not have.

    It can be registered and be a key of a table, but is never the target of a node. Attributes of
    an absent packet are markers too, so ``aten.cholesky.default`` is one whether the packet or the
    overload is absent.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> Missing:
        is_overload = self._name.count(".") > 1
        if overload.startswith("_") or is_overload:
            raise AttributeError(f"{self._name} is not in torch {torch.__version__}")
        marker: Missing = self.__dict__.setdefault(overload, Missing(f"{self._name}.{overload}"))
        return marker

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"Missing({self._name!r})"

    def overloads(self) -> list[str]:
        """An empty list, in place of a packet's overloads."""
        return []


class _Packet:
    """A packet whose absent overloads are ``Missing`` instead of an error."""

    def __init__(self, packet: OpOverloadPacket) -> None:
        self._packet = packet

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        packet = self._packet
        found = getattr(packet, overload, None)
        return self.__dict__.setdefault(overload, found or Missing(f"{packet}.{overload}"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._packet(*args, **kwargs)

    def __str__(self) -> str:
        return str(self._packet)

    def overloads(self) -> list[str]:
        """Names of the overloads that this release has."""
        return list(self._packet.overloads())  # type: ignore[no-untyped-call]


class Namespace:
    """``torch.ops.<name>``, except that an operator which the release lacks is ``Missing``.

    ``aten.roll.default`` is torch's own ``OpOverload``, and an operator of ``higher_order`` is
    torch's own object.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(getattr(torch.ops, self._name), name, None)
        if found is None and name.startswith("__"):  # Python's protocols ask for such names
            raise AttributeError(name)
        if isinstance(found, OpOverloadPacket):
            found = _Packet(found)
        elif not isinstance(found, HigherOrderOperator):
            found = Missing(f"{self._name}.{name}")
        return self.__dict__.setdefault(name, found)


aten = Namespace("aten")
exported = Namespace("export")
higher_order = Namespace("higher_order")
prims = Namespace("prims")


def missing_operators() -> list[str]:
    """Names of the operators that were looked up so far and that this release lacks."""
    found = set()
    for namespace in (aten, exported, higher_order, prims):
        below = list(vars(namespace).values())
        while below:
            held = below.pop()
            if isinstance(held, Missing):
                deeper = [value for value in vars(held).values() if isinstance(value, Missing)]
                below += deeper
                if not deeper:
                    found.add(str(held))
            elif isinstance(held, _Packet):
                below += vars(held).values()
    return sorted(found)


def schema_of(target: OpOverload) -> Any:
    """The schema of an operator: names, types and defaults of its arguments and results."""
    return target._schema


def overload_name(target: OpOverload) -> str:
    """The overload part of an operator's name; ``"default"`` if there is none."""
    return str(target._overloadname)


RESHAPES = (aten.flatten.using_ints, aten.reshape.default, aten.reshape_as.default)

MAY_COPY = (*RESHAPES, aten.contiguous.default)
"""Operators whose results share memory with their argument or not, as sizes and strides allow."""

ASSERTIONS = frozenset(
    {
        aten._assert_async.default,
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten._functional_assert_async.msg,
        aten._functional_assert_scalar.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)
"""Operators that check a value, and have no result that the model uses."""
