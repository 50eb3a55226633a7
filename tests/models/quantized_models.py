"""Models that torchao quantizes; ``needs_torchao`` skips tests where it is not installed."""

from __future__ import annotations

import collections
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

__all__ = ["Net", "kernels", "mlp", "needs_torchao", "pt2e", "quantize"]

needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is not installed"
)


class Net(torch.nn.Module):
    """Convolutions with and without bias, a residual connection, pooling, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.norm(self.second(x)) + x)
        x = torch.nn.functional.gelu(self.linear(x.mean((2, 3))))
        result: torch.Tensor = self.last(x)
        return result


def mlp() -> torch.nn.Module:
    """Linear layers: one before an activation that ONNX Runtime fuses, one without bias."""
    layers = [
        torch.nn.Linear(64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128, bias=False),
        torch.nn.GELU(),
        torch.nn.Linear(128, 32),
    ]
    return torch.nn.Sequential(*layers).eval()


def quantize(model: torch.nn.Module, config: str, **options: Any) -> torch.nn.Module:
    """Quantizes the weights of a model according to a torchao configuration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao = importlib.import_module("torchao.quantization")
        group = options.pop("group", None)
        if group is not None:
            options["granularity"] = ao.PerGroup(group)
        ao.quantize_(model, getattr(ao, config)(**options))
    return model


def pt2e(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], x86: bool) -> Any:
    """Quantizes weights and activations to integers, with operators of ``quantized_decomposed``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
        quantizer = _x86() if x86 else _xnnpack()
        shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
        prepared = steps.prepare_pt2e(
            torch.export.export(model.eval(), inputs, dynamic_shapes=shapes).module(), quantizer
        )
        for _ in range(3):
            prepared(*map(torch.randn_like, inputs))
        return steps.convert_pt2e(prepared)


def _x86() -> Any:
    x86 = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())


def _xnnpack() -> Any:
    xnnpack = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    return xnnpack.XNNPACKQuantizer().set_global(config)


def kernels(save: Callable[[str], Any], folder: Path) -> collections.Counter[str]:
    """Counts the operators of the graph that ONNX Runtime optimizes from a saved model."""
    path, optimized = folder / "model.onnx", folder / "optimized.onnx"
    save(str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(optimized)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return collections.Counter(node.op_type for node in onnx.load(str(optimized)).graph.node)
