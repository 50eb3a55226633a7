"""Each clean-up rule: its result, the cases where it does not apply, and equal outputs.

Graphs are in ONNX's text form in ``cleanup_cases``; sizes ``b``, ``h`` and ``w`` are dynamic.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnx_aot.ir_passes import LATE_RULES, RULES, Outcome
from onnx_aot.ir_passes.apply_rules import apply_rules
from tests.ir_passes.cases import Case
from tests.ir_passes.cleanup_cases import CASES
from tests.tolerances import assert_close

BY_NAME = {rule.name: rule for rule in (*RULES, *LATE_RULES)}


def parsed(graph: str) -> ir.Model:
    text = f'<ir_version: 9, opset_import: ["": 20]> g {graph}'
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
    return ir.from_proto(proto)


def feeds(model: ir.Model, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    found = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = [size if isinstance(size, int) else sizes[str(size.value)] for size in value.shape]
        numbers = generator.integers(-9, 9, shape) / (1 if value.dtype.is_integer() else 4)
        found[str(value.name)] = numbers.astype(value.dtype.numpy())
    if "s" in found and found["s"].dtype == np.int64:
        found["s"][:] = sizes["b"]
    return found


def run(model: ir.Model, given: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(model).SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    return onnxruntime.InferenceSession(data, options).run(None, given)


def applied(model: ir.Model, name: str) -> int:
    outcome = Outcome()
    assert apply_rules(model, [BY_NAME[name]], outcome) is None
    assert not outcome.undone
    return outcome.counts[name]


def ids(case: Case) -> str:
    kind = case.name or re.sub(r"[^A-Z]*([A-Z]\w*)?", r"\1 ", case.graph).split()[0]
    return f"{case.rule}-{kind}{'' if case.left is not None else '-not'}"


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_left(case: Case) -> None:
    model = parsed(case.graph)
    before = [node.op_type for node in model.graph]
    expected = before if case.left is None else case.left.split()
    interface = [(v.name, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)]
    assert bool(applied(model, case.rule)) == (case.left is not None)
    assert [node.op_type for node in model.graph] == expected
    assert [(v.name, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == interface
    known = [v for node in model.graph for v in node.outputs]
    assert all(v.shape is not None and v.type is not None for v in known)


@pytest.mark.parametrize("case", [c for c in CASES if c.left is not None], ids=ids)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(b=st.integers(1, 4), h=st.integers(2, 5), w=st.integers(2, 4), seed=st.integers(0, 99))
def test_results_are_equal(case: Case, b: int, h: int, w: int, seed: int) -> None:
    model = parsed(case.graph)
    given_ = feeds(model, {"b": b, "h": h, "w": w}, seed)
    before = run(model, given_)
    applied(model, case.rule)
    for old, new in zip(before, run(model, given_), strict=True):
        assert old.shape == new.shape
        if BY_NAME[case.rule].exact:
            assert old.tobytes() == new.tobytes()
        else:
            assert_close(torch.from_numpy(new), torch.from_numpy(old))


def test_every_rule_has_both_kinds_of_cases() -> None:
    cleanups = {r.name for r in (*RULES, *LATE_RULES) if "cleanups" in r.apply.__module__}
    assert {case.rule for case in CASES if case.left is not None} == cleanups
    # rules that apply wherever their pattern occurs
    always = {"merge_transposes", "gemm_of_transposed"}
    assert {case.rule for case in CASES if case.left is None} == cleanups - always


@pytest.mark.parametrize("sizes", [{"b": 0, "h": 3}, {"b": 2, "h": 0}])
def test_reshapes_of_nothing(sizes: dict[str, int]) -> None:
    """An inferred size is ambiguous if there are no elements."""
    graph = (
        "(float[b,h,6] x) => (float[b,3,2,h] y) <int64[2] t={3,2}> {s=Shape<start=0,end=1>(x)"
        " r=Shape<start=1,end=2>(x) u=Concat<axis=0>(s,t,r) y=Reshape<allowzero=1>(x,u)}"
    )
    model = parsed(graph)
    applied(model, "constant_reshape")
    given_ = feeds(model, sizes, 0)
    assert run(model, given_)[0].shape == (sizes["b"], 3, 2, sizes["h"])
