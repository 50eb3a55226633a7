"""What changed between two sweeps."""

from __future__ import annotations

from onnx_aot.sweep.difference import compare_results
from onnx_aot.sweep.results import Result


def _result(name: str, status: str = "right", **fields: object) -> Result:
    return Result(name, status, **fields)  # type: ignore[arg-type]


BEFORE = [
    _result("same", nodes=10, export_seconds=1.0),
    _result("breaks"),
    _result("heals", "refused", reason="no operator"),
    _result("another", "failed", reason="one"),
    _result("as before", "failed", reason="one\nmore"),
    _result("slow", metrics={"export_cpu_seconds": 4.0}),
    _result("a little slower", metrics={"export_cpu_seconds": 0.1}),
    _result("late", latency_ms=1.0),
    _result("grows", nodes=100, bytes=100),
    _result("gone"),
]
AFTER = [
    _result("same", nodes=10, export_seconds=1.1),
    _result("breaks", "wrong", reason="differs:\n  by 3\n"),
    _result("heals"),
    _result("another", "crashed", reason="two"),
    _result("as before", "failed", reason="one\nother lines"),
    _result("slow", metrics={"export_cpu_seconds": 6.0}),
    _result("a little slower", metrics={"export_cpu_seconds": 0.4}),
    _result("late", latency_ms=2.0),
    _result("grows", nodes=104, bytes=101),
    _result("new", "right"),
]


def test_changes() -> None:
    found = compare_results(BEFORE, AFTER)
    assert [(change.kind, change.name, change.text) for change in found.changes] == [
        ("broken", "breaks", "wrong: differs: by 3"),
        ("fixed", "heals", "was refused: no operator"),
        ("slower", "late", "latency 1 to 2 ms"),
        ("slower", "slow", "export 4 to 6 s"),
        ("larger", "grows", "nodes 100 to 104"),
        ("changed", "another", "crashed: two; was failed"),
        ("added", "new", "right"),
        ("removed", "gone", "right"),
    ]
    assert found.compared == 9


def test_thresholds() -> None:
    found = compare_results(BEFORE, AFTER, slower=3, larger=1.05)
    assert not found.of("slower")
    assert not found.of("larger")


def test_texts() -> None:
    found = compare_results(BEFORE, AFTER)
    assert str(found).splitlines()[-1] == "9 rows compared, 8 changes"
    text = found.to_markdown()
    assert text.startswith("9 rows compared: 1 newly broken, 1 newly right, 2 slower, 1 larger")
    assert "### Newly broken\n\n- `breaks`: wrong: differs: by 3" in text
    assert compare_results(AFTER, AFTER).to_markdown() == "10 rows compared: nothing changed."
    assert not compare_results([], AFTER).changes
