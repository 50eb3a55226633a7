"""The harness finds defects, survives hangs and crashes, and keeps earlier results."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance import exporters
from conformance.opsets import count_totals, opset_row, opset_table, read_opsets, write_opsets
from conformance.outcome import Result, judge
from conformance.parts import Work, run_cases
from conformance.report import read_results, row_of, summarize, write_results
from conformance.samples import Call, Case, Sample, all_cases, samples_of
from onnx_aot import sweep

pytestmark = pytest.mark.filterwarnings("ignore")


def _sample(function: Callable[..., Any], *tensors: torch.Tensor, **kwargs: Any) -> Sample:
    return Sample(Call(function, (tensors, kwargs)), tensors, "")


def _changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], Any]) -> None:
    run = exporters.run

    def changed(program: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [change(output) for output in run(program, inputs)]

    monkeypatch.setattr(exporters, "run", changed)


EXP = Case("exp", "float32", "static")


def test_right() -> None:
    result = judge(EXP, _sample(torch.exp, torch.rand(2, 3)), "onnx_aot")
    assert (result.outcome, result.reason, result.flag) == ("pass", "", "")
    assert result.targets == ("aten.exp.default",)


@pytest.mark.parametrize(
    ("outcome", "change"),
    [
        ("wrong_dtype", lambda x: x.double()),
        ("wrong_shape", lambda x: x[:1]),
        ("wrong_value", lambda x: x + 0.01),
        ("wrong_value", lambda x: x * float("nan")),
    ],
)
def test_wrong(outcome: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _changed(monkeypatch, change)
    assert judge(EXP, _sample(torch.exp, torch.rand(2, 3)), "onnx_aot").outcome == outcome


def test_a_dynamic_model_is_run_at_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = _sample(torch.exp, torch.rand(2, 3))
    sample.others = [(torch.rand(4, 5),)]
    _changed(monkeypatch, lambda x: x if x.shape == (2, 3) else x + 1)
    result = judge(Case("exp", "float32", "dynamic"), sample, "onnx_aot")
    assert result.outcome == "wrong_value"
    assert result.reason.startswith("at [4, 5]")


def test_not_captured() -> None:
    sample = _sample(lambda x: x if x.sum() > 0 else -x, torch.rand(2))
    assert judge(EXP, sample, "onnx_aot").outcome == "not_captured"


def test_unsupported() -> None:
    @torch.library.custom_op("conformance_test::gadget", mutates_args=())
    def gadget(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy().copy())

    gadget.register_fake(torch.empty_like)
    result = judge(EXP, _sample(gadget, torch.rand(2)), "onnx_aot")
    assert result.outcome == "unsupported_operator"
    assert result.reason == "conformance_test.gadget.default"


@pytest.mark.parametrize(
    ("outcome", "method"),
    [("ort_load_error", "load"), ("run_error", "run")],
)
def test_refused_by_the_runtime(outcome: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(exporters, method, refuse)
    result = judge(EXP, _sample(torch.exp, torch.rand(2)), "onnx_aot")
    assert (result.outcome, result.reason) == (outcome, "RuntimeError: no")


def test_any_order_of_equal_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = torch.tensor([1.0, 1.0, 0.0])
    case = Case("sort", "float32", "static")

    def swapped(x: torch.Tensor) -> torch.Tensor:
        return x if x.is_floating_point() else torch.tensor([2, 1, 0])

    _changed(monkeypatch, swapped)
    result = judge(case, _sample(torch.sort, tied), "onnx_aot")
    assert (result.outcome, result.flag) == ("pass", "equivalent")
    stable = _sample(torch.sort, tied, stable=True, dim=-1)
    assert judge(case, stable, "onnx_aot").outcome == "wrong_value"
    _changed(monkeypatch, lambda x: x if x.is_floating_point() else torch.tensor([2, 1, 1]))
    assert judge(case, _sample(torch.sort, tied), "onnx_aot").outcome == "wrong_value"


def test_half_precision_may_be_better_than_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([2048.0], dtype=torch.float16)
    sample = _sample(lambda x: x + 1 - x, x)
    case = Case("f", "float16", "static")
    _changed(monkeypatch, lambda _: torch.ones(1, dtype=torch.float16))
    result = judge(case, sample, "onnx_aot")
    assert (result.outcome, result.flag) == ("pass", "exact")
    _changed(monkeypatch, lambda _: torch.full((1,), 1.5, dtype=torch.float16))
    assert judge(case, sample, "onnx_aot").outcome == "wrong_value"


def test_samples_are_the_same_every_time() -> None:
    case = Case("addmm", "float32", "static")
    once, again = samples_of(case, 3), samples_of(case, 3)
    assert len(once) == 3
    for one, other in zip(once, again, strict=True):
        assert one.describe() == other.describe()
        assert all(map(torch.equal, one.inputs, other.inputs))


def test_cases_are_of_the_types_asked_for() -> None:
    cases = all_cases(["float32", "bool"], ["static", "modules"])
    assert Case("add", "bool", "static") in cases
    assert Case("nn.Linear", "float32", "modules") in cases
    assert len(set(cases)) == len(cases) > 1000


def misbehave(settings: Mapping[str, str], first: int) -> Iterator[Any]:
    """Work whose second of three parts hangs, crashes or raises an error."""
    if settings["does"] == "crashes early":
        os._exit(7)
    yield 3
    for index in range(first, 3):
        if index == 1 and settings["does"] == "hangs":
            time.sleep(600)
        if index == 1 and settings["does"] == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if index == 1 and settings["does"] == "fails":
            raise ValueError("a bug")
        yield {"outcome": "pass", "status": "right" if index else "wrong"}


WORK = Work(f"{__name__}:misbehave", "misbehaviour", limit=2.0)


def test_a_part_that_ends_its_process_costs_no_other(tmp_path: Path) -> None:
    cases = {does: {"does": does} for does in ("hangs", "works", "crashes", "crashes early")}
    for _ in range(2):  # the second time nothing is judged
        found = {
            name: [result["outcome"] for result in results]
            for name, results in run_cases(cases, WORK, 2, tmp_path)
        }
        assert found == {
            "hangs": ["pass", "timeout", "pass"],
            "works": ["pass"] * 3,
            "crashes": ["pass", "crash", "pass"],
            "crashes early": ["crash"],
        }
    with sweep.Results(tmp_path) as results:
        kept = {result.name: (result.status, result.run) for result in results.current()}
    assert (kept["works"], kept["crashes early"]) == (("wrong", 1), ("crashed", 1))


def test_an_error_of_the_harness_is_raised(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="fails, part 1: ValueError: a bug"):
        list(run_cases({"fails": {"does": "fails"}}, WORK, 1, tmp_path))


def test_results_of_some_replace_theirs_only(tmp_path: Path) -> None:
    path = str(tmp_path / "results.json")
    one, two = Case("one", "float32", "static"), Case("two", "float32", "static")
    wrong = Result("wrong_value", "far off", "float32[2]")
    passed = Result("pass", targets=("aten.one.default",))
    rows = [row_of(one, [passed, wrong]), row_of(two, [passed, Result("not_captured")])]
    write_results(path, "onnx_aot", 3, rows)
    before = read_results(path)["rows"]
    assert before[0]["failures"] == [[1, "wrong_value", "far off", "float32[2]"]]
    write_results(path, "onnx_aot", 3, [row_of(one, [passed, passed])])
    kept = read_results(path)
    assert [row["outcomes"] for row in kept["rows"]] == [{"pass": 2}, before[1]["outcomes"]]
    assert kept["targets"]["one"] == ["aten.one.default"]
    total = kept["totals"]["static float32"]
    assert (total["captured"], total["right"], total["samples"], total["passed"]) == (2, 2, 3, 3)


def test_what_is_captured_in_part_counts_by_what_is() -> None:
    case = Case("one", "float32", "static")
    nothing = row_of(case, [Result("not_captured")])
    assert summarize([nothing])["static float32"]["captured"] == 0
    assert summarize([nothing])["static float32"]["right"] == 0


def test_a_sample_is_captured_once_for_all_opsets(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = []
    export = torch.export.export
    monkeypatch.setattr(
        torch.export,
        "export",
        lambda *args, **kwargs: captures.append(1) or export(*args, **kwargs),
    )
    opsets = (17, 18, 25)
    case = Case("bitwise_and", "int64", "static")
    x = torch.arange(3)
    sample = _sample(torch.bitwise_and, x, x + 1)
    results = [judge(case, sample, "onnx_aot", opset) for opset in opsets]
    assert [result.outcome for result in results] == ["opset_error", "pass", "pass"]
    assert len(captures) == 1
    sample = _sample(torch.bitwise_and, x.bool(), x > 1)
    results += [judge(case, sample, "onnx_aot", opset) for opset in opsets]
    results += [Result("not_captured")] * 3
    row = opset_row(case, results, opsets)
    assert row["samples"] == 2
    ((first, outcome, reason, at),) = row["others"]
    assert (first, outcome, at) == (0, "opset_error", [17])
    assert "BitwiseAnd" in reason
    counts = count_totals([row])["int64"]
    assert dict(counts[17]) == {"captured": 1, "refused": 1}
    assert dict(counts[25]) == {"captured": 1, "right": 1}


def test_results_by_opset_replace_theirs_only(tmp_path: Path) -> None:
    path = str(tmp_path / "opsets.json")
    one, two = Case("one", "float32", "static"), Case("two", "float32", "static")
    wrong = opset_row(one, [Result("pass"), Result("wrong_value", "far off")], (17, 25))
    write_opsets(path, 1, [wrong, opset_row(two, [Result("pass")] * 2, (17, 25))])
    assert read_opsets(path)[0]["others"] == [[0, "wrong_value", "far off", [25]]]
    write_opsets(path, 1, [opset_row(one, [Result("pass")] * 2, (17, 25))])
    assert opset_table(read_opsets(path)).splitlines()[2:] == [
        "| float32 | 17 | 2 | 100.0 % | 0 | 0 |",
        "| float32 | 25 | 2 | 100.0 % | 0 | 0 |",
    ]
