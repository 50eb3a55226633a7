"""The page in a browser, used like a person would: clicks, keys, search."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.inspection.view import models
from tests.inspection.view.conftest import Viewer
from tests.inspection.view.models import NASTY, ViewedComparison, ViewedValue

MOST_ELEMENTS = 2500
"""Limit for elements in the document, for a graph of any size."""

LARGE = 5000


def boxes(page: Any, title: str) -> Any:
    """Returns the boxes with a title."""
    exact = page.locator("text.title").get_by_text(title, exact=True)
    return page.locator("g.box").filter(has=exact)


def toggle(page: Any, title: str) -> None:
    """Clicks on the sign that opens or closes a group."""
    group = page.locator("g.box.group").filter(has_text=title)
    group.locator(".toggle").click()


def elements(page: Any) -> int:
    found = page.locator("*").count()
    assert isinstance(found, int)
    return found


def search(page: Any, text: str) -> None:
    page.fill("#search", text)
    page.keyboard.press("Enter")


def overlapping(page: Any) -> list[tuple[str, str]]:
    """Returns overlapping pairs of boxes and labels; opened groups lie under their contents."""
    found = page.evaluate(
        """() => [...document.querySelectorAll(".box > .back, .port rect, .line .label")].map(e => {
            const r = e.getBoundingClientRect();
            return [e.parentNode.textContent, r.left, r.top, r.right, r.bottom];
        })"""
    )
    return [
        (a[0], b[0])
        for a, b in itertools.combinations(found, 2)
        if min(a[3], b[3]) - max(a[1], b[1]) > 1 and min(a[4], b[4]) - max(a[2], b[2]) > 1
    ]


def test_groups_open_and_close_by_clicks(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    page.click("#collapse")
    assert boxes(page, "Sigmoid").count() == 0
    toggle(page, "first")
    assert boxes(page, "Sigmoid").count() == 1
    assert boxes(page, "second").count() == 1
    toggle(page, "first")
    assert boxes(page, "Sigmoid").count() == 0
    boxes(page, "second").dblclick()
    assert boxes(page, "Sigmoid").count() == 1


def test_few_nodes_are_open_from_the_start(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    assert boxes(page, "Sigmoid").count() == 2
    assert page.locator("#panel h2").inner_text() == "main_graph"
    assert "float32[rows, 4]" in page.locator("#panel").inner_text()


@pytest.mark.parametrize("program", [models.net, models.branch, models.net_of_functions])
def test_nothing_overlaps(viewer: Viewer, program: Any) -> None:
    page = viewer.open(program())
    page.click("#fit")
    page.wait_for_function("document.querySelectorAll('.box').length > 5")
    assert overlapping(page) == []
    page.click("#collapse")
    assert overlapping(page) == []


def test_lines_tell_shapes(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    labels = page.locator(".line .label").all_text_contents()
    assert "rows\u00d78" in labels
    for kind in ("line", "port"):
        told = page.locator(f".{kind} title").all_text_contents()
        assert "exp: float32[rows, 4]" in told


def test_the_panel_tells_everything_of_a_node(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    boxes(page, "Gemm").first.click()
    panel = page.locator("#panel")
    text = panel.inner_text()
    assert panel.locator("h2").inner_text() == "Gemm"
    for expected in ("transB", "first.up", "ai.onnx", "float32[8, 4]", "std", "NaN", "models.py"):
        assert expected in text
    assert "class_hierarchy" in text
    panel.get_by_role("button", name="Exp").click()
    assert panel.locator("h2").inner_text() == "Exp"
    assert page.locator(".box.selected").count() == 1
    page.keyboard.press("Escape")
    assert panel.locator("h2").inner_text() == "main_graph"


def test_the_panel_sums_up_a_module(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    page.click("#collapse")
    boxes(page, "first").locator("text.title").click()
    text = page.locator("#panel").inner_text()
    for expected in ("first", "Block", "Gemm", "4, 304 bytes", "exp float32[rows, 4]", "from\nExp"):
        assert expected in text


def test_search_opens_what_is_around_and_goes_there(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    page.click("#collapse")
    page.fill("#search", "gemm second")
    assert page.locator("#found .option").count() == 2
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#found").is_hidden()
    assert "second.down" in page.locator("#panel").inner_text()
    selected = page.locator(".box.selected")
    assert selected.count() == 1
    box, canvas = selected.bounding_box(), page.locator("#canvas").bounding_box()
    assert abs(box["x"] + box["width"] / 2 - canvas["x"] - canvas["width"] / 2) < 2
    page.fill("#search", "no such thing")
    assert "Nothing" in page.locator("#found").inner_text()


def test_the_mouse_chooses_from_what_is_found(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    page.fill("#search", "tanh")
    page.locator("#found .option").first.click()
    assert page.locator("#panel h2").inner_text() == "Tanh"


def test_keys_alone_are_enough(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    page.click("#collapse")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("first")
    page.keyboard.press("Enter")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(label) == "first, Block, module"
    page.keyboard.press(" ")
    assert boxes(page, "Sigmoid").count() == 1
    page.keyboard.press(" ")
    assert boxes(page, "Sigmoid").count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate(label).partition(",")[0] == page.locator("#panel h2").inner_text()


def test_wheel_and_mouse_move_the_graph(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    before = boxes(page, "Exp").bounding_box()
    page.mouse.move(30, 400)
    page.mouse.down()
    page.mouse.move(130, 450, steps=3)
    page.mouse.up()
    page.wait_for_timeout(100)
    after = boxes(page, "Exp").bounding_box()
    assert (after["x"] - before["x"], after["y"] - before["y"]) == (100, 50)
    assert page.locator(".selected").count() == 0
    page.keyboard.down("Control")
    page.mouse.wheel(0, -50)
    page.keyboard.up("Control")
    page.wait_for_timeout(100)
    assert boxes(page, "Exp").bounding_box()["width"] > after["width"] * 1.3


def test_differences_are_colours(viewer: Viewer) -> None:
    wrong = ViewedValue("linear_2", False, 0.5, float("inf"), "3 of 9 elements differ")
    follows = ViewedValue("tanh", False, 0.5, 1.0, origin="inherited")
    rows = (ViewedValue("exp", True), ViewedValue("linear", True), wrong, follows)
    page = viewer.open(models.net(), ViewedComparison(rows, wrong))
    page.click("#collapse")

    def colour(title: str) -> Any:
        back = boxes(page, title).locator(".back")
        return back.evaluate("e => getComputedStyle(e).fill")

    assert colour("second") == "rgb(251, 220, 220)"
    assert colour("first") == colour("Exp") == "rgb(220, 243, 226)"
    assert colour("Tanh") == "rgb(253, 242, 242)"
    assert "2 of 4 values deviate" in page.locator("#panel").inner_text()
    page.click("#first")
    text = page.locator("#panel").inner_text()
    assert "3 of 9 elements differ" in text
    assert "second.up" in text


def test_without_a_comparison_there_is_no_first_deviation(viewer: Viewer) -> None:
    page = viewer.open(models.net())
    assert page.locator("#first").is_hidden()


def test_bodies_and_functions_open(viewer: Viewer) -> None:
    page = viewer.open(models.branch())
    page.click("#collapse")
    toggle(page, "If")
    assert boxes(page, "then_branch").count() == 1
    toggle(page, "then_branch")
    assert boxes(page, "Sin").count() == 1
    page = viewer.open(models.net_of_functions())
    page.click("#collapse")
    page.locator(".box.function .toggle").first.click()
    assert boxes(page, "Sigmoid").count() == 1


def test_names_of_a_model_are_text(viewer: Viewer) -> None:
    page = viewer.open(models.named())
    assert page.title() == NASTY
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    page.fill("#search", "script")
    assert page.locator("#found .option").count() > 0
    page.keyboard.press("Enter")
    for box in page.locator("g.box").all():
        box.locator("text.title").first.click(force=True)
    assert page.locator("img").count() == 0
    assert page.title() == NASTY


@pytest.mark.parametrize("layers", [0, 50], ids=["flat", "in modules"])
def test_five_thousand_nodes(viewer: Viewer, layers: int) -> None:
    page = viewer.open(models.chain(LARGE, layers))
    assert elements(page) < MOST_ELEMENTS
    page.locator("g.box.group .toggle").first.click()
    assert elements(page) < MOST_ELEMENTS
    for number in range(0, LARGE, 1000):
        search(page, f"relu_{number}")
        assert page.locator(".box.selected").count() == 1
        assert elements(page) < MOST_ELEMENTS
    page.click("#fit")
    page.wait_for_timeout(100)
    assert elements(page) < 4 * MOST_ELEMENTS  # several groups are open, all of them in view


def test_dark_where_the_system_is(viewer: Viewer) -> None:
    shades = []
    for scheme in ("light", "dark"):
        page = viewer.open(models.net(), scheme=scheme)
        shades.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(255, 255, 255)", "rgb(20, 24, 31)"]


def test_a_notebook_shows_the_graph(viewer: Viewer, tmp_path: Path) -> None:
    path = tmp_path / "output.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{models.net()._repr_html_()}", "utf-8")
    page = viewer.open_file(path)
    frame = page.frame_locator("iframe")
    frame.locator("g.box").first.wait_for()
    frame.locator("#collapse").click()
    frame.locator("g.box.group .toggle").first.click()
    assert frame.locator("text.title").get_by_text("Sigmoid").count() == 1
