"""Computes the elements of small tensors that are made from symbolic sizes, exactly.

Audio codecs pad by ``torch.ceil((length - self.kernel_size) / self.stride)``, and image models
resize to ``torch.tensor([height, width]) // 2``. Torch computes these with tensors, whose elements
are unknown during a capture. Here each element is an expression of sizes. An operator without a
rule, or whose result PyTorch would round, has no expression.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import (
    compute_float,
    has_log2,
    log2_of_size,
    pytree,
    symbolic_truth,
)

__all__ = ["ELEMENTS_LIMIT", "Elements", "Logarithm", "compute_elements"]

Size = int | torch.SymInt
FRACTION_LIMIT = 1024
"""Floats with a larger denominator, such as 0.1, have products that PyTorch rounds."""
ELEMENTS_LIMIT = 64
"""Tensors with more elements have none: each operation on a symbolic size takes a millisecond."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The exact value of a number that PyTorch rounds to float32 or float64.

    A quotient of sizes, also with a binary fraction such as 1/2 added, rounds to the same integers
    as PyTorch's while its numerator is below about 2**24. Products and sums of other quotients need
    not; for these the operators return None.
    """

    numerator: Size
    denominator: int = 1

    def __add__(self, other: Ratio) -> Ratio | None:
        if not (self._is_binary() or other._is_binary()):
            return None
        left, right = self.numerator * other.denominator, other.numerator * self.denominator
        return Ratio(left + right, self.denominator * other.denominator)

    def __sub__(self, other: Ratio) -> Ratio | None:
        return self + Ratio(-other.numerator, other.denominator)

    def __mul__(self, other: Ratio) -> Ratio | None:
        if not (self._is_binary() and other._is_binary()):
            return None
        denominator = self.denominator * other.denominator
        return Ratio(self.numerator * other.numerator, denominator)

    def __truediv__(self, other: Ratio) -> Ratio | None:
        """Divides by a number that is known to be positive; None for other divisors."""
        if not other._is_positive_number():
            return None
        denominator: Any = self.denominator * other.numerator
        return Ratio(self.numerator * other.denominator, denominator)

    def __mod__(self, other: Ratio) -> Ratio | None:
        if not (self._is_binary() and other._is_positive_number()):
            return None
        left = self.numerator * other.denominator
        right: Any = other.numerator * self.denominator
        return Ratio(left % right, self.denominator * other.denominator)

    def floor(self) -> Ratio:
        return Ratio(self.numerator // self.denominator)

    def ceil(self) -> Ratio:
        return Ratio(-(-self.numerator // self.denominator))

    def trunc(self) -> Ratio | None:
        """Rounds towards zero; None if the sign depends on sizes."""
        if symbolic_truth(self.numerator >= 0):
            return self.floor()
        return self.ceil() if symbolic_truth(self.numerator <= 0) else None

    def round(self) -> Ratio:
        """Rounds to the nearest integer, and halves to the even one, as PyTorch does."""
        double, period = 2 * self.numerator + self.denominator, 2 * self.denominator
        upper = double // period
        if self.denominator % 2:
            return Ratio(upper)
        is_between = torch.sym_min(double % period, 1)  # type: ignore[no-untyped-call]
        return Ratio(upper - (upper % 2) * (1 - is_between))

    def _is_binary(self) -> bool:
        """True for numbers that PyTorch does not round."""
        return self.denominator & (self.denominator - 1) == 0

    def _is_positive_number(self) -> bool:
        is_number = isinstance(self.numerator, int) and self.numerator > 0
        return is_number and self._is_binary()


@dataclasses.dataclass(frozen=True)
class Logarithm:
    """The logarithm to base 2 of a size above zero, which only rounding makes a number.

    Attributes:
        size: The size.
        error: By how much PyTorch may round: half the distance of float32 numbers from 16 on. A
            logarithm as near to an integer as that is rounded to it. It makes no difference to
            sizes below 2**20. 0 in float64.
    """

    size: Size
    error: float

    def floor(self) -> Ratio:
        """Rounds down, as PyTorch's logarithm would be."""
        return Ratio(math.floor(log2_of_size(self.size) + self.error))

    def ceil(self) -> Ratio:
        """Rounds up, as PyTorch's logarithm would be."""
        return Ratio(math.ceil(log2_of_size(self.size) - self.error))

    def trunc(self) -> Ratio:
        """Rounds towards zero; no logarithm is negative."""
        return self.floor()


ROUNDING_ERRORS = {torch.float32: 2.0**-20, torch.float64: 0.0}


def _power(base: Ratio, exponent: Ratio) -> Ratio | None:
    """A power of two with an exponent of integer, which PyTorch does not round."""
    steps = exponent.numerator
    is_of_two = isinstance(base.numerator, int) and base == Ratio(2)
    if not is_of_two or exponent.denominator != 1 or not symbolic_truth(steps >= 0):
        return None
    return Ratio(2**steps)


