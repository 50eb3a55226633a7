"""Turns notebooks into pages of the site, with their output; mkdocs calls this (``hooks``)."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["execute_notebook", "on_files", "render_notebook"]

FENCE = "~~~~"  # does not occur in code and reports


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Runs each ``a.ipynb`` and adds ``a.md`` for it."""
    from mkdocs.structure.files import File

    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        uri = f"{file.src_uri.removesuffix('.ipynb')}.md"
        files.append(
            File.generated(
                config, uri, content=render_notebook(execute_notebook(file.abs_src_path))
            )
        )
    return files


def execute_notebook(path: str | os.PathLike[str]) -> nbformat.NotebookNode:
    """Runs a notebook and returns it with the output of its cells.

    It runs in a process of its own and in a temporary folder.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return notebook


def render_notebook(notebook: nbformat.NotebookNode) -> str:
    """Renders a notebook that has been run as Markdown."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts += [_fence_code("python", cell.source), *map(_render_output, cell.outputs)]
    return "\n\n".join(parts) + "\n"


def _render_output(output: nbformat.NotebookNode) -> str:
    """Renders HTML as it is, and Markdown as text, since its headings are not the page's."""
    if output.output_type == "stream":
        return _fence_code("text", output.text)
    if "text/html" in output.data:
        return f"<div>{output.data['text/html']}</div>"
    return _fence_code("text", output.data.get("text/markdown", output.data["text/plain"]))


def _fence_code(language: str, text: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}"
