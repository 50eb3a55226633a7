"""Folded weights: their location, the weights that they follow, and loads that are avoided."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import SaveError
from onnx_aot.ir_passes.cleanups import fold_batch_norm, fold_constants
from onnx_aot.ir_passes.lazy_tensor import FoldedTensor
from onnx_aot.serialization.serialize import model_bytes
from tests.tolerances import assert_close

SIZES = ((2, 7), (3, 5))


class Net(nn.Module):
    """Convolutions with batch normalization, and a layer on more than two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, groups=3)
        self.norm = nn.BatchNorm2d(6)
        self.up = nn.ConvTranspose2d(6, 4, 3, groups=2, bias=False)
        self.up_norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 5)
        self.out_norm = nn.BatchNorm1d(5)
        for tensor in self.buffers():
            if tensor.is_floating_point():
                nn.init.uniform_(tensor, 0.5, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.up_norm(self.up(self.norm(self.conv(x)).relu()))
        y = y.movedim(1, -1)
        return self.out(y), self.out_norm(self.out(y.mean((1, 2))))


def example(batch: int, side: int) -> Tensor:
    return torch.randn(batch, 3, side, side)


def exported(model: nn.Module, **options: Any) -> onnx_aot.ONNXProgram:
    shapes = ({0: "batch", 2: "h", 3: "w"},)
    return onnx_aot.export(model, (example(2, 7),), dynamic_shapes=shapes, **options)


def right(program: Any, model: nn.Module) -> None:
    for sizes in SIZES:
        x = example(*sizes)
        with torch.no_grad():
            for found, wanted in zip(program(x), model(x), strict=True):
                assert_close(found, wanted)


def operators(program: onnx_aot.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def folded(program: onnx_aot.ONNXProgram) -> list[str]:
    values = program.model.graph.initializers.values()
    return [str(v.name) for v in values if isinstance(v.const_value, FoldedTensor)]


def test_a_model_with_folded_weights_is_printed() -> None:
    """Small weights are printed with the graph."""
    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    program = onnx_aot.export(layers, (torch.ones(3, 2),))
    assert "FoldedTensor<FLOAT,[2]>(name=" in str(program.model.graph)


def test_batch_normalization_goes_into_the_weights() -> None:
    model = Net().eval()
    program = exported(model)
    assert "conv.weight_folded" in folded(program)
    assert "up.weight_folded" in folded(program)
    assert "BatchNormalization" not in operators(program)
    assert "conv.weight" not in program.model.graph.initializers
    right(program, model)


@pytest.mark.parametrize("optimize", [False, "safe", {"fold_constants"}])
def test_it_is_no_safe_optimization(optimize: Any) -> None:
    model = Net().eval()
    program = exported(model, optimize=optimize)
    assert operators(program).count("BatchNormalization") == 3
    right(program, model)


def test_weights_that_are_replaced_are_folded_again(tmp_path: Path) -> None:
    model, other = Net().eval(), Net().eval()
    program = exported(model)
    right(program, model)
    program.apply_weights(other.state_dict())
    right(program, other)
    path = tmp_path / "model.onnx"
    program.save(path, external_data=True)
    session = onnxruntime.InferenceSession(path)
    x = example(2, 7)
    with torch.no_grad():
        assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), other(x)[0])


def test_weights_that_the_user_named_stay() -> None:
    model = Net().eval()
    program = exported(model, input_names=["x", "kernel"])
    assert "kernel" in program.model.graph.initializers
    right(program, model)


def test_weights_that_are_inputs_stay() -> None:
    model = Net().eval()
    program = exported(model, weights_as_inputs=["conv.weight", "out.weight"])
    assert [v.name for v in program.model.graph.inputs] == ["x", "conv.weight", "out.weight"]
    assert not {"conv.weight_folded", "out.weight_folded"} & set(folded(program))
    right(program, model)


def test_weights_without_contents_stay() -> None:
    with torch.device("meta"):
        model = Net().eval()
    x = example(2, 7).to("meta")
    shapes = ({0: "batch", 2: "h", 3: "w"},)
    program = onnx_aot.export(model, (x,), dynamic_shapes=shapes)
    assert folded(program) == []
    with pytest.raises(SaveError, match="have no values yet"):
        program.save("none.onnx")
    real = Net().eval()
    program.apply_weights(real.state_dict())
    right(program, real)


