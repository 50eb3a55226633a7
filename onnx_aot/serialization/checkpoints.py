"""Reads checkpoints by tensor name: dicts, safetensors files and files of ``torch.save``."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.serialization.locations import lies_beside
from onnx_aot.serialization.mapped_tensor import MappedFile, StoredTensor

__all__ = [
    "Given",
    "read_checkpoint",
    "read_safetensors",
    "read_safetensors_header",
    "safetensors_name",
]

Given = torch.Tensor | StoredTensor

HEADER_LIMIT = 100_000_000
"""Largest header, in bytes of JSON, that the format allows."""

INDEXES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
"""Files to look for in a folder, in this order."""

PICKLED = (".pt", ".pth", ".bin", ".ckpt")

_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}
"""Element types of https://github.com/huggingface/safetensors, and their torch names."""

_DTYPES = {name: getattr(torch, of_torch) for name, of_torch in _NAMES.items()}
_BY_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}


def read_checkpoint(source: Mapping[str, Any] | str | os.PathLike[str]) -> dict[str, Given]:
    """Returns tensors by name; those in safetensors and newer torch files stay on the disk.

    Args:
        source: Tensors by name; or a file: ``.safetensors``, one of ``torch.save``, or an index
            (``.index.json``) of several; or a folder that has one of the files in ``INDEXES``.

    Raises:
        InvalidOptionError: There is no such file, or it holds something else.
    """
    if isinstance(source, Mapping):
        return _check_tensors(source, "the state dict")
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidOptionError(
            f"weights are {type(source).__name__}; pass a dict of tensors by name, a "
            ".safetensors or .pt file, or a folder with model.safetensors.index.json",
            code="OA505",
        )
    path = os.fspath(source)
    if os.path.isdir(path):
        found = [name for name in INDEXES if os.path.isfile(os.path.join(path, name))]
        if not found:
            raise InvalidOptionError(
                f"the folder {path} has none of {', '.join(INDEXES)}; give the path of a file",
                code="OA505",
            )
        path = os.path.join(path, found[0])
    if not os.path.isfile(path):
        raise InvalidOptionError(f"there is no file {path} to take weights from", code="OA505")
    if path.endswith(".json"):
        return _read_index(path)
    if path.endswith(".safetensors"):
        return dict(read_safetensors(path))
    if path.endswith(PICKLED):
        return _read_pickled(path)
    raise InvalidOptionError(
        f"{path} has an unknown format; weights are read from .safetensors, {', '.join(PICKLED)} "
        "and .index.json files",
        code="OA505",
    )


def read_safetensors(path: str) -> dict[str, StoredTensor]:
    """Returns the tensors of one file without reading their data.

    The format is the length of a header in 8 bytes (little-endian), the header in JSON, the data.

    Raises:
        InvalidOptionError: It is not such a file, is cut off, or has a type that torch lacks.
    """
    with _translate_errors(path):
        file = MappedFile(path)
        length, header = _read_header(file)
        return {
            name: _make_stored_tensor(file, name, entry, 8 + length)
            for name, entry in header.items()
            if name != "__metadata__"
        }


def read_safetensors_header(path: str) -> dict[str, Any]:
    """Returns a file's header: its tensors by name, and ``__metadata__`` on the file itself.

    Raises:
        InvalidOptionError: It is not a safetensors file.
    """
    with _translate_errors(path):
        return _read_header(MappedFile(path))[1]


@contextlib.contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except InvalidOptionError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidOptionError(
            f"{path} is not a complete safetensors file: {reason}", code="OA505"
        ) from error


def _read_header(file: MappedFile) -> tuple[int, dict[str, Any]]:
    length = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= length <= min(HEADER_LIMIT, file.size - 8):
        raise ValueError("the length of its header is invalid")
    header = json.loads(file.read(8, length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    return length, header


def safetensors_name(dtype: torch.dtype) -> str | None:
    """Name of an element type in the format, or None if the format lacks it."""
    return _BY_DTYPE.get(dtype)


def _make_stored_tensor(
    file: MappedFile, name: str, entry: Mapping[str, Any], start: int
) -> StoredTensor:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise ValueError(f"{name} is of the type {entry['dtype']}, which is not known here")
    shape, (begin, end) = [int(size) for size in entry["shape"]], entry["data_offsets"]
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {end - begin} bytes for {dtype} of {shape}")
    return StoredTensor(file, file.map_tensor(dtype, shape, start + begin), start + begin, name)


def _read_index(path: str) -> dict[str, Given]:
    """Returns the tensors that an index lists, each from the file that it names."""
    try:
        with open(path, encoding="utf-8") as file:
            index: dict[str, str] = json.load(file)["weight_map"]
        names = sorted(set(index.values()))
        if not all(isinstance(name, str) for name in names):
            raise ValueError("it has a number in place of the name of a file")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidOptionError(
            f"{path} is not an index of weights: {error}", code="OA505"
        ) from error
    folder = os.path.dirname(path)
    outside = [name for name in names if not lies_beside(name, path) or name.endswith(".json")]
    if outside:
        raise InvalidOptionError(
            f"{path} names {len(outside)} files that are not weights in its folder: "
            f"{', '.join(outside[:5])}. Copy the files beside the index; a link to a file "
            "elsewhere is not followed",
            code="OA505",
        )
    absent = [name for name in names if not os.path.isfile(os.path.join(folder, name))]
    if absent:
        raise InvalidOptionError(
            f"{path} names {len(absent)} files that are not beside it: {', '.join(absent[:5])}",
            code="OA505",
        )
    files = {name: read_checkpoint(os.path.join(folder, name)) for name in names}
    lost = [tensor for tensor, name in index.items() if tensor not in files[name]]
    if lost:
        raise InvalidOptionError(
            f"{path} names {len(lost)} tensors that its files do not have: {', '.join(lost[:5])}",
            code="OA505",
        )
    return {tensor: files[name][tensor] for tensor, name in index.items()}


def _read_pickled(path: str) -> dict[str, Given]:
    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    try:
        try:
            loaded = torch.load(path, mmap=True, **options)
        except RuntimeError:  # files of older torch cannot be mapped
            loaded = torch.load(path, **options)
    except Exception as error:  # a damaged file may fail anywhere in torch's reader
        reason = str(error).partition("\n")[0]
        raise InvalidOptionError(
            f"{path} is not a file of tensors: {reason}", code="OA505"
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping):
        raise InvalidOptionError(
            f"{path} holds {type(loaded).__name__}; expected a dict of tensors", code="OA505"
        )
    return _check_tensors(loaded, path)


def _check_tensors(given: Mapping[str, Any], where: str) -> dict[str, Given]:
    given = {n: t for n, t in given.items() if not str(n).endswith("_extra_state")}
    for name, tensor in given.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InvalidOptionError(
                f"{where} has {type(tensor).__name__} under {name!r}; expected tensors by name",
                code="OA505",
            )
    return dict(part for name, tensor in given.items() for part in _flatten_subclass(name, tensor))


def _flatten_subclass(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields a tensor by name; for a tensor subclass its components, by longer names."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield name, tensor
        return
    for attribute in flatten()[0]:
        yield from _flatten_subclass(f"{name}.{attribute}", getattr(tensor, attribute))
