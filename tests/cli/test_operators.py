"""``onnx-aot ops``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnx_aot
from tests.cli.conftest import call


@pytest.mark.parametrize("name", ["roll", "aten.roll", "aten::roll", "torch.ops.aten.roll.default"])
def test_where_an_operator_is_translated(name: str) -> None:
    done = call("ops", name, "--json")
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)
    assert row["name"] == "aten.roll.default"
    path, _, line = row["where"].rpartition(":")
    source = Path(onnx_aot.__file__).parents[1] / path
    assert "aten.roll.default" in source.read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("aten.neg", 0, "elementwise.py"),
        ("aten.add_", 0, "made functional"),
        ("aten.hardshrink", 0, "expanded with PyTorch's rules"),
        ("aten._pdist_backward", 1, "not translated"),
        ("rms", 0, "aten.rms_norm.default"),  # a part of a name
    ],
)
def test_how_an_operator_is_supported(name: str, code: int, text: str) -> None:
    done = call("ops", name)
    assert done.exit_code == code
    assert text in done.stdout


def test_an_operator_that_nobody_has() -> None:
    done = call("ops", "mylib.gadget")
    assert done.exit_code == 2
    assert "onnx-aot explain OA401" in done.stderr


def test_every_family_is_counted() -> None:
    rows = json.loads(call("ops", "--json").stdout)
    assert len({row["name"] for row in rows}) > 700
    lines = call("ops").stdout.splitlines()
    assert sum(int(line.split()[1]) for line in lines[:-1]) == len(rows)
