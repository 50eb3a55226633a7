"""Writes models to disk; weights go from where torch holds them to the file in one pass.

``onnx_ir`` serializes everything but the weights. Their bytes are then written straight from
memory: into the same file, as the ``raw_data`` of their ``TensorProto``, or into a file beside it.
The protobuf encoding of a message is its fields' in any order, each field its tag, length and
bytes (https://protobuf.dev/programming-guides/encoding/), so weights need never be in a message.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Literal

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.ir_passes.folded import FoldedTensor, sources_of
from onnx_aot.metadata_keys import INPUT_KIND
from onnx_aot.program.atomic import check_destination, written_beside
from onnx_aot.program.weights import is_absent

__all__ = ["ExternalData", "model_bytes", "save_model", "weights_of"]

ExternalData = bool | None | Literal["auto"]

EXTERNAL_THRESHOLD = 1536 * 1024 * 1024
"""Weights above this many bytes go to a file of their own when nothing else is asked for."""

PROTOBUF_LIMIT = 2**31 - 1
ALIGNMENT = 4096
STREAMED_FROM = 1024  # smaller tensors are serialized with the graph

_GRAPH_TAG = (7 << 3) | 2  # ModelProto.graph
_INITIALIZER_TAG = (5 << 3) | 2  # GraphProto.initializer
_RAW_DATA_TAG = (9 << 3) | 2  # TensorProto.raw_data


def save_model(
    model: ir.Model,
    destination: Any,
    *,
    external_data: ExternalData = "auto",
    include_initializers: bool = True,
    keep_initializers_as_inputs: bool = False,
) -> None:
    """Writes a model to a path, or to a binary file object.

    Args:
        model: It is the same afterwards.
        destination: A path, or an object with a ``write`` method that takes bytes.
        external_data: True puts weights into ``<name>.data`` beside the file, False into the file,
            ``"auto"`` or None decides by their size.
        include_initializers: False leaves out parameters and buffers, to be supplied later.
        keep_initializers_as_inputs: True lists parameters and buffers as inputs too.

    Raises:
        InvalidOptionError: External data with a file object, or neither a path nor a file object.
        SaveError: The model does not fit into one file, weights have no values, the folder does
            not exist, or the disk refuses. Files that were there before are untouched.
    """
    weights = weights_of(model) if include_initializers else []
    total = sum(value.const_value.nbytes for value in weights if value.const_value is not None)
    to_file_object = hasattr(destination, "write")
    check_destination(destination)
    if to_file_object and external_data is True:
        raise InvalidOptionError(
            "external_data=True needs a path to put the second file beside; got a file object"
        )
    external = external_data is True or (
        external_data in (None, "auto") and total > EXTERNAL_THRESHOLD and not to_file_object
    )
    if not external and total > PROTOBUF_LIMIT:
        raise SaveError(
            f"the weights take {total / 1e9:.2f} GB; one ONNX file holds at most 2 GB. Save to a "
            'path with external_data=True or "auto"'
        )
    if include_initializers:
        _refuse_missing_values(model.graph.initializers.values())
    with _prepared(model, include_initializers, keep_initializers_as_inputs):
        try:
            if to_file_object:
                _write_single(model, weights, destination)
            else:
                path = os.path.realpath(os.fspath(destination))  # data lies beside a link's target
                old_data = _data_files_of(path)
                if external:
                    _save_two_files(model, weights, path)
                else:
                    with written_beside(path) as file:
                        _write_single(model, weights, file)
                for name in old_data:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name)
        except OSError as error:
            raise SaveError(
                f"could not write {destination}: {error}. Nothing that was there has changed"
            ) from error


def model_bytes(model: ir.Model) -> bytes:
    """The model as one serialized ``ModelProto``.

    Raises:
        SaveError: It has more than 2 GB, or weights without values.
    """
    import io

    buffer = io.BytesIO()
    save_model(model, buffer)
    return buffer.getvalue()


def weights_of(model: ir.Model) -> list[ir.Value]:
    """Initializers large enough to be written apart from the graph, and those computed of them."""
    return [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None
        and (
            value.const_value.nbytes >= STREAMED_FROM
            or isinstance(value.const_value, FoldedTensor)  # reads others, which are absent then
        )
        and value.const_value.dtype != ir.DataType.STRING
    ]


def is_weight(value: ir.Value) -> bool:
    """Whether an initializer is a parameter or buffer of the user's module."""
    kind = value.metadata_props.get(INPUT_KIND)
    return kind in ("PARAMETER", "BUFFER")


def _refuse_missing_values(initializers: Iterable[ir.Value]) -> None:
    initializers = list(initializers)
    every = (*initializers, *sources_of(initializers))
    missing = [str(value.name) for value in every if is_absent(value.const_value)]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise SaveError(
            f"{len(missing)} weights have no values yet: {shown}. Call apply_weights(state_dict "
            "or path) first, or save with include_initializers=False"
        )


# --- what is written -----------------------------------------------------------------------------


