"""Rules for the source tree: layers, private APIs, sizes, names, coverage."""

from __future__ import annotations

import ast
import graphlib
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot import torch_compat
from onnx_aot.ops import registry
from onnx_aot.ops.complex.pairs import COMPLEX
from onnx_aot.ops.families import import_all_families
from onnx_aot.translate.decompose import has_decomposition
from tests import smoke
from tests.ops.rows import Row

ROOT = Path(onnx_aot.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Folders and modules of onnx_aot from the lowest to the highest. Each may import from the lines
# above its own, and nothing from its own line.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("dtypes", "errors", "torch_ops", "version"),
    ("explanations", "graph", "torch_compat"),
    ("dimensions", "metadata", "pytrees"),
    ("builder", "capture", "fx_passes", "inspection", "ir_passes", "targets"),
    ("options", "ops", "reporting", "serialization"),
    ("program", "translate"),
    ("pipeline",),
    ("export",),
    ("generation", "integrations"),
    ("__init__",),
    ("sweep",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module(path): path for path in FILES}


def _imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Yields the package's modules that a file imports, with line numbers."""
    for name, line in _imports(path):
        if name.partition(".")[0] == "onnx_aot":
            yield name if name in MODULES else name.rpartition(".")[0], line


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    package = _package(path)
    for name, line in _imported_modules(path):
        imported = name.split(".")[1] if "." in name else "__init__"
        if imported != package:
            assert LEVEL[imported] < LEVEL[package], f"{path}:{line}: {package} imports {imported}"


def test_every_package_has_a_layer() -> None:
    assert {_package(path) for path in FILES} == set(LEVEL)
    modules = {_package(path) for path in FILES if path.parent == ROOT} - {"__init__"}
    assert modules == {"__main__", "dtypes", "errors", "export", "options", "version"}


def test_modules_import_each_other_in_no_circle() -> None:
    """Imports inside functions and imports for annotations count too."""
    imported = {name: {m for m, _ in _imported_modules(path)} for name, path in MODULES.items()}
    sorter = graphlib.TopologicalSorter({n: found - {n} for n, found in imported.items()})
    sorter.prepare()


# Names of torch with an underscore that may be used anywhere: names of ATen operators.
PUBLIC = re.compile(r"^torch\.(ops|_check)\b")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_private_torch_is_touched_in_one_place(path: Path) -> None:
    if _package(path) == "torch_compat":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.startswith("torch.") and not PUBLIC.match(name):
                private = [p for p in name.split(".") if p.startswith("_") and p[:2] != "__"]
                assert not private, f"{path}:{node.lineno}: {name}"
    for name, line in _imports(path):
        if name.startswith("torch"):
            assert not re.search(r"\._", name), f"{path}:{line}: {name}"


# Rows of the table of patches contain the names that they are about.
NAMES_PRIVATE = ("torch_compat", os.path.join("capture", "patches"))

# Private names that are effectively public: parts of documented protocols or operators' names.
DOCUMENTED = {"_exit", "_fields", "_getframe", "_extra_state", "_assert_"}
OPERATORS = re.compile(r"^(torch\.ops|aten|prims|namespace|decomposed|onnx_symbolic)\.")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED | {"_"}


def _own_names() -> set[str]:
    """Returns every name that the package itself defines."""
    found: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
                found |= {node.attr} if isinstance(node.ctx, ast.Store) else set()
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name)
    return found


