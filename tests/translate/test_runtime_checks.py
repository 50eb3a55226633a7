"""``runtime_checks=True``, and the checks of a call to the program itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.dimensions import conditions
from onnx_aot.errors import InferenceError
from onnx_aot.metadata.keys import DIMENSIONS

Tensor = torch.Tensor
LEVELS = onnxruntime.GraphOptimizationLevel
ALL_LEVELS = (
    LEVELS.ORT_DISABLE_ALL,
    LEVELS.ORT_ENABLE_BASIC,
    LEVELS.ORT_ENABLE_EXTENDED,
    LEVELS.ORT_ENABLE_ALL,
)


def ones(*sizes: int, dtype: Any = np.float32) -> Any:
    return np.ones(sizes, dtype)


def whole(number: int) -> Any:
    return np.array(number, np.int64)


TWO = np.array(2, np.float32)


def export(model: Callable[..., Any], args: Sequence[Any], shapes: Any, **options: Any) -> Any:
    program = onnx_aot.export(
        model, tuple(args), dynamic_shapes=shapes, runtime_checks=True, **options
    )
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def checks(program: Any) -> list[str]:
    names = [str(node.name) for node in program.model.graph]
    return [name.removeprefix("check: ") for name in names if name.startswith("check: ")]


def run(program: Any, arrays: Sequence[Any], level: Any = LEVELS.ORT_ENABLE_ALL) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in program.model.graph.inputs]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def passes(program: Any, *arrays: Any) -> list[Any]:
    """Compares all optimization levels and ONNX's reference implementation; returns the results."""
    outputs = [run(program, arrays, level) for level in ALL_LEVELS]
    names = [value.name for value in program.model.graph.inputs]
    evaluator = onnx.reference.ReferenceEvaluator(program.model_proto)
    outputs.append(evaluator.run(None, dict(zip(names, arrays, strict=True))))
    for other in outputs[1:]:
        for one, two in zip(outputs[0], other, strict=True):
            np.testing.assert_allclose(one, two)
    return outputs[0]


def fails(program: Any, condition: str, *arrays: Any) -> None:
    assert condition in checks(program)
    for level in ALL_LEVELS:
        with pytest.raises(Exception, match="Non-zero status") as caught:
            run(program, arrays, level)
        assert f"'check: {condition}'" in str(caught.value)
    names = [value.name for value in program.model.graph.inputs]
    evaluator = onnx.reference.ReferenceEvaluator(program.model_proto)
    with pytest.raises(ValueError, match="reshape"):
        evaluator.run(None, dict(zip(names, arrays, strict=True)))


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


B = Dim("b", min=3, max=10)
ADD = ((torch.ones(4, 3), torch.ones(4, 3)), ({0: B}, {0: B}))


@pytest.mark.parametrize("opset", [17, 20, 23, 25])
def test_ranges_and_equal_dimensions(opset: int) -> None:
    program = export(add, *ADD, opset_version=opset)
    assert checks(program) == [
        "x.shape[0] >= 3 (b)",
        "x.shape[0] <= 10 (b)",
        "y.shape[0] == x.shape[0] (b)",
    ]
    for size in (3, 10):
        assert passes(program, ones(size, 3), ones(size, 3))[0].sum() == 6 * size
    if opset == 20:
        fails(program, "x.shape[0] >= 3 (b)", ones(2, 3), ones(2, 3))
        fails(program, "x.shape[0] <= 10 (b)", ones(11, 3), ones(11, 3))
        fails(program, "y.shape[0] == x.shape[0] (b)", ones(4, 3), ones(5, 3))
    with pytest.raises(Exception, match=r"check: x\.shape\[0\] <= 10 \(b\)"):
        run(program, (ones(11, 3), ones(11, 3)))


def test_without_the_option_there_is_no_node_more() -> None:
    program = onnx_aot.export(add, ADD[0], dynamic_shapes=ADD[1])
    assert [node.op_type for node in program.model.graph] == ["Add"]


def test_names_of_inputs_are_the_users() -> None:
    program = export(add, *ADD, input_names=["left", "input.2"])
    assert checks(program)[-1] == "input.2.shape[0] == left.shape[0] (b)"
    fails(program, "input.2.shape[0] == left.shape[0] (b)", ones(4, 3), ones(5, 3))


def test_derived_dimensions() -> None:
    n = Dim("n", min=2, max=20)

    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), y + 1

    program = export(both, (torch.ones(4, 3), torch.ones(8, 3)), ({0: n}, {0: 2 * n}))
    passes(program, ones(5, 3), ones(10, 3))
    fails(program, "y.shape[0] == 2 * x.shape[0]", ones(5, 3), ones(9, 3))
    with pytest.raises(InferenceError, match=r"y\.shape\[0\] == 2 \* x\.shape\[0\]; x\.shape\[0\]"):
        program(torch.ones(5, 3), torch.ones(9, 3))


def test_conditions_of_the_capture() -> None:
    def halves(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] // 2, 2, 3)

    program = export(halves, (torch.ones(4, 3),), ({0: "h"},))
    (condition,) = checks(program)
    assert conditions.holds(condition, {"x.shape[0]": 6})
    assert conditions.holds(condition, {"x.shape[0]": 5}) is False
    assert json.loads(program.model.graph.metadata_props[DIMENSIONS]) == {
        "dimensions": {"h": {"min": 0}},
        "relations": [],
        "conditions": [condition],
    }
    assert passes(program, ones(6, 3))[0].shape == (3, 2, 3)
    fails(program, condition, ones(5, 3))


