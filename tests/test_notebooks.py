"""The notebooks run from top to bottom, and are stored without output."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from docs.site_notebooks import execute_notebook, render_notebook

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_outputs_are_not_kept(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert not cell.outputs, cell.id
            assert cell.execution_count is None, cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path) -> None:
    """Fails if a cell raises."""
    cells = [cell for cell in execute_notebook(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


EXPECTED = """\
# Title

~~~~python
f()
~~~~

~~~~text
printed
~~~~

~~~~text
# A report
~~~~

<div><b>html</b></div>
"""


def test_page_of_a_notebook() -> None:
    v4 = nbformat.v4
    outputs = [
        v4.new_output("stream", text="printed\n"),
        v4.new_output("display_data", {"text/markdown": "# A report", "text/plain": "<Markdown>"}),
        v4.new_output("execute_result", {"text/html": "<b>html</b>", "text/plain": "f"}),
    ]
    cells = [v4.new_markdown_cell("# Title"), v4.new_code_cell("f()", outputs=outputs)]
    assert render_notebook(v4.new_notebook(cells=cells)) == EXPECTED
