from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError
from onnx_aot.torch_compat import aten, prims
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

Tensor = torch.Tensor

C = numbers("n", "m")
D = numbers("n", "m")
INFINITE = T((2, 2), torch.complex64, lambda *sizes: torch.full(sizes, complex(math.inf, 1)))
REAL = floats("n", "m")
UNUSUAL = torch.complex(
    torch.tensor([math.nan, 1.0, math.inf, -math.inf, math.nan, 2.0]),
    torch.tensor([2.0, math.nan, -1.0, math.inf, -math.inf, -0.5]),
)

UNARY = [
    aten._conj_physical.default,
    aten.abs.default,
    aten.acos.default,
    aten.acosh.default,
    aten.angle.default,
    aten.asin.default,
    aten.asinh.default,
    aten.atan.default,
    aten.atanh.default,
    aten.cos.default,
    aten.cosh.default,
    aten.exp.default,
    aten.exp2.default,
    aten.expm1.default,
    aten.isfinite.default,
    aten.isinf.default,
    aten.isnan.default,
    aten.log.default,
    aten.log10.default,
    aten.log1p.default,
    aten.log2.default,
    aten.neg.default,
    aten.reciprocal.default,
    aten.rsqrt.default,
    aten.sgn.default,
    aten.sigmoid.default,
    aten.silu.default,
    aten.sin.default,
    aten.sinh.default,
    aten.sqrt.default,
    aten.square.default,
    aten.tan.default,
    aten.tanh.default,
    aten.all.default,
    aten.any.default,
    aten.sum.default,
    aten.std.default,
    aten.var.default,
]

