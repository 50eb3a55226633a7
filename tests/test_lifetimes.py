"""An export keeps no part of the model alive, whether it fails or not."""

# ruff: noqa: ARG004  the methods have the parameters that torch gives them

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import onnx_aot
from onnx_aot.capture.patches.autograd_functions import kept_functions
from onnx_aot.errors import CaptureError, ConversionError
from onnx_aot.torch_ops.function_calls import CALLS
from onnx_aot.torch_ops.scripted_model import RECORDED

X = torch.randn(4, 3)


class Settings:
    """An argument that is not a tensor."""


class Scale(torch.autograd.Function):
    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, settings: Settings) -> Any:
        return g.op("Mul", x, weight)

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, settings: Settings) -> Tensor:
        return x * weight


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.settings = Settings()

    def forward(self, x: Tensor) -> Tensor:
        return Scale.apply(x, self.weight, self.settings)


class Unrolled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.linear(x)
        return x


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(Unrolled())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([4, 2], device=x.device)
        output, _ = self.layer(pack_padded_sequence(x.unsqueeze(1).expand(-1, 2, -1), lengths))
        return pad_packed_sequence(output)[0]


class Refused(nn.Module):
    """Branches on data after the part under test."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x)
        return y if y.sum() > 0 else x.long()


def _held_objects(model: nn.Module) -> Iterator[weakref.ref[Any]]:
    for part in model.modules():
        yield weakref.ref(part)
        if isinstance(part, Scaled):
            yield weakref.ref(part.settings)
    for parameter in model.parameters():
        yield weakref.ref(parameter)


def _export(make: Callable[[], nn.Module]) -> list[weakref.ref[Any]]:
    model = make().eval()
    held = list(_held_objects(model))
    try:
        program = onnx_aot.export(model, (X,), verify=True)
    except CaptureError:
        return held
    graph = program.exported_program.graph_module
    return [*held, weakref.ref(program), weakref.ref(program.exported_program), weakref.ref(graph)]


PARTS = (Scaled, Scripted, Packed)


def _refused(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Refused(part())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_nothing_of_the_model_is_alive(part: Callable[[], nn.Module], fails: bool) -> None:
    calls, recorded = len(CALLS), len(RECORDED)
    held = _export(_refused(part) if fails else part)
    gc.collect()
    assert [kept for ref in held if (kept := ref()) is not None] == []
    assert (len(CALLS), len(RECORDED)) == (calls, recorded)


def test_a_program_keeps_its_calls_and_their_class() -> None:
    def program() -> onnx_aot.ONNXProgram:
        class Local(torch.autograd.Function):
            @staticmethod
            def symbolic(g: Any, x: Any, slope: float) -> Any:
                return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(slope)))

            @staticmethod
            def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
                return x * slope

        return onnx_aot.export(lambda x: Local.apply(x, 3.0), (X,))

    made = program()
    gc.collect()
    assert [node.op_type for node in onnx_aot.export(made.exported_program).model.graph] == ["Mul"]
    torch.testing.assert_close(made.exported_program.module()(X), X * 3)
    (kept,) = (one for one in kept_functions() if one.function.__name__ == "Local")
    function, target = weakref.ref(kept.function), kept.target.name()
    del made, kept
    gc.collect()
    assert function() is None
    assert target.partition("::")[2] not in vars(torch.ops.autograd_functions)


class Times(torch.autograd.Function):
    @staticmethod
    def symbolic(g: Any, x: Any, factor: Any) -> Any:
        value = factor.factor if isinstance(factor, Factor) else factor
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(value)))

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Any) -> Tensor:
        return x * (factor.factor if isinstance(factor, Factor) else factor)


class Factor:
    def __init__(self, factor: float) -> None:
        self.factor = factor


def test_a_program_that_was_saved_keeps_numbers(tmp_path: Path) -> None:
    program = onnx_aot.export(lambda x: Times.apply(x, 3.0), (X,))
    torch.export.save(program.exported_program, tmp_path / "times.pt2")
    del program
    gc.collect()
    other = onnx_aot.export(lambda x: Times.apply(x, 10.0), (X,))
    loaded = torch.export.load(tmp_path / "times.pt2")
    torch.testing.assert_close(onnx_aot.export(loaded)(X)[0], X * 3)
    torch.testing.assert_close(other(X)[0], X * 10)


def test_objects_that_are_gone_are_an_error(tmp_path: Path) -> None:
    factor = Factor(3.0)
    program = onnx_aot.export(lambda x: Times.apply(x, factor), (X,))
    torch.export.save(program.exported_program, tmp_path / "times.pt2")
    del program
    gc.collect()
    other = onnx_aot.export(lambda x: Times.apply(x, Factor(10.0)), (X,))
    loaded = torch.export.load(tmp_path / "times.pt2")
    with pytest.raises(ConversionError, match=r"Times.* are gone.* Keep it, or export"):
        onnx_aot.export(loaded)
    torch.testing.assert_close(other(X)[0], X * 10)


def test_a_program_does_not_keep_the_model() -> None:
    model = Scaled().eval()
    program, reference = onnx_aot.export(model, (X,)), weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert program(X)[0].shape == X.shape


def test_torch_has_nothing_of_this_package_on_its_objects() -> None:
    """Attributes of torch's sets, sizes and tensors are unchanged."""
    from torch.fx.experimental import symbolic_shapes

    files = set(symbolic_shapes.uninteresting_files())
    program = onnx_aot.export(Packed().eval(), (X,))
    assert symbolic_shapes.uninteresting_files() == files
    for node in program.exported_program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            assert not [name for name in vars(value) if name.startswith("onnx_aot")]
            environment = value.fake_mode.shape_env
            assert not [name for name in vars(environment) if name.startswith("onnx_aot")]
