"""Measures quantized models: file size, difference from PyTorch, and latency.

    python -m benchmarks.quantization [MODEL ...]

Needs torchao; the models are mlp, transformer and resnet18. Weights are random, from one seed. The
ONNX model is compared with the quantized model in PyTorch, both as ``ONNXProgram`` runs it and in a
default session. The quantized model in PyTorch is compared with the float model. All differences
are the largest ones, relative to the largest output. Latencies are those of default sessions with
one thread, which alternate, relative to that of the float model.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.tables import table
from benchmarks.timing import median

OPSET = 21
ROUNDS = 40
WARM_UP = 5
INTEGERS = (
    "MatMulNBits",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "QLinearConv",
    "QLinearMatMul",
    "QGemm",
    "QLinearAdd",
)
"""Operators of ONNX Runtime that compute directly with the stored integers."""


def mlp() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    layer, act = torch.nn.Linear, torch.nn.GELU
    model = torch.nn.Sequential(layer(512, 2048), act(), layer(2048, 2048), act(), layer(2048, 512))
    return model, (torch.randn(1, 512),)


def transformer() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()  # before transformers, which imports it
    import transformers

    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=128,
    )
    return transformers.BertModel(config), (torch.randint(0, 1000, (1, 64)),)


def resnet18() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from benchmarks.models.torchvision_cpu import load_torchvision

    torchvision = load_torchvision()
    assert torchvision is not None, "torchvision is not installed"
    return torchvision.models.resnet18(weights=None), (torch.randn(1, 3, 224, 224),)


MODELS = {"mlp": mlp, "transformer": transformer, "resnet18": resnet18}


def quantize_static(model: torch.nn.Module, args: tuple[Any, ...]) -> torch.nn.Module:
    """Quantizes weights per channel, and activations, to int8 with PT2E for XNNPACK."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, args).module(), quantizer)
    for _ in range(4):
        prepared(*(torch.randn_like(arg) for arg in args))
    converted: torch.nn.Module = convert_pt2e(prepared)
    return converted


def by_config(name: str, **options: Any) -> Callable[..., torch.nn.Module]:
    def quantize(model: torch.nn.Module, args: tuple[Any, ...]) -> torch.nn.Module:
        import torchao.quantization as ao

        if "group" in options:
            granularity = ao.PerGroup(options["group"])
            config = getattr(ao, name)(weight_dtype=torch.int4, granularity=granularity)
        else:
            config = getattr(ao, name)()
        ao.quantize_(model, config)
        return model

    return quantize


WAYS: dict[str, Callable[..., torch.nn.Module]] = {
    "float32": lambda model, args: model,
    "float8 weights": by_config("Float8WeightOnlyConfig"),
    "int8 weights": by_config("Int8WeightOnlyConfig"),
    "int4 weights, groups of 32": by_config("IntxWeightOnlyConfig", group=32),
    "int8 weights, int8 activations when run": by_config("Int8DynamicActivationInt8WeightConfig"),
    "int8, static (PT2E)": quantize_static,
}
OF_LAYERS = tuple(way for way in WAYS if "static" not in way)
FOR = {"mlp": tuple(WAYS), "transformer": OF_LAYERS, "resnet18": ("float32", "int8, static (PT2E)")}


@dataclasses.dataclass
class Found:
    """Measurements of one model, quantized in one way."""

    path: str
    size: int
    difference: float
    by_default: float
    from_float: float
    fused: str


def main(names: Sequence[str]) -> None:
    """Measures the named models, by default all, and prints a table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or MODELS:
            rows += _measure_rows(name, folder)
    header = ("Model", "Way", "MB", "Smaller", "From eager", "Default session", "From floats")
    print(table((*header, "Integer kernels", "Latency"), rows))


def _measure_rows(name: str, folder: str) -> list[tuple[Any, ...]]:
    torch.manual_seed(0)
    model, args = MODELS[name]()
    model.eval()
    found = {way: _measure(model, args, way, folder) for way in FOR[name]}
    seconds = _measure_latencies({way: one.path for way, one in found.items()}, args)
    base = found["float32"]
    return [
        (
            name,
            way,
            f"{one.size / 1e6:.2f}",
            f"{base.size / one.size:.2f}",
            f"{one.difference:.1e}",
            f"{one.by_default:.1e}",
            f"{one.from_float:.1e}",
            one.fused,
            f"{seconds[way] / seconds['float32']:.2f}",
        )
        for way, one in found.items()
    ]


def _measure(model: torch.nn.Module, args: tuple[Any, ...], way: str, folder: str) -> Found:
    import onnx_aot

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        floats = _first_output(model(*args))
        quantized = WAYS[way](copy.deepcopy(model), args)
        expected = _first_output(quantized(*args))
        program = onnx_aot.export(quantized, args, opset_version=OPSET)
        actual = program(*args)[0]
    path = os.path.join(folder, f"{len(os.listdir(folder))}.onnx")
    program.save(path)
    scale = float(floats.abs().max())
    by_default = torch.from_numpy(_create_session(path).run(None, _make_feeds(path, args))[0])
    return Found(
        path,
        os.path.getsize(path),
        float((actual - expected).abs().max()) / scale,
        float((by_default - expected).abs().max()) / scale,
        float((expected - floats).abs().max()) / scale,
        _integer_kernels(path),
    )


def _first_output(returned: Any) -> torch.Tensor:
    result: torch.Tensor = returned if isinstance(returned, torch.Tensor) else returned[0]
    return result


def _create_session(path: str, optimized: str = "") -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.optimized_model_filepath = optimized
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _make_feeds(path: str, args: tuple[Any, ...]) -> dict[str, Any]:
    names = [given.name for given in _create_session(path).get_inputs()]
    return {name: arg.numpy() for name, arg in zip(names, args, strict=True)}


def _integer_kernels(path: str) -> str:
    """Counts the nodes of the optimized model that compute with integers, as text."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        optimized = os.path.join(folder, "optimized.onnx")
        _create_session(path, optimized)
        types = [node.op_type for node in onnx.load(optimized).graph.node]
    counts = collections.Counter(kind for kind in types if kind in INTEGERS)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "none"


def _measure_latencies(paths: dict[str, str], args: tuple[Any, ...]) -> dict[str, float]:
    sessions = {
        way: (_create_session(path), _make_feeds(path, args)) for way, path in paths.items()
    }
    samples: dict[str, list[float]] = {way: [] for way in paths}
    for round_ in range(WARM_UP + ROUNDS):
        for way, (session, feeds) in sessions.items():
            begin = time.perf_counter()
            session.run(None, feeds)
            if round_ >= WARM_UP:
                samples[way].append(time.perf_counter() - begin)
    return {way: median(times) for way, times in samples.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
