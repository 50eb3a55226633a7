"""The browser that pictures and tests of pages use: the system's own Chromium."""

from __future__ import annotations

import shutil
from typing import Any

__all__ = ["CHROMIUM", "chromium_path", "launch"]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""What it may be called."""


def chromium_path() -> str | None:
    """Where it is; None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def launch(playwright: Any, path: str) -> Any:
    """Starts it without a window. As root, as in containers, it has no sandbox of its own."""
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
