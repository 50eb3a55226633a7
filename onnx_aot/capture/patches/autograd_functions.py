"""Keeps each ``torch.autograd.Function`` that has ``symbolic`` whole in the captured graph.

A capture traces through ``forward``, so the function itself disappears. While a model is traced,
``forward`` of a function with a static method ``symbolic`` therefore calls an operator instead. It
is created at the first call for the class, and its kernel is the user's ``forward``. Strict capture
handles autograd functions in its own way.

An operator lives as long as its class. So do its calls with plain arguments, such as numbers; those
with objects live as long as the export or the program of which they are a part
(``torch_ops/function_calls.py``).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.errors import ConversionError
from onnx_aot.torch_compat import (
    Attribute,
    OpOverload,
    Patch,
    Place,
    Settings,
    pytree,
    schema_of,
)
from onnx_aot.torch_ops.function_calls import CALLS, NAMESPACE, enter_call

__all__ = ["FUNCTIONS_KEPT", "FunctionOperator", "kept_functions"]

_SCHEMA = "(Tensor[] tensors, SymInt[] sizes, int call) -> Tensor[]"


@dataclasses.dataclass(frozen=True)
class Call:
    """Arguments of a call of a function, other than tensors and sizes.

    Attributes:
        function: The class; a program that calls it keeps it alive.
        leaves: The flattened arguments, with markers in place of tensors and sizes.
        structure: The pytree structure that restores the arguments.
    """

    function: type[torch.autograd.Function]
    leaves: tuple[Any, ...]
    structure: Any

    def arguments(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """The arguments, with the given tensors and sizes in place of the markers."""
        rest = {_TENSOR: iter(tensors), _SIZE: iter(sizes)}
        leaves = [next(rest[leaf]) if leaf in (_TENSOR, _SIZE) else leaf for leaf in self.leaves]
        return list(pytree.tree_unflatten(leaves, self.structure))


class _Marker:
    """Stands for an argument that is a value of the graph."""


_TENSOR, _SIZE = _Marker(), _Marker()

_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), _Marker),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


@dataclasses.dataclass(eq=False)
class FunctionOperator:
    """The operator that stands for a function.

    Attributes:
        reference: The class, not kept alive.
        target: The operator.
        library: Torch's registration of the operator, which ends with this object.
        plain: Leaves and structure of calls with plain arguments, by number.
        returned: While a call is captured, takes the results of ``forward``, flattened, and their
            structure; otherwise None.
    """

    reference: weakref.ref[type[torch.autograd.Function]]
    target: OpOverload
    library: Any
    plain: dict[int, tuple[tuple[Any, ...], Any]] = dataclasses.field(default_factory=dict)
    returned: list[Any] | None = None

    @property
    def function(self) -> Any:
        """The class, or None once it is gone."""
        return self.reference()

    def call(self, number: int) -> Call:
        """The call with a number, the operator's argument ``call``.

        Raises:
            ConversionError: Its arguments are gone together with the program.
        """
        if (self.target, number) in CALLS:
            call: Call = CALLS[self.target, number]
            return call
        if number in self.plain:
            return Call(self.function, *self.plain[number])
        raise ConversionError(
            f"the arguments of a call of {self.target} are gone: they are objects, which live as "
            "long as the ONNXProgram in which the call was captured. Keep it, or export the model "
            "again"
        )

    def kernel(self, tensors: Sequence[Any], sizes: Sequence[Any], call: int) -> list[torch.Tensor]:
        """The kernel of the operator."""
        known = self.call(call)
        leaves, structure = pytree.tree_flatten(
            _run_forward(known.function, known.arguments(tensors, sizes))
        )
        results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not results:
            raise _NotKeptError
        if self.returned is not None:
            self.returned[:] = leaves, structure
        return [result.clone() for result in results]  # results must not alias the inputs


_OPERATORS: weakref.WeakKeyDictionary[type, FunctionOperator] = weakref.WeakKeyDictionary()


def kept_functions() -> list[FunctionOperator]:
    """Every operator that was created for a function."""
    return list(_OPERATORS.values())


@dataclasses.dataclass(frozen=True)
class _Method:
    """A static method of a function, which knows the function's class."""

    function: Any
    original: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)


class _StaticMethod(Attribute):
    """The place of such a method."""

    def value(self) -> Any:
        """The method."""
        return _Method(self.owner, getattr(self.owner, self.name))


def _functions_with_symbolic() -> list[type]:
    """Classes with ``symbolic``, subclasses before their base classes."""
    found: dict[type, None] = {}
    todo: list[type] = torch.autograd.Function.__subclasses__()
    for cls in todo:  # torch has two hundred of them, and asking each for the attribute takes long
        todo += cls.__subclasses__()
        bases = cls.__bases__
        if "symbolic" in cls.__dict__ or len(bases) > 1 or bases[0] in found:
            found.pop(cls, None)  # it has several bases, and comes after the last of them
            found[cls] = None
    return [cls for cls in reversed(found) if callable(getattr(cls, "symbolic", None))]


def _find_forwards(settings: Settings) -> Iterator[Place]:
    return (_StaticMethod(cls, "forward") for cls in _functions_with_symbolic())


def _is_old_form(cls: Any) -> bool:
    """True if ``forward`` also takes the context and there is no ``setup_context``."""
    return bool(cls.setup_context is torch.autograd.Function.setup_context)


