"""Compares the type and shape that a model declares for every value with the actual ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import torch

import onnx_aot
from onnx_aot import dtypes
from onnx_aot.program.session import to_numpy

__all__ = ["check_inference", "check_values", "values_of"]

FUNCTIONS: dict[str, Any] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
    "trunc": math.trunc,
}


def values_of(model: ir.Model) -> list[ir.Value]:
    """Returns every value that a node of the model computes, including those of subgraphs."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return [value for node in nodes for value in node.outputs if value.name]


def check_inference(program: onnx_aot.ONNXProgram) -> None:
    """ONNX's own inference does not contradict the recorded shapes."""
    loops = {"If", "Loop", "Scan"} & {node.op_type for node in program.model.graph}
    onnx.shape_inference.infer_shapes(
        program.model_proto,
        check_type=True,
        strict_mode=True,
        data_prop=not loops,  # fails on subgraphs: "Data for input 0 already exists"
    )


def check_values(program: onnx_aot.ONNXProgram, *args: Any, **kwargs: Any) -> int:
    """Runs the model with every value of the main graph as an output.

    Returns:
        Number of symbolic dimensions that were compared.
    """
    inputs = program._bind_inputs(args, kwargs)
    known: dict[str, int] = {}
    for value in program.model.graph.inputs:
        tensor = inputs[str(value.name)]
        if value.dtype == ir.DataType.INT64 and tensor.dim() == 0:
            known[str(value.name)] = int(tensor)
        for size, actual in zip(value.shape, tensor.shape, strict=True):
            if isinstance(size, ir.SymbolicDim):
                known.setdefault(str(size.value), actual)
    compared = 0
    values = [v for node in program.model.graph for v in node.outputs if v.name]
    for value, output in zip(values, _run(program, values, inputs), strict=True):
        where = f"{value.name} of {value.producer()}"
        assert value.dtype is not None, where
        assert int(value.dtype) == output.element_type(), where
        assert value.shape is not None, where
        shape = output.shape()
        assert len(value.shape) == len(shape), f"{where} has shape {shape}"
        for size, actual in zip(value.shape, shape, strict=True):
            if isinstance(size, ir.SymbolicDim) and size.value is None:
                continue
            compared += isinstance(size, ir.SymbolicDim)
            expected = size if isinstance(size, int) else _evaluated(str(size.value), known, actual)
            assert expected == actual, f"{where} has shape {shape}, {known}"
    return compared


def _evaluated(text: str, known: dict[str, int], actual: int) -> int:
    """Returns the value of a dimension; a new name is bound to the actual value."""
    if text in known:
        return known[text]
    try:
        compiled = compile(text, text, "eval")
    except SyntaxError:
        return known.setdefault(text, actual)
    if any(name not in known and name not in FUNCTIONS for name in compiled.co_names):
        return known.setdefault(text, actual)
    return int(eval(compiled, {**FUNCTIONS, **known}))


def _run(
    program: onnx_aot.ONNXProgram, values: list[ir.Value], inputs: Mapping[str, torch.Tensor]
) -> list[onnxruntime.OrtValue]:
    proto = program.model_proto
    present = {output.name for output in proto.graph.output}
    names = [str(value.name) for value in values]
    proto.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in present
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            to_numpy(tensor), int(dtypes.to_onnx(tensor.dtype))
        )
        for name, tensor in inputs.items()
    }
    return session.run_with_ort_values(names, feeds)
