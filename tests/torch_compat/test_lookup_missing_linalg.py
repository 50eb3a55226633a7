"""More effects of missing private parts of torch: operators of linear algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from onnx_aot.errors import CaptureError, DynamicShapeError
from tests.torch_compat.models import Example, function, rows
from tests.torch_compat.without import absent, differs, exported, shows

GRADIENTS: dict[str, dict[str, Any]] = {
    "array": {"dim": [0]},
    "scalararray": {"spacing": 2.0, "dim": [0]},
    "scalarint": {"spacing": 2.0},
    "scalarrayarray": {"spacing": [2.0, 1.0], "dim": [0, 1]},
    "scalarrayint": {"spacing": [2.0], "dim": 0},
    "tensorarray": {"spacing": [torch.arange(3.0)], "dim": [1]},
    "tensorarrayint": {"spacing": [torch.arange(3.0)], "dim": 1},
}


def _differentiate(overload: str, options: dict[str, Any]) -> Example:
    gradient = getattr(torch.ops.aten.gradient, overload)
    return Example(function(lambda x: gradient(x, **options)), rows)


FIXED = {
    **{
        f"kernel of aten.gradient.{overload}": _differentiate(overload, options)
        for overload, options in GRADIENTS.items()
    },
    "kernel of aten.linalg_matrix_norm.default": Example(
        function(lambda x: torch.ops.aten.linalg_matrix_norm.default(x.T, 1)), rows
    ),
    "kernel of aten.linalg_multi_dot.default": Example(
        function(lambda x: torch.linalg.multi_dot([x, x.T, x])), rows
    ),
}


@shows(*FIXED)
@pytest.mark.parametrize("name", FIXED)
def test_rows_are_fixed(name: str) -> None:
    example = FIXED[name]
    assert not differs(example, exported(example))
    with absent(name), pytest.raises(DynamicShapeError, match="fixed at"):
        exported(example)


@shows("kernel of aten.linalg_cond.p_str")
def test_condition_numbers_are_refused() -> None:
    example = Example(
        function(lambda x: torch.linalg.cond(x @ x.T + torch.eye(x.shape[0]), "fro")), rows
    )
    assert not differs(example, exported(example))
    with absent("kernel of aten.linalg_cond.p_str"), pytest.raises(CaptureError, match="numel"):
        exported(example)
