"""Writes the nodes of one value as a separate model, with inputs and a script that runs it."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from onnx_aot.dtypes import TOLERANCES, Tolerance, to_torch
from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection.compared_values import ComparedValue, Source
from onnx_aot.inspection.fx_run import run_captured
from onnx_aot.inspection.value_mapping import Pair, Slice, Slices, extract_slice

__all__ = ["write_isolated"]

WIDER = {
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
    ir.DataType.FLOAT8E4M3FN: ir.DataType.FLOAT,
    ir.DataType.FLOAT8E4M3FNUZ: ir.DataType.FLOAT,
    ir.DataType.FLOAT8E5M2: ir.DataType.FLOAT,
    ir.DataType.FLOAT8E5M2FNUZ: ir.DataType.FLOAT,
    ir.DataType.INT4: ir.DataType.INT8,
    ir.DataType.UINT4: ir.DataType.UINT8,
}
"""Types that NumPy lacks; inputs and outputs get the wider one, which holds all their values."""


def write_isolated(source: Source, row: ComparedValue, folder: str) -> str:
    """Writes ``node.onnx``, ``inputs.npz``, ``expected.npz`` and ``reproduce.py``.

    Args:
        source: The program and inputs that were compared.
        row: The value to isolate.
        folder: The folder to write to; created if it does not exist.

    Returns:
        The folder.

    Raises:
        InvalidOptionError: PyTorch could not compute the inputs or outputs of the nodes, or the
            model has been changed since it was compared.
    """
    program = source.program
    pairs = source.pairs()
    pair = next((pair for pair in pairs if pair.onnx_name == row.onnx_value), None)
    if pair is None:
        raise InvalidOptionError(
            f"the model has no value {row.onnx_value} now; compare it again after changing it",
            code="OA607",
        )
    piece = Slices(program.model.graph, pairs).slice_before(pair)
    known = _compute_inner_values(source, pairs, piece)
    alone = type(program)(extract_slice(program.model, piece), origin=program._origin)
    graph = alone.model.graph
    arrays = [
        {str(value.name): _to_array(value, known[str(value.name)]) for value in values}
        for values in (graph.inputs, graph.outputs)
    ]
    _widen(graph)
    alone.model.metadata_props.update(_make_metadata(row))
    os.makedirs(folder, exist_ok=True)
    alone._save_for(torch.device("cpu"), os.path.join(folder, "node.onnx"))
    for name, held in zip(("inputs.npz", "expected.npz"), arrays, strict=True):
        _write_arrays(os.path.join(folder, name), held)
    script = "reproduce.py"
    shutil.copyfile(os.path.join(os.path.dirname(__file__), script), os.path.join(folder, script))
    return folder


def _compute_inner_values(
    source: Source, pairs: Sequence[Pair], piece: Slice
) -> dict[str, torch.Tensor]:
    """PyTorch's values of the inputs and outputs of a slice, by their ONNX names."""
    wanted = {*piece.inputs, *piece.outputs}
    by_node: dict[torch.fx.Node, list[Pair]] = {}
    for pair in pairs:
        if not wanted.isdisjoint(pair.values):
            by_node.setdefault(pair.node, []).append(pair)
    known = dict(source.inputs)

    def keep(node: torch.fx.Node, result: Any, by_torch: bool) -> None:
        for pair in by_node.get(node, ()):
            found = pair.select_from(result)
            if isinstance(found, (torch.Tensor, bool, int, float)):
                parts = zip(pair.values, pair.split_parts(found), strict=True)
                known.update({str(value.name): tensor for value, tensor in parts})

    run_captured(source.program, source.inputs, pairs, keep)
    for value in wanted:
        if str(value.name) not in known:
            raise InvalidOptionError(
                f"PyTorch could not compute {value.name} from the captured graph", code="OA607"
            )
    return known


def _to_array(value: ir.Value, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    wider = _wider_type(value)
    if wider is not None:
        tensor = tensor.to(to_torch(wider))
    array: np.ndarray[Any, Any] = tensor.detach().cpu().contiguous().numpy()
    return array


def _wider_type(value: ir.Value) -> ir.DataType | None:
    return None if value.dtype is None else WIDER.get(value.dtype)


def _widen(graph: ir.Graph) -> None:
    """Inserts a Cast after every input, and before every output, of a type that NumPy lacks."""
    for value in graph.inputs:
        wider = _wider_type(value)
        if wider is not None:
            narrow = ir.Value(name=f"{value.name}_narrow", type=value.type, shape=value.shape)
            value.replace_all_uses_with(narrow)
            graph.insert_before(graph[0], _cast(value, narrow))
            value.type = ir.TensorType(wider)  # a new object: the original model shares the old one
    for index, value in enumerate(graph.outputs):
        wider = _wider_type(value)
        if wider is not None:
            wide = ir.Value(name=value.name, type=ir.TensorType(wider), shape=value.shape)
            value.name = f"{value.name}_narrow"
            graph.append(_cast(value, wide))
            graph.outputs[index] = wide


def _cast(source: ir.Value, result: ir.Value) -> ir.Node:
    assert result.dtype is not None
    to = ir.AttrInt64("to", result.dtype.value)
    name = f"node_{source.name}_{result.name}"
    return ir.Node("", "Cast", [source], [to], outputs=[result], name=name)


def _make_metadata(row: ComparedValue) -> dict[str, str]:
    """Metadata of the model, which the script prints."""
    dtype = row.expected.partition("[")[0]
    tolerance = TOLERANCES.get(getattr(torch, dtype), Tolerance(0.0, 0.0))
    return {
        "captured": f"{row.fx_node} = {row.operator}",
        "module": row.module,
        "at": row.location,
        "tolerance relative": str(tolerance.relative),
        "tolerance absolute": str(tolerance.absolute),
    }


def _write_arrays(path: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes arrays like ``np.savez``, whose keyword arguments do not allow every name."""
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
