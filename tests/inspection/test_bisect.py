"""``bisect``: finds the passes and rules that make a value wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot import ir_passes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection import bisect
from onnx_aot.ir_passes.rewriter import Rewriter
from tests.inspection.one_wrong_layer import GELU, Tower, X, wrong_in_one


class Written(nn.Module):
    """Expressions that rules turn into one Gelu, one LayerNormalization and no transposes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y = y * 0.5 * (1 + torch.erf(y / 2**0.5))
        y = y.t().t() + 0 * 1
        centred = y - y.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() + 1


def make_wrong(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes the rules with these names add 1 to their results."""

    def wrong(rule: Any) -> Any:
        def apply(node: Any, rewriter: Rewriter) -> bool:
            replace = rewriter.replace

            def replaced(old: Any, new: Any) -> None:
                new.shape, new.type = old.shape, old.type
                one = rewriter.initializer(torch.tensor(1.0))
                replace(old, rewriter.emit("Add", [new, one], like=node))

            with monkeypatch.context() as patched:
                patched.setattr(rewriter, "replace", replaced)
                return bool(rule.apply(node, rewriter))

        return dataclasses.replace(rule, apply=apply)

    rules = tuple(wrong(r) if r.name in names else r for r in ir_passes.RULES)
    monkeypatch.setattr(ir_passes, "RULES", rules)


@pytest.mark.parametrize(
    "names", [("gelu",), ("layer_normalization",), ("gelu", "layer_normalization")]
)
def test_rules_that_are_wrong(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    make_wrong(monkeypatch, *names)
    model = Written()
    program = onnx_aot.export(model, (X,))
    bisection = program.compare().bisect()
    assert bisection.guilty == names[:1]
    assert bisection.optimize is not None
    assert bisection.translations <= 8
    assert f"wrong with {names[0]}, and right without: export with optimize={{" in str(bisection)
    if len(names) == 1:
        fixed = onnx_aot.export(model, (X,), optimize=bisection.optimize)
        assert fixed.compare().ok
        torch.testing.assert_close(fixed(X)[0], model(X))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ran: "gelu" in ran,
        lambda ran: "gelu" in ran or "layer_normalization" in ran,
        lambda ran: {"remove_unused", "gelu"} <= ran,
        lambda ran: len(ran) > 2,
        lambda ran: len(ran) > 0,
    ],
)
def test_the_search_ends_with_a_set_that_is_right(
    wrong: Callable[[frozenset[str]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several rules may be wrong, individually or only in combination."""
    make_wrong(monkeypatch, "gelu")
    comparison = onnx_aot.export(Written(), (X,)).compare()
    tried = []

    def is_right(search: Any, optimize: Any) -> bool:
        tried.append(frozenset(optimize))
        return not wrong(frozenset(optimize))

    monkeypatch.setattr(bisect._Search, "_is_right", is_right)
    bisection = comparison.bisect()
    assert bisection.optimize is not None
    assert not wrong(bisection.optimize)
    for name in bisection.guilty:  # the search showed that each one is needed for the difference
        assert name not in bisection.optimize
    assert bisection.optimize | set(bisection.guilty) == tried[0]


def test_rules_that_were_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wrong(monkeypatch, "gelu")
    program = onnx_aot.export(Written(), (X,), optimize=False)
    assert program.compare().ok
    program.optimize({"gelu", "remove_no_ops"})
    assert program.compare().bisect().guilty == ("gelu",)


def test_a_wrong_translation_is_no_pass_s_fault() -> None:
    table = {GELU: wrong_in_one(2, 4)}
    program = onnx_aot.export(Tower(4), (X,), custom_translation_table=table)
    bisection = program.compare().bisect()
    assert bisection.guilty == ()
    assert bisection.optimize is None
    assert "translation of aten.gelu.default is wrong" in str(bisection)


def test_what_a_target_is_given_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_aot import targets

    def wrong(model: Any, target: str, opset: int) -> targets.Fit:
        for node in model.graph:
            if node.op_type == "Sin":
                node.op_type = "Cos"
        return targets.Fit(adaptations=(), left=(), missing={})

    monkeypatch.setattr(targets, "legalize", wrong)
    program = onnx_aot.export(lambda x: x.exp().sin(), (X,))
    text = str(program.compare().bisect())
    assert "right with target=None" in text


def test_a_model_that_was_changed_by_hand() -> None:
    program = onnx_aot.export(Tower(1), (X,))
    (gelu,) = [node for node in program.model.graph if node.op_type == "Gelu"]
    gelu.op_type = "Relu"
    gelu.attributes.clear()
    bisection = program.compare().bisect()
    assert bisection.guilty == ()
    assert "changed after its export" in str(bisection)


def test_rounding_that_adds_up() -> None:
    class Chaotic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(12):
                x = torch.sin(x * 3.7) * 2.9
            return x

    program = onnx_aot.export(Chaotic(), (torch.linspace(-2, 2, 64),))
    assert "wrong by itself: rounding adds up" in str(program.compare().bisect())


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    model = Tower(1)
    program = onnx_aot.export(model, (X,))
    with pytest.raises(InvalidOptionError, match="there is nothing to find"):
        program.compare().bisect()
    program.save(tmp_path / "model.onnx")
    with torch.no_grad():
        model.layers[0].linear.bias += 1
    with pytest.raises(InvalidOptionError, match="was loaded from a file"):
        onnx_aot.compare(tmp_path / "model.onnx", model, X).bisect()
