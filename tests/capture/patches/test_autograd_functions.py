"""``torch.autograd.Function`` with and without a static method ``symbolic``."""

# ruff: noqa: ARG004  the methods have the parameters that torch gives them

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import onnx_aot
from onnx_aot.capture.patches.autograd_functions import _functions_with_symbolic

Tensor = torch.Tensor
Function = torch.autograd.Function
X = torch.randn(4, 3)


def exported(function: Any, *args: Any, **options: Any) -> onnx_aot.ONNXProgram:
    """Returns a checked ONNX program of the function, with axis 0 of the input dynamic."""
    program = onnx_aot.export(function, args or (X,), dynamic_shapes=({0: "n"},), **options)
    assert "apply" not in vars(Function.__base__)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def operators(program: onnx_aot.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def same(program: onnx_aot.ONNXProgram, function: Any) -> None:
    x = torch.randn(7, 3)
    torch.testing.assert_close(program(x)[0], function(x))


class Steep(Function):
    @staticmethod
    def symbolic(g: Any, x: Any, slope: float) -> Any:
        assert (x.type().dim(), x.type().sizes(), x.type().dtype()) == (
            2,
            [None, 3],
            torch.float32,
        )
        y = g.op("Relu", x)
        y.setType(x.type().with_dtype(torch.float32))
        return g.op("Mul", y, g.op("Constant", value_t=torch.tensor(slope)))

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0) * slope


def test_the_method_says_what_a_call_becomes() -> None:
    def steep(x: Tensor) -> Tensor:
        return Steep.apply(x, 2.0) + Steep.apply(x, 3.0)

    program = exported(steep, optimize=False)
    assert operators(program) == ["Relu", "Mul", "Relu", "Mul", "Add"]
    same(program, steep)
    assert steep(X).shape == X.shape  # eager code is unaffected
    assert operators(onnx_aot.export(program.exported_program)) == ["Relu", "Mul", "Mul", "Add"]


class Setup(Function):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("onnx::Tanh", x)

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)


def test_the_newer_form_of_forward() -> None:
    program = exported(Setup.apply)
    assert operators(program) == ["Tanh"]
    same(program, Setup.apply)


class Many(Function):
    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, size: Any, names: Any, flag: bool, no: Any) -> Any:
        assert (flag, no) == (True, None)
        outputs = g.op(
            "my.domain::Many",
            x,
            weight,
            size,
            names_s=names,
            axes_i=(0, 1),
            by_f=2,
            none_i=None,
            outputs=2,
        )
        return outputs[0], outputs[1]

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, size: int, names: Any, flag: bool, no: None
    ) -> tuple[Tensor, Tensor, str]:
        ctx.mark_non_differentiable(x)
        return x * size, (weight + 1).sum(0), "text"


class UsesMany(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        a, b, text = Many.apply(x, self.weight, x.shape[0], ["p", "q"], True, None)
        assert text == "text"
        return a + b


def test_everything_at_once() -> None:
    program = exported(UsesMany(), custom_opsets={"my.domain": 2})
    (node,) = (n for n in program.model.graph if n.domain)
    assert {name: a.value for name, a in node.attributes.items()} == {
        "names": ("p", "q"),
        "axes": (0, 1),
        "by": 2.0,
    }
    assert (len(node.inputs), [str(v.shape) for v in node.outputs]) == (3, ["[n,3]", "[3]"])
    assert program.model.opset_imports == {"": 20, "my.domain": 2}


class Itself(Function):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Identity", x)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)


def test_what_forward_shares_with_its_argument() -> None:
    def written(x: Tensor) -> Tensor:
        y = Itself.apply(x.clone())
        return y.add_(1)

    same(exported(written), written)


class Dirty(Function):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        raise AssertionError("a function that writes to its arguments is looked into")

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)


class Plain(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize("function", [Dirty, Plain])
def test_functions_that_are_looked_into(function: Any) -> None:
    def called(x: Tensor) -> Tensor:
        y = x.clone()
        return function.apply(y) + y

    same(exported(called), called)


class Compiled(Function):
    """Stands for a function that calls compiled code."""

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Tanh", x)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.from_numpy(np.tanh(np.frombuffer(x.numpy().tobytes()).reshape(x.shape)))

    @staticmethod
    def fake(x: Tensor) -> Tensor:
        return torch.empty_like(x)


def test_a_forward_that_cannot_run_without_values() -> None:
    x = torch.randn(4, 3, dtype=torch.float64)
    program = exported(Compiled.apply, x)
    assert operators(program) == ["Tanh"]
    torch.testing.assert_close(program(x)[0], Compiled.apply(x))


def broken(symbolic: Any) -> Any:
    return type("Broken", (Plain,), {"symbolic": staticmethod(symbolic)})


@pytest.mark.parametrize(
    ("symbolic", "problem"),
    [
        (lambda g, x: g.op("Relu", x, alpha=3), r"'alpha' must end in _i"),
        (lambda g, x: (x, x), r"2 values, forward returns 1"),
        (lambda g, x: g.at("relu", x), r"no attribute 'at'"),
    ],
)
def test_a_method_that_fails(symbolic: Any, problem: str) -> None:
    function = broken(symbolic).apply
    program = exported(function)
    (note,) = [note for note in program.report.notes if "symbolic failed" in note]
    assert re.search(rf"symbolic failed: .*{problem}.*forward was exported instead", note)
    assert operators(program) == ["Mul"]  # the operators of forward
    same(program, function)


def test_an_operator_that_the_opset_lacks() -> None:
    with pytest.raises(onnx_aot.errors.OpsetError, match=r"Swish does not exist in opset 20"):
        exported(broken(lambda g, x: g.op("Swish", x)).apply)


class Below(Plain):
    """A function that gets ``symbolic`` after captures have looked for it."""


class FarBelow(Below):
    pass


class Both(FarBelow, Plain):
    pass


def test_functions_are_found_however_they_get_symbolic() -> None:
    def found() -> list[Any]:
        ours = (Plain, Below, FarBelow, Both)
        return [cls for cls in _functions_with_symbolic() if cls in ours]

    assert found() == []
    Below.symbolic = staticmethod(lambda g, x: x)  # type: ignore[attr-defined]
    try:
        assert found() == [Both, FarBelow, Below]
    finally:
        del Below.symbolic  # type: ignore[attr-defined]
    assert found() == []
