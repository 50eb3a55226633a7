"""Keeps the translations registered for every export of the process: ``onnx_aot.register``.

ONNX modules that they need are imported when a translation is registered, not with this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from onnx_aot.errors import InvalidOptionError
from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET

if TYPE_CHECKING:
    from onnx_aot.ops.registry import Translation

__all__ = ["register", "registered_translations", "unregister"]

_F = TypeVar("_F", bound=Callable[..., Any])

_REGISTERED: dict[Any, list[tuple[Any, Translation]]] = {}  # by target, with the given function


@overload
def register(target: Any, function: _F, *, opset: int = ...) -> _F: ...
@overload
def register(target: Any, *, opset: int = ...) -> Callable[[_F], _F]: ...
def register(target: Any, function: Any = None, *, opset: int = MIN_OPSET) -> Any:
    """Registers a translation of an operator for every export that follows.

    It takes precedence over the package's own translation, if there is one, and a
    ``custom_translation_table`` takes precedence over it. Without ``function`` this is a decorator.

    Args:
        target: An operator (``torch.ops.ns.op.default``), a packet (``torch.ops.ns.op``, for all
            of its overloads that the function fits), a function of ``torch.library.custom_op``, a
            Python function that is recorded for symbolic numbers, such as ``operator.add``, or a
            higher-order operator.
        function: ``function(op, *arguments)``, or one written for torch.onnx.
        opset: The lowest opset in which it can be used. If there are several for one operator, the
            one with the highest is tried first.

    Returns:
        The function.

    Raises:
        InvalidOptionError: The target is not an operator, the function does not fit its schema, the
            opset is not supported, or another function is registered for it.
    """
    if function is None:
        return lambda decorated: register(target, decorated, opset=opset)
    from onnx_aot.ops.user.custom_translations import translations_of

    if not isinstance(opset, int) or not MIN_OPSET <= opset <= MAX_OPSET:
        raise InvalidOptionError(
            f"register: opset is {opset!r}; opsets {MIN_OPSET} to {MAX_OPSET} are supported",
            code="OA008",
        )
    made = translations_of(target, function, "register", opset)
    for translation in made:
        for other, entry in _REGISTERED.get(translation.target, ()):
            if entry.since == opset and _name(other) != _name(function):
                raise InvalidOptionError(
                    f"register: {_name(other)} is already registered for {translation.target} "
                    f"from opset {opset} on; call onnx_aot.unregister({translation.target}) first",
                    code="OA010",
                )
    for translation in made:
        entries = _REGISTERED.setdefault(translation.target, [])
        entries[:] = [pair for pair in entries if pair[1].since != opset]
        entries.append((function, translation))
        entries.sort(key=lambda pair: -pair[1].since)
    return function


def unregister(target: Any) -> None:
    """Undoes ``register`` for an operator, or for all overloads of a packet.

    Raises:
        InvalidOptionError: Nothing is registered for it.
    """
    from onnx_aot.ops.registry import overloads
    from onnx_aot.torch_compat import OpOverloadPacket, overload_of

    target = overload_of(target)
    targets = overloads(target) if isinstance(target, OpOverloadPacket) else [target]
    found = [each for each in targets if each in _REGISTERED]
    if not found:
        raise InvalidOptionError(f"unregister: nothing is registered for {target}", code="OA010")
    for each in found:
        del _REGISTERED[each]


def registered_translations() -> dict[Any, tuple[Translation, ...]]:
    """Returns the registered translations, as entries of the operator table."""
    return {target: tuple(t for _, t in entries) for target, entries in _REGISTERED.items()}


def _name(function: Any) -> str:
    """Key that identifies a function even after a notebook or a reload defines it anew."""
    module = getattr(function, "__module__", "")
    return f"{module}.{getattr(function, '__qualname__', repr(function))}"
