"""The page of a sweep in a browser, used like a person would: clicks, keys, search."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onnx_aot.sweep.page import write_page
from onnx_aot.sweep.results import Results
from onnx_aot.sweep.rows import STATUSES, Limits, Outcome, Row
from tests.inspection.view.conftest import Viewer

NASTY = '</script><script>alert("x")</script>'
COUNT = 400


def make_sweep(folder: Path, count: int = COUNT) -> Path:
    """Writes two runs of a sweep with every status, and returns its page."""
    rows = [
        Row(
            f"package.models:net_{number // 2}[opset={18 + 2 * (number % 2)}]",
            model=f"package.models:net_{number // 2}",
            options={"opset": 18 + 2 * (number % 2), "dynamic": number % 3 == 0},
            limits=Limits(60),
        )
        for number in range(count)
    ]
    statuses = [*STATUSES][1:]
    with Results(folder, create=True) as results:
        for run in (1, 2):
            keyed = [(row, "key") for row in rows]
            versions = {"torch": "2.13.0", "python": "3.11.7"}
            number = results.begin_run("nightly", "two cores", versions, keyed, 0, resume=False)
            for at, row in enumerate(rows):
                broken = at % 10 == 3 or (run == 2 and at == 7)
                status = statuses[(at // 10) % len(statuses)] if broken else "right"
                outcome = Outcome(row.name, status, "export", started=1e9 + 86400 * run + at)
                outcome.seconds, outcome.peak_memory = 1.9 + at % 4, 400_000_000 + at
                outcome.worker = f"node{at % 2}:1"
                outcome.reason = f"cannot do {NASTY}\nsecond line" if broken else ""
                outcome.metrics = {"nodes": 10 + at, "bytes": 1000 * at, "export_seconds": 1.0}
                outcome.metrics["files"] = ["report.md"]
                place = os.path.join(folder, "rows", str(at))
                results.add(number, row, "key", outcome, 1, place)
            results.end_run(number)
        write_page(results, folder / "index.html")
    return folder / "index.html"


@pytest.fixture
def page(viewer: Viewer, tmp_path: Path) -> Any:
    return viewer.open_file(make_sweep(tmp_path))


def shown(page: Any) -> str:
    text = page.locator("#shown").inner_text()
    assert isinstance(text, str)
    return text


def test_filters_by_status_option_and_text(page: Any) -> None:
    assert shown(page) == "400 of 400 rows"
    assert page.locator("#rows tbody tr").count() == 200
    page.locator("#more").click()
    assert page.locator("#rows tbody tr").count() == 400
    page.locator("#statuses button", has_text="crashed").click()
    assert shown(page) == "6 of 400 rows"
    page.locator("#statuses button", has_text="time").click()
    assert shown(page) == "12 of 400 rows"
    page.locator("#option-filters select").nth(1).select_option("true")
    assert page.locator("#rows tbody tr").count() < 12
    page.locator("#clear").click()
    assert shown(page) == "400 of 400 rows"
    page.keyboard.press("/")
    page.keyboard.type("NET_17[")
    assert shown(page) == "2 of 400 rows"
    page.locator("#clear").click()
    page.locator("#by-option button", has_text="opset 20").click()
    assert shown(page) == "200 of 400 rows"
    assert "18" not in page.locator("#rows tbody tr td:nth-child(2)").all_inner_texts()


def test_sorts_by_columns(page: Any) -> None:
    heading = page.locator("#rows th button", has_text="Nodes")
    heading.click()
    nodes = page.locator("#rows th", has_text="Nodes").evaluate("cell => cell.cellIndex") + 1
    first = page.locator(f"#rows tbody tr:first-child td:nth-child({nodes})")
    assert first.inner_text() == "10"
    heading.click()
    assert first.inner_text() == "409"
    page.locator("#rows th button", has_text="Status").click()
    assert "right" in page.locator("#rows tbody tr:first-child").inner_text()


def test_details_of_a_row(page: Any) -> None:
    page.fill("#search", "net_1[opset=20]")
    page.locator("#rows tbody tr").click()
    panel = page.locator("#panel")
    assert panel.locator("h3").inner_text() == "package.models:net_1[opset=20]"
    assert NASTY in panel.locator("pre").inner_text()
    assert panel.locator("a").get_attribute("href") == "rows/3/report.md"
    assert "#package" in page.url
    page.reload()
    assert panel.locator("h3").inner_text() == "package.models:net_1[opset=20]"
    panel.locator("button.close").click()
    assert panel.is_hidden()


def test_changes_since_the_sweep_before(page: Any) -> None:
    page.locator("#kinds button", has_text="Newly broken").click()
    assert shown(page) == "1 of 400 rows"
    page.locator("#changes a").click()
    assert "net_3[opset=20]" in page.locator("#panel h3").inner_text()


def test_the_time_line_opens_rows(page: Any) -> None:
    bars = page.locator("#timeline rect")
    assert bars.count() == COUNT
    assert page.locator("#timeline text", has_text="node1").count() == 1
    bars.nth(5).click()
    assert "net_2[opset=20]" in page.locator("#panel h3").inner_text()


def test_in_the_dark(viewer: Viewer, tmp_path: Path) -> None:
    page = viewer.open_file(make_sweep(tmp_path, 12), scheme="dark")
    assert page.locator("#title").inner_text() == "Sweep of nightly"
    assert "Run 2 of" in page.locator("#about").inner_text()
