"""Loads models from files; their data files are mapped, not read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir
import torch
from google.protobuf.message import DecodeError

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.serialization.mapped_tensor import MappedFile, StoredTensor

__all__ = ["load_model"]

PACKED = (2, 4, 6)
"""Bit widths of elements that share a byte; torch has no tensors of them."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Loads the model of a file; if another process replaces it meanwhile, the old or the new one.

    Raises:
        InvalidOptionError: There is no such file, it is not a model, or a data file that it refers
            to is missing, too short or outside its folder.
    """
    given = os.fspath(path)
    while True:
        if not os.path.isfile(given):
            raise InvalidOptionError(f"there is no file {given} to load a model from")
        before = _identify(given)
        try:
            return _load(given)
        except InvalidOptionError:
            if _identify(given) in (before, None):  # else its data went with the old model
                raise


def _identify(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _load(path: str) -> ir.Model:
    try:
        model = ir.load(path)
    except (DecodeError, ValueError, TypeError) as error:
        raise InvalidOptionError(f"{path} is not an ONNX model: {error}") from error
    for tensor in _external_tensors(model):
        _check_location(str(tensor.location), path)
    files: dict[str, MappedFile] = {}
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = _map_tensor(value.const_value, path, files)
    return model


def _external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Yields every tensor in another file, also those in attributes, bodies and functions."""
    for graph in model.graphs():
        yield from _only_external(value.const_value for value in graph.initializers.values())
    for nodes in (*model.graphs(), *model.functions.values()):
        for node in nodes:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR:
                    yield from _only_external([attribute.value])
                elif attribute.type == ir.AttributeType.TENSORS:
                    yield from _only_external(attribute.value)


def _only_external(tensors: Iterable[Any]) -> Iterator[ir.ExternalTensor]:
    return (tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor))


def _check_location(location: str, model: str) -> None:
    """Refuses the location of a data file that is not in the model's folder, links followed.

    Files beside the target of a link to the model are accepted too, because caches of downloads
    have links to the model and to its data.
    """
    folders = {os.path.dirname(os.path.abspath(model)), os.path.dirname(os.path.realpath(model))}
    within = {os.path.realpath(folder) for folder in folders}
    path = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(model)), location))
    escapes = os.path.isabs(location) or os.pardir in location.replace("\\", "/").split("/")
    if escapes or not any(path.startswith(os.path.join(folder, "")) for folder in within):
        raise InvalidOptionError(
            f"{model} refers to the file {location}, which is not in its folder. Copy the data "
            "into the folder of the model; a link to a file elsewhere is not followed"
        )
    if os.path.lexists(path) and not os.path.isfile(path):
        raise InvalidOptionError(f"{model} refers to {location}, which is not a regular file")


def _map_tensor(tensor: ir.ExternalTensor, model: str, files: dict[str, MappedFile]) -> Any:
    """Maps the data of a tensor, as a ``StoredTensor`` if torch has its type.

    ``files`` holds the files opened so far, by path.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(model)), os.path.normpath(tensor.location))
    try:
        file = files.get(path) or files.setdefault(path, MappedFile(path))
    except OSError as error:
        raise InvalidOptionError(
            f"{model} refers to {tensor.location}, which is not beside it: {error.strerror}"
        ) from error
    shape, offset = [int(size) for size in tensor.shape.numpy()], tensor.offset or 0
    if offset + tensor.nbytes > file.size:
        raise InvalidOptionError(
            f"{path} has {file.size} bytes; {tensor.name} in {model} ends at byte "
            f"{offset + tensor.nbytes}"
        )
    if tensor.dtype.bitwidth in PACKED:
        data = file.map_tensor(torch.uint8, [tensor.nbytes], offset).numpy()
        return ir.PackedTensor(data, tensor.dtype, shape=shape, name=tensor.name)
    try:
        dtype = dtypes.to_torch(tensor.dtype)
    except TypeError:
        return tensor
    if tensor.nbytes != math.prod(shape) * dtype.itemsize:
        return tensor
    return StoredTensor(file, dtype, shape, offset, tensor.name)
