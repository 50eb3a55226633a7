"""Browser for the tests of the page.

The tests are skipped where there is none, unless ``ONNX_AOT_BROWSER=required``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from docs.browser import CHROMIUM, chromium_path, launch
from onnx_aot import ONNXProgram


def _missing(reason: str) -> NoReturn:
    if os.environ.get("ONNX_AOT_BROWSER") == "required":
        pytest.fail(f"ONNX_AOT_BROWSER=required, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, started once for all tests."""
    path = chromium_path()
    if path is None:
        _missing(f"there is none of {', '.join(CHROMIUM)} on the PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    with sync_playwright() as playwright:
        chromium = launch(playwright, path)
        yield chromium
        chromium.close()


class Viewer:
    """Opens views and records actions that a page must not take."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._pages: list[Any] = []
        self.errors: list[str] = []
        self.requests: list[str] = []

    def open(self, program: ONNXProgram, comparison: Any = None, scheme: str = "light") -> Any:
        """Opens the view of a program and returns its page."""
        path = self._folder / "graph.html"
        program.view(path, comparison)
        return self.open_file(path, scheme)

    def close(self) -> None:
        """Closes everything that was opened."""
        for page in self._pages:
            page.close()

    def open_file(self, path: Path, scheme: str = "light") -> Any:
        size = {"width": 1280, "height": 1700}
        page = self._browser.new_page(viewport=size, color_scheme=scheme)
        self._pages.append(page)
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        return page


@pytest.fixture
def viewer(browser: Any, tmp_path: Path) -> Iterator[Viewer]:
    found = Viewer(browser, tmp_path)
    yield found
    found.close()
    assert found.errors == []
    assert [url for url in found.requests if not url.startswith(("file:", "about:"))] == []
