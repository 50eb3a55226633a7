"""Types and shapes of every value, in the user's names."""

from __future__ import annotations

import json
import math
from typing import Any

import onnx_ir as ir
import pytest
import sympy
import torch
from torch.export import Dim
from torch.utils._sympy import functions

import onnx_aot
from onnx_aot.dimensions.symbols import Dimensions
from onnx_aot.errors import DynamicShapeError

Tensor = torch.Tensor
N, M, U = (sympy.Symbol(name, integer=True) for name in ("s77", "s27", "u0"))


def dimensions(**names: str) -> Dimensions:
    return Dimensions(names or {"s77": "n", "s27": "seq"})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (N, "n"),
        (U, "u0"),
        (2 * M + 1, "2*seq + 1"),
        (5 - N, "5 - n"),
        (-N, "-n"),
        (N * M, "n*seq"),
        (N**2 * M, "n**2*seq"),
        (N - M - 3, "n - seq - 3"),
        (N / 2, "n/2"),
        (functions.FloorDiv(N + 1, 2), "(n + 1)//2"),
        (3 * functions.FloorDiv(N, 2) + 1, "3*(n//2) + 1"),
        (functions.FloorDiv(M, functions.FloorDiv(N, 2)), "seq//(n//2)"),
        (functions.Max(1, U), "max(1, u0)"),
        (functions.Min(N, M - 3), "min(n, seq - 3)"),
        (functions.Mod(N * M, 4), "(n*seq) % 4"),
        (functions.PythonMod(N, 3), "n % 3"),
        (3 * functions.Mod(N, 2), "3*(n % 2)"),
        (functions.ModularIndexing(N, 2, 5), "(n//2) % 5"),
        (functions.CeilToInt(functions.IntTrueDiv(N, 3)), "ceil(n/3)"),
        (functions.FloorToInt(functions.FloatTrueDiv(N, 3)), "floor(n/3)"),
        (functions.TruncToInt(0.5 * functions.ToFloat(N)), "trunc(0.5*n)"),
        (functions.RoundToInt(0.3 * functions.ToFloat(N)), "round(0.3*n)"),
        (functions.Where(N > 3, N, M), "n if n > 3 else seq"),
        (functions.PowByNatural(N, 2), "n**2"),
        (functions.LShift(N, 2), "4*n"),
        (functions.RShift(N, 1), "n//2"),
        (functions.CeilDiv(N, 4), "(n + 3)//4"),
        (functions.OpaqueUnaryFn_sqrt(N), "sqrt(n)"),
        (functions.BitwiseFn_bitwise_and(N, 1), "n & 1"),
        (abs(N - 3), "abs(n - 3)"),
        (sympy.And(N > 2, sympy.Or(M < 3, U > 2)), "(seq < 3 or u0 > 2) and n > 2"),
        (sympy.Eq(N, M), "n == seq"),
        (sympy.Not(sympy.Eq(N % 2, 0)), "n % 2 != 0"),
    ],
    ids=str,
)
def test_expressions_are_readable(expression: Any, text: str) -> None:
    assert dimensions().text(expression) == text


def test_equal_sizes_have_one_text() -> None:
    known = dimensions()
    assert known.of_expression(2 * (N + 1)) == known.of_expression(2 * N + 2) == "2*n + 2"
    assert known.of_expression(N * (M + 1)) == known.of_expression(N * M + N)
    assert known.of_expression(N + 3 - N) == 3


def test_different_sizes_have_different_texts() -> None:
    known = dimensions()
    parts = [N, M, 2 * N, N + 1, functions.FloorDiv(N, 2), functions.FloorDiv(N + M, 2)]
    parts += [functions.FloorDiv(p, 3) * 2 for p in parts] + [functions.Mod(p, 5) for p in parts]
    parts += [p * M for p in parts] + [p - M for p in parts] + [functions.Max(p, 2) for p in parts]
    expressions = {sympy.sympify(part).expand() for part in parts}
    texts = {str(known.of_expression(expression)) for expression in expressions}
    assert len(texts) == len(expressions)
    for expression in expressions:  # the text is Python code with the value of the expression
        size = known.of_expression(expression)
        if isinstance(size, ir.SymbolicDim):
            values = {N: 13, M: 7}
            scope = {"max": max, "n": 13, "seq": 7}
            assert eval(str(size.value), scope) == expression.xreplace(values)


