"""Loads models from files; their data files are mapped, not read."""

from __future__ import annotations

import math
import os
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError, innermost_message
from onnx_aot.program.file_checks import check_model
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
            raise InvalidOptionError(f"there is no file {given} to load a model from", code="OA504")
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
    except OSError as error:
        raise InvalidOptionError(f"{path} cannot be read: {error}", code="OA504") from error
    except Exception as error:  # of protobuf, or of onnx_ir for messages that make no sense
        raise InvalidOptionError(
            f"{path} is not an ONNX model: {innermost_message(error)}", code="OA504"
        ) from error
    check_model(model, path)
    files: dict[str, MappedFile] = {}
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = _map_tensor(value.const_value, path, files)
    return model


def _map_tensor(tensor: ir.ExternalTensor, model: str, files: dict[str, MappedFile]) -> Any:
    """Maps the data of a tensor, as a ``StoredTensor`` if torch has its type.

    ``files`` holds the files opened so far, by path.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(model)), os.path.normpath(tensor.location))
    try:
        file = files.get(path) or files.setdefault(path, MappedFile(path))
    except OSError as error:
        raise InvalidOptionError(
            f"{model} refers to {tensor.location}, which is not beside it: {error.strerror}",
            code="OA504",
        ) from error
    shape, offset = [int(size) for size in tensor.shape.numpy()], tensor.offset or 0
    if offset + tensor.nbytes > file.size:
        raise InvalidOptionError(
            f"{path} has {file.size} bytes; {tensor.name} in {model} ends at byte "
            f"{offset + tensor.nbytes}",
            code="OA504",
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
    return StoredTensor(file, file.map_tensor(dtype, shape, offset), offset, tensor.name)