ROWS = [
    # torch reads the number of elements as a number, which specializes dynamic dimensions
    Row(aten.mean.default, (numbers(4, 6),)),
    *(Row(target, (C,)) for target in UNARY),
    *(
        Row(target, (numbers("n", dtype=torch.complex128),), name="double")
        for target in (aten.exp.default, aten.sqrt.default, aten.abs.default, aten.log.default)
    ),
    *(
        Row(target, operands, name=name)
        for target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
        for name, operands in {
            "two": (C, D),
            "broadcast": (C, numbers("m")),
            "real": (C, REAL),
            "real first": (REAL, C),
            "integers": (C, ints("m", low=1)),
        }.items()
    ),
    Row(aten.add.Tensor, (C, D), {"alpha": 2j}),
    Row(aten.mul.Tensor, (C, 2 - 3j), call=lambda x, y: x * y),
    Row(aten.div.Tensor, (C, 2 - 3j), call=lambda x, y: x / y),
    Row(aten.rsub.Scalar, (C, 1.5 + 1j)),
    *(
        Row(aten.div.Tensor_mode, operands, {"rounding_mode": None}, name=name)
        for name, operands in {"two": (C, D), "real": (C, REAL), "real first": (REAL, C)}.items()
    ),
    Row(aten.div.Scalar_mode, (C, 2 - 3j), {"rounding_mode": None}),
    Row(aten.addcmul.default, (C, D, numbers("m")), {"value": 0.5}),
    Row(aten.addcdiv.default, (C, D, numbers("m"))),
    Row(aten.addbmm.default, (C, numbers(3, "n", 4), numbers(3, 4, "m")), {"alpha": 2j}),
    Row(aten.addbmm.default, (INFINITE, numbers(3, 2, 4), numbers(3, 4, 2)), {"beta": 0}),
    Row(aten.lerp.Scalar, (C, D, 0.25)),
    Row(aten.lerp.Tensor, (C, D, numbers("m", size=0.5))),
    *(Row(aten.pow.Tensor_Scalar, (C, number)) for number in (0, 0.5, 2, -3, 1.7, 1 + 2j)),
    Row(aten.pow.Tensor_Tensor, (C, D)),
    Row(aten.pow.Scalar, (2, C)),
    Row(aten.logaddexp.default, (C, D)),
    Row(aten.complex.default, (REAL, floats("m"))),
    Row(aten.polar.default, (REAL, floats("n", "m"))),
    Row(aten.view_as_real.default, (C,)),
    Row(aten.view_as_complex.default, (floats("n", "m", 2),)),
    *(
        Row(aten.view.dtype, (x, dtype), name=f"{x.dtype} {x.sizes} {dtype}", sizes=({"n": 0},))
        for x, dtype in (
            (C, torch.float32),
            (C, torch.int64),
            (numbers("n", 2), torch.complex128),
            (numbers("n", "m", dtype=torch.complex128), torch.complex64),
            (floats("n", 4), torch.complex64),
            (floats("n", 4, dtype=torch.float64), torch.complex64),
            (numbers(), torch.int64),
            (floats(dtype=torch.float64), torch.complex64),
        )
    ),
    Row(aten.resolve_conj.default, (C,)),
    Row(aten._conj.default, (C,), call=lambda x: x.conj() + 1),
    Row(aten.conj.default, (C,), call=lambda x: aten.conj(x) + 1),
    Row(aten.conj_physical.default, (C,)),
    Row(prims.conj.default, (C,)),
    Row(prims.conj_physical.default, (C,)),
    Row(prims.real.default, (C,)),
    Row(prims.imag.default, (C,)),
    Row(prims.convert_element_type.default, (C, torch.complex128)),
    Row(aten.real.default, (C,)),
    Row(aten.imag.default, (C,)),
    Row(aten.view_as_real_copy.default, (C,)),
    Row(aten.view_as_complex_copy.default, (floats("n", "m", 2),)),
    Row(aten.isreal.default, (C,)),
    *(
        Row(aten.nan_to_num.default, (unusual, *rest), name=f"{dtype} {rest}")
        for dtype in (torch.complex64, torch.complex128)
        for rest in ((), (1.5, 2.0, -3.0), (None, math.inf))
        for unusual in (T((6,), dtype, lambda *_: UNUSUAL),)
    ),
    Row(aten.nan_to_num.default, (C,), name="dynamic", sizes=({"n": 0},)),
    Row(aten.eq.Tensor, (C, C)),
    Row(aten.ne.Tensor, (C, D)),
    Row(aten.eq.Scalar, (C, 1.0)),
    Row(aten.logical_and.default, (C, D)),
    Row(aten.sum.dim_IntList, (C, [0])),
    Row(aten.cumsum.default, (C, 1)),
    Row(aten.var_mean.correction, (numbers(4, 6), [1]), {"correction": 0}),
    Row(aten.std_mean.correction, (numbers(4, 6), [1]), {"correction": 1}),
    Row(aten.linalg_vector_norm.default, (C, 2, [1])),
    Row(aten.to.dtype, (C, torch.complex128)),
    Row(aten.to.dtype, (REAL, torch.complex64), name="from real"),
    Row(aten.to.dtype, (C, torch.bool), name="to bool"),
    Row(aten.cat.default, ([C, REAL],)),
    Row(aten.stack.default, ([C, D], 1)),
    Row(aten.where.self, (bools("n", "m"), C, REAL)),
    Row(aten.masked_fill.Scalar, (C, bools("n", "m"), 2.5)),
    Row(aten.index.Tensor, (C, [ints("k", low=0, high=1)])),
    Row(aten.permute.default, (C, [1, 0])),
    Row(aten.reshape.default, (C, [-1])),
    Row(aten.unbind.int, (numbers(3, "m"),)),
    Row(aten.pad.default, (C, [1, 2], "constant", 1.5)),
    Row(aten.ones_like.default, (C,)),
    Row(aten.zeros_like.default, (C,)),
    Row(aten.full.default, ([2, 3], 2 + 1j)),
    Row(aten.matmul.default, (numbers("n", "m"), numbers("m", "k"))),
    Row(aten.linear.default, (numbers("n", 4), numbers(3, 4), numbers(3))),
    Row(aten.conv1d.default, (numbers("n", 2, "h"), numbers(3, 2, 3), numbers(3))),
    Row(
        aten.conv2d.default,
        (floats(2, 2, 6, 6), numbers(3, 2, 3, 3)),
        call=lambda x, w: torch.nn.functional.conv2d(x.to(torch.complex64), w),
    ),
]


