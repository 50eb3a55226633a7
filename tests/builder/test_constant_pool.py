"""Equal constants share one value; constants that differ in type or bits do not."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.builder.constant_pool import ConstantPool


def test_equal_contents_are_one_value() -> None:
    pool = ConstantPool()
    assert pool.constant([1, 2], None) is pool.constant([1, 2], None)
    assert pool.constant([1, 2], None) is pool.constant(torch.tensor([1, 2]), None)
    assert pool.constant(2.5, None) is pool.constant(torch.tensor(2.5), None)
    assert pool.constant(math.nan, None) is pool.constant(math.nan, None)
    assert len(pool.values()) == 3


def test_other_types_bits_and_shapes_are_other_values() -> None:
    pool = ConstantPool()
    values = [
        pool.constant(1, None),
        pool.constant(1.0, None),
        pool.constant(True, None),
        pool.constant(1, ir.DataType.INT32),
        pool.constant([1], None),
        pool.constant(0.0, None),
        pool.constant(-0.0, None),
    ]
    assert pool.values() == values
    assert [value.dtype.name for value in values] == [
        "INT64", "FLOAT", "BOOL", "INT32", "INT64", "FLOAT", "FLOAT",
    ]  # fmt: skip


def test_contents_are_those_of_constants_alone() -> None:
    pool = ConstantPool()
    transposed = torch.arange(6).reshape(2, 3).T
    value = pool.constant(transposed, ir.DataType.FLOAT)
    held = pool.contents(value)
    assert held is not None
    assert torch.equal(held, transposed.float())
    assert pool.contents(ir.Value(name="x")) is None
    empty = pool.contents(pool.constant([], None))
    assert empty is not None
    assert empty.dtype == torch.int64
