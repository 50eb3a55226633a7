"""Codes keep their meaning, every message has a page, and what a page says is tried."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
import onnx_aot.generation
import onnx_aot.sweep
from benchmarks.models.torchvision_cpu import load_torchvision
from docs import troubleshooting_page
from docs.blocks import run_block
from onnx_aot import errors
from onnx_aot.errors import InvalidOptionError, OnnxExporterError, OnnxExporterWarning
from onnx_aot.explanations import list_titles, plain_page, read_page

ROOT = Path(onnx_aot.__file__).parent
CODES = json.loads(Path(__file__).with_name("codes.json").read_text(encoding="utf-8"))
CODE = re.compile(r"\bOA\d{3}\b")
WITHOUT_EXPORT = {"OA801", "OA802", "OA803"}
"""Pages whose fix is a plan of a sweep, which exports in other processes."""


def test_codes_keep_their_meaning() -> None:
    """Add a new code to codes.json. Never change an entry, and leave those of removed pages."""
    titles = list_titles()
    assert titles.items() <= CODES.items()
    assert list(CODES) == sorted(CODES)


def _texts() -> Iterator[tuple[Path, ast.Constant, bool]]:
    """Yields the strings of the package, and whether each is a docstring."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node, id(node) in bare


def test_every_code_is_used_and_every_used_code_has_a_page() -> None:
    used = {
        code
        for path, text, is_docstring in _texts()
        if not is_docstring and path.parent.name != "explanations"
        for code in CODE.findall(text.value)
    }
    assert sorted(used) == sorted(list_titles())


def test_messages_do_not_refer_to_files_of_the_documentation() -> None:
    """An installed package does not have them."""
    found = [
        f"{path}:{text.lineno}: {text.value}"
        for path, text, is_docstring in _texts()
        if not is_docstring and re.search(r"docs/|\w\.md\b", text.value)
    ]
    allowed = ("README", '"md"', ".md")  # reports and artifacts are Markdown files of the user
    assert not [one for one in found if "docs/" in one and not one.endswith(allowed)]


def test_every_class_of_error_has_a_code() -> None:
    kinds = [
        kind
        for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type) and issubclass(kind, OnnxExporterError)
    ]
    assert len(kinds) >= 13
    for kind in kinds:
        assert kind.code in list_titles() or kind is OnnxExporterError


def test_every_warning_and_note_has_a_code() -> None:
    """Errors without one have that of their class."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in ("Note", "OnnxExporterWarning"):
                    given = len(node.args) > 1 or "code" in {k.arg for k in node.keywords}
                    assert given, f"{path}:{node.lineno}"
                if node.func.id == "warn" and path.name != "errors.py":
                    assert len(node.args) > 1, f"{path}:{node.lineno}"


@pytest.mark.parametrize("code", list_titles())
def test_a_page_has_its_parts(code: str) -> None:
    page = read_page(code)
    assert page.startswith(f"# {code}: ")
    meaning = page.partition("\n```")[0]
    prose = [line for line in meaning.splitlines()[1:] if line and not line.startswith("<a id=")]
    assert len(" ".join(prose)) > 60
    assert "\n```py\n" in page
    assert "\n```python\n" in page
    for other in re.findall(r"\]\((OA\d{3})\.md\)", page):
        assert other in list_titles()
    prose = [line for line in meaning.splitlines() if not line.startswith(("|", "* "))]
    assert max(map(len, prose)) <= 100


def _skip_without_packages(page: str) -> None:
    if "import transformers" in page:
        load_torchvision()  # before transformers, which imports it
        pytest.importorskip("transformers")


@pytest.mark.parametrize("code", list_titles())
def test_the_example_of_a_page_has_its_code(code: str) -> None:
    page = read_page(code)
    _skip_without_packages(page)
    examples = troubleshooting_page.EXAMPLE.findall(page)
    found = [troubleshooting_page.run(example).codes for example, _ in examples]
    assert code in found[0]
    assert all(found)


@pytest.mark.parametrize("code", list_titles())
def test_the_fix_of_a_page(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It exports, ONNX Runtime agrees with PyTorch, and nothing of this code is said any more."""
    page = read_page(code)
    _skip_without_packages(page)
    monkeypatch.chdir(tmp_path)
    checked: list[bool] = []
    export = onnx_aot.export

    def export_and_verify(model: Any, *args: Any, **options: Any) -> Any:
        program = export(model, *args, **options)
        if program.has_values:
            assert program.verify().ok
            checked.append(True)
        return program

    monkeypatch.setattr(onnx_aot, "export", export_and_verify)
    monkeypatch.setattr("onnx_aot.generation.exports.export", export_and_verify)
    fixes = troubleshooting_page.FIX.findall(page)
    for number, fix in enumerate(fixes):
        module = types.ModuleType(f"fix_{code}_{number}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(torch=torch, onnx_aot=onnx_aot)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_block(f"fix_{code}_{number}.py", fix, vars(module))
        said = [w.message for w in caught if isinstance(w.message, OnnxExporterWarning)]
        assert code not in [warning.code for warning in said]
    assert checked or code in WITHOUT_EXPORT or "onnx_aot.enable_fake_mode" in page


def test_an_error_has_its_code_and_names_its_page() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        onnx_aot.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),), optimize="fast")
    error = caught.value
    assert error.code == "OA001"
    assert str(error) == f"{error.message}\nSee: onnx-aot explain OA001"
    assert "See:" not in error.message


def test_a_warning_has_its_code_and_names_its_page() -> None:
    with pytest.warns(OnnxExporterWarning) as caught:
        onnx_aot.export(torch.nn.Dropout(), (torch.ones(2, 4),))
    (warning,) = [w.message for w in caught]
    assert isinstance(warning, OnnxExporterWarning)
    assert warning.code == "OA123"
    assert str(warning).endswith("\nSee: onnx-aot explain OA123")


def test_explain_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert onnx_aot.explain("oa102") is None
    text = capsys.readouterr().out
    assert text.startswith("# OA102: Checks of data are left out\n\n")
    assert "both are captured (OA101)" in text
    assert "<a id" not in text
    assert "](" not in text


def test_explain_lists_the_codes(capsys: pytest.CaptureFixture[str]) -> None:
    onnx_aot.explain()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{code}  {title}" for code, title in list_titles().items()]


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("OA1O1", "near it are OA101 (Branches on data)"),
        ("squeeze", "near it are OA207 (squeeze of a dynamic dimension)"),
        ("../../pyproject", "there is no code '../../pyproject'. onnx-aot explain lists all"),
        ("", "there is no code ''. onnx-aot explain lists all"),
        ("OA000", "near it are"),
    ],
)
def test_an_unknown_code(given: str, near: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(near)) as caught:
        onnx_aot.explain(given)
    assert caught.value.code == "OA014"


def test_links_of_pages_are_text() -> None:
    for code in list_titles():
        assert "](" not in re.sub(r"```.*?```", "", plain_page(code), flags=re.DOTALL)


def test_explaining_imports_no_exporter(tmp_path: Path) -> None:
    """The command answers at once: it imports neither torch's exporter nor onnx."""
    script = (
        "import sys, onnx_aot.explanations as e; e.explain('OA101'); "
        "print([m for m in ('onnx_ir', 'onnxscript', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )  # fmt: skip
    assert done.stdout.endswith("[]\n")
