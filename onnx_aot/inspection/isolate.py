"""Writes the nodes of one value as a model of its own, with inputs and a script that runs it."""

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
from onnx_aot.inspection.captured_run import run_captured
from onnx_aot.inspection.comparison import ComparedValue, Source
from onnx_aot.inspection.pairs import Pair, Slice, Slices, cut

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
"""Types that NumPy lacks: the model takes and gives the wider one, which holds all their values."""


def write_isolated(source: Source, row: ComparedValue, folder: str) -> str:
    """Writes ``node.onnx``, ``inputs.npz``, ``expected.npz`` and ``reproduce.py``.

    Args:
        source: What was compared.
        row: Which value.
        folder: Where; it is made if need be.

    Returns:
        The path of the script.

    Raises:
        InvalidOptionError: PyTorch could not compute what the nodes read, or the model has
            been changed since it was compared.
    """
    program = source.program
    pairs = source.pairs()
    pair = next((pair for pair in pairs if pair.onnx_name == row.onnx_value), None)
    if pair is None:
        raise InvalidOptionError(
            f"the model has no value {row.onnx_value} now; compare it again after changing it"
        )
    piece = Slices(program.model.graph, pairs).before(pair)
    known = _computed(source, pairs, piece)
    alone = type(program)(cut(program.model, piece))
    graph = alone.model.graph
    arrays = [
        {str(value.name): _array(value, known[str(value.name)]) for value in values}
        for values in (graph.inputs, graph.outputs)
    ]
    _widen(graph)
    alone.model.metadata_props.update(_about(row))
    os.makedirs(folder, exist_ok=True)
    alone.save(os.path.join(folder, "node.onnx"))
    for name, held in zip(("inputs.npz", "expected.npz"), arrays, strict=True):
        _write_arrays(os.path.join(folder, name), held)
    path = os.path.join(folder, "reproduce.py")
    shutil.copyfile(os.path.join(os.path.dirname(__file__), "reproduce.py"), path)
    return path


def _computed(source: Source, pairs: Sequence[Pair], piece: Slice) -> dict[str, torch.Tensor]:
    """What PyTorch computes for the inputs and outputs of a slice, by their ONNX names."""
    wanted = {*piece.inputs, *piece.outputs}
    by_node: dict[torch.fx.Node, list[Pair]] = {}
    for pair in pairs:
        if not wanted.isdisjoint(pair.values):
            by_node.setdefault(pair.node, []).append(pair)
    known = dict(source.inputs)

    def keep(node: torch.fx.Node, result: Any) -> None:
        for pair in by_node.get(node, ()):
            parts = zip(pair.values, pair.parts(pair.of(result)), strict=True)
            known.update({str(value.name): tensor for value, tensor in parts})

    run_captured(source.program, source.inputs, keep)
    for value in wanted:
        if str(value.name) not in known:
            raise InvalidOptionError(
                f"PyTorch could not compute {value.name} from the captured graph"
            )
    return known


def _array(value: ir.Value, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    wider = WIDER.get(value.dtype) if value.dtype is not None else None
    if wider is not None:
        tensor = tensor.to(to_torch(wider))
    return tensor.detach().cpu().contiguous().numpy()


def _widen(graph: ir.Graph) -> None:
    """Puts a cast behind every input, and before every output, of a type that NumPy lacks."""
    for value in graph.inputs:
        wider = WIDER.get(value.dtype) if value.dtype is not None else None
        if wider is not None and value.dtype is not None:
            cast = ir.node("Cast", [value], {"to": value.dtype})
            narrow = cast.outputs[0]
            narrow.name, narrow.dtype, narrow.shape = (
                f"{value.name}_narrow",
                value.dtype,
                value.shape,
            )
            value.replace_all_uses_with(narrow)
            cast.replace_input_with(0, value)
            value.dtype = wider
            graph.insert_before(graph[0], cast)
    for index, value in enumerate(graph.outputs):
        wider = WIDER.get(value.dtype) if value.dtype is not None else None
        if wider is not None:
            cast = ir.node("Cast", [value], {"to": wider})
            wide = cast.outputs[0]
            wide.name, value.name = value.name, f"{value.name}_narrow"
            wide.dtype, wide.shape = wider, value.shape
            graph.append(cast)
            graph.outputs[index] = wide


def _about(row: ComparedValue) -> dict[str, str]:
    """What the model says of itself, which the script prints."""
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
    """As ``np.savez`` does, which takes names as keyword arguments and so not all of them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
