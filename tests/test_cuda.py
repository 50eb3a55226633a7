"""Tests exports of models on a CUDA device; their weights and inputs stay there.

Graphs are compared on machines without a device, by tensors that have one and no elements: this
needs a torch with CUDA, as ``nox -s smoke`` installs it. What runs needs a device and
onnxruntime-gpu.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

import onnx_aot
from benchmarks.models.case import spread_weights
from benchmarks.subjects import case_of, catalogue
from onnx_aot.generation import Decoder, export_decoder
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.options import choose_target
from tests.generation import models
from tests.torch_compat.without import absent, shows

needs_cuda_build = pytest.mark.skipif(
    torch.version.cuda is None, reason="this torch is built without CUDA"
)
needs_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
needs_provider = pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this ONNX Runtime is built without CUDA",
)


class Recurrent(nn.Module):
    """LSTM and GRU in both directions over ``[batch, length, 6]``; cuDNN has kernels for them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.second = nn.GRU(10, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)[0])[0]


class Attention(nn.Module):
    """Attention with a causal mask, for which CUDA has several kernels, over ``[b, l, 8]``."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device, x.dtype)
        attended = self.heads(x, x, x, attn_mask=mask, need_weights=False)[0]
        heads = self.norm(x + attended).unflatten(-1, (2, 4)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


class Convolutions(nn.Module):
    """Convolutions, normalizations and resizing of ``[batch, 3, h, w]``."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.ConvTranspose2d(4, 4, 2, 2)
        self.groups = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.groups(self.second(torch.relu(self.norm(self.first(x)))))
        return nn.functional.interpolate(y, scale_factor=0.5, mode="bilinear", antialias=False)


class Made(nn.Module):
    """Tensors made on the device of the input ``[batch, length]``, by sizes and by data."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positions = torch.arange(x.shape[1], device=x.device)
        table = torch.tensor([1.0, 2.0, 3.0], device=x.device)
        chosen = table[positions % 3].to(x.dtype) * x
        return chosen.cumsum(1), torch.cdist(x, x.flip(0)), chosen.sort(1).indices, x.median(1)[0]


class Mixed(nn.Module):
    """A product in half precision, as training code writes it, of ``[batch, 8]``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            y = self.layer(x)
        return torch.softmax(y.float(), -1)


Inputs = Callable[[int], torch.Tensor]
MODELS: dict[str, tuple[type[nn.Module], Inputs, dict[int, str]]] = {
    "recurrent": (Recurrent, lambda n: torch.randn(n, 7, 6), {0: "batch", 1: "length"}),
    "attention": (Attention, lambda n: torch.randn(n, 6, 8), {0: "batch", 1: "length"}),
    "convolutions": (Convolutions, lambda n: torch.randn(n, 3, 8, 6), {0: "batch"}),
    "made": (Made, lambda n: torch.randn(n, 9), {0: "batch", 1: "length"}),
}


def made(kind: str) -> nn.Module:
    """Returns a model with reproducible weights that all matter."""
    torch.manual_seed(0)
    model = MODELS[kind][0]()
    spread_weights(model)
    return model.eval()


def operators(program: onnx_aot.ONNXProgram) -> list[str]:
    """The operators of the graph in order."""
    return [node.op_type for node in program.model.graph]


@pytest.fixture
def as_if_on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function that replaces tensors, of modules too, by those without elements on a device."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)  # it looks for a driver
    mode = FakeTensorMode()

    def convert(given: Any, device: str = "cuda:0") -> Any:
        def empty(tensor: torch.Tensor) -> torch.Tensor:
            with mode:
                shape = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
                )
                return FakeTensor(mode, shape, torch.device(device))

        if not isinstance(given, nn.Module):
            return pytree.tree_map_only(torch.Tensor, empty, given)
        model = copy.deepcopy(given)
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(empty(parameter)))
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, empty(buffer))
        return model

    return convert


def test_a_tensor_on_a_device_chooses_the_target() -> None:
    """Unless another target is given, or an opset that the one for CUDA lacks."""
    mode = FakeTensorMode()
    with mode:
        x = FakeTensor(mode, torch.empty(2, device="meta"), torch.device("cuda:0"))
    assert choose_target("onnxruntime", None, nn.ReLU(), (x,)) == "onnxruntime-gpu"
    assert choose_target("onnxruntime", 28, nn.ReLU(), (x,)) == "onnxruntime"
    assert choose_target("onnxruntime", None, nn.ReLU(), (torch.ones(2),)) == "onnxruntime"
    for target in ("onnxruntime==1.20", "openvino", None):
        assert choose_target(target, None, nn.ReLU(), (x,)) == target


@pytest.mark.parametrize("kind", MODELS)
def test_files_of_float32_are_those_of_the_default_target(kind: str) -> None:
    _, inputs, dims = MODELS[kind]
    saved = [
        onnx_aot.export(made(kind), (inputs(2),), dynamic_shapes=(dims,), target=target)
        for target in ("onnxruntime", "onnxruntime-gpu")
    ]
    assert saved[0].model_proto == saved[1].model_proto


