"""Writes the generated pages of the documentation.

python -m docs.generate            write them
python -m docs.generate --check    fail when they differ from what would be written
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import page as benchmarks_page
from benchmarks.models.torchvision_cpu import load_torchvision
from docs.bundles_page import make_generation_page
from docs.clients_page import make_clients_page
from docs.conformance_page import dtypes_of_operators, make_conformance_page, summary_table
from docs.failures_page import make_failures_page
from docs.field_page import make_field_page
from docs.figures_page import make_figures_page
from docs.migrating_page import make_migrating_page
from docs.models_page import make_models_page
from docs.troubleshooting_page import PAGES as EXPLANATIONS
from docs.troubleshooting_page import make_page, make_troubleshooting_page
from docs.walkthrough import make_architecture_page
from onnx_aot.ops import registry
from onnx_aot.ops.complex.pairs import COMPLEX
from onnx_aot.ops.families import operator_name
from onnx_aot.ops.operator_table import Entry, entries

DOCS = Path(__file__).parent
ROOT = DOCS.parent

HEAD = """# Operators

Look up here whether an operator has a translation, and for which opsets and data types it is right.
`python -m docs.generate` writes this page from the operator table.

{count} operators have a translation of their own. Every other ATen operator is expanded into these
with PyTorch's own decompositions, one node at a time. If that is not possible, the export lists the
missing operators.

Translations in `ops/complex/` handle complex numbers. Operators that are linear with real
coefficients, or that only move elements, use their real translation for complex numbers too.
The translations for torchvision, PT2E quantization and `torch.nn.functional.linear_cross_entropy`
are registered when a model has such an operator. So are those for torchao and transformers, which
this page does not list; they are in [torchao.py](../onnx_aot/ops/libraries/torchao.py) and
[transformers_moe.py](../onnx_aot/ops/libraries/transformers_moe.py).

*Right for* lists the data types in which a variant of PyTorch's test database that uses the
operator is right in ONNX Runtime with all its samples. It is empty if none uses it directly.
[Conformance](conformance.md) explains the measurement and lists the failures. *Limits* describes
where the result differs from PyTorch's.

{summary}
"""

# Functions that register the operators of the families that are imported late. Those of ELSEWHERE
# are left out, so that the page does not depend on other installed packages.
ELSEWHERE = ("torchao", "transformers")
LATE: dict[str, Callable[[], Any]] = {
    "onnx": lambda: importlib.import_module("torch.onnx.ops"),
    "quantized_decomposed": lambda: importlib.import_module("torch.ao.quantization.fx._decomposed"),
    "torch_nn": lambda: importlib.import_module("torch.nn.modules.linear_cross_entropy"),
    "torchvision": load_torchvision,
}


class Row(NamedTuple):
    """A line of the page."""

    name: str
    source: str
    opsets: str
    dtypes: str
    limits: str


def make_operators_page() -> str:
    """Returns the operator table by family, and the operators without a translation.

    Raises:
        ModuleNotFoundError: A package whose operators are listed is not installed.
    """
    listed = [e for e in entries(LATE) if getattr(e.target, "namespace", "") not in ELSEWHERE]
    families: dict[str, set[Row]] = defaultdict(set)
    right = dtypes_of_operators()
    for entry in listed:
        families[entry.family].add(_make_row(entry, right))
    parts = [HEAD.format(count=len({entry.target for entry in listed}), summary=summary_table())]
    for family in sorted(families):
        parts.append(f"## {family}\n")
        parts.append("| Operator | Translation | Opsets | Right for | Limits |")
        parts.append("| --- | --- | --- | --- | --- |")
        parts += [f"| {' | '.join(row)} |" for row in sorted(families[family])]
        parts.append("")
    parts.append("## Without a translation\n\n| Operator | Reason |\n| --- | --- |")
    without = registry.NOT_TRANSLATED.items()
    parts += [f"| `{operator_name(target)}` | {reason} |" for target, reason in without]
    return "\n".join(parts) + "\n"


def _make_row(entry: Entry, right: Mapping[str, list[str]]) -> Row:
    kinds = right.get(entry.name, [])
    if entry.target in COMPLEX and entry.target in registry.TRANSLATIONS:
        kinds = [kind for kind in kinds if kind.startswith("complex") == entry.is_complex]
    source = f"{entry.path.stem}.py:{entry.line}"
    return Row(
        f"`{entry.name}`",
        f"[{source}](../{entry.path.relative_to(ROOT).as_posix()}#L{entry.line})",
        f"{entry.since} to {entry.until}",
        ", ".join(kinds),
        entry.limits.replace("|", "\\|"),
    )


# Explanations come before the page that is made of them.
PAGES: dict[str, Callable[[], str]] = {
    **{
        f"../onnx_aot/explanations/pages/{path.name}": functools.partial(make_page, path.stem)
        for path in sorted(EXPLANATIONS.glob("*.md"))
    },
    "architecture.md": make_architecture_page,
    "benchmarks.md": benchmarks_page.make_page,
    "clients.md": make_clients_page,
    "operators.md": make_operators_page,
    "conformance.md": make_conformance_page,
    "failures.md": make_failures_page,
    "generation.md": make_generation_page,
    "field.md": make_field_page,
    "figures.md": make_figures_page,
    "migrating-from-torch-onnx.md": make_migrating_page,
    "models.md": make_models_page,
    "troubleshooting.md": make_troubleshooting_page,
}


def main() -> None:
    """Writes or checks every generated page."""
    check = "--check" in sys.argv[1:]
    different = []
    for page, generate in PAGES.items():
        path, text = DOCS / page, generate()
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            different.append(page)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if different:
        sys.exit(f"run `python -m docs.generate`; these pages are out of date: {different}")


if __name__ == "__main__":
    main()
