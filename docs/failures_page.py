"""Writes ``docs/failures.md``: ten broken models with the first screen of their reports."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from pathlib import Path

from onnx_aot.errors import OnnxExporterError
from onnx_aot.reporting.markdown import FIRST_SCREEN
from tests.inspection.broken_models import BROKEN, Broken

__all__ = ["make_failures_page"]

ROOT = Path(__file__).parent.parent

HEAD = """# Failed exports

After reading this page you can read the report of a failed export and find the cause and the fix.
`python -m docs.generate` writes it from the models in
[broken_models.py](../tests/inspection/broken_models.py);
[test_broken_models.py](../tests/inspection/test_broken_models.py) checks their reports.

An export with `artifacts_dir=` or `report=True` that fails leaves a report, and the error message
has its path. The first screen of the report contains the stage, the cause, your line of code with
its module and captured node, the fix, and the code that `onnx-aot explain` explains. The stages
with time and memory follow, then the whole message, a stub for each missing operator, the request,
the versions, and a script that repeats the export. `onnx-aot report package.module:factory` prints
the report.
"""

TAIL = """## Reports of exports that succeed

`report=True` also writes a report if the export succeeds. Every program has it as a dataclass:

```python
import json

import torch

import onnx_aot

program = onnx_aot.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))
print(program.report.to_markdown())
print([(use.target, use.count, use.how) for use in program.report.operators])
assert json.loads(program.report.to_json())["schema"] == 1
```

`program.verify()` compares the program with PyTorch at several sizes; `onnx_aot.verify` also takes
the path of a file. The printed result has a line per set of sizes and a line per output that
differs, with the number of differing elements and the largest difference. `runtime="reference"`
runs ONNX's reference implementation instead of ONNX Runtime.

```python
model = torch.nn.Linear(4, 3)
onnx_aot.export(model, (torch.ones(2, 4),), "linear.onnx", dynamic_shapes=({0: "n"},))
result = onnx_aot.verify("linear.onnx", model, (torch.ones(2, 4),), runtime="reference")
assert result.ok, result
print(result)
```
"""


def make_failures_page() -> str:
    """Returns the text of the page."""
    sections = [f"## {b.title}\n\n{b.text}\n\n```text\n{first_screen(b)}\n```" for b in BROKEN]
    return "\n\n".join([HEAD.rstrip(), *sections, TAIL])


def first_screen(broken: Broken) -> str:
    """Returns the first block of a report, with paths relative to the repository root."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(OnnxExporterError):
            broken.export(folder)
        (path,) = Path(folder).glob("onnx_export_*.md")
        lines = path.read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN]
    block = re.search(r"^```text\n(.*?)\n```$", "\n".join(lines), re.MULTILINE | re.DOTALL)
    assert block is not None, lines
    return f"{lines[0]}\n\n{block[1].replace(f'{ROOT}/', '')}"
