"""The pages that explain errors, warnings and notes, by code.

A page is a file ``pages/CODE.md``: its title, what the message means, examples, and the fix. An
example is a block marked ``py`` followed by its output in a block marked ``text``; the code of a
fix is a block marked ``python``. ``docs/troubleshooting.md`` is made of these pages, and
``python -m docs.generate`` runs the examples. A code never changes its meaning, and the code of a
page that is removed is not used again.
"""

from __future__ import annotations

import difflib
import re
import sys
from importlib import resources
from typing import Any

from onnx_aot.errors import InvalidOptionError

__all__ = ["explain", "list_titles", "plain_page", "read_page"]

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_CODE = re.compile(r"OA\d{3}")


def explain(code: str | None = None) -> None:
    """Prints the page of a code, which errors, warnings and notes have.

    Args:
        code: The code, such as ``error.code``; None prints all codes with their titles.

    Raises:
        InvalidOptionError: There is no such code.
    """
    if code is None:
        text = "\n".join(f"{code}  {title}" for code, title in list_titles().items()) + "\n"
    else:
        text = plain_page(code)
    sys.stdout.write(text)


def list_titles() -> dict[str, str]:
    """Returns the titles of all pages, by code."""
    names = sorted(each.name for each in _pages().iterdir() if each.name.endswith(".md"))
    return {(code := name.removesuffix(".md")): _title_of(read_page(code)) for name in names}


def _pages() -> Any:  # importing files() takes longer than the rest of this file
    return resources.files(__name__) / "pages"


def read_page(code: str) -> str:
    """Returns a page as Markdown.

    Raises:
        InvalidOptionError: There is no such code.
    """
    wanted = code.strip().upper() if isinstance(code, str) else str(code)
    file = _pages() / f"{wanted}.md"
    if not _CODE.fullmatch(wanted) or not file.is_file():
        raise InvalidOptionError(
            f"there is no code {code!r}{_describe_near(wanted)}. onnx-aot explain lists all codes",
            code="OA014",
        )
    text: str = file.read_text(encoding="utf-8")
    return text


def plain_page(code: str) -> str:
    """Returns a page for a terminal: links to other pages are their codes.

    Raises:
        InvalidOptionError: There is no such code.
    """
    lines = [line for line in read_page(code).splitlines() if not line.startswith("<a id=")]
    text = _LINK.sub(_link_as_text, "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _link_as_text(link: re.Match[str]) -> str:
    code = _CODE.match(link[2])
    page = link[2].partition("#")[0].removesuffix(".md")
    return f"{link[1]} ({code[0] if code else f'documentation, {page}'})"


def _title_of(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ").partition(": ")[2]


def _describe_near(wanted: str) -> str:
    """Codes that look like the given one, and those whose title has the word."""
    titles = list_titles()
    near = [code for code, title in titles.items() if wanted and wanted.lower() in title.lower()]
    digits = wanted[2:].translate(str.maketrans("OIL", "011"))
    near += [code for code in titles if code == f"OA{digits}"]
    near += difflib.get_close_matches(wanted, titles, n=3, cutoff=0.7)
    shown = [f"{code} ({titles[code]})" for code in dict.fromkeys(near)]
    return f"; near it are {', '.join(shown[:5])}" if shown else ""
