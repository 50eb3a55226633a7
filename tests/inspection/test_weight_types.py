"""Types in which a model stores its weights, and their size if stored as float32."""

from __future__ import annotations

import torch

import onnx_aot
from onnx_aot.inspection.weight_types import Storage, storage_of


class Bytes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import torch.ao.quantization.fx._decomposed

        self.register_buffer("weight", torch.randint(-99, 99, (16, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(16))
        self.register_buffer("zeros", torch.zeros(16, dtype=torch.int64))
        self.register_buffer("halves", torch.rand(16, dtype=torch.float16))
        self.register_buffer("index", torch.tensor([3, 1, 2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
        )
        result: torch.Tensor = (x @ weight.T + self.halves.float() * x[:, :1])[:, self.index]
        return result


def test_rows() -> None:
    program = onnx_aot.export(Bytes(), (torch.randn(2, 8),), optimize=False, target=None)
    rows = {row.dtype: row for row in storage_of(program.model)}
    assert rows["FLOAT"] == Storage("FLOAT", 1, 16, 64, 0)  # scales
    assert rows["FLOAT16"] == Storage("FLOAT16", 1, 16, 32, 64)
    assert rows["INT8"].in_float32 == 4 * 16 * 8
    assert rows["INT64"].in_float32 == rows["INT64"].bytes  # sizes, indices


def test_the_report_says_it() -> None:
    report = onnx_aot.export(Bytes(), (torch.randn(2, 8),)).report
    assert report is not None
    text = report.to_markdown()
    assert "stored    INT8" in text
    assert "| Stored as" in text
    assert "times as much" in text
    assert "session.qdq_matmulnbits_accuracy_level" in text
    plain = onnx_aot.export(torch.nn.Linear(3, 4), (torch.randn(2, 3),)).report
    assert plain is not None
    assert "Stored as" not in plain.to_markdown()
