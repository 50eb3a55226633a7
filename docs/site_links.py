"""Rewrites links that the site resolves unlike a code host; mkdocs calls this (``hooks``)."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["on_page_markdown"]

NOTEBOOK = re.compile(r"\]\(([\w/-]+)\.ipynb\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrites links to notebooks, and to files outside of docs/, which the site does not have.

    ``[tour](tour.ipynb)`` becomes a link to its page. ``[a.py:3](../ops/a.py#L3)`` becomes a link
    to the repository if mkdocs.yml sets ``repo_url``, and ``a.py:3`` otherwise. On a page in a
    folder of docs/, such links have one more ``../``.
    """
    markdown = NOTEBOOK.sub(r"](\1.md)", markdown)
    up = re.escape("../" * (page.file.src_uri.count("/") + 1))
    outside = re.compile(rf"\[([^][]+)\]\({up}([^)]+)\)")
    if not config.repo_url:
        return outside.sub(r"\1", markdown)
    return outside.sub(rf"[\1]({config.repo_url.rstrip('/')}/blob/main/\2)", markdown)
