"""Interprets conditions on input sizes, such as ``x.shape[1] % 2 == 0``, without running them.

A condition is Python over terms: ``<input>.shape[<axis>]``, and the names of inputs that are
numbers. It is kept in the model's metadata, so it is interpreted here, never given to ``eval``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from onnx_aot.torch_compat import SIZE_TERM

__all__ = [
    "CALLS",
    "Interpreter",
    "fulfils_condition",
    "holds",
    "parse",
    "select_fulfilling",
    "unparse",
]

KEY = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")
"""Access to an entry of a container, in conditions of the capture."""

PLACEHOLDER = re.compile(r"\b_(\d+)_\b")

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
CALLS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "float": float,
    "floor": math.floor,
    "int": int,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
    "sym_float": float,
    "sym_max": max,
    "sym_min": min,
    "trunc": math.trunc,
}
LARGEST_EXPONENT = 64
LARGEST_BASE = 2**64  # powers of powers would take all memory

NOT_COMPUTED = (ArithmeticError, RecursionError, TypeError, ValueError)
"""Errors of conditions that cannot be determined for some sizes."""

FIRST, TOGETHER = 16, 1024
"""Sizes that are tested at once: at first, as the answer often comes early, and at most."""


def parse(text: str, terms: list[str]) -> ast.expr:
    """Returns the tree of a condition, in which ``_<i>_`` stands for ``terms[i]``.

    Raises:
        ValueError: It is not Python.
    """
    if terms:
        known = {term: f"_{index}_" for index, term in enumerate(terms)}
        names = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
        text = re.sub(rf"(?<![\w.])(?:{names})(?![\w.\[])", lambda m: known[m[0]], text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(text) from error


def unparse(tree: ast.expr, terms: list[str]) -> str:
    """The inverse of ``parse``."""
    return PLACEHOLDER.sub(lambda match: terms[int(match[1])], ast.unparse(tree))


def holds(text: str, sizes: Mapping[str, int]) -> bool | None:
    """True if sizes satisfy a condition; None if that cannot be determined.

    Args:
        text: The condition.
        sizes: Values of the terms.
    """
    try:
        return bool(_compile_condition(text, tuple(sizes)).compute(tuple(sizes.values())))
    except NOT_COMPUTED:
        return None


def select_fulfilling(text: str, term: str, sizes: Iterable[int]) -> Iterator[int]:
    """Yields the sizes that do not violate a condition, in their order.

    These are the sizes for which ``holds`` does not return False. Up to a thousand are tested at
    once, one step of the condition after the other, which takes a fraction of the time.

    Args:
        text: The condition.
        term: Its only term.
        sizes: Values of the term.
    """
    remaining = iter(sizes)
    try:
        steps = _compile_condition(text, (term,))
    except NOT_COMPUTED:
        yield from remaining
        return
    count = FIRST
    while tested := list(itertools.islice(remaining, count)):
        try:
            answers = steps.compute_each(tested)
        except NOT_COMPUTED:  # for one of them
            answers = [holds(text, {term: size}) is not False for size in tested]
        yield from itertools.compress(tested, answers)
        count = min(4 * count, TOGETHER)


def fulfils_condition(condition: str, arguments: Mapping[str, Any]) -> bool | None:
    """True if arguments satisfy a condition over ``L['x'].size()[0]``; None if unknown.

    Conditions come with the program, which may be an untrusted file, so they are interpreted and
    never evaluated as Python.
    """
    values: dict[str, int] = {}

    def name_term(match: re.Match[str]) -> str:
        value = arguments[match[1]]
        for key, index, attribute in KEY.findall(match[2]):
            value = value[key] if key else value[int(index)] if index else getattr(value, attribute)
        name = f"size_{len(values)}"
        values[name] = value if match[3] is None else value.shape[int(match[3])]
        return name

    try:
        return holds(SIZE_TERM.sub(name_term, condition), values)
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


class Interpreter:
    """Evaluates a condition with numbers; a subclass may use other values."""

    def __init__(self, term: Callable[[int], Any]) -> None:
        """``term`` returns the value of a term by its index."""
        self._term = term

    def evaluate(self, tree: ast.expr) -> Any:
        """Evaluates a tree.

        Raises:
            ValueError: The tree has a construct that is not supported.
        """
        if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
            return tree.value
        if isinstance(tree, ast.Attribute) and ast.unparse(tree) == "math.inf":
            return math.inf  # an upper end, as in ``33 <= n and n <= math.inf``
        if isinstance(tree, ast.Name):
            match = PLACEHOLDER.fullmatch(tree.id)
            if match is not None:
                return self._term(int(match[1]))
        if isinstance(tree, ast.UnaryOp):
            operand = self.evaluate(tree.operand)
            if isinstance(tree.op, ast.Not):
                return self.invert(operand)
            return self.apply(type(tree.op), operand)
        if isinstance(tree, ast.BinOp):
            return self.apply(type(tree.op), self.evaluate(tree.left), self.evaluate(tree.right))
        if isinstance(tree, ast.BoolOp):
            return self.join(isinstance(tree.op, ast.And), [self.evaluate(v) for v in tree.values])
        if isinstance(tree, ast.Compare):
            sides = [self.evaluate(side) for side in (tree.left, *tree.comparators)]
            pairs = zip(tree.ops, sides, sides[1:], strict=False)
            return self.join(True, [self.apply(type(op), *two) for op, *two in pairs])
        if isinstance(tree, ast.IfExp):
            parts = [self.evaluate(part) for part in (tree.test, tree.body, tree.orelse)]
            return self.choose(*parts)
        if isinstance(tree, ast.Call) and not tree.keywords:
            name = tree.func.attr if isinstance(tree.func, ast.Attribute) else None
            name = tree.func.id if isinstance(tree.func, ast.Name) else name
            if name in CALLS:
                return self.call(name, [self.evaluate(argument) for argument in tree.args])
        raise ValueError(ast.unparse(tree))

    def apply(self, kind: type[ast.AST], *operands: Any) -> Any:
        """Applies an arithmetic operator or a comparison."""
        if kind not in OPERATORS:
            raise ValueError(kind.__name__)
        if kind is ast.Pow and (
            abs(operands[1]) > LARGEST_EXPONENT or abs(operands[0]) > LARGEST_BASE
        ):
            raise ValueError("a large power")
        return OPERATORS[kind](*operands)

    def call(self, name: str, operands: list[Any]) -> Any:
        """Calls one of the functions in ``CALLS``."""
        return CALLS[name](*operands)

    def invert(self, operand: Any) -> Any:
        """Applies ``not``."""
        return not operand

    def join(self, every: bool, operands: list[Any]) -> Any:
        """Applies ``and`` if ``every`` is true, else ``or``."""
        return all(operands) if every else any(operands)

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """Evaluates ``then if condition else otherwise``."""
        return then if condition else otherwise


Number = int | float


@functools.lru_cache(maxsize=256)
def _compile_condition(text: str, terms: tuple[str, ...]) -> _Steps:
    """Returns the steps of a condition, for conditions tested at many sizes.

    Raises:
        ValueError: It is not Python, or has a construct that is not supported.
    """
    return _Steps(text, terms)


@dataclasses.dataclass(frozen=True)
class _Slot:
    """The place of a value that depends on the terms."""

    index: int


class _Steps(Interpreter):
    """Evaluates a condition to a list of steps; equal parts of the condition are one step.

    Conditions repeat long parts: the size of a padded dimension has the one before it three times.

    Args:
        text: The condition.
        terms: Its terms.
    """

    def __init__(self, text: str, terms: tuple[str, ...]) -> None:
        super().__init__(_Slot)
        # One place for each term, constant and step; constants are filled in.
        self._places: list[Number | None] = [None] * len(terms)
        self._steps: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
        self._known: dict[object, _Slot] = {}
        self._result = self.evaluate(parse(text, list(terms)))

    def compute(self, numbers: Sequence[Number]) -> Any:
        """Computes the condition for one value of each term."""
        if not isinstance(self._result, _Slot):
            return self._result
        values: list[Any] = [*numbers, *self._places[len(numbers) :]]
        for place, function, operands in self._steps:
            values[place] = function(*[values[operand] for operand in operands])
        return values[self._result.index]

    def compute_each(self, numbers: Sequence[Number]) -> Iterable[Any]:
        """Computes the condition for several values of its only term."""
        if not isinstance(self._result, _Slot):
            return itertools.repeat(self._result, len(numbers))
        values: list[Iterable[Any]] = [numbers, *map(itertools.repeat, self._places[1:])]
        for place, function, operands in self._steps:
            values[place] = list(map(function, *[values[operand] for operand in operands]))
        return values[self._result.index]

    def apply(self, kind: type[ast.AST], *operands: Any) -> Any:
        if kind is ast.Pow or not any(isinstance(operand, _Slot) for operand in operands):
            return self._add(kind, functools.partial(super().apply, kind), operands)
        if kind not in OPERATORS:
            raise ValueError(kind.__name__)
        return self._add(kind, OPERATORS[kind], operands)

    def call(self, name: str, operands: list[Any]) -> Any:
        return self._add(name, CALLS[name], operands)

    def invert(self, operand: Any) -> Any:
        return self._add("not", operator.not_, (operand,))

    def join(self, every: bool, operands: list[Any]) -> Any:
        join = super().join
        return self._add(every, lambda *values: join(every, list(values)), operands)

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return self._add("if", super().choose, (condition, then, otherwise))

    def _add(self, kind: object, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """Calls a function now if its operands are constants, else adds a step for it."""
        if not any(isinstance(operand, _Slot) for operand in operands):
            return function(*operands)
        places = tuple(map(self._find_place, operands))
        if (kind, places) not in self._known:
            self._known[kind, places] = self._reserve(None)
            self._steps.append((len(self._places) - 1, function, places))
        return self._known[kind, places]

    def _find_place(self, operand: Any) -> int:
        if isinstance(operand, _Slot):
            return operand.index
        key = type(operand), repr(operand)  # 1, 1.0 and True are equal
        if key not in self._known:
            self._known[key] = self._reserve(operand)
        return self._known[key].index

    def _reserve(self, constant: Number | None) -> _Slot:
        self._places.append(constant)
        return _Slot(len(self._places) - 1)
