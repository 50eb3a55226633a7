"""The IR version of a file matches its opsets, functions and element types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxscript
import pytest
import torch
from onnx import helper
from onnxscript import opset17, opset23

import onnx_aot
from onnx_aot.errors import OpsetError
from onnx_aot.graph.opset_range import MAX_OPSET
from onnx_aot.translate.ir_version import ELEMENT_TYPES_SINCE
from tests.tolerances import assert_close

# --- the version of the file ---------------------------------------------------------------------


@pytest.mark.parametrize("opset", [17, 20])
def test_metadata_is_written_to_files_whose_version_has_none(opset: int, tmp_path: Path) -> None:
    """``metadata_props`` of nodes and values exist since IR version 10; parsers skip them."""
    path = tmp_path / "model.onnx"
    onnx_aot.export(torch.nn.Linear(40, 8), (torch.ones(1, 40),), path, opset_version=opset)
    model = onnx.load(path)
    assert model.ir_version < 10
    assert all(node.metadata_props for node in model.graph.node)
    assert any(value.metadata_props for value in model.graph.input)


@pytest.mark.parametrize(
    ("dtype", "version"),
    [
        (torch.float32, 8),
        (torch.bfloat16, 8),
        (torch.float8_e5m2, 9),
        (torch.float8_e8m0fnu, 12),
    ],
)
def test_element_types_of_later_versions(dtype: torch.dtype, version: int) -> None:
    """Operators of other domains support types that the opset's own do not."""

    def handled(op: Any, self: Any) -> Any:
        return op.call_op("Handle", [self], {}, domain="my.domain", version=3)

    program = onnx_aot.export(
        lambda x: x.clone(),
        (torch.ones(3).to(dtype),),
        opset_version=17,
        target=None,
        custom_translation_table={torch.ops.aten.clone.default: handled},
    )
    onnx.checker.check_model(program.model_proto)
    assert program.model.opset_imports == {"": 17, "my.domain": 3}
    assert program.model.ir_version == version


def test_outputs_that_are_inputs_of_a_later_type() -> None:
    with pytest.raises(OpsetError, match="Identity does not take FLOAT8E5M2 in opset 17") as caught:
        onnx_aot.export(lambda x: x, (torch.ones(3).to(torch.float8_e5m2),), opset_version=17)
    assert caught.value.lowest == 19


def test_outputs_that_are_one_value_of_a_later_type() -> None:
    """The second one is an Identity of the first; the error names the line that makes it."""

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x.flip(0)
            return y, y.detach()

    with pytest.raises(OpsetError, match="BFLOAT16 in opset 12") as caught:
        onnx_aot.export(Twice(), (torch.ones(3, dtype=torch.bfloat16),), opset_version=12)
    assert caught.value.lowest == 13
    assert f"at {__file__}:" in str(caught.value)


def test_versions_of_element_types_are_those_of_the_opsets_that_take_them() -> None:
    """The IR version supports all types that the operators of its opset accept."""
    casts = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == "Cast"]
    checked = set()
    for cast in sorted(casts, key=lambda schema: schema.since_version):
        version = helper.find_min_ir_version_for([helper.make_opsetid("", cast.since_version)])
        for dtype in ir.DataType:
            taken = f"tensor({dtype.name.lower()})" in cast.type_constraints[0].allowed_type_strs
            if taken and dtype not in checked and cast.since_version <= MAX_OPSET:
                assert ELEMENT_TYPES_SINCE.get(dtype, 8) == max(version, 8), dtype
                checked.add(dtype)
    assert checked > ELEMENT_TYPES_SINCE.keys()


def test_a_function_in_a_file_that_has_no_types_for_its_values() -> None:
    """Before IR version 10, files do not contain types of the values in a function."""
    domain = onnxscript.values.Opset("my.domain", 1)

    @onnxscript.script(domain)
    def Doubled(x):  # noqa: N802
        return opset17.Add(x, x)

    x, linear = torch.randn(3, 4), torch.nn.Linear(4, 4)
    program = onnx_aot.export(
        torch.nn.Sequential(torch.nn.ReLU(), linear),
        (x,),
        opset_version=17,
        custom_translation_table={torch.ops.aten.relu.default: Doubled},
    )
    assert program.model.ir_version == 8
    assert len(program.model.functions) == 1
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert_close(program(x)[0], linear(x + x))


def test_a_function_that_is_written_for_a_later_opset() -> None:
    """A function keeps its opset if the model's lacks its operators; the file has both."""
    domain = onnxscript.values.Opset("my.domain", 1)

    @onnxscript.script(domain)
    def Bits(x):  # noqa: N802
        return opset23.BitwiseAnd(x, x)

    program = onnx_aot.export(
        lambda x: x.clone() + 1,
        (torch.arange(3),),
        opset_version=17,
        target=None,
        custom_translation_table={torch.ops.aten.clone.default: Bits},
    )
    (function,) = program.model.functions.values()
    assert function.opset_imports[""] == 23
    assert program.model.ir_version == 11
