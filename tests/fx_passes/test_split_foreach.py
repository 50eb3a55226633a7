"""Operators on lists of tensors give what torch gives, with and without dynamic sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import CaptureError, UnsupportedOperatorError
from onnx_aot.torch_compat import OpOverload, schema_of
from tests.tolerances import assert_close

COUNT = 3
PARTS = 4  # models, each with a part of the operators

FACTORS = r"scalars to be on CPU|aten\._foreach_addc"  # refused by torch, or by this package
WITHOUT = {
    "aten._foreach_addcdiv.Tensor": FACTORS,
    "aten._foreach_addcdiv_.Tensor": FACTORS,
    "aten._foreach_addcmul.Tensor": FACTORS,
    "aten._foreach_addcmul_.Tensor": FACTORS,
    "aten._foreach_powsum.Scalar": r"aten\._foreach_powsum",
}
"""Overloads that are not split, with the error. Factors in a tensor are no numbers, and no operator
on one tensor computes ``powsum``."""


def list_operators() -> list[OpOverload]:
    names = [name for name in dir(torch._C._VariableFunctions) if name.startswith("_foreach_")]
    packets = [getattr(torch.ops.aten, name) for name in names]
    overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    return [o for o in overloads if not any(a.is_out for a in schema_of(o).arguments)]


OPERATORS = {str(operator): operator for operator in list_operators()}


class Calls(torch.nn.Module):
    """Calls operators on tensors made of the input, from 0.1 to 0.9, where all are defined."""

    def __init__(self, *operators: OpOverload) -> None:
        super().__init__()
        self.operators = operators

    def forward(self, x: Tensor) -> Any:
        return [self.call(operator, x) for operator in self.operators]

    def call(self, operator: OpOverload, x: Tensor) -> Any:
        def make(kind: str, index: int) -> Any:
            if kind == "List[Tensor]":
                return [x / (1 + index + i) + 0.1 for i in range(COUNT)]
            tensor = x[0, :COUNT] if str(operator) in WITHOUT else x.mean()
            return {"List[number]": [0.5, 2.0, 1.5], "number": 2.0, "Tensor": tensor}[kind]

        arguments = schema_of(operator).arguments
        kinds = [str(a.type) for a in arguments if not a.has_default_value()]
        given = [make(kind, index) for index, kind in enumerate(kinds)]
        returned = operator(*given)
        return given[0] if returned is None else returned


@pytest.mark.parametrize("part", range(PARTS))
def test_equal_to_eager(part: int) -> None:
    names = sorted(set(OPERATORS) - set(WITHOUT))[part::PARTS]
    model, x = Calls(*(OPERATORS[name] for name in names)), torch.rand(4, 4) * 0.8
    actual, expected = onnx_aot.export(model, (x,))(x), model(x)
    results = zip(actual, [tensor for returned in expected for tensor in returned], strict=True)
    wrong = [names[i // COUNT] for i, pair in enumerate(results) if not agrees(*pair)]
    assert not wrong


def agrees(found: Tensor, wanted: Tensor) -> bool:
    try:
        assert_close(found, wanted)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", WITHOUT)
def test_others_are_refused(name: str) -> None:
    kinds = (CaptureError, UnsupportedOperatorError)
    with pytest.raises(kinds, match=WITHOUT[name]):
        onnx_aot.export(Calls(OPERATORS[name]), (torch.rand(4, 4),))


class Scales(torch.nn.Module):
    """Divides by norms, as clipping does, in place and with dynamic sizes."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        parts = [x * 1, y * 2, x + y.sum()]
        norms = torch._foreach_norm(parts)
        torch._foreach_div_(parts, torch.stack(norms).sum() + x.shape[0])
        torch._foreach_add_(parts[1:], [x, x], alpha=2)
        return parts, norms


@pytest.mark.parametrize("strategy", ["non-strict", "strict"])
def test_in_place_with_dynamic_sizes(strategy: str) -> None:
    model, shapes = Scales(), ({0: "n"}, {0: "n"})
    example = torch.rand(3, 2), torch.rand(3, 2)
    program = onnx_aot.export(model, example, dynamic_shapes=shapes, strategies=(strategy,))
    for n in (1, 3, 6):
        given = torch.rand(n, 2), torch.rand(n, 2)
        (parts, norms), actual = model(*given), program(*given)
        for found, wanted in zip(actual, [*parts, *norms], strict=True):
            assert_close(found, wanted)


def test_nodes_have_the_line_of_the_call() -> None:
    program = onnx_aot.export(Scales(), (torch.rand(3, 2), torch.rand(3, 2)))
    (node, *_) = [node for node in program.model.graph if node.op_type == "Div"]
    assert "torch._foreach_div_(" in node.metadata_props["pkg.torch.onnx.stack_trace"]
