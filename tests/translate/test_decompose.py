"""A node is decomposed if the table has no entry for it; other nodes are left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import onnx_aot
from onnx_aot import torch_compat
from onnx_aot.ops.registry import translations
from onnx_aot.torch_compat import aten
from onnx_aot.translate.decompose import Decomposer

Tensor = torch.Tensor
X = torch.randn(4, 3)


@pytest.mark.parametrize(
    ("target", "function"),
    [
        (aten.logaddexp.default, lambda x: torch.logaddexp(x, x.flip(0))),
        (aten.isclose.default, lambda x: torch.isclose(x, x.flip(0))),  # torch's kernel writes
        (aten.log_sigmoid_forward.default, lambda x: aten.log_sigmoid_forward.default(x)[0]),
        (aten.nan_to_num.default, torch.nan_to_num),
        (aten.huber_loss.default, lambda x: torch.nn.functional.huber_loss(x, x.flip(0))),
    ],
    ids=lambda value: str(value) if isinstance(value, torch_compat.OpOverload) else "function",
)
def test_expanded_operators(target: object, function: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(function, (X,), dynamic_shapes=({0: "n"},))
    assert target in {node.target for node in program.exported_program.graph.nodes}
    assert target not in translations()
    for x in (X, torch.randn(1, 3), torch.randn(7, 3)):
        torch.testing.assert_close(program(x)[0], function(x))


def test_equal_calls_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_aot import torch_compat

    traced = []
    original = torch_compat.trace_fake

    def count(*args: object) -> torch.fx.GraphModule:
        traced.append(args)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(torch_compat, "trace_fake", count)

    def many(x: Tensor) -> Tensor:
        y = x
        for _ in range(5):
            y = torch.logaddexp(y, x)  # the shape is the same every time
        return y + torch.logaddexp(torch.cat([x, x], 1), x[:, :1])[:, :3]  # another shape

    program = onnx_aot.export(many, (X,))
    assert len(traced) == 2
    torch.testing.assert_close(program(X)[0], many(X))


def test_sizes_that_depend_on_contents_are_not_shared() -> None:
    """Equal calls have different sizes; ONNX Runtime reuses buffers whose sizes share a name."""

    def positions(x: Tensor) -> list[Tensor]:
        return [x[torch.where(x[:, column] > limit)] for column, limit in ((0, 0), (1, 9), (2, -9))]

    program = onnx_aot.export(positions, (X,))
    names = [
        str(size)
        for node in program.model.graph
        if node.op_type == "Transpose"
        for size in node.outputs[0].shape or ()
        if not isinstance(size, int)
    ]
    assert len(names) == len(set(names))
    for actual, expected in zip(program(X), positions(X), strict=True):
        torch.testing.assert_close(actual, expected)


def test_what_has_no_rule() -> None:
    program = torch.export.export(torch.nn.ReLU(), (X,))
    (relu,) = [node for node in program.graph.nodes if node.op == "call_function"]
    library = torch.library.Library("onnx_aot_no_rule", "DEF")
    library.define("op(Tensor x) -> Tensor")
    relu.target = torch.ops.onnx_aot_no_rule.op.default
    assert Decomposer().expand(relu) is None
