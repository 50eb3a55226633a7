"""A model with a single operator, and translations of it."""

from __future__ import annotations

from typing import Any

import onnx
import torch

import onnx_aot

X, Y = torch.randn(3, 4), torch.randn(3, 4)

aten = torch.ops.aten

# --- candidates and keys -------------------------------------------------------------------------


def relu(op: Any, self: Any) -> Any:
    return op.Relu(self)


def negated(op: Any, self: Any) -> Any:
    return op.Neg(self)


def operators(program: onnx_aot.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def exported(function: Any, *args: Any, **options: Any) -> onnx_aot.ONNXProgram:
    program = onnx_aot.export(function, args, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def wants_a_later_opset(op: Any, self: Any) -> Any:
    return op.Swish(self)
