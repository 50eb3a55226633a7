"""More effects of missing private parts of torch: operators of linear algebra."""

from __future__ import annotations

import pytest
import torch

from onnx_aot.errors import DynamicShapeError
from tests.torch_compat.models import Example, function, rows
from tests.torch_compat.without import absent, differs, exported, shows

FIXED = {
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