def _kept_forward(original: _Method, settings: Settings) -> Callable[..., Any]:
    cls, old_form = original.function, _is_old_form(original.function)

    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return _call_operator(cls, args[1:] if old_form else args, kwargs)
        except _NotKeptError:
            return original(*args, **kwargs)

    return forward


FUNCTIONS_KEPT: tuple[Patch, ...] = (
    Patch(
        "forward of autograd functions with symbolic",
        _kept_forward,
        "Functions with symbolic are looked into, and their symbolic is not used.",
        when=lambda settings: not settings.strict,
        places=_find_forwards,
    ),
)


class _NotKeptError(Exception):
    """No operator can stand for a call; the capture traces through it instead."""


def _call_operator(cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if kwargs:
        raise _NotKeptError
    leaves, structure = pytree.tree_flatten(list(args))
    if any(isinstance(leaf, (torch.SymFloat, torch.SymBool)) for leaf in leaves):
        raise _NotKeptError
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = [leaf for leaf in leaves if isinstance(leaf, torch.SymInt)]
    marked = tuple(
        _TENSOR
        if isinstance(leaf, torch.Tensor)
        else _SIZE
        if isinstance(leaf, torch.SymInt)
        else leaf
        for leaf in leaves
    )
    operator = _OPERATORS.get(cls) or _make(cls)
    number = _number(operator, Call(cls, marked, structure))
    before, operator.returned = operator.returned, []
    try:
        with torch_compat.without_recording():  # raises if no operator can stand for the call
            operator.kernel(tensors, sizes, number)
        results = operator.target(tensors, sizes, number)
        returned, shape = operator.returned
    finally:
        operator.returned = before
    rest = iter(results)
    filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in returned]
    return pytree.tree_unflatten(filled, shape)


def _number(operator: FunctionOperator, call: Call) -> int:
    """The number of an equal call, or a new number if there is none; the export keeps the call."""
    for (target, number), known in list(CALLS.items()):
        if target is operator.target and _is_equal(known, call):
            torch_compat.keep_until_restored(known)
            return number
    torch_compat.keep_until_restored(call)
    for number, parts in operator.plain.items():
        if _is_equal(Call(call.function, *parts), call):
            CALLS[operator.target, number] = call
            return number
    number = enter_call(operator.target, call)
    if all(isinstance(leaf, _PLAIN) for leaf in call.leaves):
        operator.plain[number] = call.leaves, call.structure
    return number


def _is_equal(left: Call, right: Call) -> bool:
    """True if two calls have equal arguments of the same types; some cannot be compared."""
    try:
        return left == right and list(map(type, left.leaves)) == list(map(type, right.leaves))
    except Exception:
        return False


def _make(cls: Any) -> FunctionOperator:
    base = re.sub(r"\W", "_", cls.__name__)
    taken = {schema_of(known.target).name.partition("::")[2] for known in _OPERATORS.values()}
    numbered = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    name = next(name for name in numbered if name not in taken)
    make_library: Any = torch.library.Library
    library = make_library(NAMESPACE, "FRAGMENT")
    library.define(name + _SCHEMA)
    target = getattr(getattr(torch.ops, NAMESPACE), name).default
    operator = _OPERATORS[cls] = FunctionOperator(weakref.ref(cls), target, library)
    # captures record operators of this kind whole, and they can be decomposed afterwards
    library.impl(name, _kernel_of(weakref.ref(operator)), "CompositeImplicitAutograd")
    return operator


def _kernel_of(reference: weakref.ref[FunctionOperator]) -> Callable[..., list[torch.Tensor]]:
    """The kernel of an operator, as a function that torch can hold without keeping it alive."""

    def kernel(tensors: Sequence[Any], sizes: Sequence[Any], call: int) -> list[torch.Tensor]:
        operator = reference()
        assert operator is not None, "torch forgets the operator together with its library"
        return operator.kernel(tensors, sizes, call)

    return kernel


def _run_forward(cls: Any, arguments: Sequence[Any]) -> Any:
    """Calls the user's ``forward``, or ``fake`` if there is one, without the context."""
    fake = getattr(cls, "fake", None)
    with torch.no_grad():
        if fake is not None:
            return fake(*arguments)
        forward = _user_forward(cls)
        if _is_old_form(cls):
            return forward(_Context(), *arguments)
        returned = forward(*arguments)
        cls.setup_context(_Context(), arguments, returned)
        return returned


def _user_forward(cls: Any) -> Callable[..., Any]:
    """The user's ``forward``, also while a capture has replaced it."""
    forward = cls.forward
    while isinstance(getattr(forward, "__wrapped__", None), _Method):
        forward = forward.__wrapped__.original
    return forward  # type: ignore[no-any-return]


class _Context:
    """The ``ctx`` that ``forward`` gets; it keeps nothing for a backward pass."""

    needs_input_grad = ()
    saved_tensors = ()

    def save_for_backward(self, *_: Any) -> None:
        pass

    def save_for_forward(self, *_: Any) -> None:
        pass

    def mark_non_differentiable(self, *_: Any) -> None:
        pass

    def set_materialize_grads(self, _: bool) -> None:
        pass

    def mark_dirty(self, *_: Any) -> None:
        raise _NotKeptError  # the operator would have to write to its arguments
