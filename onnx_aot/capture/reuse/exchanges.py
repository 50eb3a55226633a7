"""Records how a part calls methods of objects among its arguments, such as a key-value cache.

A layer of a language model gives its keys and values to a cache, ``update(key, value, index)``, and
goes on with what that returns. Such a call is made for a copy too: it is recorded with its
arguments, and repeated with those of the copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.alike import Attribute
from onnx_aot.torch_compat import last_node, pytree, restored

__all__ = ["Exchange", "Exchanges", "Own", "flatten", "is_object", "unwrap_own"]

_CONTAINERS = (list, tuple, dict, OrderedDict, set, frozenset)


def is_object(value: Any) -> bool:
    """True for an object of a class written in Python, which is neither container nor module."""
    kind = type(value)
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (*_CONTAINERS, type, torch.Tensor, torch.nn.Module))
        and not isinstance(value, (types.FunctionType, types.MethodType, types.ModuleType))
        and callable(getattr(kind, "update", None))
    )


def flatten(value: Any) -> tuple[list[Any], Any]:
    """Flattens containers; objects and attributes of a part's own are leaves."""
    return pytree.tree_flatten(value, is_leaf=lambda leaf: isinstance(leaf, Own) or is_object(leaf))


class Own:
    """A number in an attribute in which parts differ, such as the index of a layer.

    It behaves like the number, and notes each use but one: as an argument of an exchange.

    Args:
        value: The number.
        attribute: Where it is.
        used: Called when something else than an exchange uses it.
    """

    def __init__(self, value: int, attribute: Attribute, used: Callable[[Attribute], None]) -> None:
        self.value, self.attribute, self._used = value, attribute, used

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # isinstance(index, int)
        return int

    def __getattr__(self, name: str) -> Any:
        self._used(self.attribute)
        return getattr(self.value, name)


def unwrap_own(result: Any) -> Any:
    """Returns a result of a part with the numbers that ``Own`` stands for, which are used then."""
    leaves, structure = flatten(result)
    if not any(type(leaf) is Own for leaf in leaves):
        return result
    plain = [int(leaf) if type(leaf) is Own else leaf for leaf in leaves]
    return pytree.tree_unflatten(plain, structure)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Own, *args: Any) -> Any:
        self._used(self.attribute)
        return getattr(self.value, name)(*args)

    return method


_KEPT = ("class", "getattribute", "new", "init", "setattr", "delattr", "init_subclass", "reduce")
for _name in vars(int):
    if _name[:2] == "__" and _name.strip("_") not in _KEPT and callable(getattr(int, _name)):
        setattr(Own, _name, _forward(_name))
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__str__"):
    setattr(Own, _name, _forward(_name))


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A call of a method of an object among the arguments of a part.

    Attributes:
        object: The number of the object.
        method: The name of the method.
        given: Its arguments, ``(args, kwargs)``; attributes of the part's own are ``Own``.
        reply: What it returned.
        first: The last node of the graph before the call; None if there was none.
        last: The last node after it.
        stack: The calls of modules around it.
        lines: The user's lines that lead to it.
    """

    object: int
    method: str
    given: Any
    reply: Any
    first: torch.fx.Node | None
    last: torch.fx.Node | None
    stack: dict[str, Any]
    lines: str


class Exchanges:
    """Collects the exchanges of a part while it is traced.

    Args:
        objects: The objects.
        tracer: The tracer.
        locate: Returns the user's lines that lead to the current call.

    Attributes:
        found: The exchanges in order.
        reason: Why the part cannot be copied, or an empty string.
    """

    def __init__(self, objects: Sequence[Any], tracer: Any, locate: Callable[[Any], str]) -> None:
        self._numbers = {id(value): i for i, value in enumerate(objects)}
        self._objects, self._tracer, self._locate = objects, tracer, locate
        self._depth = 0
        self.found: list[Exchange] = []
        self.reason = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Records the calls of methods, and notes other uses of the objects."""
        with contextlib.ExitStack() as stack:
            for kind in {type(value): None for value in self._objects}:
                stack.enter_context(self._watch(kind))
            yield

    def _watch(self, kind: type) -> contextlib.AbstractContextManager[None]:
        unbound: Any = kind
        get, put = unbound.__getattribute__, unbound.__setattr__
        own = {name: vars(kind)[name] for name in _WATCHED if name in vars(kind)}

        def watched_get(held: Any, name: str) -> Any:
            value = get(held, name)
            if self._depth or id(held) not in self._numbers or name[:2] == "__":
                return value
            if isinstance(value, types.MethodType) and value.__self__ is held:
                return self._wrap(held, name, value)
            self.reason = self.reason or f"it reads {kind.__name__}.{name}"
            return value

        def watched_put(held: Any, name: str, value: Any) -> None:
            if not self._depth and id(held) in self._numbers:
                self.reason = self.reason or f"it assigns {kind.__name__}.{name}"
            put(held, name, value)

        def undo() -> None:
            for name in _WATCHED:
                if name in own:
                    setattr(kind, name, own[name])
                elif name in vars(kind):
                    delattr(kind, name)

        @contextlib.contextmanager
        def watch() -> Iterator[None]:
            with restored(undo):
                for name, function in zip(_WATCHED, (watched_get, watched_put), strict=True):
                    setattr(kind, name, function)
                yield

        return watch()

    def _wrap(self, held: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            tracer = self._tracer
            leaves, structure = flatten((args, kwargs))
            plain = [leaf.value if type(leaf) is Own else leaf for leaf in leaves]
            own_args, own_kwargs = pytree.tree_unflatten(plain, structure)
            first, lines = last_node(tracer.graph), self._locate(tracer)
            self._depth += 1
            try:
                reply = method(*own_args, **own_kwargs)
            finally:
                self._depth -= 1
            number, last = self._numbers[id(held)], last_node(tracer.graph)
            stack = dict(tracer.module_stack)
            self.found.append(
                Exchange(number, name, (args, kwargs), reply, first, last, stack, lines)
            )
            return reply

        return call


_WATCHED = ("__getattribute__", "__setattr__")
