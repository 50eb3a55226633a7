"""Tools for ONNX files take exported language models, and their results are PyTorch's.

``python -m benchmarks.clients`` applies more of them, to more models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import utils, version_converter
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.optimizer import optimize_model

import onnx_aot
from benchmarks.models import MODELS
from tests.tolerances import assert_close

Example = tuple[tuple[Any, ...], dict[str, Any]]
MASKED = ["gpt2", "llama", "t5", "whisper"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns the path of a catalogue model's file, and makes it at the first call."""
    folder = tmp_path_factory.mktemp("files")
    made: dict[str, str] = {}

    def path_of(name: str) -> str:
        if name not in made:
            case = MODELS[name]
            args, kwargs = case.example()
            made[name] = str(folder / f"{name}.onnx")
            onnx_aot.export(
                case.make(), args, made[name], kwargs=kwargs, dynamic_shapes=case.dynamic_shapes
            )
        return made[name]

    return path_of


def assert_right(model: onnx.ModelProto | str, name: str, error: float = 0.0) -> None:
    """Compares a model with PyTorch at two sizes; ``error`` is relative to the norm."""
    data = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    case = MODELS[name]
    module = case.make()
    for index in range(2):
        args, kwargs = case.example(index)
        tensors = [*args, *kwargs.values()]
        names = [given.name for given in session.get_inputs()]
        feeds = {key: tensor.numpy() for key, tensor in zip(names, tensors, strict=True)}
        with torch.no_grad():
            expected = module(*args, **kwargs)[0]
        actual = torch.from_numpy(np.asarray(session.run(None, feeds)[0]))
        if not error:
            assert_close(actual, expected)
        assert float((actual - expected).norm()) <= max(error, 1e-3) * float(expected.norm())


@pytest.mark.parametrize("name", MASKED)
def test_symbolic_shapes_are_complete(name: str, files: Any, tmp_path: Path) -> None:
    inferred = SymbolicShapeInference.infer_shapes(onnx.load(files(name)))
    assert inferred is not None
    prepared = str(tmp_path / "prepared.onnx")
    quant_pre_process(files(name), prepared)
    assert_right(prepared, name)


@pytest.mark.parametrize("name", [*MASKED, "bert"])
def test_no_cast_to_float_of_a_mask(name: str, files: Any) -> None:
    """onnxconverter_common does not change the type of a Cast when it converts to float16."""
    graph = onnx.load(files(name)).graph
    booleans = {v.name for v in graph.value_info if v.type.tensor_type.elem_type == 9}
    assert booleans
    floats = onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT)
    casts = [node for node in graph.node if node.op_type == "Cast" and node.input[0] in booleans]
    assert not [node for node in casts if floats in node.attribute]


def test_layers_of_gpt2_are_quantized_to_four_bits(files: Any) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(files("gpt2")), block_size=16, is_symmetric=True)
    quantizer.process()
    model = quantizer.model.model
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MatMulNBits") == 8  # four per layer
    assert_right(model, "gpt2", error=0.3)


@pytest.mark.parametrize(("name", "kind"), [("gpt2", "gpt2"), ("bert", "bert"), ("t5", "t5")])
def test_optimizer_for_transformers(
    name: str, kind: str, files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the conversion leaves files
    fused = optimize_model(files(name), kind, num_heads=0, hidden_size=0, opt_level=0)
    kinds = [node.op_type for node in fused.model.graph.node]
    assert "SkipLayerNormalization" in kinds or name == "t5"
    assert_right(fused.model, name)
    halved = convert_float_to_float16(onnx.load(files(name)), keep_io_types=True)
    assert_right(halved, name, error=1e-2)


def test_approximations_of_gelu_are_not_merged_with_a_bias(files: Any) -> None:
    fused = optimize_model(files("gpt2"), "gpt2", num_heads=0, hidden_size=0, opt_level=0)
    kinds = [node.op_type for node in fused.model.graph.node]
    assert kinds.count("Gelu") == 2
    assert "BiasGelu" not in kinds


@pytest.mark.parametrize("name", ["llama", "whisper", "bert"])
def test_parts_and_other_opsets(name: str, files: Any, tmp_path: Path) -> None:
    path = files(name)
    assert_right(version_converter.convert_version(onnx.load(path), 22), name)
    graph = onnx.load(path).graph
    known = {value.name for value in (*graph.value_info, *graph.output)}
    assert all(output in known for node in graph.node for output in node.output)
    middle = graph.node[len(graph.node) // 2].output
    half = str(tmp_path / "half.onnx")
    utils.extract_model(path, half, [value.name for value in graph.input], list(middle))
    onnxruntime.InferenceSession(half, providers=["CPUExecutionProvider"])
