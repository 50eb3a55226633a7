"""No-op nodes are not emitted, and constants are folded while a graph is built."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.builder.peephole import FOLD_LIMIT
from tests.builder.made_values import FLOAT, value


@pytest.fixture
def op() -> Builder:
    return Builder(20)


def emitted(op: Builder) -> list[str]:
    return [node.op_type for node in op.nodes]


def test_what_changes_nothing_is_not_emitted(op: Builder) -> None:
    x = value(2, 3)
    assert op.Identity(x) is x
    assert op.Cast(x, to=FLOAT) is x
    assert op.Reshape(x, [2, 3]) is x
    assert op.Transpose(x, perm=[0, 1]) is x
    assert emitted(op) == []


def test_two_transposes_are_their_composition(op: Builder) -> None:
    x = value(2, 3, 4)
    turned = op.Transpose(x, perm=[2, 0, 1])
    assert op.Transpose(turned, perm=[1, 2, 0]) is x
    again = op.Transpose(turned, perm=[0, 2, 1]).producer()
    assert again.inputs[0] is x
    assert list(again.attributes["perm"].as_ints()) == [2, 1, 0]


def test_the_last_of_two_reshapes_counts(op: Builder) -> None:
    x = value(2, 3, 4)
    flat = op.Reshape(x, [-1])
    assert op.Reshape(flat, [4, 6]).producer().inputs[0] is x
    copied = op.Reshape(flat, [0, 1]).producer()  # 0 copies a size of the reshaped value
    assert copied.inputs[0] is flat


def test_a_cast_of_a_cast_of_bool_starts_from_bool(op: Builder) -> None:
    mask = value(3, dtype=ir.DataType.BOOL)
    number = op.Cast(mask, to=ir.DataType.INT64)
    assert op.Cast(number, to=FLOAT).producer().inputs[0] is mask
    rounded = op.Cast(value(3), to=ir.DataType.INT64)
    assert op.Cast(rounded, to=FLOAT).producer().inputs[0] is rounded


def test_constants_are_cast_now_up_to_a_limit(op: Builder) -> None:
    small = op.Cast(op.constant([1, 2]), to=FLOAT)
    assert torch.equal(op.literal(small), torch.tensor([1.0, 2.0]))
    assert emitted(op) == []
    op.Cast(op.constant(torch.ones(FOLD_LIMIT + 1)), to=ir.DataType.INT64)
    assert emitted(op) == ["Cast"]
