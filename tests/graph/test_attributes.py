"""Node attributes made from Python values; equal values share one object."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from onnx_aot.graph.attributes import Attributes


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, ir.AttributeType.INT),
        (0.5, ir.AttributeType.FLOAT),
        ("reflect", ir.AttributeType.STRING),
        ([1, 2], ir.AttributeType.INTS),
        ([0.5, 1.5], ir.AttributeType.FLOATS),
        (["a", "b"], ir.AttributeType.STRINGS),
    ],
)
def test_the_type_is_that_of_the_value(value: object, kind: ir.AttributeType) -> None:
    attribute = Attributes().make("name", value)
    assert (attribute.name, attribute.type) == ("name", kind)
    given = attribute.value
    assert (list(given) if isinstance(given, tuple) else given) == value


def test_an_empty_list_has_the_type_that_is_asked_for() -> None:
    attribute = Attributes().make("axes", [], ir.AttributeType.INTS)
    assert attribute.type == ir.AttributeType.INTS
    assert list(attribute.as_ints()) == []


def test_dtypes_and_tensors() -> None:
    attributes = Attributes()
    assert attributes.make("to", torch.bfloat16).as_int() == ir.DataType.BFLOAT16
    held = attributes.make("value", torch.tensor([1.5, 2.5])).as_tensor()
    assert held.numpy().tolist() == [1.5, 2.5]
    whole = ir.AttrInt64("axis", 1)
    assert attributes.make("other", whole) is whole


def test_equal_attributes_are_one_and_zeros_of_either_sign_are_not() -> None:
    attributes = Attributes()
    assert attributes.make("axis", 1) is attributes.make("axis", 1)
    assert attributes.make("axis", 1) is not attributes.make("axes", 1)
    negative = attributes.make("value", -0.0)
    assert negative is not attributes.make("value", 0.0)
    assert str(negative.as_float()) == "-0.0"
