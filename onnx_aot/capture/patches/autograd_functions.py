"""``torch.autograd.Function`` with a static method ``symbolic``: kept whole in the captured graph.

A capture looks into ``forward``, so that nothing is left of the function. While a model is traced,
``forward`` of such a function calls an operator instead, which is made for its class the first
time, and whose kernel is the ``forward`` that the user wrote. Strict capture has its own way with
autograd functions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.torch_compat import Attribute, OpOverload, Patch, Place, Settings, pytree, schema_of

__all__ = ["FUNCTIONS_KEPT", "NAMESPACE", "FunctionOperator", "kept_functions"]

NAMESPACE = "autograd_functions"

_SCHEMA = "(Tensor[] tensors, SymInt[] sizes, int call) -> Tensor[]"


@dataclasses.dataclass(frozen=True)
class Call:
    """What a call of a function has besides tensors and sizes.

    Attributes:
        leaves: The flattened arguments, with markers in the place of tensors and sizes.
        structure: By which they become the arguments again.
    """

    leaves: tuple[Any, ...]
    structure: Any

    def arguments(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """The arguments, with these in the places of the tensors and sizes."""
        rest = {_TENSOR: iter(tensors), _SIZE: iter(sizes)}
        leaves = [next(rest[leaf]) if leaf in (_TENSOR, _SIZE) else leaf for leaf in self.leaves]
        return list(pytree.tree_unflatten(leaves, self.structure))


class _Marker:
    """Stands for an argument that the graph has."""


_TENSOR, _SIZE = _Marker(), _Marker()


Kernel = Callable[..., Any]


@dataclasses.dataclass
class FunctionOperator:
    """The operator that stands for a function.

    Attributes:
        function: The class.
        target: The operator.
        function_kernel: Computes what ``forward`` returns.
        calls: What its calls have besides tensors and sizes; the argument ``call`` is an index.
        returned: What ``forward`` returned last, flattened, with its structure.
    """

    function: type[torch.autograd.Function]
    target: OpOverload
    function_kernel: Kernel = lambda *args: ()
    calls: list[Call] = dataclasses.field(default_factory=list)
    returned: tuple[list[Any], Any] = ((), None)  # type: ignore[assignment]

    def kernel(self, tensors: Sequence[Any], sizes: Sequence[Any], call: int) -> list[torch.Tensor]:
        """The kernel of the operator."""
        returned = self.function_kernel(*self.calls[call].arguments(tensors, sizes))
        self.returned = pytree.tree_flatten(returned)
        results = [leaf for leaf in self.returned[0] if isinstance(leaf, torch.Tensor)]
        if not results:
            raise _NotKeptError
        return [result.clone() for result in results]  # an operator's results are its own

    def number(self, call: Call) -> int:
        """The index of a call, a new one where there is none like it."""
        for index, known in enumerate(self.calls):
            with contextlib.suppress(Exception):  # arguments that cannot be compared
                if known == call and list(map(type, known.leaves)) == list(map(type, call.leaves)):
                    return index
        self.calls.append(call)
        return len(self.calls) - 1


_OPERATORS: dict[type, FunctionOperator] = {}
_LIBRARIES: list[Any] = []  # operators live as long as theirs


def kept_functions() -> list[FunctionOperator]:
    """Every operator that was made for a function."""
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


def _functions(base: type = torch.autograd.Function) -> Iterator[type]:
    """Classes with ``symbolic``, subclasses before what they inherit from."""
    cls: type
    for cls in base.__subclasses__():
        yield from _functions(cls)
        if callable(getattr(cls, "symbolic", None)):
            yield cls


def _forwards(settings: Settings) -> Iterator[Place]:
    return (_StaticMethod(cls, "forward") for cls in _functions())


def _is_old_form(cls: Any) -> bool:
    """Whether ``forward`` takes the context too, and there is no ``setup_context``."""
    return bool(cls.setup_context is torch.autograd.Function.setup_context)


def _kept_forward(original: _Method, settings: Settings) -> Callable[..., Any]:
    cls, old_form = original.function, _is_old_form(original.function)
    kernel = _kernel_function(cls, original.original, old_form)

    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return _kept(cls, kernel, args[1:] if old_form else args, kwargs)
        except _NotKeptError:
            return original(*args, **kwargs)

    return forward


FUNCTIONS_KEPT: tuple[Patch, ...] = (
    Patch(
        "forward of autograd functions with symbolic",
        _kept_forward,
        "Functions with symbolic are looked into, and their symbolic is not used.",
        when=lambda settings: not settings.strict,
        places=_forwards,
    ),
)


class _NotKeptError(Exception):
    """A call that no operator can stand for; the capture looks into it."""


def _kept(cls: Any, kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
    operator.function_kernel = kernel
    number = operator.number(Call(marked, structure))
    with torch_compat.without_recording():  # whether an operator can stand for it
        operator.kernel(tensors, sizes, number)
    results = operator.target(tensors, sizes, number)
    returned, shape = operator.returned
    rest = iter(results)
    filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in returned]
    return pytree.tree_unflatten(filled, shape)


def _make(cls: Any) -> FunctionOperator:
    base = re.sub(r"\W", "_", cls.__name__)
    taken = {schema_of(known.target).name.partition("::")[2] for known in _OPERATORS.values()}
    numbered = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    name = next(name for name in numbered if name not in taken)
    make_library: Any = torch.library.Library
    library = make_library(NAMESPACE, "FRAGMENT")
    library.define(name + _SCHEMA)
    target = getattr(getattr(torch.ops, NAMESPACE), name).default
    operator = _OPERATORS[cls] = FunctionOperator(cls, target)
    # of this kind is what a capture records whole and what can be taken apart afterwards
    library.impl(name, operator.kernel, "CompositeImplicitAutograd")
    _LIBRARIES.append(library)
    return operator


def _kernel_function(cls: Any, forward: Callable[..., Any], old_form: bool) -> Kernel:
    """``forward`` as the user wrote it, or ``fake``, as a function of the arguments alone."""

    def kernel(*arguments: Any) -> Any:
        fake = getattr(cls, "fake", None)
        with torch.no_grad():
            if fake is not None:
                return fake(*arguments)
            if old_form:
                return forward(_Context(), *arguments)
            returned = forward(*arguments)
            cls.setup_context(_Context(), arguments, returned)
            return returned

    return kernel


class _Context:
    """What ``forward`` gets as ``ctx``; nothing is remembered for a backward pass."""

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
