"""More effects of missing private parts of torch: functions of sizes, and subclasses of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from onnx_aot.errors import (
    CaptureError,
    DynamicShapeError,
    TranslationError,
)
from onnx_aot.torch_compat import FakeTensorMode, without_new_conditions
from tests.capture.patches.test_tensor_subclasses import Angle, WithState
from tests.torch_compat.models import Example, function, rows
from tests.torch_compat.without import SHAPES, absent, differs, exported, message, shows

LOG2 = "torch:_sym_log2"


def add_steps(x: Tensor) -> Tensor:
    for start in torch.arange(x.shape[0] // 2):
        x = x + torch.arange(start, 12).sum()
    return x


# By place: a model, the error without the row, and its text.
REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], type[Exception], str]] = {
    "numpy.log2 of a size": (
        lambda x: x * int(np.ceil(np.log2(x.shape[0]))),
        CaptureError,
        "computes with NumPy",
    ),
    "bit_length of a size": (
        lambda x: x * x.shape[0].bit_length(),
        DynamicShapeError,
        r"fixed at 4\s.*bit_length",
    ),
    "math:log2": (
        lambda x: x * math.ceil(math.log2(x.shape[0])),
        DynamicShapeError,
        r"fixed at 4\s.*math\.log2",
    ),
    "numpy.log of a size": (
        lambda x: x * float(np.log(x.shape[0])),
        CaptureError,
        "computes with NumPy",
    ),
    "math:log": (
        lambda x: x * math.log(x.shape[0]),
        DynamicShapeError,
        r"fixed at 4\s.*math\.log",
    ),
    "math:log10": (
        lambda x: x * math.log10(x.shape[0]),
        DynamicShapeError,
        r"fixed at 4\s.*math\.log10",
    ),
    "numpy.exp of a size": (
        lambda x: x * float(np.exp(x.shape[0] / 9)),
        CaptureError,
        "computes with NumPy",
    ),
    "astype of a size": (
        lambda x: x * np.ceil(x.shape[0] / 3).astype("int64"),
        CaptureError,
        "'astype'",
    ),
    "item of a size": (
        lambda x: x * np.ceil(x.shape[0] / 3).item(),
        CaptureError,
        "'item'",
    ),
    "math:exp": (
        lambda x: x * math.exp(x.shape[0] / 9),
        DynamicShapeError,
        r"fixed at 4.*\s.*math\.exp",
    ),
    "divmod in the packages of the model": (
        lambda x: x * sum(divmod(x.shape[0], 3)),
        CaptureError,
        "divmod",
    ),
    "torch._prims_common.wrappers:_maybe_convert_to_dtype": (
        lambda x: torch.complex(x, x + 1).mean(0).abs(),
        DynamicShapeError,
        r"fixed at 4\s.*mean",
    ),
    "torch._subclasses.fake_impls:_unique": (
        lambda x: x.unique_consecutive(dim=-1).sum(1),
        TranslationError,
        "dim=1",
    ),
    "torch:arange": (add_steps, CaptureError, "arange"),
    "torch:Tensor.as_subclass": (
        lambda x: x.as_subclass(Angle) + 0.5,
        CaptureError,
        "Creating a new Tensor subclass",
    ),
}


@shows(*REFUSED)
@pytest.mark.parametrize("name", REFUSED)
def test_models_are_refused(name: str) -> None:
    compute, error, text = REFUSED[name]
    example = Example(function(compute), rows)
    assert not differs(example, exported(example))
    with absent(name), pytest.raises(error, match=text):
        exported(example)


@shows("kernel of aten.tensor_split.sections")
def test_pieces_have_the_sizes_of_the_example() -> None:
    """Four rows are one per piece; of seven, the first piece has two."""
    example = Example(function(lambda x: x * x.tensor_split(4)[0].shape[0]), rows)
    assert not differs(example, exported(example))
    with absent("kernel of aten.tensor_split.sections"):
        assert differs(example, exported(example))


ASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "isinstance": lambda x: x * (2 if isinstance(x.shape[0], int) else 1),
    "type": lambda x: x * (2 if type(x.shape[0]).__name__ == "int" else 1),
}


@shows(*(f"{name} in the packages of the model" for name in ASKED))
@pytest.mark.parametrize("name", ASKED)
def test_sizes_are_no_integers(name: str) -> None:
    example = Example(function(ASKED[name]), rows)
    assert not differs(example, exported(example))
    with absent(f"{name} in the packages of the model"):
        assert differs(example, exported(example))


@shows("__array_ufunc__ of a size")
def test_a_minimum_of_numpy_asks_which_is_smaller() -> None:
    example = Example(function(lambda x: x[: np.minimum(x.shape[0], 3)]), rows)
    assert not differs(example, exported(example), (4, 2))
    with absent("__array_ufunc__ of a size"):
        program = exported(example)
    assert "If" in [node.op_type for node in program.model.graph]


@shows(LOG2)
def test_logarithms_fix_sizes() -> None:
    example = Example(function(REFUSED["math:log2"][0]), rows)
    with absent(LOG2):
        assert "fixed at 4" in message(example)


class LaterRows(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, 1:])


PRODUCTS: dict[str, Callable[[], nn.Module]] = {
    "kernel of aten.linear.default": lambda: LaterRows(3, 2),
    "kernel of aten.matmul.default": function(lambda x: x[:, 1:] @ torch.ones(3, 2)),
}


@shows(*PRODUCTS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_slices_fix_a_batch_of_one(name: str) -> None:
    example = Example(
        PRODUCTS[name],
        lambda n: (rows(5 * n)[0].reshape(n, 5, 3),),
        sizes=(1, 4),
        dynamic_shapes=({0: Dim.AUTO},),
    )
    assert not differs(example, exported(example))
    with absent(name):
        assert exported(example).inputs[0].shape[0] == 1


ROUNDED: dict[str, Callable[[float], float]] = {
    "torch:SymFloat.__ceil__": math.ceil,
    "torch:SymFloat.__floor__": math.floor,
    "torch:SymFloat.__round__": round,
    "torch:SymFloat.__trunc__": math.trunc,
}


@shows(*ROUNDED)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_logarithms_are_trusted(name: str) -> None:
    example = Example(function(lambda x: x * ROUNDED[name](math.log(x.shape[0]))), rows)
    assert "fixed at 4" in message(example)
    with absent(name):
        assert not isinstance(exported(example).inputs[0].shape[0], int)


@shows("forward: subclasses of torch.Tensor in the state")
def test_buffers_are_plain_tensors() -> None:
    example = Example(lambda: WithState(torch.full((3,), 0.75).as_subclass(Angle)), rows)
    assert not differs(example, exported(example))
    with absent("forward: subclasses of torch.Tensor in the state"):
        assert differs(example, exported(example))


VERSIONS = [
    f"{SHAPES}:ShapeEnv.{name}" for name in ("_version_counter", "_replacements_version_counter")
]


@shows(*VERSIONS)
@pytest.mark.parametrize("name", VERSIONS)
def test_a_value_that_was_read_on_one_side_is_kept(name: str) -> None:
    def is_forgotten() -> bool:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        number = mode.shape_env.create_unbacked_symint()
        with without_new_conditions(mode):
            torch._check(number == 5)
            assert str(number) == "5"
        return str(number) != "5"

    assert is_forgotten()
    with absent(name):
        assert not is_forgotten()
