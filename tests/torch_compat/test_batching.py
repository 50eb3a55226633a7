"""Operators under ``torch.vmap`` that keep the batch dynamic: ``torch_compat/batching.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError, DynamicShapeError, UnsupportedOperatorError
from tests.releases import TORCH
from tests.tolerances import assert_close
from tests.torch_compat.models import MODELS, Example, function, rows
from tests.torch_compat.without import absent, differs, exported, shows

WEIGHT = torch.randn(4, 2, 2)
ORDER = torch.tensor([2, 0, 1])

# Functions of a row of 3 elements.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cat": lambda v: torch.cat([v, v]),
    "cat along the last axis": lambda v: torch.cat([v[None], v[None] * 2], dim=-1),
    "cat with another tensor": lambda v: torch.cat([torch.ones(2), v]),
    "gather": lambda v: v.gather(0, ORDER[:2]),
    "gather by a row": lambda v: torch.arange(3.0).gather(0, v.argsort()),
    "index_add": lambda v: torch.zeros(3).index_add(0, ORDER, v, alpha=2),
    "index_copy": lambda v: torch.zeros(3).index_copy(0, ORDER, v),
    "scatter": lambda v: torch.zeros(3).scatter(0, ORDER, v),
    "scatter of a number": lambda v: v.scatter(-1, v.argsort()[:1], 7.0),
    "scatter_add": lambda v: torch.zeros(2).scatter_add(0, (v > 0).long(), v),
    "scatter_reduce": lambda v: torch.zeros(2).scatter_reduce(0, (v > 0).long(), v, "amax"),
    "select_scatter": lambda v: v.select_scatter(torch.tensor(5.0), 0, 1),
    "cross": lambda v: torch.linalg.cross(v, v.flip(0)),
    "cross along the first axis": lambda v: torch.linalg.cross(
        v[:, None], v.flip(0)[:, None], dim=0
    ),
    "layer_norm": lambda v: nn.functional.layer_norm(v, (3,), torch.ones(3) * 2, torch.ones(3)),
    "group_norm": lambda v: nn.functional.group_norm(torch.stack([v, v * v])[None], 2),
    "convolution": lambda v: nn.functional.conv1d(
        torch.stack([v, v * 2])[None], WEIGHT, torch.ones(4)
    ),
    "conversion": lambda v: (v > 0).long() * 2,
    "matrix and vector": lambda v: WEIGHT[0] @ v[:2],
    "matrix and vector, by columns": lambda v: torch.vmap(lambda a: a * v, out_dims=1)(v),
    "inverse": lambda v: torch.linalg.inv(torch.outer(v, v) + 5 * torch.eye(3)),
    "derivative of gelu": torch.func.grad(lambda v: nn.functional.gelu(v).sum()),
    "derivative": torch.func.hessian(lambda v: (v**3).sum()),
    "nested": lambda v: torch.vmap(lambda a: torch.cat([v, a[None]]))(v),
}


class Mapped(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any], axis: int) -> None:
        super().__init__()
        self.function, self.axis = function, axis

    def forward(self, x: Tensor) -> Any:
        return torch.vmap(self.function, in_dims=self.axis)(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batch_of_any_size(name: str) -> None:
    for axis in (0, 1):
        model = Mapped(FUNCTIONS[name], axis)
        example = torch.randn(3, 4) if axis else torch.randn(4, 3)
        program = onnx_aot.export(model, (example,), dynamic_shapes=({axis: "batch"},))
        for size in (4, 1, 7):
            x = torch.randn(3, size) if axis else torch.randn(size, 3)
            assert_close(program(x)[0], model(x))


@pytest.mark.parametrize(
    "called",
    [
        lambda v: torch.cat([torch.ones(0), v[None, :]], dim=1),
        lambda v: v.sum().gather(0, torch.tensor([0, 0])),
        lambda v: torch.zeros(3).index_add(0, v.argsort(), v),
        lambda v: nn.functional.layer_norm(v, (3,), v),
    ],
)
def test_what_only_torch_batches(called: Callable[[Tensor], Tensor]) -> None:
    """Torch's own rule is used, which fixes the batch; the error names the line."""
    model = Mapped(called, 0)
    x = torch.randn(4, 3)
    with pytest.raises(DynamicShapeError, match=r"fixed at 4\n.*lambda v: "):
        onnx_aot.export(model, (x,), dynamic_shapes=({0: "batch"},))
    assert_close(onnx_aot.export(model, (x,))(x)[0], model(x))


RULES = (
    "rules of torch.vmap",
    "torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter",
    "torch._functorch.autograd_function:custom_function_call_vmap_helper",
)


@shows(*RULES)
@pytest.mark.parametrize("name", RULES)
def test_the_batch_is_fixed(name: str) -> None:
    example = Example(lambda: Mapped(FUNCTIONS["cat"], 0), rows)
    with absent(name), pytest.raises(DynamicShapeError, match="fixed at 4"):
        exported(example)


MOVED = "torch._functorch.predispatch:_remove_batch_dim_impl"


@shows(MOVED)
@pytest.mark.parametrize("example", ["matrix", "ensemble"])
def test_moves_of_the_batch_are_refused(example: str) -> None:
    ensemble = Example(lambda: Mapped(FUNCTIONS["matrix and vector"], 0), rows)
    model = MODELS["ensemble"] if example == "ensemble" else ensemble
    with absent(MOVED), pytest.raises(CaptureError, match="capture does not see"):
        exported(model)


EFFECTS = "torch._higher_order_ops.effects:_get_effect"


@shows(EFFECTS)
@pytest.mark.skipif(TORCH < (2, 13), reason="checks have no effects before")
def test_inverses_are_refused() -> None:
    example = Example(lambda: Mapped(FUNCTIONS["inverse"], 0), rows)
    with absent(EFFECTS), pytest.raises(UnsupportedOperatorError, match="with_effects"):
        exported(example)


BATCHED = "torch._C._functorch:is_batchedtensor"


def read_where_mapped(x: Tensor) -> Tensor:
    places = x.sum(1).argsort()
    return torch.vmap(lambda place: x[place, torch.tensor([2, 0])])(places)


@shows(BATCHED)
def test_an_index_that_is_mapped_over_is_refused() -> None:
    example = Example(function(read_where_mapped), rows)
    assert not differs(example, exported(example))
    with absent(BATCHED), pytest.raises(CaptureError):
        exported(example)
