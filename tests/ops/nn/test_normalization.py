"""Normalization, embedding and pixel shuffling: ``onnx_aot/ops/nn/normalization.py``."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, ints, parametrize, positive

# Some rows run an operator in training mode, for which the exporter gives a warning.
pytestmark = pytest.mark.filterwarnings("ignore::onnx_aot.errors.OnnxExporterWarning")

EMPTY = ({"n": 0},)

LAYER_NORM = [
    Row(aten.layer_norm.default, args, kwargs, name=name, sizes=EMPTY)
    for name, args, kwargs in (
        ("plain", (floats("n", "m", 5), [5]), {}),
        ("weight", (floats("n", "m", 5), [5], floats(5)), {}),
        ("weight and bias", (floats("n", "m", 5), [5], floats(5), floats(5)), {"eps": 1e-3}),
        ("bias", (floats("n", 5), [5], None, floats(5)), {}),
        ("mixed", (floats("n", 5, dtype=torch.bfloat16), [5], floats(5), floats(5)), {}),
        ("mixed, bias", (floats("n", 5, dtype=torch.bfloat16), [5], None, floats(5)), {}),
        ("several", (floats("n", 3, 4), [3, 4]), {}),
        ("several, weight", (floats("n", 2, 3, 4), [2, 3, 4], floats(2, 3, 4)), {}),
        ("all", (floats(3, 4), [3, 4], floats(3, 4), floats(3, 4)), {}),
        ("one element", (floats("n", 1), [1]), {}),
    )
] + [
    Row(
        aten.layer_norm.default,
        (floats(2, "n", "m"),),
        call=lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]),
        name="dynamic",
    )
]

RMS_NORM = [
    Row(aten.rms_norm.default, args, kwargs, name=name, sizes=EMPTY)
    for name, args, kwargs in (
        ("plain", (floats("n", "m", 5), [5]), {}),
        ("weight", (floats("n", "m", 5), [5], floats(5)), {"eps": 1e-6}),
        ("several", (floats("n", 3, 4), [3, 4], floats(3, 4)), {}),
        ("small", (floats("n", 4, low=-1e-4, high=1e-4), [4]), {}),
        ("half", (floats("n", 4, low=-999.0, high=999.0, dtype=torch.float16), [4]), {"eps": 1e-8}),
        (
            "half, zeros",
            (floats("n", 4, low=0.0, high=0.0, dtype=torch.float16), [4]),
            {"eps": 1e-8},
        ),
    )
]

GROUP_NORM = [
    Row(aten.group_norm.default, args, kwargs, name=name, sizes=EMPTY)
    for name, args, kwargs in (
        ("2", (floats("n", 6), 2, floats(6), floats(6)), {}),
        ("3", (floats("n", 6, 5), 3, floats(6), floats(6)), {"eps": 1e-3}),
        ("4", (floats("n", 6, 4, 5), 2, floats(6), floats(6)), {}),
        ("4 dynamic", (floats("n", 6, "h", "w"), 2, floats(6), floats(6)), {}),
        ("4 one dynamic", (floats(2, 6, 3, "w"), 2, floats(6), floats(6)), {}),
        ("5", (floats("n", 4, 2, "h", "w"), 2, floats(4)), {}),
        ("plain", (floats("n", 6, "h", 3), 6), {}),
        ("bias", (floats("n", 6, 3), 1, None, floats(6)), {}),
    )
]

BATCH_NORM = [
    *(
        Row(aten.batch_norm.default, (x, *rest, False, 0.1, 1e-5, False), name=name, sizes=EMPTY)
        for name, x, rest in (
            ("2", floats("n", 3), (floats(3), floats(3), floats(3), positive(3))),
            ("3", floats("n", 3, "m"), (floats(3), floats(3), floats(3), positive(3))),
            ("4", floats("n", 3, "h", "w"), (floats(3), floats(3), floats(3), positive(3))),
            ("5", floats("n", 3, 2, "h", "w"), (floats(3), floats(3), floats(3), positive(3))),
            ("plain", floats("n", 3, "m"), (None, None, floats(3), positive(3))),
            ("weight", floats("n", 3, "m"), (floats(3), None, floats(3), positive(3))),
        )
    ),
    *(
        Row(
            aten.batch_norm.default,
            (x, weight, bias, None, None, True, 0.1, 1e-3, False),
            name=f"training {name}",
        )
        for name, x, weight, bias in (
            ("2", floats("m", 3), floats(3), floats(3)),
            ("3", floats("n", 3, "m"), floats(3), None),
            ("4", floats("n", 3, "h", "w"), None, None),
            ("5", floats("n", 3, 2, "h", 2), floats(3), floats(3)),
        )
    ),
    *(
        Row(
            aten._native_batch_norm_legit_functional.default,
            (x, weight, bias, floats(3), positive(3), True, momentum, 1e-5),
            name=name,
        )
        for name, x, weight, bias, momentum in (
            ("2", floats("m", 3), floats(3), floats(3), 0.1),
            ("3", floats(2, 3, 4), floats(3), None, 0.5),
            ("4", floats("n", 3, "h", "w"), None, None, 1.0),
            ("all dynamic but one", floats("n", 3, 2), None, floats(3), 0.0),
        )
    ),
    Row(
        aten._native_batch_norm_legit_functional.default,
        (floats("n", 3, 2), floats(3), floats(3), floats(3), positive(3), False, 0.1, 1e-5),
        name="evaluation",
    ),
]

INSTANCE_NORM = [
    Row(
        aten.instance_norm.default,
        (x, weight, bias, mean, variance, own, 0.1, 1e-5, False),
        name=name,
    )
    for name, x, weight, bias, mean, variance, own in (
        ("3", floats("n", 3, "m"), floats(3), floats(3), None, None, True),
        ("4", floats("n", 3, "h", "w"), None, None, None, None, True),
        ("5", floats("n", 3, 2, "h", 2), floats(3), None, None, None, True),
        ("running", floats("n", 3, "m"), floats(3), floats(3), floats(3), positive(3), False),
        ("running, plain", floats("n", 3, "m"), None, None, floats(3), positive(3), False),
    )
]

DOUBLE = {"dtype": torch.float64}
HALF = {"dtype": torch.bfloat16}

# Types that PyTorch widens or that lack a kernel in ONNX Runtime, and the other overloads.
OTHERS = [
    Row(
        aten.group_norm.default,
        (floats("n", 6, "h", 2, **DOUBLE), 3, floats(6, **DOUBLE), floats(6, **DOUBLE)),
        name="float64",
    ),
    Row(
        aten.instance_norm.default,
        (floats("n", 3, "m", **DOUBLE), None, floats(3, **DOUBLE), None, None, True, 0.1, 1e-5, 0),
        name="float64",
    ),
    Row(
        aten.native_group_norm.default,
        (floats(4, 6, 2, 5), floats(6), floats(6), 4, 6, 10, 3, 1e-5),
    ),
    Row(
        aten.native_group_norm.default,
        (floats("n", 6, "w"), floats(6), floats(6)),
        call=lambda x, *affine: aten.native_group_norm(
            x, *affine, x.shape[0], 6, x.shape[2], 3, 1e-5
        ),
        name="of any size",
    ),
    Row(
        aten.native_group_norm.default,
        (floats(4, 6, 2, 5, **HALF), None, floats(6, **HALF), 4, 6, 10, 3, 1e-5),
        name="bfloat16",
    ),
    Row(
        aten.batch_norm.default,
        (floats("n", 3, "m", **HALF), floats(3), floats(3), None, None, True, 0.1, 1e-3, False),
        name="training, bfloat16",
    ),
    Row(
        aten.batch_norm.default,
        (floats(0), None, None, floats(0), positive(0), False, 0.1, 1e-3, False),
        name="rank 1",
    ),
    Row(
        aten._native_batch_norm_legit_functional.default,
        (
            floats("n", 3, "m", **HALF),
            floats(3, **HALF),
            None,
            floats(3, **HALF),
            positive(3, **HALF),
            True,
            0.1,
            1e-3,
        ),
        call=lambda *args: aten._native_batch_norm_legit_functional.default(*args)[:3],
        name="bfloat16",
    ),
    Row(
        aten._batch_norm_with_update_functional.default,
        (floats("n", 3, "m"), floats(3), floats(3), floats(3), positive(3), 0.1, 1e-3),
    ),
    Row(
        aten.native_batch_norm.default,
        (floats("n", 3, "m"), floats(3), floats(3), None, None, True, 0.1, 1e-3),
        name="training",
    ),
    Row(
        aten.native_batch_norm.default,
        (floats("n", 3, "m"), floats(3), floats(3), floats(3), positive(3), False, 0.1, 1e-3),
        name="evaluation",
    ),
    Row(
        aten._native_batch_norm_legit.no_stats,
        (floats("n", 3, "m"), floats(3), floats(3), True, 0.1, 1e-3),
    ),
    Row(
        aten._native_batch_norm_legit_no_training.default,
        (floats("n", 3, "m"), floats(3), floats(3), floats(3), positive(3), 0.1, 1e-3),
    ),
]

ONE_HOT = [
    Row(aten.one_hot.default, (ints("n", "m", low=0, high=5), 5), sizes=EMPTY),
    Row(aten.one_hot.default, (ints(low=0, high=5), 7), name="rank 0"),
]

PIXEL_SHUFFLE = [
    Row(aten.pixel_shuffle.default, (tensor, factor), name=name)
    for name, tensor, factor in (
        ("3", floats(8, "h", "w"), 2),
        ("4", floats("n", 18, "h", "w"), 3),
        ("5", floats("n", "m", 8, "h", "w"), 2),
        ("5 static", floats(2, 3, 8, 3, 4), 2),
        ("factor 1", floats("n", 3, 4, 5), 1),
        ("int", ints("n", 8, "h", 3), 2),
        ("bool", bools("n", 8, 2, "w"), 2),
    )
]

ROWS = [
    *LAYER_NORM,
    *RMS_NORM,
    *GROUP_NORM,
    *BATCH_NORM,
    *INSTANCE_NORM,
    *OTHERS,
    *ONE_HOT,
    *PIXEL_SHUFFLE,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


class Averaging(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = torch.nn.functional.batch_norm(x, self.mean, self.variance, training=True)
        return output, self.mean + 1, self.variance + 1


@pytest.mark.parametrize(
    ("shape", "dynamic_shapes", "others"),
    [((0,), None, ()), ((0, 3), None, ()), ((4, 3), ({0: "n"},), (2, 0))],
)
def test_no_batch_leaves_running_statistics(
    shape: tuple[int, ...], dynamic_shapes: object, others: tuple[int, ...]
) -> None:
    channels = shape[1] if len(shape) > 1 else 0
    x = torch.randn(shape)
    program = onnx_aot.export(Averaging(channels), (x,), dynamic_shapes=dynamic_shapes)
    for size in (shape[0], *others):
        given = torch.randn(size, *shape[1:])
        expected = Averaging(channels)(given)
        torch.testing.assert_close(tuple(program(given)[:3]), expected)


@pytest.mark.parametrize("eps", [-1e-12, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_negative_epsilon(eps: float, dtype: torch.dtype) -> None:
    """ONNX Runtime refuses it where a layer normalization follows or precedes an addition."""
    weight, bias = torch.rand(6, dtype=dtype), torch.rand(6, dtype=dtype)

    def normalize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x + x.sin(), (6,), weight, bias, eps) + x

    x = torch.randn(2, 4, 6).to(dtype)
    program = onnx_aot.export(normalize, (x,))
    torch.testing.assert_close(program(x)[0], normalize(x), equal_nan=True, rtol=2e-3, atol=2e-3)


def test_epsilon_of_batch_norm_in_float64() -> None:
    """The attribute of BatchNormalization is a float32: it is off by 5e-8 of a small variance."""
    model = torch.nn.BatchNorm1d(3, eps=1e-3).double().eval()
    assert model.running_var is not None
    model.running_var.fill_(1e-9)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    (actual,) = onnx_aot.export(model, (x,))(x)
    torch.testing.assert_close(actual, model(x), rtol=1e-14, atol=0)
