"""Writes the output of the export below each example of ``docs/troubleshooting.md``.

An example is a block marked ``py``, followed by a block marked ``text``.
"""

from __future__ import annotations

import re
import sys
import types
import warnings
from pathlib import Path

from docs.blocks import run_block

__all__ = ["make_troubleshooting_page"]

PAGE = Path(__file__).with_name("troubleshooting.md")
EXAMPLE = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = "import torch\n\nimport onnx_aot\n"
FILE = "model.py"


def make_troubleshooting_page() -> str:
    """Returns the page with the current output of its examples."""
    page = PAGE.read_text(encoding="utf-8")
    return EXAMPLE.sub(
        lambda match: f"```py\n{match[1]}```\n\n```text\n{run_example(match[1])}```", page
    )


def run_example(code: str) -> str:
    """Returns the warnings and the error of an example, run as a file of its own."""
    module = types.ModuleType("troubleshooting_example")
    sys.modules[module.__name__] = module  # functions are looked up here
    exec(HEAD, vars(module))
    lines = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run_block(FILE, code, vars(module))
        except Exception as error:
            lines.append(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
        finally:
            del sys.modules[module.__name__]
    said_first = [w for w in caught if w.category.__module__.startswith("onnx_aot")]
    lines[:0] = [f"{w.category.__name__}: {w.message}" for w in said_first]
    text = "\n".join(lines)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) + "\n"