def test_symbols_of_the_capture_give_way_to_the_users_names() -> None:
    known = dimensions(s77="u0", s27="s5")
    assert [known.of_expression(symbol).value for symbol in (N, M, U)] == ["u0", "s5", "u0_"]
    unnamed = known.of_expression(sympy.Symbol("s5", integer=True))
    assert unnamed.value not in ("s5", "u0")


def test_symbols_with_one_name_cancel() -> None:
    other = sympy.Symbol("s5", integer=True)
    known = dimensions(s77="n", s27="seq", s5="n")
    assert known.of_expression(functions.FloorDiv(other * M, N)) == "seq"
    assert known.of_expression(functions.FloorDiv(N * M, other)) == "seq"
    assert known.of_expression(N - other + 2) == 2


def test_names_that_are_no_identifiers_stand_alone_as_they_are() -> None:
    known = dimensions(s77="batch size", s27="max")
    assert known.of_expression(N) == "batch size"
    assert known.of_expression(2 * N + M) == "2*batch_size + max_"
    assert known.of_expression(M) == "max"
    two = dimensions(s77="seq-len", s27="seq_len")
    assert two.of_expression(N + 2 * M) == "2*seq_len + seq_len_"
    digits = dimensions(s77="1d", s27="2-d")
    assert digits.of_expression(N + 2 * M) == "2*_2_d + _1d"


@pytest.mark.parametrize("name", ["batch", "batch size", "seq-len", "1d", "input.1", "größe"])
def test_names_that_are_accepted(name: str) -> None:
    program = onnx_aot.export(
        lambda x: torch.cat([x, x]), (torch.ones(3, 2),), dynamic_shapes=({0: name},)
    )
    assert program.model.graph.inputs[0].shape == (name, 2)
    assert program(torch.ones(5, 2))[0].shape == (10, 2)
    ranges = json.loads(program.model.graph.metadata_props["pkg.onnx_aot.dimensions"])
    assert list(ranges["dimensions"]) == [name]


@pytest.mark.parametrize("name", ["n*2", "2*n", "n + 1", "n // 2", "3", "max(n)", " n", "a if b"])
def test_names_that_look_like_sizes_are_refused(name: str) -> None:
    with pytest.raises(DynamicShapeError, match=r"x, axis 0 .* or an expression\. A name is"):
        onnx_aot.export(lambda x: x + 1, (torch.ones(3, 2),), dynamic_shapes=({0: name},))


def test_names_of_inputs_that_have_none() -> None:
    class Several(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor, z: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
            return x + y, z * scale, x.sum() + scale

    args = (torch.ones(3, 4), torch.ones(3, 4), torch.ones(5, dtype=torch.complex64))
    hint = Dim.DYNAMIC
    program = onnx_aot.export(
        Several(),
        (*args, torch.tensor(2.0)),
        dynamic_shapes=({0: hint}, {0: hint}, {0: hint}, {}),
        input_names=["first"],
    )
    shapes = [list(value.shape) for value in program.model.graph.inputs]
    assert shapes == [["first_dim_0", 4], ["first_dim_0", 4], ["z_dim_0", 2], []]


def test_a_number_among_the_inputs_names_its_size() -> None:
    program = onnx_aot.export(
        lambda x, k: x.expand(k, -1) + k,
        (torch.ones(1, 3), 4),
        dynamic_shapes=(None, Dim.DYNAMIC),
    )
    assert program.model.graph.outputs[0].shape == ("k", 3)
    assert program(torch.ones(1, 3), 6)[0].shape == (6, 3)


def test_a_quotient_of_a_size_without_a_lower_bound() -> None:
    """Python's ``-inf // 2`` is NaN."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        x = torch.nn.functional.pad(x, (0, 2 ** math.ceil(math.log2(n)) - n))
        halves = x.reshape(x.shape[0], x.shape[1] // 2, 2).mean(2)
        return halves.repeat_interleave(2, 1)[:, :n]

    lengths = torch.export.Dim("t", min=33, max=64)
    program = onnx_aot.export(forward, (torch.randn(2, 50),), dynamic_shapes=({1: lengths},))
    for length in (33, 50, 64):
        x = torch.randn(2, length)
        torch.testing.assert_close(program(x)[0], forward(x))
