"""A sweep shows its progress in a notebook; on terminals, tests/cli has it."""

from __future__ import annotations

import nbformat
from nbclient import NotebookClient

CELL = """
from onnx_aot.sweep.live import Live
from onnx_aot.sweep.rows import Outcome

with Live(2, skipped=3) as live:
    for name, status in (("first", "right"), ("second", "wrong")):
        live.begin(name)
        live.end(Outcome(name=name, status=status, reason="differs"))
"""
WITHOUT_WIDGETS = """
import sys
sys.modules["ipywidgets"] = None
import importlib.util
importlib.util.find_spec = lambda name: None
"""


def _run(*cells: str) -> nbformat.NotebookNode:
    v4 = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120).execute()
    return notebook


def test_a_bar() -> None:
    notebook = _run(CELL)
    widgets = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    shown = [widget["state"] for widget in widgets.values() if "outputs" in widget["state"]]
    (text,) = [output["data"]["text/plain"] for output in shown[0]["outputs"]]
    assert "2/2" in text
    assert "1 right, 1 wrong" in text
    kinds = [output.output_type for output in notebook.cells[0].outputs]
    assert "stream" not in kinds  # lines on stderr


def test_lines_without_widgets() -> None:
    outputs = _run(WITHOUT_WIDGETS, CELL).cells[1].outputs
    text = "".join(output.text for output in outputs)
    assert text.startswith("2 rows to run, 3 unchanged\n1/2 right")
    assert "second  differs" in text
