"""``torch.autograd.Function`` with a static method ``symbolic``: kept whole in the captured graph.

A capture looks into ``forward``, so that nothing is left of the function. While a model is traced,
``apply`` of such a function calls an operator instead, which is made for its class the first time,
and whose kernel is ``forward``. Eager code is not touched: outside of a capture, and in strict
capture, which has its own way with autograd functions, ``apply`` is torch's.
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
from onnx_aot.torch_compat import OpOverload, pytree

__all__ = ["NAMESPACE", "FunctionOperator", "functions_kept", "kept_functions"]

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


@dataclasses.dataclass
class FunctionOperator:
    """The operator that stands for a function.

    Attributes:
        function: The class.
        target: The operator.
        kernel: Its kernel.
        calls: What its calls have besides tensors and sizes; the argument ``call`` is an index.
        returned: What ``forward`` returned last, flattened, with its structure.
    """

    function: type[torch.autograd.Function]
    target: OpOverload
    kernel: Callable[..., list[torch.Tensor]] = lambda *args: []
    calls: list[Call] = dataclasses.field(default_factory=list)
    returned: tuple[list[Any], Any] = ((), None)  # type: ignore[assignment]

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


@contextlib.contextmanager
def functions_kept() -> Iterator[None]:
    """Makes calls of functions with a ``symbolic`` operators of the graph, for the duration.

    ``Function.apply`` calls the ``apply`` of its base class in the end. That is where it is caught,
    because models hold ``Function.apply`` itself (``my_function = MyFunction.apply``). Where it
    does not, functions are looked into.
    """
    base: Any = torch.autograd.Function.__base__

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(getattr(cls, "symbolic", None)) and not torch.compiler.is_dynamo_compiling():
            with contextlib.suppress(_NotKeptError):
                return _kept(cls, args, kwargs)
        return super(base, cls).apply(*args, **kwargs)

    if "apply" in vars(base):  # of its own, or caught already
        yield
        return
    base.apply = classmethod(apply)
    try:
        yield
    finally:
        del base.apply


class _NotKeptError(Exception):
    """A call that no operator can stand for; the capture looks into it."""


def _kept(cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
    taken = {known.target._schema.name.partition("::")[2] for known in _OPERATORS.values()}
    numbered = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(1)))
    name = next(name for name in numbered if name not in taken)
    make_library: Any = torch.library.Library
    library = make_library(NAMESPACE, "FRAGMENT")
    library.define(name + _SCHEMA)
    target = getattr(getattr(torch.ops, NAMESPACE), name).default
    operator = _OPERATORS[cls] = FunctionOperator(cls, target)
    # of this kind is what a capture records whole and what can be taken apart afterwards
    operator.kernel = _kernel(operator)
    library.impl(name, operator.kernel, "CompositeImplicitAutograd")
    _LIBRARIES.append(library)
    return operator


def _kernel(operator: FunctionOperator) -> Callable[..., list[torch.Tensor]]:
    cls: Any = operator.function
    old_form = cls.setup_context is torch.autograd.Function.setup_context

    def kernel(tensors: Sequence[Any], sizes: Sequence[Any], call: int) -> list[torch.Tensor]:
        arguments = operator.calls[call].arguments(tensors, sizes)
        fake = getattr(cls, "fake", None)
        with torch.no_grad():
            if fake is not None:
                returned = fake(*arguments)
            elif old_form:
                returned = cls.forward(_Context(), *arguments)
            else:
                returned = cls.forward(*arguments)
        operator.returned = pytree.tree_flatten(returned)
        results = [leaf for leaf in operator.returned[0] if isinstance(leaf, torch.Tensor)]
        if not results:
            raise _NotKeptError
        return [result.clone() for result in results]  # an operator's results are its own

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
