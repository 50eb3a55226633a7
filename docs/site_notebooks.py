"""Notebooks as pages of the site, with what their cells give; mkdocs calls this (``hooks``)."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["executed", "on_files", "page"]

FENCE = "~~~~"  # which code and reports do not have


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Adds ``a.md`` for each ``a.ipynb``, which is run for it."""
    from mkdocs.structure.files import File

    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        uri = f"{file.src_uri.removesuffix('.ipynb')}.md"
        files.append(File.generated(config, uri, content=page(executed(file.abs_src_path))))
    return files


def executed(path: str | os.PathLike[str]) -> nbformat.NotebookNode:
    """A notebook with what its cells give.

    It runs in a process of its own, in a folder of its own.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return notebook


def page(notebook: nbformat.NotebookNode) -> str:
    """A notebook that has been run, as markdown."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [_fenced("python", cell.source), *map(_output, cell.outputs)]
    return "\n\n".join(parts) + "\n"


def _output(output: nbformat.NotebookNode) -> str:
    """HTML as it is; markdown as text, because its headings are not those of the page."""
    if output.output_type == "stream":
        return _fenced("text", output.text)
    if "text/html" in output.data:
        return f"<div>{output.data['text/html']}</div>"
    return _fenced("text", output.data.get("text/markdown", output.data["text/plain"]))


def _fenced(language: str, text: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}"
