"""The tests that a default run of all tests leaves out; ``pytest --thorough`` runs them.

Each repeats on a larger model, or more often, what a test of the default run shows. Tests that are
asked for, by a folder, a file, a name or ``-k``, always run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

__all__ = ["ROWS", "TESTS", "find_thorough", "is_default_run"]

ROWS = 8
"""The number of rows of one operator and file in the default run, evenly chosen."""

# Beginnings of ids.
TESTS = (
    # architectures of which smaller models are in the default run
    "models/test_models.py::test_model[alexnet]",
    "models/test_models.py::test_model[convnext_tiny]",
    "models/test_models.py::test_model[densenet121]",
    "models/test_models.py::test_model[inception_v3]",
    "models/test_models.py::test_model[swin_t]",
    "models/test_models.py::test_model[vgg11]",
    "models/test_models.py::test_model[vit_b_16]",
    "models/test_transformers_exporters.py::test_without_the_patches[bamba]",
    "models/test_transformers_exporters.py::test_without_the_patches[dac]",
    "models/test_transformers_exporters.py::test_without_the_patches[deepseek_v3]",
    "models/test_transformers_exporters.py::test_without_the_patches[jetmoe]",
    "models/test_transformers_exporters.py::test_without_the_patches[mamba",
    "models/test_transformers_exporters.py::test_without_the_patches[segformer]",
    "models/test_zoo.py::test_slice[encodec]",
    "models/test_zoo.py::test_slice[mamba]",
    "models/test_zoo.py::test_slice[mimi]",
    # one seed is in the default run
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[1]",
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[2]",
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[3]",
)


def is_default_run(config: pytest.Config) -> bool:
    """True if all tests are asked for, and neither ``--fast`` nor ``--thorough`` is given."""
    folder = Path(__file__).parent
    chosen = config.getoption("--thorough") or config.getoption("--fast") or config.option.keyword
    return not chosen and all(Path(arg).resolve() == folder for arg in config.args)


def find_thorough(nodes: Iterable[str]) -> set[str]:
    """Returns the ids of the tests that the default run leaves out, of all ids."""
    found = set()
    rows = defaultdict(list)
    for node in nodes:
        if node.removeprefix("tests/").startswith(TESTS):
            found.add(node)
        elif node.startswith("tests/ops/") and "[" in node:
            rows[node.partition("-")[0]].append(node)  # file::test_row[operator
    for group in rows.values():
        kept = {group[i * len(group) // ROWS] for i in range(ROWS)}
        found.update(node for node in group if node not in kept and len(group) > ROWS)
    return found
