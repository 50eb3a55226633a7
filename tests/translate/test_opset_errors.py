"""The requested opset is emitted, and its limitations are reported immediately."""

from __future__ import annotations

import re
from typing import Any

import onnx
import pytest
import torch
from onnx import helper

import onnx_aot
from onnx_aot.errors import InvalidOptionError, OpsetError
from onnx_aot.graph import onnx_schemas
from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET
from onnx_aot.ops.registry import translations
from tests.tolerances import assert_close

OPSETS = range(MIN_OPSET, MAX_OPSET + 1)

Tensor = torch.Tensor


class Forms(torch.nn.Module):
    """Operators with an ONNX form that depends on the opset."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.root = torch.nn.RMSNorm(8)
        self.groups = torch.nn.GroupNorm(2, 4)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = torch.nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: Tensor, images: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
        y = torch.nn.functional.gelu(self.norm(x), approximate="tanh")
        y = torch.nn.functional.silu(torch.nn.functional.mish(self.root(y)))
        attended, _ = self.attention(y, y, y, need_weights=False)
        hidden, _ = self.recurrent(attended)
        sampled = torch.nn.functional.grid_sample(self.groups(images), grid, align_corners=False)
        larger = torch.nn.functional.interpolate(sampled, scale_factor=2.0, mode="bilinear")
        padded = torch.nn.functional.pad(larger, (1, 2, 0, 1), mode="reflect").flatten(2)
        spectrum = torch.fft.rfft(x).abs()
        first, second = torch.split(x, [3, 5], dim=-1)
        return (
            hidden.logsumexp(-1),
            padded.amax((-1, -2)) + padded.var(),
            spectrum.cumsum(1).isinf().any(-1),
            torch.softmax(first.norm(dim=-1), -1) + second.prod(-1).clamp(-1, 1),
            (x > 0).all(1).any(-1),
            x.argmax(-1),
        )


FORMS = (torch.randn(2, 3, 8), torch.randn(2, 4, 6, 6), torch.rand(2, 5, 5, 2) * 2 - 1)


@pytest.fixture(scope="module")
def forms() -> tuple[Forms, torch.export.ExportedProgram]:
    torch.manual_seed(0)
    module = Forms().eval()
    return module, onnx_aot.export(module, FORMS).exported_program


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_is_emitted(
    opset: int, forms: tuple[Forms, torch.export.ExportedProgram]
) -> None:
    module, captured = forms
    program = onnx_aot.export(captured, opset_version=opset)
    proto = program.model_proto
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", opset)]
    assert proto.ir_version == helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    for actual, expected in zip(program(*FORMS), module(*FORMS), strict=True):
        assert_close(actual, expected)


def test_every_operator_of_the_table_has_a_form_in_the_lowest_opset() -> None:
    """An operator with forms only in later opsets would seem to be in no opset."""
    late = [t for t, forms in translations().items() if min(f.since for f in forms) > MIN_OPSET]
    assert not late


@pytest.mark.parametrize("opset", [10, 29, 0, "20", 20.0, True])
def test_opsets_that_are_not_emitted(opset: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"opset_version is .* 11 to 28"):
        onnx_aot.export(torch.nn.ReLU(), (torch.ones(2),), opset_version=opset)


# --- missing from an opset -----------------------------------------------------------------------


def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    low = x & 3
    reduced = torch.zeros(4).scatter_reduce(0, low, y, reduce="amax")
    return low | x, reduced + 1, (x & 1) - 1


SEVERAL = (torch.arange(4), torch.rand(4))


def test_all_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(OpsetError) as caught:
        onnx_aot.export(several, SEVERAL, opset_version=17)
    error = caught.value
    assert [(entry.operator, entry.since) for entry in error.missing] == [
        ("BitwiseAnd", 18),
        ("ScatterElements", 18),
        ("BitwiseOr", 18),
    ]
    assert error.missing[0].targets == (("aten.__and__.Scalar", 2),)
    first, second = error.missing[0].locations
    assert re.search(r"test_opset_errors\.py:\d+ in several: low = x & 3$", first)
    assert second.endswith("return low | x, reduced + 1, (x & 1) - 1")
    message = error.message
    assert "BitwiseAnd does not exist in opset 17" in message
    assert "has no reduction 'max' in opset 17" in message
    assert all(line in message for line in (first, second, "aten.scatter_reduce.two (1x)"))
    assert message.endswith("Pass opset_version=18 or higher")
    assert error.lowest == 18
    program = onnx_aot.export(several, SEVERAL, opset_version=error.lowest)
    for actual, expected in zip(program(*SEVERAL), several(*SEVERAL), strict=True):
        torch.testing.assert_close(actual, expected)


def _of_neg(translation: Any, opset: int) -> Any:
    return onnx_aot.export(
        lambda x: torch.neg(x).exp(),
        (torch.ones(2, 4),),
        opset_version=opset,
        custom_translation_table={torch.ops.aten.neg.default: translation},
    )


@pytest.mark.parametrize(
    ("translation", "opset", "problem", "lowest"),
    [
        (lambda op, self: op.Swish(self), 20, "Swish does not exist in opset 20", 24),
        (lambda op, self: op.Swish(op.Gelu(self)), 18, "Gelu does not exist in opset 18", 24),
        (lambda op, self: op.ReduceMax(self, [0]), 17, "takes 1 inputs in opset 17, 2 were", 18),
        (lambda op, self: op.Cast(self, to=10, saturate=1), 18, "no attribute 'saturate'", 19),
        (lambda op, self: op.Upsample(self, [2.0]), 20, "was removed in opset 10", None),
        (lambda op, self: op.Gadget(self), 20, "no opset has it", None),
    ],
    ids=["operator", "operators", "inputs", "attribute", "removed", "unknown"],
)
def test_the_lowest_opset_that_has_a_form(
    translation: Any, opset: int, problem: str, lowest: int | None
) -> None:
    with pytest.raises(OpsetError, match=problem) as caught:
        _of_neg(translation, opset)
    assert caught.value.lowest == lowest
    assert ("Pass opset_version=" in str(caught.value)) == (lowest is not None)


def test_forms_of_opsets_that_are_not_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_schemas, "MAX_OPSET", 25)
    with pytest.raises(OpsetError, match="since opset 26, which is later than 25") as caught:
        _of_neg(lambda op, self: op.BitCast(self, to=6), 25)
    assert caught.value.lowest is None
    assert "Pass opset_version=" not in str(caught.value)


def test_what_no_opset_has_is_not_a_matter_of_opsets() -> None:
    with pytest.raises(onnx_aot.errors.TranslationError, match="no attribute 'axes' in opset 20"):
        _of_neg(lambda op, self: op.ReduceMax(self, axes=[0]), 20)


def test_types_that_a_later_opset_takes() -> None:
    with pytest.raises(OpsetError, match="Opset 19 takes it") as caught:
        onnx_aot.export(
            lambda x: x.to(torch.float8_e4m3fn).float(), (torch.ones(2),), opset_version=18
        )
    assert caught.value.lowest == 19
