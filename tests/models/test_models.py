"""Whole networks: exported with dynamic sizes, correct in ONNX Runtime at three sizes each.

Captures take most of the time and do not depend on the opset, so a model is captured once, for
the default opset, and the capture is exported for the others.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch.utils import _pytree as pytree

import onnx_aot
from benchmarks.models import MODELS
from benchmarks.models.case import ModelCase
from onnx_aot.dtypes import TOLERANCES, Tolerance
from onnx_aot.inspection.verification import format_differences
from onnx_aot.inspection.verify import verify_against
from tests.releases import HIGHEST_OPSET

DEFAULT_OPSET = 20
# Other opsets, with the IR version of the first ONNX release that had them.
OTHER_OPSETS = {17: 8, 23: 11, 25: 13}

# Models that branch on sizes, and the resulting warning.
# PyTorch refuses images of less than 4 pixels, so either number is right.
WARNINGS = {"swin_t": r"outside of x, axis [23]: [04] to 227.*; x, axis [23]: [04] to 227"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_model(name: str, tmp_path: Path) -> None:
    case = MODELS[name]
    module = case.make()
    args, kwargs = case.example()
    path = tmp_path / "model.onnx"
    with _expected_warnings(name):
        program = onnx_aot.export(
            module, args, path, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes
        )
    assert program.model.opset_imports == {"": DEFAULT_OPSET}
    onnx.checker.check_model(str(path), full_check=True)
    answers = _answers(case, module)
    _large_enough_to_tell(answers[0])
    _compare(case, program, answers)
    for opset, ir_version in OTHER_OPSETS.items():
        if opset > HIGHEST_OPSET:
            continue
        with _expected_warnings(name):
            other = onnx_aot.export(
                program.exported_program, dynamic_shapes=case.dynamic_shapes, opset_version=opset
            )
        assert other.model.opset_imports == {"": opset}
        assert other.model.ir_version == ir_version
        assert _signature(other) == _signature(program)
        onnx.checker.check_model(other.model_proto, full_check=True)
        _compare(case, other, answers)


@contextlib.contextmanager
def _expected_warnings(name: str) -> Iterator[None]:
    """Warnings of this package are errors, except a model's expected one, which must occur."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", onnx_aot.OnnxExporterWarning)
        if name in WARNINGS:
            with pytest.warns(onnx_aot.OnnxExporterWarning, match=WARNINGS[name]):
                yield
        else:
            yield


def _answers(case: ModelCase, module: torch.nn.Module) -> list[Any]:
    """Results of PyTorch at each of the sizes, shared by all opsets."""
    assert len(case.sizes) == 3
    answers = []
    for index in range(3):
        args, kwargs = case.example(index)
        with torch.no_grad():
            answers.append(module(*args, **kwargs))
    return answers


def _large_enough_to_tell(answer: Any) -> None:
    """A comparison is meaningful only if outputs are much larger than the tolerance."""
    leaves = pytree.tree_leaves(answer)
    first = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    assert first.std() > 20 * TOLERANCES[torch.float32].absolute


def _compare(case: ModelCase, program: onnx_aot.ONNXProgram, answers: Sequence[Any]) -> None:
    opset = program.model.opset_imports[""]
    for index, answer in enumerate(answers):
        args, kwargs = case.example(index)
        differences = verify_against(program, lambda *_, a=answer, **__: a, args, kwargs)
        assert differences
        assert all(d.within for d in differences), (
            f"{case.sizes[index]}, opset {opset}\n{format_differences(differences)}"
        )
    program.release()  # sessions of the larger models would not all fit into memory


def _signature(program: onnx_aot.ONNXProgram) -> list[tuple[Any, ...]]:
    graph = program.model.graph
    return [(value.name, value.dtype, value.shape) for value in (*graph.inputs, *graph.outputs)]


def test_the_tolerance_is_the_promised_one() -> None:
    assert TOLERANCES[torch.float32] == Tolerance(relative=1e-3, absolute=1e-4)


def test_nested_inputs_share_a_named_dimension() -> None:
    case = MODELS["mlp"]
    args, kwargs = case.example()
    program = onnx_aot.export(
        case.make(),
        args,
        kwargs=kwargs,
        dynamic_shapes=(
            {0: "batch_size"},
            {"tensor_x": {0: "batch_size"}},
            [{0: "batch_size"}],
        ),
        input_names=["tensor_x", "dict_tensor_x", "list_tensor_x"],
        output_names=["output"],
    )
    for value in program.model.graph.inputs:
        assert value.shape == ("batch_size", 8)
    assert [v.name for v in program.model.graph.inputs] == [
        "tensor_x",
        "dict_tensor_x",
        "list_tensor_x",
    ]
    assert [v.name for v in program.model.graph.outputs] == ["output"]
