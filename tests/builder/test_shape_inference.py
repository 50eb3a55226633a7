"""Every value of a model has the recorded type and shape when the model runs."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch

import onnx_aot
import tests.ops
from benchmarks.models import MODELS
from onnx_aot.dimensions.conditions import fulfils_condition
from onnx_aot.torch_compat import size_conditions
from tests.ops.rows import SIZES, Call, Row
from tests.translate.sizes import check_inference, check_values, values_of

Tensor = torch.Tensor

# --- every value ---------------------------------------------------------------------------------

NETWORKS = ["word_language_model_lstm", "bert", "t5"]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_every_value_of_a_network_has_the_recorded_shape(name: str) -> None:
    case = MODELS[name]
    args, kwargs = case.example()
    program = onnx_aot.export(case.make(), args, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes)
    for value in values_of(program.model):
        assert value.dtype is not None
        assert value.shape is not None
        assert None not in [size if isinstance(size, int) else size.value for size in value.shape]
    check_inference(program)
    for index in (1, 2):
        args, kwargs = case.example(index)
        assert check_values(program, *args, **kwargs) > 10


def test_what_stands_for_a_missing_kernel_has_shapes() -> None:
    def normalized(x: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(torch.nn.functional.elu(x), 2)

    example = torch.rand(2, 4, 3, dtype=torch.float64)
    program = onnx_aot.export(normalized, (example,), dynamic_shapes=({0: "n", 2: "length"},))
    assert len(program.model.graph) > 10
    for value in values_of(program.model):
        assert value.shape is not None, value
    assert check_values(program, torch.rand(3, 4, 5, dtype=torch.float64)) > 10


def _rows() -> list[tuple[str, Row]]:
    """A selection of the rows for operators with dynamic sizes, from each family."""
    found = []
    for module in pkgutil.walk_packages(tests.ops.__path__, prefix="tests.ops."):
        name = module.name.rpartition(".")[2]
        if name.startswith("test_") and name != "test_torchao":
            members = vars(importlib.import_module(module.name)).values()
            lists = [m for m in members if isinstance(m, list)]
            rows = [row for rows in lists for row in rows if isinstance(row, Row)]
            dynamic = [row for row in rows if any(row.dynamic_shapes())]
            found += [(name, row) for row in dynamic[:: max(len(dynamic) // 2, 1)][:2]]
    assert len(found) > 50
    return found


@pytest.mark.parametrize(("family", "row"), _rows(), ids=str)
@pytest.mark.filterwarnings("ignore")
def test_every_value_of_an_operator_has_the_recorded_shape(family: str, row: Row) -> None:
    torch.manual_seed(0)
    program = onnx_aot.export(
        Call(row),
        row.examples(SIZES[0]),
        dynamic_shapes=(row.dynamic_shapes(),),
        opset_version=max(row.since, 20),
    )
    for value in values_of(program.model):
        assert value.dtype is not None, value
        assert value.shape is not None, value
    check_inference(program)
    for sizes in SIZES[1:]:
        inputs = row.examples(sizes)
        conditions = size_conditions(program.exported_program)
        if all(fulfils_condition(c, {"tensors": inputs}) is not False for c in conditions):
            check_values(program, *inputs)
