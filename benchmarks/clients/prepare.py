"""Exports a model with both exporters, and stores inputs and PyTorch's outputs at two sizes."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.clients.inside.exchange import CASE, store_arrays
from benchmarks.clients.table import CLIENTS
from benchmarks.models import MODELS
from benchmarks.ways import FIXED, as_hints, remove_dimensions
from onnx_aot import sweep

__all__ = ["EXPECTED", "SIZES", "prepare_model", "prepare_row", "read_prepared"]

SIZES = 2
EXPECTED, PREPARED = "expected.pt", "prepared.json"


def prepare_row(settings: Mapping[str, str], progress: sweep.Progress) -> dict[str, Any]:
    """Row of a sweep that exports a model."""
    return {"prepared": prepare_model(settings["name"], settings["folder"])}


def prepare_model(name: str, folder: str) -> dict[str, Any]:
    """Exports a model into a folder.

    Returns:
        By exporter, or by exporter and target such as ``ours onnxruntime==1.16``, an entry with
        ``file``, ``folder`` and ``remark``, or with the ``reason`` why there is no file.
    """
    warnings.simplefilter("ignore")
    case, where = MODELS[name], Path(folder)
    model = case.make()
    examples = [case.example(index) for index in range(SIZES)]
    torch.save([_run(model, example) for example in examples], where / EXPECTED)
    prepared = {}
    for target in dict.fromkeys(["", *(client.target for client in CLIENTS)]):
        key = f"ours {target}".strip()
        prepared[key] = _prepare(name, model, examples, where / key.replace("==", "-"), target)
    prepared["peer"] = _prepare(name, model, examples, where / "peer", None)
    (where / PREPARED).write_text(json.dumps(prepared), encoding="utf-8")
    return prepared


def read_prepared(folder: str) -> dict[str, Any] | None:
    """Reads what ``prepare_model`` returned for a folder; None if it has not run."""
    path = Path(folder) / PREPARED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _run(model: torch.nn.Module, example: Any) -> list[torch.Tensor]:
    args, kwargs = example
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    return [leaf.clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _prepare(
    name: str, model: torch.nn.Module, examples: list[Any], folder: Path, target: str | None
) -> dict[str, Any]:
    """Exports a model; torch.onnx does it if ``target`` is None."""
    shutil.rmtree(folder, ignore_errors=True)  # of an export that was interrupted
    folder.mkdir()
    path = folder / "model.onnx"
    try:
        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            if target is None:
                remark = _export_with_torch(name, model, examples[0], str(path))
            else:
                remark = _export(name, model, examples[0], str(path), target)
        _store_case(name, path, examples)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        return {"reason": text[:300]}
    return {"file": str(path), "folder": str(folder), "remark": remark}


def _export(name: str, model: Any, example: Any, path: str, target: str) -> str:
    import onnx_aot

    args, kwargs = example
    options = {"target": target} if target else {}
    onnx_aot.export(
        model,
        args,
        path,
        kwargs=kwargs,
        dynamic_shapes=MODELS[name].dynamic_shapes,
        on_specialized="allow",
        **options,
    )
    return ""


def _export_with_torch(name: str, model: Any, example: Any, path: str) -> str:
    """Exports with the dynamic dimensions of the row, or with those that torch.onnx takes."""
    args, kwargs = example
    for shapes, remark in _fewer_dimensions(MODELS[name].dynamic_shapes):
        try:
            torch.onnx.export(
                model,
                args,
                path,
                kwargs=kwargs,
                dynamic_shapes=as_hints(shapes),
                dynamo=True,
                external_data=False,
            )
        except Exception:
            if shapes is None:
                raise
        else:
            return remark
    raise AssertionError("the last one is static")


def _fewer_dimensions(shapes: Any) -> Iterator[tuple[Any, str]]:
    for fixed, remark in FIXED:
        yield remove_dimensions(shapes, fixed), remark
    yield None, "static"


def _store_case(name: str, path: Path, examples: list[Any]) -> None:
    """Writes the inputs for a file; both exporters order them as the leaves of the call."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    stored = {value.name for value in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in stored]
    sizes = []
    for index, example in enumerate(examples):
        leaves = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)]
        if len(leaves) != len(inputs):
            raise ValueError(f"the file has {len(inputs)} inputs instead of {len(leaves)}")
        arrays = [leaf.numpy() for leaf in leaves]
        sizes.append(store_arrays(path.parent, f"input-{index}", arrays))
    held = {
        "name": name,
        "inputs": inputs,
        "outputs": [value.name for value in graph.output],
        "sizes": sizes,
    }
    (path.parent / CASE).write_text(json.dumps(held), encoding="utf-8")
