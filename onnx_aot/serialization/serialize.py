"""Writes models to disk; weights go from where torch holds them to the file in one pass.

``onnx_ir`` serializes everything but the weights. Their bytes are then written straight from
memory: into the same file, as the ``raw_data`` of their ``TensorProto``, or into a file beside it.
Protobuf encodes a message as its fields in any order, each as tag, length and bytes
(https://protobuf.dev/programming-guides/encoding/), so weights need never be in a message object.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import onnx
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot.errors import InvalidOptionError, SaveError, innermost_message
from onnx_aot.ir_passes.lazy_tensor import FoldedTensor, sources_of
from onnx_aot.metadata.keys import INPUT_KIND
from onnx_aot.serialization.atomic import (
    check_destination,
    is_stream,
    new_files,
    place_files,
    refuse_full_disk,
)
from onnx_aot.serialization.data_files import (
    DataFile,
    choose_names,
    digest_of,
    old_data_files,
    plan_data,
    plan_safetensors,
    removable_files,
    shard_size,
    write_index,
)
from onnx_aot.serialization.journal import (
    Journal,
    is_remembered,
    journal_of,
    remove_temporaries,
)
from onnx_aot.serialization.mapped_tensor import Sink, flat_bytes
from onnx_aot.serialization.progress import Progress
from onnx_aot.serialization.weights import is_absent, real_parts

__all__ = [
    "ExternalData",
    "check_external_data",
    "model_bytes",
    "model_hash",
    "save_model",
    "weights_of",
]

ExternalData = bool | None | Literal["auto", "safetensors"]

EXTERNAL_THRESHOLD = 1536 * 1024 * 1024
"""Weights of more bytes than this go to a file of their own by default."""

PROTOBUF_LIMIT = 2**31 - 1
STREAMED_FROM = 1024  # smaller tensors are serialized with the graph

_GRAPH_TAG = (7 << 3) | 2  # ModelProto.graph
_INITIALIZER_TAG = (5 << 3) | 2  # GraphProto.initializer
_RAW_DATA_TAG = (9 << 3) | 2  # TensorProto.raw_data


def save_model(
    model: ir.Model,
    destination: Any,
    *,
    external_data: ExternalData = "auto",
    max_shard_size: int | str | None = None,
    include_initializers: bool = True,
    keep_initializers_as_inputs: bool = False,
    defaults: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Writes a model to a path, or to a binary file object.

    Args:
        model: The model, which is unchanged afterwards.
        destination: A path, or an object with a ``write`` method that takes bytes. Pipes and
            character devices at a path are written into.
        external_data: True puts weights into a file beside the model, ``"safetensors"`` into files
            of that format, False into the model's file; ``"auto"`` or None decides by their size.
            ``data_files.choose_names`` has their names.
        max_shard_size: Limit for the tensors of one safetensors file; None: there is one file.
        include_initializers: False leaves out parameters and buffers, to be supplied later.
        keep_initializers_as_inputs: True lists parameters and buffers as inputs too.
        defaults: Default values of inputs, by name, for runs that do not feed them.

    Raises:
        InvalidOptionError: External data with a file object, a pipe or a device, a destination that
            is neither a path nor a file object, or an option that is not accepted.
        SaveError: The model does not fit into one file or on the disk, weights have no values, the
            folder does not exist or is read-only, the path cannot be that of a file, or writing
            fails. Existing files are untouched.
    """
    check_external_data(external_data, max_shard_size)
    limit = shard_size(max_shard_size)
    with _prepare_model(model, include_initializers, keep_initializers_as_inputs, defaults or {}):
        _refuse_missing_values(model.graph.initializers.values())
        weights = weights_of(model)
        total = sum(value.const_value.nbytes for value in weights if value.const_value is not None)
        check_destination(destination)
        in_one_stream = hasattr(destination, "write") or is_stream(destination)
        if in_one_stream and external_data in (True, "safetensors"):
            raise InvalidOptionError(
                f"external_data={external_data!r} needs a path to put other files beside; got "
                f"{_describe_stream(destination)}",
                code="OA503",
            )
        external = external_data in (True, "safetensors") or (
            external_data in (None, "auto") and total > EXTERNAL_THRESHOLD and not in_one_stream
        )
        if not external and total > PROTOBUF_LIMIT:
            raise _too_large("the weights take", total)
        with Progress("saving", total) as progress:
            if in_one_stream:
                _write_stream(model, weights, destination, progress)
                return
            path = os.path.realpath(os.fspath(destination))  # data lies beside a link's target
            is_safetensors = external_data == "safetensors"
            files = _plan_files(weights, is_safetensors, limit) if external else []
            try:
                if is_remembered(path):
                    with journal_of(path) as journal:
                        _remove_leftovers(journal)
                else:
                    remove_temporaries(path)
                refuse_full_disk(path, sum(file.size for file in files) if files else total)
                if files:
                    _write_files(model, weights, path, files, is_safetensors, progress)
                else:
                    _write_file(model, weights, path, progress)
            except OSError as error:
                raise SaveError(
                    f"could not write {destination}: {error}. Nothing that was there has changed"
                ) from error