def test_saved_contents(tmp_path: Path) -> None:
    """Large and small weights, in one file or in two."""

    class Matrices(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large = nn.Linear(130, 70, bias=False)
            self.small = nn.Linear(70, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.small(self.large(x))

    model = Matrices()
    program = onnx_aot.export(model, (torch.randn(2, 4, 130),))
    assert set(folded(program)) == {"large.weight_folded", "small.weight_folded"}
    for external in (True, False):
        path = tmp_path / f"{external}.onnx"
        program.save(path, external_data=external)
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        for name in ("large", "small"):
            held = torch.from_numpy(tensors[f"{name}.weight_folded"].copy())
            assert torch.equal(held, getattr(model, name).weight.t())


def test_a_large_shared_weight_is_left() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1000, 80)
            self.head = nn.Linear(80, 1000, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.table(x))

    program = onnx_aot.export(Shared(), (torch.ones(2, 3, dtype=torch.int64),))
    assert folded(program) == []
    assert operators(program) == ["Gather", "Flatten", "Gemm", "Reshape"]


class Standardized(nn.Module):
    """Convolutions whose weights are standardized in each call, as normalizer-free networks do.

    The first one is too large to be folded node by node.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(96, 96, 3), nn.Conv2d(96, 4, 1)])
        self.gains = nn.ParameterList([torch.rand(96) + 0.5, torch.rand(4) + 0.5])

    def forward(self, x: Tensor) -> Tensor:
        for conv, gain in zip(self.convs, self.gains, strict=True):
            weight = conv.weight.reshape(1, len(conv.weight), -1)
            weight = F.batch_norm(weight, None, None, gain, training=True, momentum=0.0)
            x = F.conv2d(x, weight.reshape_as(conv.weight), conv.bias)
        return x


def test_standardized_weights() -> None:
    """They count as weights, and not as a sign of training mode, which would cause a warning."""
    model = Standardized().eval()
    shapes = ({0: "batch", 2: "h"},)
    program = onnx_aot.export(model, (torch.randn(2, 96, 5, 4),), dynamic_shapes=shapes)
    assert operators(program) == ["Conv", "Conv"]
    for batch, h in ((1, 3), (3, 6)):
        x = torch.randn(batch, 96, h, 4)
        assert_close(program(x)[0], model(x).detach())


@pytest.mark.parametrize(
    "weight",
    [
        torch.arange(35.0).reshape(5, 7).t(),
        torch.arange(210.0).reshape(5, 7, 6).permute(2, 0, 1).bfloat16(),
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(3.0),
        torch.zeros(0, 4).t(),
    ],
    ids=lambda weight: str(tuple(weight.shape)),
)
def test_a_view_is_written_part_by_part(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_aot.ir_passes.lazy_tensor.PART", 72)
    source = ir.Value(name="w", const_value=ir.tensor_adapters.TorchTensor(torch.zeros(1)))
    dtype = ir.tensor_adapters.TorchTensor(weight.contiguous()).dtype
    folded = FoldedTensor(lambda _: weight, [source], dtype, weight.shape)
    largest, file = 0, io.BytesIO()

    class Sink:
        def write(self, data: Any) -> int:
            nonlocal largest
            largest = max(largest, memoryview(data).nbytes)
            return file.write(data)

    folded.tofile(Sink())
    assert file.getvalue() == folded.tobytes()
    assert len(file.getvalue()) == weight.nbytes
    assert weight.is_contiguous() or largest <= 72


def test_large_weights_are_scaled_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are those of the whole, bit by bit."""
    program = exported(Net().eval())
    whole = model_bytes(program.model)
    monkeypatch.setattr(fold_batch_norm, "PART", 10)
    assert model_bytes(program.model) == whole


@pytest.mark.parametrize("layers", [1, 3])
def test_layers_that_repeat_share_the_trial(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    evaluate = fold_constants._try_evaluate

    def count(function: Any, contents: Any) -> Any:
        tried.append(function)
        return evaluate(function, contents)

    monkeypatch.setattr(fold_constants, "_try_evaluate", count)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)), nn.Linear(4, 5))
    x = torch.randn(2, 3, 4)
    program = onnx_aot.export(model, (x,), optimize={"fold_constants"})
    assert operators(program) == ["MatMul", "Add"] * (layers + 1)
    assert len(tried) == 2
    assert_close(program(x)[0], model(x).detach())


class Windows(nn.Module):
    """Adds up windows that overlap, and divides by how many there are: a constant."""

    def forward(self, x: Tensor) -> Tensor:
        total, count = torch.zeros_like(x), torch.zeros(x.shape[1])
        for start in range(x.shape[1] - 4):
            total[:, start : start + 5] += x[:, start : start + 5].cumsum(1)
            count[start : start + 5] += torch.hann_window(5) + 1
        return total / count


def test_each_state_of_a_constant_is_computed_once() -> None:
    """Each of the 60 writes reads the state before it twice."""
    x, model = torch.randn(2, 64), Windows()
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "batch"},))
    assert_close(program(x)[0], model(x))


def test_a_long_chain_of_folded_weights() -> None:
    runs = []

    def add_both(one: Tensor, other: Tensor) -> Tensor:
        runs.append(one)
        return (one + other) / 2

    def value(tensor: ir.TensorProtocol) -> ir.Value:
        return ir.Value(name="weight", const_value=tensor)

    last = value(ir.tensor(torch.ones(3).numpy()))
    for _ in range(2000):  # more than Python's limit of nested calls
        last = value(FoldedTensor(add_both, [last, last], ir.DataType.FLOAT, [3]))
    assert last.const_value is not None
    assert last.const_value.numpy().tolist() == [1, 1, 1]
    assert len(runs) == 2000
