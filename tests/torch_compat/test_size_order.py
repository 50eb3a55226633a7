"""Order of sizes with rounded quotients: ``onnx_aot/torch_compat/size_order.py``."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F  # noqa: N812
from sympy.logic.boolalg import Boolean
from torch import Tensor, nn
from torch.utils._sympy.functions import (
    CeilToInt,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    OpaqueUnaryFn_log2,
    PowByNatural,
    PythonMod,
    ToFloat,
)

import onnx_aot
from onnx_aot.torch_compat.size_order import decide_order
from tests.tolerances import assert_close
from tests.torch_compat.without import SHAPES, absent, shows

N, M = sympy.symbols("n m", integer=True, positive=True)
OPERATORS = {
    sympy.Le: operator.le,
    sympy.Lt: operator.lt,
    sympy.Ge: operator.ge,
    sympy.Gt: operator.gt,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
}
RELATIONS = tuple(OPERATORS)


def up(size: Any, multiple: int) -> Any:
    """The smallest multiple that is at least the size."""
    return multiple * FloorDiv(size + multiple - 1, multiple)


@pytest.mark.parametrize(
    ("relation", "answer"),
    [
        (up(N, 8) >= N, True),
        (up(N, 8) < N, False),
        (up(N, 8) > N, None),  # differs at multiples of 8
        (up(N, 8) < N + 8, True),
        (sympy.Eq(up(N, 8), N + 8, evaluate=False), False),
        (sympy.Ne(up(N, 8), N - 1, evaluate=False), True),
        (sympy.Eq(up(N, 8), N, evaluate=False), None),
        (8 * FloorDiv(N, 8) <= N, True),
        (FloorDiv(N, 8) < FloorDiv(N, 4) + 1, True),
        (4 * CeilToInt(IntTrueDiv(N, 4)) >= N, True),
        (4 * FloorToInt(IntTrueDiv(N, 4)) > N, False),
        (up(up(N, 4), 8) >= N, True),
        (N + PythonMod(-N, 8) >= N, True),
        (FloorDiv(N + PythonMod(-N, 8), 8) * 8 < N, False),
        (sympy.Eq(FloorDiv(N + PythonMod(-N, 8), 8) * 8, N - 1, evaluate=False), False),
        (3 * FloorDiv(FloorDiv(N, 8) + 1, 3) <= FloorDiv(N, 8) + 1, True),  # the inner one cancels
        (FloorDiv(N + 5, 2) <= N + 2, True),  # above -1, and an integer
        (PythonMod(N, 8) < 8, True),
        (PythonMod(N, M) < M, None),
        (up(N, 8) + up(M, 4) >= N + M, True),
        (sympy.And(up(N, 8) >= N, up(M, 4) < M + 4), True),
        (sympy.And(up(N, 8) > N, up(M, 4) < M), False),
        (FloorDiv(N, M) <= N, None),  # only numbers divide
        (N * FloorDiv(M, 2) <= N * M, None),
        (sympy.Or(up(N, 8) >= N, N > 4), None),
        (sympy.Ge(FloorDiv(N, 2), 1, evaluate=False), None),
    ],
)
def test_answer(relation: Boolean, answer: bool | None) -> None:
    assert decide_order(relation, {N: 1, M: 1}) is answer


def power(rounding: Any, size: Any, added: float = 0.0) -> Any:
    """The power of two that a rounded logarithm gives."""
    logarithm = OpaqueUnaryFn_log2(ToFloat(Max(1, size)))
    return PowByNatural(sympy.Integer(2), rounding(logarithm + added if added else logarithm))


SINGLE = 2.0**-20
Z = sympy.Symbol("z", integer=True, nonnegative=True)


@pytest.mark.parametrize(
    ("relation", "least", "answer"),
    [
        (power(CeilToInt, Z) >= Z, 0, True),
        (power(CeilToInt, Z) < Z, 0, False),
        (power(CeilToInt, N) > N, 1, None),  # differs at powers of two
        (power(CeilToInt, 2 * N - 1) >= N, 1, True),
        (power(CeilToInt, 2 * N - 1, -SINGLE) >= N, 1, True),
        (power(CeilToInt, 2 * N - 1, -SINGLE) > N, 2, True),
        (power(CeilToInt, N, -SINGLE) >= N, 1, None),  # not at 2**21 + 1
        (power(CeilToInt, N) < 2 * N, 1, True),
        (power(CeilToInt, Z) < 2 * Z, 0, None),
        (power(FloorToInt, N) <= N, 1, True),
        (power(FloorToInt, Z) <= Z, 0, None),  # 1 at size 0
        (power(FloorToInt, N, SINGLE) <= N, 1, None),  # not at 2**22 - 1
        (2 * power(FloorToInt, N) > N, 1, True),
        (FloorDiv(N, 2) <= power(CeilToInt, N), 1, True),
        (8 * power(CeilToInt, FloorDiv(N + 7, 8)) >= N, 1, True),
        (power(CeilToInt, N) <= 4, 1, None),
        (PowByNatural(sympy.Integer(3), N) >= N, 1, None),
        (PowByNatural(sympy.Integer(2), CeilToInt(IntTrueDiv(N, 3))) >= N, 1, None),
    ],
)
def test_powers_of_two(relation: Boolean, least: int, answer: bool | None) -> None:
    (symbol,) = relation.free_symbols
    assert decide_order(relation, {symbol: least}) is answer
    if answer is not None:
        for n in (*range(least, 40), 2**20 + 1, 2**21 + 1, 2**22 - 1):
            assert bool(relation.xreplace({symbol: sympy.Integer(n)})) == answer


def test_limits_of_symbols() -> None:
    relation = FloorDiv(N, 2) >= 2
    assert decide_order(relation, {N: 3}) is None  # n // 2 is at least (n - 1) / 2, and so 1
    assert decide_order(relation, {N: 4}) is True
    assert decide_order(relation, {}) is None


def _drawn_term(draw: random.Random, depth: int = 2) -> Any:
    term = draw.choice((N, M, N + M, 2 * N - M)) + draw.randint(-9, 9)
    for _ in range(draw.randint(0, depth)):
        divisor = draw.choice((2, 3, 4, 8))
        rounded = draw.choice(
            (
                FloorDiv(term, divisor),
                CeilToInt(IntTrueDiv(term, divisor)),
                FloorToInt(IntTrueDiv(term, divisor)),
                PythonMod(term, divisor),
            )
        )
        term = draw.choice((1, -1, divisor)) * rounded + draw.choice((0, 0, N, -M))
    return term


def _compile(term: Any) -> Callable[[int, int], int]:
    """Returns a function of ``n`` and ``m`` that computes a term with Python's integers."""
    if term.is_Symbol:
        return (lambda n, m: n) if term == N else (lambda n, m: m)
    if term.is_Number:
        number = int(term)
        return lambda n, m: number
    if isinstance(term, (CeilToInt, FloorToInt)):
        base, divisor = map(_compile, term.args[0].args)
        if isinstance(term, FloorToInt):
            return lambda n, m: base(n, m) // divisor(n, m)
        return lambda n, m: -(-base(n, m) // divisor(n, m))
    parts = [_compile(part) for part in term.args]
    if isinstance(term, FloorDiv):
        return lambda n, m: parts[0](n, m) // parts[1](n, m)
    if isinstance(term, PythonMod):
        return lambda n, m: parts[0](n, m) % parts[1](n, m)
    combine = sum if term.is_Add else math.prod
    return lambda n, m: combine(part(n, m) for part in parts)


def test_answers_hold_for_all_values() -> None:
    draw, answers = random.Random(0), []
    for _ in range(500):
        relation = draw.choice(RELATIONS)(_drawn_term(draw), _drawn_term(draw), evaluate=False)
        least = draw.randint(1, 6)
        answer = decide_order(relation, {N: least, M: 1})
        answers.append(answer)
        if answer is None or not relation.free_symbols:
            continue
        compare = OPERATORS[relation.func]
        left, right = map(_compile, relation.args)
        for n, m in itertools.product(range(least, least + 18), range(1, 19)):
            assert compare(left(n, m), right(n, m)) is answer, (relation, n, m)
    assert min(answers.count(True), answers.count(False)) > 50


class Padded(nn.Module):
    """Layers that pad to a multiple, and crop the result, as window attention does."""

    def forward(self, x: Tensor) -> Tensor:
        for multiple in (4, 8, 4):
            n = x.shape[0]
            y = F.pad(x, (0, 0, 0, -n % multiple))
            x = (y.reshape(-1, multiple, 3).flip(1) + 1).reshape(-1, 3)[:n]
        return x


def shape_of_padded() -> str:
    """The shape of the result; right at several lengths."""
    model = Padded()
    program = onnx_aot.export(model, (torch.rand(10, 3),), dynamic_shapes=({0: "n"},))
    for n in (10, 1, 3, 7, 8, 16, 21):
        x = torch.rand(n, 3)
        assert_close(program(x)[0], model(x))
    return str(program.model.graph.outputs[0].shape)


@shows(f"{SHAPES}:_maybe_evaluate_static_worker")
def test_a_padded_and_cropped_size_is_the_size() -> None:
    assert shape_of_padded() == "[n,3]"
    with absent(f"{SHAPES}:_maybe_evaluate_static_worker"):
        assert "min(" in shape_of_padded()


class Squeezed(nn.Module):
    """Frames in pairs; as many as the data says, without the last one if they are odd."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        frames = torch.arange(int(lengths.max()), dtype=x.dtype) * x[..., None]
        half = frames.shape[2] // 2
        pairs = frames[:, :, : 2 * half].view(x.shape[0], 3, half, 2)
        return pairs.permute(0, 3, 1, 2).contiguous().view(x.shape[0], 6, half)


def test_a_length_of_data_is_cropped_to_a_multiple() -> None:
    model = Squeezed()
    program = onnx_aot.export(
        model, (torch.rand(1, 3), torch.tensor([7])), dynamic_shapes=({0: "n"}, {0: "n"})
    )
    for lengths in ([7], [8, 3], [1], [0], [2, 1, 2]):
        given = torch.rand(len(lengths), 3), torch.tensor(lengths)
        assert_close(program(*given)[0], model(*given))
    assert "Min(" not in str(program.exported_program)  # torch asks if it is above 2 elsewhere