def _write_stream(
    model: ir.Model, weights: Sequence[ir.Value], destination: Any, progress: Progress
) -> None:
    """Writes a model to a file object, or into the pipe or device at a path."""
    try:
        if hasattr(destination, "write"):
            sink = Sink(destination, progress.add, ours=False)
            _write_single(model, weights, sink, PROTOBUF_LIMIT)
            return
        with open(destination, "wb") as file:
            _write_single(model, weights, Sink(file, progress.add, ours=False), PROTOBUF_LIMIT)
    except OSError as error:
        raise SaveError(
            f"could not write to {_describe_stream(destination)}: {error}. A part of the model may "
            "have been written"
        ) from error


def _describe_stream(destination: Any) -> str:
    is_object = hasattr(destination, "write")
    return "a file object" if is_object else f"{destination}, a pipe or a device"


def check_external_data(external_data: Any, max_shard_size: Any) -> None:
    """Checks the options of ``save`` on external data.

    Raises:
        InvalidOptionError: One is not accepted.
    """
    if external_data not in ("auto", True, False, None, "safetensors"):
        raise InvalidOptionError(
            f'external_data is {external_data!r}; accepted: "auto", True, False, "safetensors"',
            code="OA503",
        )
    shard_size(max_shard_size)
    if max_shard_size is not None and external_data != "safetensors":
        raise InvalidOptionError(
            'max_shard_size is for external_data="safetensors"; other data is one file',
            code="OA503",
        )


def model_bytes(model: ir.Model) -> bytes:
    """Serializes the model as one ``ModelProto``.

    Raises:
        SaveError: The model exceeds 2 GB, or weights have no values.
    """
    import io

    buffer = io.BytesIO()
    save_model(model, buffer)
    return buffer.getvalue()


def model_hash(model: ir.Model) -> str:
    """SHA-256, in hexadecimal, of the model as one file, even if it is too large for one.

    If a weight has no values, all parameters and buffers are left out.
    """

    class Digest:
        def __init__(self) -> None:
            self.sha = hashlib.sha256()

        def write(self, data: Any) -> None:
            self.sha.update(flat_bytes(data))

    digest = Digest()
    absent = any(is_absent(value.const_value) for value in model.graph.initializers.values())
    with _prepare_model(model, not absent, False, {}):
        _write_single(model, weights_of(model), digest, None)
    return digest.sha.hexdigest()


def weights_of(model: ir.Model) -> list[ir.Value]:
    """Initializers that are written apart from the graph: large or computed from others."""
    return [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None
        and (
            value.const_value.nbytes >= STREAMED_FROM
            or isinstance(value.const_value, FoldedTensor)  # its sources may be _Absent then
        )
        and value.const_value.dtype != ir.DataType.STRING
    ]


def is_weight(value: ir.Value) -> bool:
    """True if an initializer is a parameter or buffer of the user's module."""
    kind = value.metadata_props.get(INPUT_KIND)
    return kind in ("PARAMETER", "BUFFER")


def _too_large(what: str, size: int) -> SaveError:
    found = f"{what} {size / 1e9:.2f} GB; one ONNX file holds at most 2 GB"
    fix = 'save to a path with external_data=True or "auto"'
    return SaveError(f"{found}; {fix}", cause=found, fix=fix)


def _refuse_missing_values(initializers: Iterable[ir.Value]) -> None:
    initializers = list(initializers)
    every = (*initializers, *sources_of(initializers))
    missing = [str(value.name) for value in every if is_absent(value.const_value)]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise SaveError(
            f"{len(missing)} weights have no values yet: {shown}. Call program.apply_weights("
            "state_dict or path) first, or save with include_initializers=False",
            cause=f"{len(missing)} weights have no values, because they were made or loaded in "
            f"enable_fake_mode or on the device meta: {shown}",
            fix="export without f, call program.apply_weights(state_dict or path), then "
            "program.save(f); or export_params=False for a file without weights",
            code="OA502",
        )


# --- what is written -----------------------------------------------------------------------------