Element = Ratio | Logarithm | bool | torch.SymBool


class Elements:
    """The elements of a tensor in order, computed when they are first read.

    Args:
        shape: The shape of the tensor.
        compute: Returns the elements, or None if one of them has no exact expression.
    """

    def __init__(
        self, shape: Sequence[int], compute: Callable[[], Sequence[Element] | None]
    ) -> None:
        self.shape = tuple(shape)
        self._compute = functools.cache(compute)

    def read(self) -> Sequence[Element] | None:
        """The elements, or None if one of them has no exact expression."""
        return self._compute()


# --- rules for one element -----------------------------------------------------------------------

Rule = Callable[..., Any]


def _divide_to_floor(left: Ratio, right: Ratio) -> Ratio | None:
    quotient = left / right
    return None if quotient is None else quotient.floor()


def _divide_rounded(left: Ratio, right: Ratio, rounding_mode: str | None = None) -> Ratio | None:
    quotient = left / right
    if quotient is None or rounding_mode is None:
        return quotient
    return quotient.floor() if rounding_mode == "floor" else quotient.trunc()


def _choose_exact(choose: Rule) -> Rule:
    """Makes a rule for the maximum or minimum of two numbers; None if one is a fraction."""

    def of_two(left: Ratio, right: Ratio) -> Ratio | None:
        if left.denominator != 1 or right.denominator != 1:
            return None
        return Ratio(choose(left.numerator, right.numerator))

    return of_two


def _compare_exact(compare: Rule) -> Rule:
    def of_two(left: Ratio, right: Ratio) -> Any:
        return compare(left.numerator * right.denominator, right.numerator * left.denominator)

    return of_two


_larger, _smaller = _choose_exact(torch.sym_max), _choose_exact(torch.sym_min)


def _clamp(value: Ratio, low: Ratio, high: Ratio) -> Ratio | None:
    at_least: Ratio | None = _larger(value, low)
    return None if at_least is None else _smaller(at_least, high)