@needs_cuda_build
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_graphs_are_those_of_the_cpu(
    kind: str, dtype: torch.dtype, as_if_on_device: Callable[..., Any]
) -> None:
    """No kernel of one device gets into the graph, whichever the weights are on."""
    _, inputs, dims = MODELS[kind]
    model, x = made(kind).to(dtype), inputs(2).to(dtype)
    found = [
        onnx_aot.export(
            as_if_on_device(model, device),
            (as_if_on_device(x, device),),
            dynamic_shapes=(dims,),
            target=target,
        )
        for device, target in (("cuda:0", "onnxruntime"), ("cpu", "onnxruntime-gpu"))
    ]
    assert operators(found[0]) == operators(found[1])
    assert {str(t.device) for t in found[0].exported_program.state_dict.values()} <= {"cuda:0"}


@needs_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_files_are_those_of_the_cpu(kind: str, dtype: torch.dtype) -> None:
    """Weights are read from the device when they are written, and the model stays there."""
    _, inputs, dims = MODELS[kind]
    model, x = made(kind).to(dtype), inputs(2).to(dtype)
    on_cpu = onnx_aot.export(model, (x,), dynamic_shapes=(dims,), target="onnxruntime-gpu")
    model.to("cuda")
    on_device = onnx_aot.export(model, (x.cuda(),), dynamic_shapes=(dims,))
    assert operators(on_device) == operators(on_cpu)
    assert {t.device.type for t in model.state_dict().values()} <= {"cuda"}
    assert on_device.verify().ok


@needs_device
def test_autocast_on_the_device() -> None:
    """Half precision within autocast of the device is in the file."""
    torch.manual_seed(0)
    model = Mixed().cuda().eval()
    x = torch.randn(2, 8, device="cuda")
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "batch"},))
    assert program.verify().ok
    assert onnx_aot.export(model, (x,)).verify().ok


@needs_device
def test_tensors_of_two_devices_are_refused() -> None:
    """The error names the device that does not fit."""
    model = nn.Linear(4, 4).eval()
    with pytest.raises(onnx_aot.OnnxExporterError, match="cuda"):
        onnx_aot.export(model, (torch.randn(2, 4, device="cuda"),))


@needs_device
@needs_provider
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_programs_run_on_the_device(kind: str, dtype: torch.dtype) -> None:
    """Inputs are read where they are, and outputs are left there, at every size."""
    _, inputs, dims = MODELS[kind]
    model = made(kind).to("cuda", dtype)
    program = onnx_aot.export(model, (inputs(2).to("cuda", dtype),), dynamic_shapes=(dims,))
    for size in (2, 1, 5):
        x = inputs(size).to("cuda", dtype).flip(-1)  # not contiguous after the next line
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
        with torch.no_grad():
            expected = pytree.tree_leaves(model(x))
        actual = program(x)
        assert {tensor.device for tensor in actual} == {x.device}
        names = [str(number) for number in range(len(expected))]
        assert [d.name for d in compare_outputs(names, expected, actual) if not d.within] == []


@needs_device
@pytest.mark.parametrize("name", catalogue())
def test_benchmarked_models(name: str) -> None:
    """The file of a model on the device computes what the model does there, at every size."""
    pytest.importorskip("transformers")
    pytest.importorskip("timm")
    case = case_of(name)
    model = case.make().cuda()
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cuda, case.example())
    program = onnx_aot.export(model, args, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes)
    result = program.verify()
    assert result.ok, str(result)


@needs_device
def test_decoders() -> None:
    """A decoder exported on the device continues texts as the model does there."""
    model = models.llama().cuda()
    ids, mask = models.prompts()
    given = {"input_ids": ids.cuda(), "attention_mask": mask.cuda()}
    expected = models.generated(model, **given)
    actual = Decoder(export_decoder(model)).generate(ids, mask, max_new_tokens=models.STEPS)
    assert actual.tolist() == expected.cpu().tolist()


@needs_device
@shows("kernel of aten.scaled_dot_product_attention.default")
def test_attention_with_a_mask_is_refused_without_its_shape() -> None:
    """A kernel of CUDA pads masks of float32, which torch cannot capture for dynamic sizes."""

    def attend(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, q, q, mask)

    q = torch.randn(2, 4, 6, 8, device="cuda", requires_grad=True)
    args = (q, torch.randn(2, 1, 6, 6, device="cuda"))
    shapes = ({0: "batch", 2: "length"}, {0: "batch", 2: "length", 3: "length"})
    program = onnx_aot.export(attend, args, dynamic_shapes=shapes)
    assert program.verify().ok
    with (
        absent("kernel of aten.scaled_dot_product_attention.default"),
        pytest.raises(onnx_aot.OnnxExporterError),
    ):
        onnx_aot.export(attend, args, dynamic_shapes=shapes)


@needs_device
@needs_provider
def test_empty_inputs_are_refused_on_the_device() -> None:
    """ONNX Runtime may end the process there; on the CPU the same program takes them."""
    model = made("convolutions").cuda()
    program = onnx_aot.export(
        model, (torch.randn(2, 3, 8, 6, device="cuda"),), dynamic_shapes=({0: "batch"},)
    )
    with pytest.raises(onnx_aot.errors.InferenceError, match="no elements"):
        program(torch.randn(0, 3, 8, 6, device="cuda"))
    assert program(torch.randn(0, 3, 8, 6))[0].shape[0] == 0
