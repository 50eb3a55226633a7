"""Models with branches, loops and regions: captured once, exported at several opsets, compared."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import onnx
import pytest
import torch
from torch.utils import _pytree as pytree

import onnx_aot
from onnx_aot.capture.patches import capture_conditions
from onnx_aot.inspection.differences import compare_outputs
from tests.releases import HIGHEST_OPSET

__all__ = ["OPSETS", "Case", "Model", "check", "kinds"]

OPSETS = (17, 20, 25)

AS_IT_IS = (
    "torch._higher_order_ops.utils._hop_compile_and_call",
    lambda function, args, kwargs=None: function(*args, **(kwargs or {})),
)

Tensor = torch.Tensor


class Model(torch.nn.Module):
    """Calls a function with this module, for its weights, and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(3))
        self._function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(self, *inputs)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of a model and inputs.

    Attributes:
        function: Function that is called as ``function(model, *inputs)``.
        sizes: First dimensions (dynamic) of the first input ``[n, 3]``; the first one is the
            example's.
        inputs: Inputs to use instead: the example, then others.
        shapes: Dynamic shapes of ``inputs``, in torch's form.
        nodes: ONNX operators that must be in the model, subgraphs included.
        state: Whether the model writes to ``total``.
        containers: Whether functions take or return dicts, which torch flattens if it compiles.
    """

    function: Callable[..., Any]
    sizes: tuple[int, ...] = (4, 1, 2, 7)
    inputs: tuple[tuple[Any, ...], ...] = ()
    shapes: Any = None
    nodes: tuple[str, ...] = ()
    state: bool = False
    containers: bool = False

    def examples(self) -> Sequence[tuple[Any, ...]]:
        if self.inputs:
            return self.inputs
        torch.manual_seed(1)
        # both signs of the sum, which decides most conditions
        given = [(torch.randn(size, 3),) for size in self.sizes]
        return [*given, *((-x,) for (x,) in given)]


def check(case: Case, opsets: Sequence[int] = OPSETS) -> onnx_aot.ONNXProgram:
    """Compares a model with eager for every example and opset; returns the last program."""
    model, examples = Model(case.function).eval(), case.examples()
    shapes = case.shapes if case.inputs else ({0: torch.export.Dim.DYNAMIC},)
    with capture_conditions():
        captured = torch.export.export(
            model, examples[0], dynamic_shapes=None if shapes is None else (shapes,)
        )
    expected = [_eager(model, inputs, case) for inputs in examples]
    for opset in filter(HIGHEST_OPSET.__ge__, opsets):
        with pytest.warns(match="total_out") if case.state else contextlib.nullcontext():
            program = onnx_aot.export(captured, opset_version=opset)
        onnx.checker.check_model(program.model_proto, full_check=True)
        assert not set(case.nodes) - set(kinds(program)), kinds(program)
        for inputs, results in zip(examples, expected, strict=True):
            _compare(program, inputs, results)
    return program


def _eager(model: Model, inputs: tuple[Any, ...], case: Case) -> list[Tensor]:
    """Returns the results of the model and, if it writes, its state.

    Torch compiles the functions given to its operators even in eager mode, which dominates the
    running time here; their kernels call the functions as they are.
    """
    before = model.total.clone()
    clones = [x.clone() if isinstance(x, Tensor) else x for x in inputs]
    direct = mock.patch(*AS_IT_IS)
    with torch.no_grad(), contextlib.nullcontext() if case.containers else direct:
        leaves = pytree.tree_leaves(model(*clones))
    results = [torch.as_tensor(leaf) for leaf in leaves]
    if case.state:
        results.append(model.total.clone())
        model.total.copy_(before)
    return results


def kinds(program: onnx_aot.ONNXProgram) -> list[str]:
    """Returns the operators of the model, including those of subgraphs and functions."""
    found: list[str] = []

    def visit(graph: Any) -> None:
        for node in graph.node:
            found.append(node.op_type)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)

    visit(program.model_proto.graph)
    for function in program.model_proto.functions:
        visit(function)
    return found


def _compare(program: Any, inputs: tuple[Any, ...], expected: list[Tensor]) -> None:
    actual = program(*inputs)
    names = [str(value.name) for value in program.model.graph.outputs]
    differences = compare_outputs(names, expected, actual)
    assert all(d.within for d in differences), (
        [tuple(x.shape) for x in inputs if isinstance(x, Tensor)],
        program.model.opset_imports[""],
        differences,
        expected,
        actual,
    )