# By name of an ATen operator: computes an element of its result from one element per operand.
ARITHMETIC: dict[str, Rule] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda left, right: right - left,
    "mul": operator.mul,
    "div": _divide_rounded,
    "floor_divide": _divide_to_floor,
    "remainder": operator.mod,
    "neg": lambda number: Ratio(0) - number,
    "pow": _power,
    "exp2": lambda number: _power(Ratio(2), number),
    "round": Ratio.round,
    "maximum": _larger,
    "minimum": _smaller,
    "clamp": _clamp,
    "clamp_min": _larger,
    "clamp_max": _smaller,
}
# Those that make integers of fractions and logarithms.
ROUNDINGS: dict[str, Rule] = {
    "ceil": operator.methodcaller("ceil"),
    "floor": operator.methodcaller("floor"),
    "trunc": operator.methodcaller("trunc"),
    "fix": operator.methodcaller("trunc"),
}
COMPARISONS: dict[str, Rule] = {
    name: _compare_exact(getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
# Reductions of all elements, by the rule for two.
REDUCTIONS: dict[str, Rule] = {
    "sum": operator.add,
    "prod": operator.mul,
    "max": _larger,
    "amax": _larger,
    "min": _smaller,
    "amin": _smaller,
}
ACCUMULATIONS: dict[str, Rule] = {"cumsum": operator.add, "cumprod": operator.mul}
FILLS = frozenset({"full", "full_like", "new_full", "scalar_tensor"})
CONVERSIONS = frozenset(
    ("alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "to")
)
# Operators that move elements without computing with them.
MOVES = frozenset(
    (
        "cat", "chunk", "concat", "expand", "expand_as", "flatten", "flip", "index", "index_select",
        "narrow", "permute", "repeat", "reshape", "roll", "select", "slice", "split",
        "split_with_sizes", "squeeze", "stack", "t", "transpose", "unbind", "unflatten",
        "unsqueeze", "view",
    )
)  # fmt: skip
DTYPES = frozenset({torch.int32, torch.int64, torch.float32, torch.float64})
PRODUCTS = frozenset({"mul", "prod", "cumprod"})  # of sizes may exceed int32


# --- rules for tensors ---------------------------------------------------------------------------


def compute_elements(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: Sequence[torch.Tensor]
) -> list[Elements] | None:
    """The elements of an operator's results, or None if it has no rule.

    Called while torch computes with real tensors, since positions of elements are found so. The
    elements hold no reference to the results: see ``_Known.storage`` in ``known_values.py``.

    Args:
        func: An ATen operator.
        args: Its arguments; a tensor is given by its value, a real tensor or ``Elements``.
        kwargs: Its keyword arguments, also.
        results: What it returned: tensors with the shapes and dtypes of the results.
    """
    name = func.overloadpacket.__name__
    if any(math.prod(result.shape) > ELEMENTS_LIMIT for result in results):
        return None
    if name in MOVES:
        return _move(func, args, kwargs, results)
    (result,) = results if len(results) == 1 else (None,)
    if result is None or result.dtype not in DTYPES | {torch.bool}:
        return None
    if name in PRODUCTS and result.dtype == torch.int32:
        return None
    found = _compute_one(name, args, dict(kwargs), result)
    return None if found is None else [found]


def _compute_one(
    name: str, args: tuple[Any, ...], options: dict[str, Any], result: torch.Tensor
) -> Elements | None:
    for unused in ("dtype", "layout", "device", "pin_memory", "memory_format"):
        options.pop(unused, None)
    if name in FILLS:
        number = args[0 if name == "scalar_tensor" else -1]
        return _fill(number, result.shape, result.dtype.is_floating_point)
    if name in CONVERSIONS:
        return _convert(_operand(args[0]), result)
    if name in ACCUMULATIONS or (name in REDUCTIONS and not _has_two_operands(args)):
        return _reduce(name, args, options, result)
    if name == "log2":
        return _take_logarithm(_operand(args[0]), result)
    if name in ROUNDINGS:
        return _round(ROUNDINGS[name], _operand(args[0]), result)
    if name == "clamp":
        name, args = _name_bounds(args, options)
    rounding_mode = options.pop("rounding_mode", None)
    rule = COMPARISONS.get(name) if result.dtype == torch.bool else ARITHMETIC.get(name)
    operands = [_operand(arg) for arg in args]
    if rule is None or None in operands or options not in ({}, {"alpha": 1}):
        return None
    if name == "div":
        rule = functools.partial(rule, rounding_mode=rounding_mode)
    spread = [_broadcast(operand, result.shape) for operand in operands if operand is not None]
    return _map_elements(_of_numbers(rule), spread, result)


def _fill(value: Any, shape: Sequence[int], is_float: bool = True) -> Elements:
    """The same number everywhere. PyTorch rounds fractions in tensors of integers."""
    shape = tuple(shape)

    def fill() -> Sequence[Element] | None:
        number = _number(value)
        is_cut = isinstance(number, Ratio) and number.denominator != 1 and not is_float
        return None if number is None or is_cut else [number] * math.prod(shape)

    return Elements(shape, fill)


def _has_two_operands(args: tuple[Any, ...]) -> bool:
    """True for ``torch.max(a, b)``, which is ``torch.maximum``."""
    return len(args) > 1 and isinstance(args[1], (torch.Tensor, Elements))


def _name_bounds(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The name and operands of ``clamp`` by the bounds that it has."""
    value, low, high = (*args, None, None)[:3]
    low, high = options.pop("min", low), options.pop("max", high)
    if low is None:
        return "clamp_max", (value, high)
    return ("clamp_min", (value, low)) if high is None else ("clamp", (value, low, high))


def _take_logarithm(operand: Elements | None, result: torch.Tensor) -> Elements | None:
    error = ROUNDING_ERRORS.get(result.dtype)
    if operand is None or error is None:
        return None

    def take(value: Element) -> Element | None:
        if not isinstance(value, Ratio) or value.denominator != 1:
            return None
        return Logarithm(value.numerator, error) if has_log2(value.numerator) else None

    return _map_elements(take, [operand], result)


def _round(rule: Rule, operand: Elements | None, result: torch.Tensor) -> Elements | None:
    if operand is None:
        return None

    def rounded(value: Element) -> Element | None:
        return rule(value) if isinstance(value, (Ratio, Logarithm)) else None

    return _map_elements(rounded, [operand], result)


def _of_numbers(rule: Rule) -> Rule:
    """A rule that has no result for bools, which other rules compute with as PyTorch does not."""

    def of_numbers(*row: Element) -> Any:
        return rule(*row) if all(isinstance(value, Ratio) for value in row) else None

    return of_numbers


def _convert(operand: Elements | None, result: torch.Tensor) -> Elements | None:
    """The same elements in another dtype; fractions have no expression as integers."""
    if operand is None:
        return None
    error = ROUNDING_ERRORS.get(result.dtype)
    whole, of_bools = not result.dtype.is_floating_point, result.dtype == torch.bool

    def convert(value: Element) -> Element | None:
        if isinstance(value, Ratio):
            is_fraction = whole and value.denominator != 1
            return None if is_fraction or of_bools else value
        if isinstance(value, Logarithm):
            return value.floor() if whole else Logarithm(value.size, max(value.error, error or 0))
        return value if of_bools else None

    return _map_elements(convert, [operand], result)


def _reduce(
    name: str, args: tuple[Any, ...], options: Mapping[str, Any], result: torch.Tensor
) -> Elements | None:
    """Reduces or accumulates a vector; None for tensors of other ranks."""
    operand = _operand(args[0])
    keeps = options.get("keepdim") or any(arg is True for arg in args[1:])
    if operand is None or len(operand.shape) != 1 or keeps:
        return None
    if name in ACCUMULATIONS:
        return Elements(result.shape, lambda: _accumulate(ACCUMULATIONS[name], operand))
    rule = REDUCTIONS[name]

    def reduce() -> Sequence[Element] | None:
        values = operand.read()
        if values is None or any(not isinstance(value, Ratio) for value in values):
            return None
        if not values:
            return [Ratio(0 if name == "sum" else 1)] if name in ("sum", "prod") else None
        total: Any = values[0]
        for value in values[1:]:
            total = None if total is None else rule(total, value)
        return None if total is None else [total]

    return Elements(result.shape, reduce)


def _accumulate(rule: Rule, operand: Elements) -> Sequence[Element] | None:
    values = operand.read()
    if values is None or any(not isinstance(value, Ratio) for value in values):
        return None
    found: list[Any] = list(
        itertools.accumulate(values, lambda a, b: None if a is None else rule(a, b))
    )
    return None if any(value is None for value in found) else found


def _move(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: Sequence[torch.Tensor]
) -> list[Elements] | None:
    """Moves elements as the operator moves their positions."""
    sources: list[Elements] = []
    moved = _first_tensors(func, args)

    def number_positions(value: Any) -> torch.Tensor | None:
        source = _operand(value)
        if source is None:
            return None
        start = sum(math.prod(other.shape) for other in sources)
        sources.append(source)
        count = math.prod(source.shape)
        return torch.arange(start, start + count).reshape(source.shape)

    positions = [number_positions(value) for value in moved]
    rest = pytree.tree_leaves((args[1:], dict(kwargs)))
    if any(p is None for p in positions) or any(isinstance(r, (*SYMBOLIC, Elements)) for r in rest):
        return None
    first = positions if isinstance(args[0], (list, tuple)) else positions[0]
    found = func(first, *args[1:], **kwargs)
    places = [part.flatten().tolist() for part in pytree.tree_leaves(found)]
    if len(places) != len(results):
        return None

    def pick(order: Iterable[int]) -> Callable[[], Sequence[Element] | None]:
        def picked() -> Sequence[Element] | None:
            read = [source.read() for source in sources]
            if any(values is None for values in read):
                return None
            held = [value for values in read for value in values or ()]
            return [held[place] for place in order]

        return picked

    return [
        Elements(result.shape, pick(order)) for result, order in zip(results, places, strict=True)
    ]


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _first_tensors(func: Any, args: tuple[Any, ...]) -> Sequence[Any]:
    """The tensors whose elements the operator moves: its first argument."""
    return args[0] if isinstance(args[0], (list, tuple)) else [args[0]]


def _map_elements(rule: Rule, operands: Sequence[Any], result: torch.Tensor) -> Elements:
    """Applies a rule to the elements of operands that have the shape of the result."""

    def compute() -> Sequence[Element] | None:
        columns = [one.read() if isinstance(one, Elements) else one for one in operands]
        if any(column is None for column in columns):
            return None
        found = [rule(*row) for row in zip(*columns, strict=True)]
        return None if any(value is None for value in found) else found

    return Elements(result.shape, compute)


def _broadcast(operand: Elements, shape: Sequence[int]) -> Elements:
    places = torch.arange(math.prod(operand.shape)).reshape(operand.shape)
    order = places.broadcast_to(tuple(shape)).flatten().tolist()

    def spread() -> Sequence[Element] | None:
        values = operand.read()
        return None if values is None else [values[place] for place in order]

    return Elements(shape, spread)


def _operand(value: Any) -> Elements | None:
    """An argument as elements; None if it is none, or is too large."""
    if isinstance(value, Elements):
        return value
    if isinstance(value, torch.Tensor):
        if value.numel() > ELEMENTS_LIMIT:
            return None
        numbers = [_number(number) for number in value.flatten().tolist()]
        if any(number is None for number in numbers):
            return None
        return Elements(value.shape, lambda: numbers)
    if isinstance(value, torch.SymFloat):
        return _fill(value, ())  # computed when it is read, so that the arithmetic is recorded
    number = _number(value)
    return None if number is None else Elements((), lambda: [number])


def _number(value: Any) -> Any:
    """A Python or symbolic number as an element; None if it has no exact expression."""
    if isinstance(value, (bool, torch.SymBool)):
        return value
    if isinstance(value, (int, torch.SymInt)):
        return Ratio(value)
    if isinstance(value, float) and math.isfinite(value):
        numerator, denominator = value.as_integer_ratio()
        return Ratio(numerator, denominator) if denominator <= FRACTION_LIMIT else None
    return compute_float(value, _number) if isinstance(value, torch.SymFloat) else None