class _Absent:
    """Stands for a weight while the graph is serialized: everything but its bytes."""

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        self.name = tensor.name
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.doc_string = tensor.doc_string
        self.metadata_props = tensor.metadata_props
        self.raw = tensor

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes

    def tobytes(self) -> bytes:
        return b""


@contextlib.contextmanager
def _prepared(model: ir.Model, include: bool, as_inputs: bool) -> Iterator[None]:
    """The model as it is to be written; as it was afterwards."""
    graph = model.graph
    initializers = dict(graph.initializers)
    inputs = list(graph.inputs)
    added = [value for value in initializers.values() if is_weight(value)]
    try:
        if not include:
            for value in added:
                del graph.initializers[str(value.name)]
        if as_inputs:
            graph.inputs.extend(value for value in added if value not in inputs)
        yield
    finally:
        if as_inputs:
            graph.inputs.clear()
            graph.inputs.extend(inputs)
        if not include:
            graph.initializers.clear()
            graph.initializers.update(initializers)


def _graph_without_weights(model: ir.Model, weights: Sequence[ir.Value]) -> onnx.ModelProto:
    """The whole model; the weights' ``TensorProto`` have no data."""
    held = [(value, value.const_value) for value in weights]
    try:
        for value, tensor in held:
            assert tensor is not None
            value.const_value = _Absent(tensor)  # type: ignore[assignment]
        return ir.serde.serialize_model(model)
    finally:
        for value, tensor in held:
            value.const_value = tensor


def _write_single(model: ir.Model, weights: Sequence[ir.Value], file: Any) -> None:
    proto = _graph_without_weights(model, weights)
    by_name = {str(value.name): value.const_value for value in weights}
    small: list[onnx.TensorProto] = []
    large: list[onnx.TensorProto] = []
    for tensor in proto.graph.initializer:
        (large if tensor.name in by_name else small).append(tensor)
    headers = []
    length = 0
    for tensor in large:
        tensor.ClearField("raw_data")
        data = by_name[tensor.name]
        assert data is not None
        start = tensor.SerializeToString() + _field(_RAW_DATA_TAG, data.nbytes)
        header = _field(_INITIALIZER_TAG, len(start) + data.nbytes) + start
        headers.append((header, data))
        length += len(header) + data.nbytes
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(small)
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    if length + len(graph) > PROTOBUF_LIMIT:
        raise SaveError(
            f"the model takes {(length + len(graph)) / 1e9:.2f} GB; one ONNX file holds at most "
            '2 GB. Save to a path with external_data=True or "auto"'
        )
    file.write(proto.SerializeToString())
    file.write(_field(_GRAPH_TAG, len(graph) + length))
    file.write(graph)
    for header, data in headers:
        file.write(header)
        data.tofile(file)  # type: ignore[attr-defined]


def _field(tag: int, length: int) -> bytes:
    """A length-delimited field's tag and length, as base-128 varints."""
    return _varint(tag) + _varint(length)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append((number & 0x7F) | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# --- two files -----------------------------------------------------------------------------------


def _save_two_files(model: ir.Model, weights: Sequence[ir.Value], path: str) -> None:
    """The data file is complete under its name before the model that refers to it appears.

    While a model is replaced its old data file stays; the new one gets a name of its own.
    """
    data_path = _free_data_path(path)
    proto = _graph_without_weights(model, weights)
    places: dict[str, tuple[int, int]] = {}
    with written_beside(data_path) as file:
        offset = 0
        for value in weights:
            assert value.const_value is not None
            offset = _pad(file, offset)
            value.const_value.tofile(file)  # type: ignore[attr-defined]
            places[str(value.name)] = (offset, value.const_value.nbytes)
            offset += value.const_value.nbytes
    try:
        for tensor in proto.graph.initializer:
            if tensor.name in places:
                _refer(tensor, os.path.basename(data_path), *places[tensor.name])
        with written_beside(path) as file:
            file.write(proto.SerializeToString())
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(data_path)
        raise


def _pad(file: BinaryIO, offset: int) -> int:
    aligned = -(-offset // ALIGNMENT) * ALIGNMENT
    file.write(b"\0" * (aligned - offset))
    return aligned


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)


def _free_data_path(path: str) -> str:
    """``<path>.data``, or with the first number that no file has."""
    if not os.path.lexists(f"{path}.data"):
        return f"{path}.data"
    return next(name for n in itertools.count(2) if not os.path.lexists(name := f"{path}.data{n}"))


def _data_files_of(path: str) -> list[str]:
    """The data files that the model at a path refers to, of those that a save made."""
    folder, name = os.path.split(path)
    made = re.compile(re.escape(name) + r"\.data\d*")
    present = {file for file in os.listdir(folder) if made.fullmatch(file)}
    if not present or not os.path.isfile(path):
        return []
    try:
        old = onnx.load_model(path, load_external_data=False)
    except DecodeError:  # what is replaced is no model
        return []
    referred = {
        entry.value
        for tensor in old.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [os.path.join(folder, file) for file in sorted(present & referred)]
