"""Custom operators without a translation that are expanded by their Python functions."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.errors import UnsupportedOperatorError

Tensor = torch.Tensor
X = torch.randn(4, 3)


@torch.library.custom_op("onnx_aot_python::spike", mutates_args=())
def spike(current: Tensor, voltage: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """One step of a neuron that integrates its input and fires."""
    voltage = voltage + current
    fires = (voltage >= threshold).to(voltage)
    return fires, voltage - fires * threshold


@spike.register_fake
def _(current: Tensor, voltage: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(current), torch.empty_like(current)


@torch.library.custom_op("onnx_aot_python::twice_spiked", mutates_args=())
def twice_spiked(x: Tensor) -> Tensor:
    first, voltage = spike(x, torch.zeros_like(x), 0.5)
    return first + spike(x, voltage, 0.5)[0]


@twice_spiked.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("onnx_aot_python::in_numpy", mutates_args=())
def in_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@in_numpy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("onnx_aot_python::by_count", mutates_args=())
def by_count(x: Tensor) -> Tensor:
    return x * len(list(x))


@by_count.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("onnx_aot_python::filled", mutates_args={"x"})
def filled(x: Tensor) -> None:
    x.fill_(1)


@filled.register_fake
def _(x: Tensor) -> None:
    pass


torch.library.define("onnx_aot_python::shifted", "(Tensor x, float by) -> Tensor")
torch.library.define("onnx_aot_python::scaled.wide", "(Tensor x, *, float by=2.0) -> Tensor")
torch.library.define("onnx_aot_python::written", "(Tensor(a!) x) -> ()")


@torch.library.impl("onnx_aot_python::shifted", "default")
def _(x: Tensor, by: float) -> Tensor:
    return x + by


@torch.library.impl("onnx_aot_python::scaled.wide", "default")
def _(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


@torch.library.impl("onnx_aot_python::scaled.wide", "cpu")
def _(x: Tensor, *, by: float = 2.0) -> Tensor:
    return (x.double() * by).to(x.dtype)


@torch.library.impl("onnx_aot_python::written", "cpu")
def _(x: Tensor) -> None:
    x.fill_(1)


def fires_often(x: Tensor) -> Tensor:
    voltage, total = torch.zeros_like(x), torch.zeros_like(x)
    for _ in range(3):
        fires, voltage = spike(x, voltage, 1.0)
        total = total + fires
    return total + twice_spiked(x)


def test_the_function_is_traced() -> None:
    program = onnx_aot.export(fires_often, (X,), dynamic_shapes=({0: "n"},))
    for rows in (1, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(program(x)[0], fires_often(x))


def test_registered_functions_are_traced() -> None:
    def shift_and_scale(x: Tensor) -> Tensor:
        python = torch.ops.onnx_aot_python
        return python.scaled.wide(python.shifted(x, 0.5), by=3.0) + python.scaled.wide(x)

    program = onnx_aot.export(shift_and_scale, (X,), dynamic_shapes=({0: "n"},))
    for rows in (1, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(program(x)[0], shift_and_scale(x))


def test_the_function_for_the_processor_is_the_one_that_torch_calls() -> None:
    program = onnx_aot.export(torch.ops.onnx_aot_python.scaled.wide, (X,), optimize=False)
    assert [node.op_type for node in program.model.graph] == ["Cast", "Mul", "Cast"]


def test_a_translation_takes_precedence() -> None:
    table = {spike: lambda op, current, voltage, threshold: (op.Neg(current), voltage)}
    program = onnx_aot.export(lambda x: spike(x, x, 1.0)[0], (X,), custom_translation_table=table)
    assert [node.op_type for node in program.model.graph] == ["Neg"]


@pytest.mark.filterwarnings("ignore:1 operator:onnx_aot.OnnxExporterWarning")
def test_a_node_of_its_own_on_request() -> None:
    program = onnx_aot.export(twice_spiked, (X,), unsupported="emit")
    assert [node.domain for node in program.model.graph] == ["onnx_aot_python"]


@pytest.mark.parametrize("operator", [in_numpy, by_count])
def test_functions_that_cannot_be_traced(operator: torch.library.CustomOpDef) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"onnx_aot_python\.(in_numpy|by_count)"):
        onnx_aot.export(lambda x: operator(x) + 1, (X,), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("name", ["filled", "written"])
def test_functions_that_write_are_left_out(name: str) -> None:
    operator = getattr(torch.ops.onnx_aot_python, name)

    def writes(x: Tensor) -> Tensor:
        y = x + 1
        operator(y)
        return y

    with pytest.raises(UnsupportedOperatorError, match=rf"onnx_aot_python\.{name}"):
        onnx_aot.export(writes, (X,))