def test_a_branch_on_a_size() -> None:
    def branch(x: Tensor, scale: Tensor) -> Tensor:
        return x * scale if x.shape[0] > 4 else x[0]

    program = export(branch, (torch.ones(8, 3), torch.tensor(2.0)), ({0: "h"}, None))
    assert checks(program) == ["x.shape[0] >= 5 (h)"]
    passes(program, ones(5, 3), TWO)
    fails(program, "x.shape[0] >= 5 (h)", ones(4, 3), TWO)
    with pytest.raises(InferenceError, match=r"dimension h \(input x, axis 0\) is 4; .* 5 or more"):
        program(torch.ones(4, 3), torch.tensor(2.0))


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (lambda x: x.exp(), torch.ones(4, 3)),
        (lambda x: x.reshape(-1), torch.ones(4, 3)),
        (lambda x: x, torch.ones(4, 3, dtype=torch.bfloat16)),
        (lambda x: ~x, torch.ones(4, 3, dtype=torch.bool)),
        (lambda x: x + 1, torch.ones(4, 3, dtype=torch.int8)),
        (lambda x: torch.arange(x.shape[0]), torch.ones(4, 3)),
        (lambda x: torch.ones(2) * 3, torch.ones(4, 3)),
        (lambda x: (x * 2, torch.tensor(3)), torch.ones(4, 3, dtype=torch.complex64)),
    ],
    ids=["float", "reshaped", "bfloat16", "bool", "int8", "size only", "constant", "complex"],
)
def test_outputs_of_every_kind_wait_for_the_checks(
    model: Callable[..., Any], example: Tensor
) -> None:
    program = export(model, (example,), ({0: Dim("n", max=9)},))
    expected = model(example)
    actual = program(example)
    torch.testing.assert_close(
        actual, expected if isinstance(expected, tuple) else (expected,), check_stride=False
    )
    program.model.graph.metadata_props.pop(DIMENSIONS)  # so that ONNX Runtime receives the input
    with pytest.raises(Exception, match=r"check: x\.shape\[0\] <= 9 \(n\)"):
        program(torch.cat([example] * 3))


def test_a_size_of_zero_and_a_scalar() -> None:
    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    program = export(scaled, (torch.ones(4, 3), torch.tensor(2.0)), ({0: Dim("n", max=9)}, None))
    assert passes(program, ones(0, 3), TWO)[0].shape == (0, 3)


def test_a_number_among_the_inputs() -> None:
    def first(x: Tensor, k: int) -> Tensor:
        return x.expand(k, -1) + k

    program = export(first, (torch.ones(1, 3), 4), (None, Dim.DYNAMIC))
    assert passes(program, ones(1, 3), whole(6))[0].shape == (6, 3)
    assert all(check.startswith("k ") for check in checks(program))


def test_assertions_of_the_model() -> None:
    def asserting(x: Tensor, i: Tensor) -> Tensor:
        k = i.item()
        torch._check(k >= 0)
        torch._check(k < x.shape[0])
        torch._assert_async((x > -100).all(), "no large numbers")
        return x[:k]

    args, shapes = (torch.ones(8, 6), torch.tensor(3)), ({0: "h"}, None)
    program = export(asserting, args, shapes)
    assert passes(program, ones(8, 6), whole(3))[0].shape == (3, 6)
    fails(program, "u0 < h", ones(8, 6), whole(9))
    fails(program, "no large numbers", -1000 * ones(8, 6), whole(3))
    plain = onnx_aot.export(asserting, args, dynamic_shapes=shapes)
    assert checks(plain) == []


def test_a_check_of_all_elements() -> None:
    def checking(x: Tensor) -> Tensor:
        torch._check_tensor_all(x > 0, "positive")
        return x + 1

    shapes = ({0: "n"},)
    program = export(checking, (torch.ones(4, 3),), shapes)
    assert passes(program, ones(5, 3))[0].shape == (5, 3)
    fails(program, checks(program)[0], -ones(5, 3))
    plain = onnx_aot.export(checking, (torch.ones(4, 3),), dynamic_shapes=shapes)
    assert [node.op_type for node in plain.model.graph] == ["Add"]


def test_assertions_beside_writes() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            x[:, 0] = 2
            torch._assert_async((x > 0).all(), "positive")
            self.count.add_(1)
            return x.mul_(-1)

    with pytest.warns(onnx_aot.OnnxExporterWarning, match="count"):
        program = export(Counts(), (torch.rand(4, 3) + 1,), ({0: "n"},))
    doubled, count = passes(program, ones(5, 3))
    assert doubled.shape == (5, 3)
    assert count == 1
    fails(program, "positive", -ones(5, 3))


# --- checks of a call ----------------------------------------------------------------------------


def test_a_call_refuses_sizes_outside_of_the_range() -> None:
    program = onnx_aot.export(add, ADD[0], dynamic_shapes=ADD[1])
    program(torch.ones(10, 3), torch.ones(10, 3))
    with pytest.raises(
        InferenceError, match=r"dimension b \(input x, axis 0\) is 11; .* captured for 3 to 10\."
    ):
        program(torch.ones(11, 3), torch.ones(11, 3))
    with pytest.raises(InferenceError, match=r"is 2; "):
        program(torch.ones(2, 3), torch.ones(2, 3))
