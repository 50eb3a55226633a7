"""A translation that declines a call leaves the builder unchanged."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_aot.builder.builder import Builder
from onnx_aot.builder.rollback import DeclinedError
from onnx_aot.metadata.keys import CHECK
from tests.builder.made_values import value


@pytest.fixture
def op() -> Builder:
    return Builder(20)


def decline(op: Builder, x: ir.Value) -> None:
    """Changes everything that a translation can change, then declines."""

    def translate() -> None:
        op.check(op.Less(op.size(x, 0), 9), "n < 9")
        op.call_op("Mine", [x], {}, domain="my.domain", version=3)
        op.function("twice", "key", [x], lambda values: [op.Add(values[0], values[0])])
        op.loop(3, [x], lambda i, x: (op.Neg(x),))
        raise DeclinedError("on purpose")

    with pytest.raises(DeclinedError), op.attempt():
        translate()


def checks(op: Builder) -> list[str]:
    names = [str(node.name) for node in op.nodes]
    return [name.removeprefix(CHECK) for name in names if name.startswith(CHECK)]


def test_nothing_is_left(op: Builder) -> None:
    x = value("n", 3)
    op.Relu(x)
    decline(op, x)
    assert [node.op_type for node in op.nodes] == ["Relu"]
    assert op.functions == {}
    assert op.state.functions_by_key == {}
    assert op.state.domains.imports == {}
    assert op.state.sizes.values == {}
    assert not op.state.has_checks
    assert [use.node.op_type for use in x.uses()] == ["Relu"]


def test_the_next_translation_makes_its_checks(op: Builder) -> None:
    x = value("n", 3)
    decline(op, x)
    assert checks(op) == []
    op.check(op.Less(op.size(x, 0), 9), "n < 9")
    assert checks(op) == ["n < 9"]


def test_inside_of_a_body(op: Builder) -> None:
    x = value("n", 3)

    def body(i: ir.Value, inner: ir.Value) -> tuple[ir.Value]:
        negative = op.Neg(inner)
        decline(op, inner)
        return (op.Abs(negative),)

    op.loop(3, [x], body)
    (loop,) = op.nodes
    graph = loop.attributes["body"].as_graph()
    assert [node.op_type for node in graph] == ["Neg", "Abs", "Identity"]


def test_inside_of_a_function(op: Builder) -> None:
    x = value(2, 3)
    op.size(value("n"), 0)
    known = dict(op.state.sizes.values)

    def body(operands: object) -> list[ir.Value]:
        (inner,) = operands  # type: ignore[misc]
        decline(op, inner)
        return [op.Neg(inner)]

    op.function("negative", "key", [x], body)
    (function,) = op.functions.values()
    assert [node.op_type for node in function] == ["Neg"]
    assert op.state.sizes.values == known