def _docstrings(tree: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def _private_uses(source: str, own: set[str]) -> Iterator[tuple[int, str]]:
    """Yields private attributes of other objects and private names in strings, with lines."""
    tree = ast.parse(source)
    docstrings = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            if not OPERATORS.match(ast.unparse(node)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            is_name = text.isidentifier() and _is_private(text) and text not in own
            inside = re.search(r"\btorch[\w.]*[.:]_(?!_|check\b)", text)
            if id(node) not in docstrings and (is_name or inside):
                yield node.lineno, text


OWN = _own_names()

# Parts of names that the package generates.
AFFIXES = {"_dim_", "_as_", "_unsigned", "_out", "_assert_tensor_metadata"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_private_attributes_and_strings_stand_in_one_place(path: Path) -> None:
    if str(path.relative_to(ROOT)).startswith(NAMES_PRIVATE):
        return
    found = dict(_private_uses(path.read_text(encoding="utf-8"), OWN | AFFIXES))
    assert found == {}


def test_private_names_are_seen_wherever_they_stand() -> None:
    seen = [
        "node._prepend(other)",
        "getattr(mode, '_secret', None)",
        "importlib.import_module('torch._dynamo')",
        "place = 'torch.export:_private'",
        "program.graph._codegen",
    ]
    for source in seen:
        assert list(_private_uses(source, OWN)), source
    for source in ("self._own", "aten._softmax.default", "'torch._check(n > 3)'", "value._fields"):
        assert not list(_private_uses(source, OWN | {"_own"})), source


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600
    assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
    assert path.stem not in ("utils", "helpers", "misc", "common")


def test_nothing_of_the_other_exporters_is_imported() -> None:
    for path in FILES:
        for name, line in _imports(path):
            if _module(path) != "onnx_aot.integrations.install":  # replaces the function in torch
                assert not name.startswith("torch.onnx"), f"{path}:{line}"
            assert "function_libs" not in name, f"{path}:{line}"


def test_public_names() -> None:
    for name in onnx_aot.__all__:
        assert getattr(onnx_aot, name) is not None
    visible = {name for name in vars(onnx_aot) if not name.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules([str(ROOT)])}
    assert visible - modules - {"annotations", "TYPE_CHECKING", "Any"} <= set(onnx_aot.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = onnx_aot.nothing


# --- the table -----------------------------------------------------------------------------------


def _rows() -> set[Any]:
    """Returns the targets in the lists of rows."""
    covered = set()
    folder = str(Path(__file__).parent / "ops")
    for module in pkgutil.walk_packages([folder], prefix="tests.ops."):
        if not module.ispkg and ".test_" in module.name:
            loaded = importlib.import_module(module.name)
            lists = [value for value in vars(loaded).values() if isinstance(value, (list, tuple))]
            covered |= {row.target for rows in lists for row in rows if isinstance(row, Row)}
    return covered


def test_every_translation_of_complex_numbers_has_a_row() -> None:
    import_all_families()
    covered = _rows()
    missing = [str(target) for target in COMPLEX if target not in covered]
    assert not missing, f"{len(missing)} translations without a row: {missing}"


def test_every_translation_has_a_row() -> None:
    covered = _rows()
    registry.import_late_families(covered)  # for the installed packages
    missing = [str(target) for target in registry.translations() if target not in covered]
    assert not missing, f"{len(missing)} translations without a row: {missing}"


def _core_aten_operators() -> list[torch_compat.OpOverload]:
    """Yields every overload that torch tags as core ATen, by name."""
    names = {s.name.partition("::")[2] for s in torch._C._jit_get_all_schemas()}
    found = []
    for packet_name in names | set(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, packet_name, None)
        if isinstance(packet, torch_compat.OpOverloadPacket):
            overloads = [getattr(packet, overload) for overload in packet.overloads()]
            found += [operator for operator in overloads if torch.Tag.core in operator.tags]
    return sorted(found, key=str)


def test_core_aten_is_translated_decomposed_or_listed() -> None:
    table = registry.translations()
    import_all_families()
    for target in _core_aten_operators():
        translated = target in table or target in COMPLEX
        known = translated or target in registry.NOT_TRANSLATED or has_decomposition(target)
        assert known, f"{target} is neither translated, decomposed nor in NOT_TRANSLATED"
    for target in registry.NOT_TRANSLATED:
        translated = target in table or target in COMPLEX
        assert not translated, f"{target} is translated and in NOT_TRANSLATED"


def test_one_grep_finds_the_translation_of_an_operator() -> None:
    """Targets are written as literals, each in one family."""
    sources = {
        path: set(re.findall(r"aten(?:\.\w+)+", path.read_text(encoding="utf-8")))
        for path in (ROOT / "ops").rglob("*.py")
    }
    for target in registry.translations():
        if not isinstance(target, torch_compat.OpOverload) or target.namespace != "aten":
            continue
        found = [path.name for path, names in sources.items() if str(target) in names]
        assert found, f"{target} is written nowhere"


# --- the tests -----------------------------------------------------------------------------------

TESTS = Path(__file__).parent

# Tests that do not belong to a single module, by file or folder, and their subject.
CROSS_CUTTING = {
    "conformance": "the folder conformance/ of the project",
    "models": "whole networks, at several sizes and opsets, and the zoo of architectures",
    "properties": "random programs through all stages",
    "cli/test_documented_commands": "docs/command-line.md",
    "inspection/test_broken_models": "the reports of failures on docs/failures.md",
    "test_architecture": "the rules of the tree",
    "test_benchmarks": "the folder benchmarks/ of the project",
    "test_cuda": "models on a CUDA device through all stages",
    "test_docs": "the code and the links on the pages of docs/",
    "test_lifetimes": "what an export keeps alive",
    "test_fresh_interpreter": "what importing the package does",
    "test_notebooks": "the notebooks of docs/",
    "test_public_api": "docs/stability.md",
    "test_reproducible": "the same bytes from every process and folder",
    "test_third_party": "THIRD_PARTY.md",
    "test_workflows": "the folder .github/ of the project",
}
MODULES_WITH_TESTS = 0.55
"""Proportion of modules that have a test of the same name; an operator's rows count as one."""


def _tested(path: Path) -> str:
    """Returns the module or folder that a test is named after, or an empty string if there is none.

    ``X/test_Y_part.py`` is another test file for ``X/Y.py``, ``X/test_X.py`` one for ``X``.
    """
    folder, name = path.relative_to(TESTS).parent, path.stem.removeprefix("test_")
    if name == folder.name and (ROOT / folder).is_dir():
        return folder.as_posix()
    while name:
        module = folder / name
        if (ROOT / module).is_dir() or (ROOT / f"{module}.py").is_file():
            return module.as_posix()
        name = name.rpartition("_")[0]
    return ""


TEST_FILES = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda p: str(p.relative_to(TESTS)))
def test_tests_are_named_after_what_they_test(path: Path) -> None:
    place = path.relative_to(TESTS).with_suffix("")
    listed = {place.as_posix(), place.parts[0]} & set(CROSS_CUTTING)
    assert bool(listed) != bool(_tested(path)), f"{path} is to be named after a module, or listed"


def test_the_fast_tests_are_there_and_of_every_area() -> None:
    files = {name.partition("::")[0] for name in smoke.TESTS}
    assert not [name for name in files if not (TESTS / name).is_file()]
    areas = {_package(path) for path in FILES if path.parent != ROOT}
    assert areas - {name.partition("/")[0] for name in files} == {"pipeline", "torch_ops"}


def test_modules_have_tests_of_their_name() -> None:
    modules = {p.relative_to(ROOT).with_suffix("").as_posix() for p in FILES if p.stem[0] != "_"}
    tested = {_tested(path) for path in TEST_FILES} & modules
    assert len(tested) / len(modules) >= MODULES_WITH_TESTS
    assert all(
        (TESTS / f"{place}.py").is_file() or (TESTS / place).is_dir() for place in CROSS_CUTTING
    )