class _Absent:
    """Stands for a weight while the graph is serialized, with everything but its bytes."""

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
def _prepare_model(
    model: ir.Model, include: bool, as_inputs: bool, defaults: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Context in which the model is as it is to be written; restores it at the end."""
    graph = model.graph
    initializers = dict(graph.initializers)
    inputs = list(graph.inputs)
    added = [value for value in initializers.values() if is_weight(value)]
    fed = [value for value in inputs if value.name in defaults]
    try:
        for value in fed:
            tensor = real_parts(defaults[str(value.name)].detach())
            value.const_value = tensor_adapters.TorchTensor(tensor, name=value.name)
            graph.initializers.add(value)
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
        if not include or fed:
            graph.initializers.clear()
            graph.initializers.update(initializers)
        for value in fed:
            value.const_value = None


def _graph_without_weights(model: ir.Model, weights: Sequence[ir.Value]) -> onnx.ModelProto:
    """Serializes the whole model; the weights' ``TensorProto`` have no data."""
    held = [(value, value.const_value) for value in weights]
    try:
        for value, tensor in held:
            assert tensor is not None
            value.const_value = _Absent(tensor)  # type: ignore[assignment]
        return ir.serde.serialize_model(model)
    except ir.serde.SerdeError as error:  # such as a text of a damaged file that is not UTF-8
        raise SaveError(f"the model cannot be written: {innermost_message(error)}") from error
    finally:
        for value, tensor in held:
            value.const_value = tensor


def _write_single(
    model: ir.Model, weights: Sequence[ir.Value], file: Any, limit: int | None
) -> None:
    proto = _graph_without_weights(model, weights)
    by_name = {str(value.name): value.const_value for value in weights}
    pieces: list[tuple[bytes, Any]] = []  # an initializer up to its data, and the data
    length = 0
    for tensor in proto.graph.initializer:
        data = by_name.get(tensor.name)
        size = 0 if data is None else data.nbytes
        if data is not None:
            tensor.ClearField("raw_data")
        start = tensor.SerializeToString()
        if data is not None:
            start += _encode_field_header(_RAW_DATA_TAG, size)
        header = _encode_field_header(_INITIALIZER_TAG, len(start) + size) + start
        pieces.append((header, data))
        length += len(header) + size
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    if limit is not None and length + len(graph) > limit:
        raise _too_large("the model takes", length + len(graph))
    file.write(proto.SerializeToString())
    file.write(_encode_field_header(_GRAPH_TAG, len(graph) + length))
    file.write(graph)
    for header, data in pieces:
        file.write(header)
        if data is not None:
            data.tofile(file)


def _encode_field_header(tag: int, length: int) -> bytes:
    """Tag and length of a length-delimited field, as base-128 varints."""
    return _encode_varint(tag) + _encode_varint(length)


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append((number & 0x7F) | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# --- several files -------------------------------------------------------------------------------


def _plan_files(
    weights: Sequence[ir.Value], is_safetensors: bool, limit: int | None
) -> list[DataFile]:
    if not weights:
        return []
    return plan_safetensors(weights, limit) if is_safetensors else plan_data(weights)


def _remove_leftovers(journal: Journal) -> None:
    """Removes what killed saves of a path left there."""
    remove_temporaries(journal.path)
    remembered = journal.remembered()
    for file in removable_files(journal.path, remembered):
        with contextlib.suppress(OSError):
            os.unlink(file)


def _write_file(
    model: ir.Model, weights: Sequence[ir.Value], path: str, progress: Progress
) -> None:
    """Writes a model with its weights in one file."""
    with new_files(path, 1) as (new,):
        _write_single(model, weights, Sink(new.file, progress.add, ours=True), PROTOBUF_LIMIT)
        with journal_of(path) as journal:
            _remove_leftovers(journal)
            place_files(new, {}, old_data_files(path), journal)
            new.discard()


def _write_files(
    model: ir.Model,
    weights: Sequence[ir.Value],
    path: str,
    files: Sequence[DataFile],
    is_safetensors: bool,
    progress: Progress,
) -> None:
    """Writes a model and its data files.

    Their names depend on what is at the path when they take their places, so the model, which holds
    the names, is written then.
    """
    proto = _graph_without_weights(model, weights)
    with new_files(path, len(files) + (2 if len(files) > 1 else 1)) as (last, *others):
        opened = [other.file for other in others[: len(files)]]
        for file, target in zip(files, opened, strict=True):
            file.write(Sink(target, progress.add, ours=True))
        digest = digest_of(opened) if os.path.lexists(path) else None
        with journal_of(path) as journal:
            _remove_leftovers(journal)
            names = choose_names(path, is_safetensors, opened, digest)
            by_path = dict(zip(names, files, strict=False))
            if len(files) > 1:
                write_index(others[-1].file, by_path)
            _refer_to_files(proto, by_path)
            last.file.write(proto.SerializeToString())
            old = [name for name in old_data_files(path) if name not in names]
            place_files(last, dict(zip(names, others, strict=True)), old, journal)


def _refer_to_files(proto: onnx.ModelProto, files: Mapping[str, DataFile]) -> None:
    """Writes into a model where its weights are; ``files`` are keyed by path."""
    places = {
        name: (path, *place) for path, file in files.items() for name, place in file.places.items()
    }
    for tensor in proto.graph.initializer:
        if tensor.name in places:
            path, offset, held = places[tensor.name]
            _refer(tensor, os.path.basename(path), offset, held.nbytes)


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
