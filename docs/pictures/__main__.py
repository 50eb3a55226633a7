"""Takes the pictures of views and of a sweep for the documentation.

python -m docs.pictures    needs Chromium, playwright, torchvision and transformers
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import onnx_aot
from benchmarks.models import vision
from benchmarks.models.case import ModelCase
from benchmarks.models.transformer import llama
from docs.browser import chromium_path, launch
from docs.pictures.zoo_sweep import write_zoo_page

FOLDER = Path(__file__).parent
SIZE = {"width": 1280, "height": 860}


def open_resnet(page: Any) -> None:
    """Opens a block and selects one of its convolutions."""
    _search(page, "Conv layer1.0.conv2")


def open_large(page: Any) -> None:
    """Opens one of 32 layers."""
    _search(page, "LlamaAttention layers.4.")


def _search(page: Any, text: str) -> None:
    page.fill("#search", text)
    page.keyboard.press("Enter")


def _export(case: ModelCase) -> onnx_aot.ONNXProgram:
    args, kwargs = case.example()
    return onnx_aot.export(case.make(), args, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes)


def main() -> None:
    """Writes the pictures beside this file."""
    path = chromium_path()
    if path is None:
        sys.exit("there is no Chromium on the PATH")
    (resnet18,) = [case for case in vision.CASES if case.name == "resnet18"]
    taken: list[tuple[str, ModelCase, Callable[[Any], None]]] = [
        ("view-resnet.png", resnet18, open_resnet),
        ("view-llama.png", llama(32), open_large),
    ]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = launch(playwright, path)
        for name, case, prepare in taken:
            file = Path(folder, "graph.html")
            _export(case).view(file)
            page = browser.new_page(viewport=SIZE)
            page.goto(file.as_uri())
            prepare(page)
            page.wait_for_timeout(200)
            page.screenshot(path=FOLDER / name)
        page = browser.new_page(viewport=SIZE)
        page.goto(write_zoo_page(Path(folder)).as_uri())
        page.screenshot(path=FOLDER / "sweep.png")
        page.locator("#kinds button").first.click()
        page.locator("#changes a").first.click()
        page.evaluate("document.getElementById('kinds').scrollIntoView()")
        page.screenshot(path=FOLDER / "sweep-row.png")
        browser.close()


if __name__ == "__main__":
    main()
