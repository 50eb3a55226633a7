"""Keeps sizes symbolic that a model computes with zero-dimensional tensors.

Audio codecs pad by ``torch.ceil((length - self.kernel_size) / self.stride)``, where the kernel size
and the stride are buffers that are not saved with the weights. For torch, a number read from a
tensor depends on data; here it stays an expression of the sizes and buffers it was computed from.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnx_aot.torch_compat import FakeTensor, writes_to

__all__ = ["ConstantWrittenError", "constants_of", "with_followed_sizes"]

Size = int | torch.SymInt


class ConstantWrittenError(Exception):
    """Ends a capture in which the model wrote to a buffer that counts as a constant."""


def constants_of(module: torch.nn.Module) -> dict[str, int]:
    """Returns the values, by name, of the buffers that hold one integer and are not saved."""
    whole = {
        name: buffer
        for name, buffer in module.named_buffers()
        if buffer.dim() == 0 and buffer.dtype == torch.int64 and _has_value(buffer)
    }
    saved = module.state_dict(keep_vars=True).keys() if whole else ()
    return {name: int(buffer) for name, buffer in whole.items() if name not in saved}


def _has_value(tensor: torch.Tensor) -> bool:
    return not tensor.is_meta and not isinstance(tensor, FakeTensor)


def with_followed_sizes(
    forward: Callable[..., Any],
    module: torch.nn.Module,
    constants: Mapping[str, int],
    written: list[str],
) -> Callable[..., Any]:
    """Wraps ``forward`` so that numbers computed from sizes with tensors stay symbolic.

    The result raises ``ConstantWrittenError`` if ``forward`` wrote to a constant.

    Args:
        forward: The function that is traced.
        module: Its module.
        constants: Values of the buffers that count as constants, by name.
        written: Takes the names of those that ``forward`` wrote to.
    """

    @functools.wraps(forward)
    def forward_with_known_values(*args: Any, **kwargs: Any) -> Any:
        held = dict(module.named_buffers())
        before = {name: (held[name], writes_to(held[name])) for name in constants}
        with _Followed([(held[name], number) for name, number in constants.items()]):
            result = forward(*args, **kwargs)
        held = dict(module.named_buffers())
        for name, (buffer, writes) in before.items():
            if held.get(name) is not buffer or writes_to(buffer) != writes:
                written.append(name)
                raise ConstantWrittenError(name)
        return result

    forward_with_known_values.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward_with_known_values


@dataclasses.dataclass(frozen=True)
class _Ratio:
    """The exact value of a number that PyTorch rounds to float32.

    A quotient of sizes, also with an integer added, rounds to the same integers as PyTorch's up to
    about 2**24. Products and sums of quotients need not; for these the operators return None.
    """

    numerator: Size
    denominator: int = 1

    def __add__(self, other: _Ratio) -> _Ratio | None:
        if self.denominator != 1 and other.denominator != 1:
            return None
        left, right = self.numerator * other.denominator, other.numerator * self.denominator
        return _Ratio(left + right, self.denominator * other.denominator)

    def __sub__(self, other: _Ratio) -> _Ratio | None:
        return self + _Ratio(-other.numerator, other.denominator)

    def __mul__(self, other: _Ratio) -> _Ratio | None:
        if self.denominator != 1 or other.denominator != 1:
            return None
        return _Ratio(self.numerator * other.numerator)

    def __truediv__(self, other: _Ratio) -> _Ratio | None:
        """Divides by an integer that is known to be positive; None for other divisors."""
        by = other.numerator
        if other.denominator != 1 or not isinstance(by, int) or by <= 0:
            return None
        return _Ratio(self.numerator, self.denominator * by)

    def floor(self) -> _Ratio:
        return _Ratio(self.numerator // self.denominator)

    def ceil(self) -> _Ratio:
        return _Ratio(-(-self.numerator // self.denominator))


def _floor_divided(left: _Ratio, right: _Ratio) -> _Ratio | None:
    quotient = left / right
    return None if quotient is None else quotient.floor()


def _choose_exact(choose: Callable[[Size, Size], Any]) -> Callable[[_Ratio, _Ratio], _Ratio | None]:
    """Makes a rule for the maximum or minimum of two numbers; None if one is a fraction."""

    def of_two(left: _Ratio, right: _Ratio) -> _Ratio | None:
        if left.denominator != 1 or right.denominator != 1:
            return None
        return _Ratio(choose(left.numerator, right.numerator))

    return of_two


Rule = Callable[..., Any]


def _swap_operands(rule: Rule) -> Rule:
    return lambda left, right: rule(right, left)


def _compare_exact(compare: Rule) -> Rule:
    def of_two(left: _Ratio, right: _Ratio) -> Any:
        return compare(left.numerator * right.denominator, right.numerator * left.denominator)

    return of_two


# By name of a function or method: computes its result from one or two numbers.
ARITHMETIC: dict[str, Rule] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), operator.add),
    **dict.fromkeys(("sub", "__sub__"), operator.sub),
    **dict.fromkeys(("rsub", "__rsub__"), _swap_operands(operator.sub)),
    **dict.fromkeys(("mul", "__mul__", "__rmul__"), operator.mul),
    **dict.fromkeys(("div", "true_divide", "__truediv__"), operator.truediv),
    **dict.fromkeys(("floor_divide", "__floordiv__"), _floor_divided),
    **dict.fromkeys(("neg", "__neg__"), lambda number: _Ratio(0) - number),
    "ceil": _Ratio.ceil,
    "floor": _Ratio.floor,
    "maximum": _choose_exact(torch.sym_max),
    "minimum": _choose_exact(torch.sym_min),
}
COMPARISONS: dict[str, Rule] = {
    name: _compare_exact(getattr(operator, short))
    for short in ("lt", "le", "gt", "ge", "eq", "ne")
    for name in (short, f"__{short}__")
}
CONVERSIONS = frozenset({"as_tensor", "long", "tensor", "to"})
DTYPES = frozenset({torch.int64, torch.float32, torch.float64})


class _Followed(TorchFunctionMode):
    """Tracks the values of zero-dimensional tensors and returns them where a number is read.

    The tensors are still computed; those that nothing reads do not remain in the graph.
    """

    def __init__(self, known: list[tuple[torch.Tensor, int]]) -> None:
        super().__init__()
        # By id, valid because the tensor is kept: the tensor, its value, and its count of writes.
        self._known: dict[int, tuple[torch.Tensor, Any, int]] = {}
        for tensor, number in known:
            self._keep(tensor, _Ratio(number))

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == "item" and isinstance(number := self._number(args[0]), _Ratio):
            if number.denominator == 1 and not args[0].is_floating_point():
                return number.numerator
        elif name == "__bool__" and (answer := self._known_value(args[0])) is not None:
            if not isinstance(answer, _Ratio):
                return bool(answer)
        elif name == "pad":
            args = tuple(map(self._replace_known, args))
            kwargs = {key: self._replace_known(value) for key, value in kwargs.items()}
        elif name == "__getitem__":
            args = (args[0], self._replace_known_in_index(args[1]))
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dim() == 0:
            found = self._result(name, args, kwargs, result.dtype)
            if found is not None:
                self._keep(result, found)
        return result

    def _keep(self, tensor: torch.Tensor, found: Any) -> None:
        self._known[id(tensor)] = (tensor, found, writes_to(tensor))

    def _result(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], dtype: torch.dtype
    ) -> Any:
        """Returns the result as a number or the answer of a comparison; None if unknown."""
        if name in CONVERSIONS:
            number = self._number(args[0]) if args else None  # torch.tensor(data=3)
            fraction = number is not None and number.denominator != 1
            whole = not dtype.is_floating_point
            return number if dtype in DTYPES and not (fraction and whole) else None
        rule = ARITHMETIC.get(name) if dtype in DTYPES else COMPARISONS.get(name)
        numbers = [self._number(arg) for arg in args]
        if rule is None or kwargs or any(number is None for number in numbers):
            return None
        return rule(*numbers)

    def _known_value(self, value: Any) -> Any:
        tensor, found, writes = self._known.get(id(value), (None, None, 0))
        return None if tensor is None or writes_to(tensor) != writes else found

    def _number(self, value: Any) -> _Ratio | None:
        if isinstance(value, torch.SymInt) or type(value) is int:
            return _Ratio(value)
        held = self._known_value(value)
        return held if isinstance(held, _Ratio) else None

    def _replace_known(self, value: Any) -> Any:
        """Converts a list or tuple to a list with numbers in place of known tensors."""
        return list(map(self._size, value)) if isinstance(value, (list, tuple)) else value

    def _replace_known_in_index(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(map(self._replace_known_in_index, index))
        if isinstance(index, slice):
            return slice(*(self._size(one) for one in (index.start, index.stop, index.step)))
        return index

    def _size(self, value: Any) -> Any:
        held = self._known_value(value)
        whole = isinstance(held, _Ratio) and held.denominator == 1
        return held.numerator if whole and not value.is_floating_point() else value
