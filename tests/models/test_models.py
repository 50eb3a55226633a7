"""Whole networks: exported once with dynamic sizes, right in ONNX Runtime at three sizes each."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import onnx
import pytest
import torch
from torch.utils import _pytree as pytree

import onnx_aot
from benchmarks.models import MODELS
from onnx_aot.dtypes import TOLERANCES, Tolerance
from onnx_aot.inspection.verify import format_differences, verify_against

# Models that choose between sizes, and what the export says of it.
WARNINGS = {"swin_t": r"outside of x, axis 2: 4 to 227; x, axis 3: 4 to 227"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_model(name: str, tmp_path: Path) -> None:
    case = MODELS[name]
    module = case.make()
    args, kwargs = case.example()
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("error", onnx_aot.OnnxExporterWarning)
        expected = WARNINGS.get(name)
        with (
            pytest.warns(onnx_aot.OnnxExporterWarning, match=expected)
            if expected is not None
            else contextlib.nullcontext()
        ):
            program = onnx_aot.export(
                module, args, path, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes
            )
    onnx.checker.check_model(str(path), full_check=True)
    assert len(case.sizes) == 3
    for index in range(3):
        args, kwargs = case.example(index)
        differences = verify_against(program, module, args, kwargs)
        assert differences
        assert all(d.within for d in differences), (
            f"{case.sizes[index]}\n{format_differences(differences)}"
        )


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_large_enough_to_tell(name: str) -> None:
    """A comparison means something only where outputs are much larger than the tolerance."""
    case = MODELS[name]
    args, kwargs = case.example()
    with torch.no_grad():
        outputs = pytree.tree_leaves(case.make()(*args, **kwargs))
    first = next(leaf for leaf in outputs if isinstance(leaf, torch.Tensor))
    assert first.std() > 20 * TOLERANCES[torch.float32].absolute


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
