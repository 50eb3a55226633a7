"""Runs the examples of the pages that explain codes, and makes ``docs/troubleshooting.md`` of them.

The pages are in ``onnx_aot/explanations/pages``, whose package describes their form.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from docs.blocks import run_block
from onnx_aot.errors import OnnxExporterError, OnnxExporterWarning
from onnx_aot.explanations import list_titles, read_page

__all__ = ["EXAMPLE", "FIX", "PAGES", "Outcome", "make_page", "make_troubleshooting_page", "run"]

PAGES = Path(onnx_aot.__file__).parent / "explanations" / "pages"
EXAMPLE = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIX = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((OA\d{3})\.md\)")
NAMES = "import torch\n\nimport onnx_aot\n"
FILE = "model.py"

HEAD = """# Troubleshooting

Look up here what an error, a warning or a note of an export means and which edit fixes it. Each has
a code, and its last line names it: `onnx-aot explain OA101` and `onnx_aot.explain("OA101")` print
the section of this page, also without a network. The code is an attribute too, `error.code`, and
reports have it. A code never changes its meaning.

Each example is a file `model.py` that starts with `import torch` and `import onnx_aot`. The last
block of code in a section is the fix. `python -m docs.generate` runs the examples and writes their
output and this page, from the files in
[onnx_aot/explanations/pages](../onnx_aot/explanations/pages).

The capture runs the model on tensors that have types and shapes but no values. It cannot follow
code that needs values or leaves PyTorch. For dimensions that come out static, see also
[dynamic shapes](dynamic-shapes.md).
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of an example: its warnings and its error as text, and their codes."""

    text: str
    codes: tuple[str, ...]


def make_troubleshooting_page() -> str:
    """Returns all pages as one, with a table of the codes."""
    titles = list_titles()
    rows = [f"| [{code}](#{code}) | {title} |" for code, title in titles.items()]
    parts = [HEAD, "| Code | Subject |\n| --- | --- |\n" + "\n".join(rows) + "\n"]
    for code, title in titles.items():
        body = read_page(code).partition("\n")[2].strip("\n")
        body = re.sub(r"^## ", "### ", LINK.sub(r"](#\1)", body), flags=re.MULTILINE)
        parts.append(f'<a id="{code}"></a>\n\n## {title}\n\nCode `{code}`.\n\n{body}\n')
    return "\n".join(parts)


def make_page(code: str) -> str:
    """Returns the page of a code with the current output of its examples."""
    return EXAMPLE.sub(
        lambda match: f"```py\n{match[1]}```\n\n```text\n{run(match[1]).text}```", read_page(code)
    )


def run(code: str) -> Outcome:
    """Runs an example as a file of its own, in an empty folder."""
    module = types.ModuleType("troubleshooting_example")
    lines: list[str] = []
    codes: list[str] = []
    with _registered(module) as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if "transformers" in code:
            load_torchvision()  # before transformers, which imports it
        exec(NAMES, vars(module))
        try:
            run_block(FILE, code, vars(module))
        except Exception as error:
            lines.append(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
            codes += [error.code] if isinstance(error, OnnxExporterError) else []
    ours: list[Any] = [w.message for w in caught if issubclass(w.category, OnnxExporterWarning)]
    lines[:0] = [f"{type(warning).__name__}: {warning}" for warning in ours]
    said = {warning.message for warning in ours}
    for note, code_of_note in _notes_of(vars(module).get("program")):
        if note not in said:
            lines.append(f"note: {note} ({code_of_note})")
            codes.append(code_of_note)
    text = re.sub(r"[ \t]+$", "", "\n".join(lines), flags=re.MULTILINE) + "\n"
    own = {
        torch.__version__: torch.__version__.partition("+")[0],  # without the build
        folder + os.sep: "",
        str(Path(torch.__file__).parents[1]): "site-packages",
    }
    for found, shown in own.items():
        text = text.replace(found, shown)
    return Outcome(text, (*(warning.code for warning in ours), *codes))


def _notes_of(program: onnx_aot.ONNXProgram | None) -> Iterator[tuple[str, str]]:
    """Notes of the report of a program that an example keeps, with their codes."""
    if program is not None and program.report is not None:
        yield from zip(program.report.notes, program.report.note_codes, strict=True)


@contextlib.contextmanager
def _registered(module: types.ModuleType) -> Iterator[str]:
    """Makes functions of a module findable, and runs in an empty folder."""
    sys.modules[module.__name__] = module
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield os.getcwd()
        finally:
            os.chdir(before)
            del sys.modules[module.__name__]
