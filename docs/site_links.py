"""Links of the pages that a site cannot follow; mkdocs calls this (``hooks`` in mkdocs.yml)."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["on_page_markdown"]

OUTSIDE = re.compile(r"\[([^][]+)\]\(\.\./([^)]+)\)")


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Links to files outside of docs/, which the site does not have.

    ``[a.py:3](../ops/a.py#L3)`` becomes a link to the repository where mkdocs.yml names one in
    ``repo_url``, and ``a.py:3`` otherwise.
    """
    if not config.repo_url:
        return OUTSIDE.sub(r"\1", markdown)
    return OUTSIDE.sub(rf"[\1]({config.repo_url.rstrip('/')}/blob/main/\2)", markdown)
