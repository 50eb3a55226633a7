"""The matrix of clients: its table, the programs inside the environments, and the page."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from benchmarks import clients, results
from benchmarks.clients.cells import STAGES, judge_cell
from benchmarks.clients.inside.exchange import CASE, load_arrays, store_arrays
from benchmarks.clients.prepare import EXPECTED
from benchmarks.clients.summary import find_behind, summarize_cells
from benchmarks.clients.table import CLIENTS, COLUMNS, EXPORTERS, MODELS, TOOLS, Client
from benchmarks.clients.versions import REQUIREMENTS, list_packages
from benchmarks.models import MODELS as CATALOGUE
from docs.clients_page import LETTERS, make_clients_page

SIZES = ((2, 3), (5, 3))


class Here(Client):
    """A client in the environment of the tests."""

    @property
    def interpreter(self) -> Path:
        return Path(sys.executable)


def here(key: str, **options: Any) -> Client:
    return Here(key, "tools", "onnx", key, **options)


def prepare(folder: Path, operator: str = "Relu", batch: Any = "batch") -> dict[str, Any]:
    """Stores a model of one node, two inputs for it, and the results of Relu."""
    made = folder / "ours"
    made.mkdir()
    typed = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, 3])
        for name in ("x", "y")
    ]
    node = onnx.helper.make_node(operator, ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", typed[:1], typed[1:])
    imports = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)
    onnx.save(model, made / "model.onnx")
    inputs = [torch.randn(size) for size in SIZES]
    torch.save([[x.relu()] for x in inputs], folder / EXPECTED)
    sizes = [store_arrays(made, f"input-{i}", [x.numpy()]) for i, x in enumerate(inputs)]
    case = {"name": "relu", "inputs": ["x"], "outputs": ["y"], "sizes": sizes}
    (made / CASE).write_text(json.dumps(case), encoding="utf-8")
    return {"file": str(made / "model.onnx"), "folder": str(made), "remark": ""}


def test_every_client_has_its_requirements() -> None:
    environments = {column.environment for column in COLUMNS.values()} - {"node"}
    assert environments == {path.stem for path in REQUIREMENTS.glob("*.txt")}
    for column in (*CLIENTS, *TOOLS):
        if column.kind != "node":
            assert column.package in list_packages(column.environment), column.name
    packages = json.loads((REQUIREMENTS / "package.json").read_text(encoding="utf-8"))
    node = {column.package for column in CLIENTS if column.kind == "node"}
    assert set(packages["dependencies"]) == node


def test_models_are_of_the_catalogue() -> None:
    assert len(set(MODELS)) == len(MODELS) >= 20
    assert set(MODELS) <= set(CATALOGUE)
    assert set(LETTERS) == set(STAGES)


def test_arrays_keep_type_and_shape(tmp_path: Path) -> None:
    given = [np.zeros((2, 0, 3), np.float32), np.array(5), np.array([True, False])]
    found = load_arrays(tmp_path, store_arrays(tmp_path, "a", given))
    for one, other in zip(found, given, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("key", ["onnxruntime", "onnx"])
def test_a_right_model(key: str, tmp_path: Path) -> None:
    cell = judge_cell(here(key), prepare(tmp_path), limit=100)
    assert cell == {"stage": "right", "reason": ""}


def test_a_wrong_model(tmp_path: Path) -> None:
    cell = judge_cell(here("onnxruntime"), prepare(tmp_path, "Neg"), limit=100)
    assert cell["stage"] == "wrong"
    assert "size 1: output 0: " in cell["reason"]


def test_a_model_that_is_not_loaded(tmp_path: Path) -> None:
    cell = judge_cell(here("onnxruntime"), prepare(tmp_path, "Nothing"), limit=100)
    assert cell["stage"] == "not loaded"
    assert "Nothing" in cell["reason"]
    assert str(tmp_path) not in cell["reason"]


def test_a_model_for_one_size(tmp_path: Path) -> None:
    cell = judge_cell(here("onnxruntime"), prepare(tmp_path, batch=2), limit=100)
    assert cell["stage"] == "one size"


def test_tools(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    for key in ("opset up", "opset down", "compose", "extract_model", "ORT format"):
        cell = judge_cell(here(key, kind="tool"), prepared, limit=100)
        assert (key, cell["stage"], cell["reason"]) == (key, "right", "")
    changed = here("matmul_nbits", kind="tool", error=0.1, makes=True)
    assert judge_cell(changed, prepared, limit=100) == {
        "stage": "unchanged",
        "reason": "the tool makes none of its nodes",
        "made": {},
    }


def test_cells_without_a_client_or_a_file(tmp_path: Path) -> None:
    absent = dataclasses.replace(COLUMNS["OpenVINO"], environment="absent")
    cell = judge_cell(absent, prepare(tmp_path), limit=100)
    assert (cell["stage"], "client-absent" in cell["reason"]) == ("missing", True)
    cell = judge_cell(here("onnxruntime"), {"reason": "refused"}, limit=100)
    assert cell == {"stage": "no file", "reason": "refused"}


def test_a_client_that_takes_too_long(tmp_path: Path) -> None:
    cell = judge_cell(here("onnxruntime"), prepare(tmp_path), limit=0.01)
    assert cell == {"stage": "not loaded", "reason": "takes longer than 0.01 s"}


def test_files_that_are_behind_torch_onnx_are_found() -> None:
    cells = {
        "OpenVINO": {"ours": {"stage": "wrong"}, "peer": {"stage": "one size"}},
        "OpenCV": {"ours": {"stage": "right"}, "peer": {"stage": "right"}},
        "onnxslim": {"ours": {"stage": "wrong"}},
    }
    row = {"name": "mlp", "cells": cells}
    assert find_behind([row]) == [("mlp", "OpenVINO")]
    assert summarize_cells([row])["OpenCV"] == {"ours": {"right": 1}, "peer": {"right": 1}}


def test_stored_results_are_those_of_the_table() -> None:
    kept = results.read_json(clients.NAME)
    assert {row["name"] for row in kept["rows"]} <= set(MODELS)
    assert {column for row in kept["rows"] for column in row["cells"]} <= set(COLUMNS)
    assert {exporter for row in kept["rows"] for c in row["cells"].values() for exporter in c} <= {
        *EXPORTERS
    }
    assert kept["summary"] == summarize_cells(kept["rows"])


def test_the_page_is_that_of_the_results() -> None:
    page = make_clients_page()
    assert page == Path("docs", "clients.md").read_text(encoding="utf-8")
    assert "/tmp/" not in page
