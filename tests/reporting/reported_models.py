"""Models used in tests of reports."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.torch_compat import aten


class Block(nn.Module):
    """Covers every way of translating an operator, in a class that a script can import."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))

    def forward(self, x: Tensor, scale: Tensor | None = None, *, index: Tensor) -> Tensor:
        y = torch.nn.functional.gelu(x * self.weight) if scale is None else x * scale
        return torch.ops.aten.special_xlog1py(y.relu(), x.double()).float()[index]


X, INDEX = torch.rand(3, 4), torch.tensor([2, 0])


def exported(**options: Any) -> onnx_aot.ONNXProgram:
    return onnx_aot.export(
        Block().eval(),
        (X,),
        kwargs={"index": INDEX},
        dynamic_shapes={"x": {0: "rows"}, "index": {0: torch.export.Dim("picked", max=64)}},
        custom_translation_table={aten.relu.default: relu},
        **options,
    )


def relu(op: Any, self: Any) -> Any:
    return op.Relu(self)
