"""Families are imported when one of their operators is looked up, and none is missing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from onnx_aot.ops import operator_table, registry
from onnx_aot.ops.families import (
    FAMILIES,
    LATE_FAMILIES,
    import_all_families,
    late_family_of,
    operator_name,
)
from onnx_aot.torch_compat import OpOverload, missing_operators

FOLDER = Path(registry.__file__).parent

# Tables to which families add rows.
TABLES = {
    "NOT_TRANSLATED",
    "LIMITS",
    "register",
    "register_names",
    "register_complex",
    "PARTWISE",
    "BILINEAR",
    "REAL_PART",
    "TRUTH",
}


def _family(path: Path) -> str:
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts)


def _imports_tables(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        alias.name in TABLES
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in ("onnx_aot.ops.registry", "onnx_aot.ops.complex.pairs")
        for alias in node.names
    )


def test_every_file_with_rows_is_a_family() -> None:
    found = {_family(path) for path in FOLDER.rglob("*.py") if _imports_tables(path)}
    assert found == {*FAMILIES, *LATE_FAMILIES}
    assert not set(FAMILIES) & set(LATE_FAMILIES)


def _names(target: Any) -> set[str]:
    names = {operator_name(target)}
    if isinstance(target, OpOverload):
        names |= {str(target.overloadpacket), target.namespace}
    return names


def test_the_names_of_late_families_are_those_of_their_rows() -> None:
    """Every operator is found by its name, and no name is left over."""
    unused = {name for names in LATE_FAMILIES.values() for name in names}
    for entry in operator_table.entries():
        family = _family(entry.path)
        if entry.is_complex:
            assert family.startswith("complex."), entry.name
        elif family in LATE_FAMILIES:
            assert late_family_of(entry.target) == family, entry.name
        else:
            assert late_family_of(entry.target) is None, entry.name
        unused -= _names(entry.target)
    lacking = missing_operators()
    absent = {packet for name in lacking for packet in (name, name.rpartition(".")[0])}
    absent |= {f"torch.ops.{name}" for name in lacking}
    assert {name for name in unused - absent if "." in name} == set()


def _run(code: str) -> set[str]:
    """Families that a new process has imported after running some code."""
    code += (
        "\nimport sys; print('imported', *(name.removeprefix('onnx_aot.ops.') for name in "
        "sys.modules if name.startswith('onnx_aot.ops.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("imported "))
    return set(line.split()[1:]) & set(LATE_FAMILIES)


EXPORTS = [
    ("torch.relu(x)", set()),
    ("torch.erfinv(x)", {"special.error_functions"}),
    ("torch.special.gammaln(x)", {"special.gamma"}),  # in a decomposition
]


@pytest.mark.parametrize(("expression", "families"), EXPORTS)
def test_an_export_imports_the_families_that_it_needs(expression: str, families: set[str]) -> None:
    code = (
        "import torch, onnx_aot\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, x): return {expression}\n"
        "onnx_aot.export(Model(), (torch.rand(3, 3),))"
    )
    assert _run(code) == families


def test_complex_values_import_the_families_for_them() -> None:
    code = (
        "import torch, onnx_aot\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x): return torch.fft.fft(x).abs()\n"
        "onnx_aot.export(Model(), (torch.rand(3, 3),))"
    )
    assert {name for name in LATE_FAMILIES if name.startswith("complex.")} <= _run(code)


def test_looking_an_operator_up_imports_its_family_only() -> None:
    code = (
        "import torch; from onnx_aot.ops.registry import translations\n"
        "table = translations()\n"
        "assert torch.ops.aten.special_bessel_j0.default in table\n"
        "assert table[torch.ops.aten.cdist.default]\n"
        "assert torch.ops.aten.special_bessel_j0.out not in table"
    )
    assert _run(code) == {"special.bessel"}


def test_custom_translations_are_tried_before_those_of_a_late_family() -> None:
    code = (
        "import torch, onnx_aot\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x): return torch.erfinv(x), torch.lgamma(x)\n"
        "def declines(op, self): return NotImplemented\n"
        "table = {torch.ops.aten.erfinv.default: declines}\n"
        "onnx_aot.export(Model(), (torch.rand(3),), custom_translation_table=table, verify=True)"
    )
    assert _run(code) == {"special.error_functions", "special.gamma"}


def test_iterating_the_table_imports_every_family_of_torch_itself() -> None:
    code = "from onnx_aot.ops.registry import translations; len(translations())"
    elsewhere = {f for f, names in LATE_FAMILIES.items() if names and "." not in "".join(names)}
    assert _run(code) == set(LATE_FAMILIES) - elsewhere
    import_all_families()
    assert torch.ops.aten.erfinv.default in set(registry.translations())
