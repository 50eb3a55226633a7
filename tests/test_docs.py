"""Python in the README and the documentation runs, in order, page by page."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
import torch.onnx

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from docs import generate
from docs.blocks import run_block
from docs.site_links import on_page_markdown
from onnx_aot import errors
from tests.releases import REFERENCE, TORCH
from tests.test_architecture import LAYERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")


NEEDS = {"quantization.md": "torchao"}
"""Packages whose pages are skipped if they are not installed."""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = NEEDS.get(page.name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    if page.name == "troubleshooting.md":
        pytest.skip("tests/explanations runs the code of its pages")
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    if "import transformers" in text:
        pytest.importorskip("transformers")
        load_torchvision()  # before transformers, which imports it
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # functions are looked up here
    for number, block in enumerate(blocks):
        run_block(f"{page.name}, block {number}", block, vars(module))


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a Unix shell")
def test_the_transcript_is_what_commands_print() -> None:
    command = [sys.executable, ROOT / "release" / "first_minutes.py"]
    path = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    done = subprocess.run(
        command, env=os.environ | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_code() -> None:
    assert BLOCK.search(PAGES[0].read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", generate.PAGES)
@pytest.mark.skipif(TORCH != REFERENCE, reason="pages have what one release of torch prints")
def test_generated_pages_are_up_to_date(page: str) -> None:
    if page == "operators.md" and load_torchvision() is None:
        pytest.skip("the page lists torchvision's operators, which is not installed")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == generate.PAGES[page]()


def test_every_optimization_is_described() -> None:
    """Every one is listed by name, and clean-ups also by their effect on values."""
    from onnx_aot.ir_passes import CONTRIB_RULES, RULES, names_of_passes

    text = (ROOT / "docs" / "optimization.md").read_text(encoding="utf-8")
    named = {*names_of_passes(), *(rule.name for rule in CONTRIB_RULES)}
    assert not [name for name in named if f"`{name}`" not in text]
    table = dict(re.findall(r"^\| `(\w+)` \|.*\| (exact|rounded) \|$", text, re.MULTILINE))
    cleanups = {r.name: r.exact for r in RULES if "cleanups" in r.apply.__module__}
    assert {name: table[name] == "exact" for name in cleanups} == cleanups


MIGRATING = (ROOT / "docs" / "migrating-from-torch-onnx.md").read_text(encoding="utf-8")


def _rows(section: str) -> list[str]:
    """Returns the names in the first column of a section's tables, in order."""
    text = MIGRATING.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_migrating_has_every_option() -> None:
    """Options of torch.onnx.export come first, in its order, followed by this package's own."""
    theirs = list(inspect.signature(torch.onnx.export).parameters)
    ours = [name for name in inspect.signature(onnx_aot.export).parameters if name != "retired"]
    rows = _rows("Options")
    assert rows[: len(theirs)] == theirs
    assert sorted(rows[len(theirs) :]) == sorted(set(ours) - set(theirs))


def test_migrating_has_every_member_of_the_program() -> None:
    """Members set in ``__init__`` count too, and every documented member exists."""
    program = torch.onnx.ONNXProgram(_empty_model(), None)
    members = {name for name in dir(program) if not name.startswith("_")} | {"__call__"}
    assert set(_rows("ONNXProgram")) == members
    assert members <= set(dir(onnx_aot.ONNXProgram(_empty_model())))


def test_migrating_has_every_public_name() -> None:
    assert sorted(_rows("Names in torch.onnx")) == sorted(torch.onnx.__all__)


def _empty_model() -> ir.Model:
    return ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 20}), ir_version=10)


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    entries = re.findall(r"^::: onnx_aot\.(\S+)$", text, re.MULTILINE)
    assert "errors" in entries
    described = {entry.rpartition(".")[2] for entry in entries} | set(errors.__all__)
    assert not set(onnx_aot.__all__) - {"__version__"} - described


@pytest.mark.parametrize("source", ["page.md", "folder/page.md"])
@pytest.mark.parametrize(
    ("repo_url", "link"),
    [
        (None, "a.py:3"),
        ("https://example.org/repo/", "[a.py:3](https://example.org/repo/blob/main/ops/a.py#L3)"),
    ],
)
def test_links_out_of_the_site(repo_url: str | None, link: str, source: str) -> None:
    up = "../" * (source.count("/") + 1)
    inside = f"[sizes]({up[3:]}sizes.md), [tour](books/tour.ipynb)."
    made = on_page_markdown(
        f"See [a.py:3]({up}ops/a.py#L3), {inside}",
        page=types.SimpleNamespace(file=types.SimpleNamespace(src_uri=source)),
        config=types.SimpleNamespace(repo_url=repo_url),
    )
    assert made == f"See {link}, {inside.replace('ipynb', 'md')}"


# Pages for contributors, which name files of the package.
FOR_CONTRIBUTORS = ("architecture.md", "where-to-add.md", "add-an-operator.md", "internals/*.md")
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.\w+)?)(?:::?\w+)?`")


@pytest.mark.parametrize(
    "page",
    [page for names in FOR_CONTRIBUTORS for page in sorted((ROOT / "docs").glob(names))],
    ids=lambda p: p.name,
)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths are relative to the repository or to the package."""
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert named
    roots = (ROOT, ROOT / "onnx_aot")
    assert not [path for path in named if not any((root / path).exists() for root in roots)]


def test_the_layers_are_those_of_the_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    named = [tuple(sorted(re.findall(r"`(\w+)`", cell))) for cell in cells]
    assert named == [tuple(sorted(names)) for names in reversed(LAYERS)]
