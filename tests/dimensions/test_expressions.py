"""Text of expressions: names, precedence, and equality with the value that Python computes."""

from __future__ import annotations

import math

import pytest
import sympy
from torch.utils._sympy import functions

from onnx_aot.dimensions.expressions import Texts, is_identifier

N, M = (sympy.Symbol(name, integer=True) for name in ("s0", "s1"))
NAMES = {"s0": "n", "s1": "m"}
SCOPE = {"ceil": math.ceil, "floor": math.floor, "trunc": math.trunc}


@pytest.mark.parametrize(
    "expression",
    [
        functions.FloorDiv(functions.FloorDiv(N, 2) + M, 3),
        functions.FloorDiv(N * 7, functions.FloorDiv(M, 2)),
        functions.Mod(functions.FloorDiv(N, 2) * M, 5),
        -functions.FloorDiv(N - M, 2),
        (N - M) * (M - 3) ** 2,
        functions.Max(N - M, 2 * M, 3) - functions.Min(N, M),
        functions.PowByNatural(N + 1, 2) - 1,
        functions.CeilToInt(functions.IntTrueDiv(N, M + 1)),
    ],
    ids=str,
)
def test_python_computes_what_the_expression_does(expression: sympy.Expr) -> None:
    text = Texts(NAMES.__getitem__).text(expression)
    for n, m in ((13, 7), (4, 9), (100, 3)):
        wanted = expression.xreplace({N: sympy.Integer(n), M: sympy.Integer(m)})
        assert eval(text, {**SCOPE, "n": n, "m": m}) == wanted, text


def test_a_subexpression_is_written_once() -> None:
    asked = []

    def name_of(symbol: str) -> str:
        asked.append(symbol)
        return NAMES[symbol]

    texts = Texts(name_of)
    assert texts.text(functions.FloorDiv(N, 2) + functions.Mod(N, 3)) == "n % 3 + n//2"
    assert texts.text(N + 1) == "n + 1"
    assert asked == ["s0"]


def test_identifiers_are_no_functions_or_keywords() -> None:
    assert all(map(is_identifier, ("batch", "größe", "n2")))
    assert not any(map(is_identifier, ("max", "ceil", "sqrt", "if", "2n", "seq len", "")))
