"""The elements of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


class Elements(HTMLParser):
    """Collects tags with their attributes, and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def structure(text: str) -> list[Any]:
    elements = Elements(text)
    return [(tag, sorted(attributes)) for tag, attributes in elements.found]
