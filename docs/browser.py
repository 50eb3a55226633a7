"""Finds and starts the system's own Chromium, for pictures and for tests of pages."""

from __future__ import annotations

import shutil
from typing import Any

__all__ = ["CHROMIUM", "chromium_path", "launch"]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""Possible names of the executable."""


def chromium_path() -> str | None:
    """Path of the executable, or None if there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def launch(playwright: Any, path: str) -> Any:
    """Starts it without a window, and without its sandbox, which fails as root (in containers)."""
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