@parametrize(ROWS)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_rows(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(
    "function",
    [
        torch.sqrt,
        torch.abs,
        torch.exp,
        torch.log,
        torch.asin,
        torch.acos,
        torch.atan,
        torch.tanh,
        torch.sgn,
        torch.reciprocal,
        lambda x: x * (1 / x),
    ],
)
def test_axes_branch_cuts_and_sizes(function: Callable[[Tensor], Tensor]) -> None:
    """Numbers on the axes and far from 0."""
    parts = torch.tensor([-30.0, -2.0, -0.5, 0.5, 2.0, 30.0, 1e-3])
    x = torch.cat([parts + 0j, parts * 1j, (parts[:, None] + 1j * parts).flatten()])
    program = onnx_aot.export(function, (x,), verify=True)
    assert program.model.graph.inputs[0].shape == [len(x), 2]


def test_no_overflow() -> None:
    """Squares of these numbers overflow or underflow in single precision."""
    x = torch.tensor([3e30 + 4e30j, 3e-30 + 4e-30j, 0j, complex(float("inf"), 1)])
    (size,) = onnx_aot.export(torch.abs, (x,))(x)
    torch.testing.assert_close(size, torch.tensor([5e30, 5e-30, 0.0, float("inf")]))
    (ratio,) = onnx_aot.export(lambda x: x / x, (x[:2],))(x[:2])
    torch.testing.assert_close(ratio, torch.ones(2, dtype=torch.complex64))


class Rotation(torch.nn.Module):
    """Rotary embedding with a complex buffer, as in LLaMA's original code."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(16.0), 1e4 ** -(torch.arange(4.0) / 4))
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.rotations[: x.shape[1]]
        return torch.view_as_real(turned).flatten(-2)


def test_rotary_embedding() -> None:
    model, x = Rotation(), torch.randn(2, 5, 8)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "batch", 1: "sequence"},))
    weights = [v for v in program.model.graph.initializers.values() if "rotations" in v.name]
    assert sum(math.prod(v.shape) for v in weights) == 16 * 4 * 2  # whole, or split into two parts
    longer = torch.randn(3, 11, 8)
    torch.testing.assert_close(program(longer)[0], model(longer))
    model.rotations = model.rotations.conj()
    program.apply_weights({"rotations": model.rotations})
    torch.testing.assert_close(program(longer)[0], model(longer))


def test_inputs_and_outputs() -> None:
    """The model has separate parts; calls use complex tensors and reject other types."""
    x = torch.randn(3, dtype=torch.complex64)
    program = onnx_aot.export(lambda x: (x * 2j, x.imag), (x,))
    inputs, outputs = program.model.graph.inputs, program.model.graph.outputs
    assert [list(v.shape) for v in (*inputs, *outputs)] == [[3, 2], [3, 2], [3]]
    assert inputs[0].metadata_props["pkg.onnx_aot.complex"] == "complex64"
    doubled, imaginary = program(x)
    torch.testing.assert_close(doubled, x * 2j)
    torch.testing.assert_close(imaginary, x.imag)
    with pytest.raises(InferenceError, match=r"input x is torch.complex64 in the model"):
        program(x.to(torch.complex128))


def test_real_graphs_have_no_parts() -> None:
    def model(x: Tensor) -> Any:
        return torch.complex(x, x.exp()).real * 2

    x = torch.randn(3)
    program = onnx_aot.export(model, (x,))
    assert [node.op_type for node in program.model.graph] == ["Mul"]
