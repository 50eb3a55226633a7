"""Runs models in ONNX Runtime, with torch tensors as inputs and outputs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch

from onnx_aot import dtypes
from onnx_aot.errors import InferenceError
from onnx_aot.metadata.keys import COMPLEX

__all__ = [
    "checked_inputs",
    "copy_on_device",
    "create_session",
    "device_of",
    "from_numpy",
    "from_ort",
    "joined_parts",
    "providers_for",
    "run_session",
    "to_numpy",
    "to_ort",
]

LOG_ERRORS = 3
PACKED = ("tensor(int4)", "tensor(uint4)")


PROVIDERS = {"cuda": "CUDAExecutionProvider"}
"""ONNX Runtime's execution providers by device type of torch."""

ACCURACY = ("session.qdq_matmulnbits_accuracy_level", "1")
"""Session option that computes products with dequantized weights in float32. By default ONNX
Runtime rounds the other operand to int8, which would make results differ from PyTorch's."""

EXACT_BYTES = ("session.x64quantprecision", "1")
"""Session option that computes products of unsigned and signed bytes exactly. By default they are
cut off at 16 bits on processors with AVX2 or AVX-512 but without VNNI. It is for models that
quantize activations: ONNX Runtime 1.32 fails with it where only weights are bytes."""


def create_session(
    model: str | bytes, device: torch.device | None = None, quantizes: bool = False
) -> onnxruntime.InferenceSession:
    """Creates a session for a path or a serialized model; it logs only errors.

    It runs on ``device`` if ONNX Runtime has a provider for it, else on the CPU. ``quantizes`` says
    that the model quantizes activations.

    Raises:
        Exception: Whatever ONNX Runtime raises if it rejects the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = LOG_ERRORS
    options.add_session_config_entry(*ACCURACY)
    if quantizes:
        options.add_session_config_entry(*EXACT_BYTES)
    return onnxruntime.InferenceSession(model, options, providers=providers_for(device))


def providers_for(device: torch.device | None) -> list[Any]:
    """ONNX Runtime's providers for a device, in order of preference; the CPU's comes last."""
    name = None if device is None else PROVIDERS.get(device.type)
    if device is None or name not in onnxruntime.get_available_providers():
        return ["CPUExecutionProvider"]
    settings: dict[str, Any] = {"use_tf32": "0"}  # by default float32 is rounded to 19 bits
    if device.index is not None:
        settings["device_id"] = device.index
    return [(name, settings), "CPUExecutionProvider"]


def device_of(tensors: Iterable[torch.Tensor]) -> torch.device:
    """Device that a call is meant to run on: the first that is not the CPU, else the CPU."""
    found = (tensor.device for tensor in tensors if tensor.device.type != "cpu")
    return next(found, torch.device("cpu"))


def checked_inputs(inputs: Sequence[ir.Value], values: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Converts values to tensors for the inputs of a graph, by name, and checks them.

    Args:
        inputs: The graph's inputs.
        values: A tensor or number for each.

    Raises:
        InferenceError: The number of inputs is wrong, an input has another type, rank or fixed
            dimension, or dimensions of one name differ in size.
    """
    if len(values) != len(inputs):
        names = ", ".join(str(value.name) for value in inputs)
        raise InferenceError(
            f"the model takes {len(inputs)} inputs ({names}); {len(values)} were given"
        )
    tensors = {}
    sizes: dict[str, tuple[str, int]] = {}
    for declared, given in zip(inputs, values, strict=True):
        tensor = given if isinstance(given, torch.Tensor) else _make_scalar(declared, given)
        tensor = _split_complex(declared, tensor)
        _check_input(declared, tensor)
        _check_named_sizes(declared, tensor, sizes)
        tensors[str(declared.name)] = tensor
    return tensors


def _split_complex(declared: ir.Value, tensor: torch.Tensor) -> torch.Tensor:
    """Converts a complex tensor to the model's form: its parts in a last dimension of size 2."""
    if COMPLEX not in declared.metadata_props or not tensor.is_complex():
        return tensor
    wanted = declared.metadata_props[COMPLEX]
    if str(tensor.dtype) != f"torch.{wanted}":
        raise InferenceError(
            f"input {declared.name} is torch.{wanted} in the model; {tensor.dtype} was given"
        )
    return torch.view_as_real(tensor.resolve_conj())


def joined_parts(
    outputs: Sequence[ir.Value], tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Joins outputs that are real and imaginary parts into complex tensors; keeps the others."""
    return tuple(
        torch.complex(tensor[..., 0], tensor[..., 1]) if COMPLEX in value.metadata_props else tensor
        for value, tensor in zip(outputs, tensors, strict=True)
    )


def run_session(
    session: onnxruntime.InferenceSession, inputs: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Runs a session on tensors by input name.

    Returns:
        Its outputs: on the device of the inputs if the session runs there, else on the CPU.
    """
    device = device_of(inputs.values())
    if device.type in PROVIDERS and _may_bind(session, device):
        return _run_on_device(session, inputs, device)
    packed = {value.name for value in session.get_inputs() if value.type in PACKED}
    feeds = {n: (_pack_four_bits(t) if n in packed else to_ort(t)) for n, t in inputs.items()}
    options = onnxruntime.RunOptions()
    options.log_severity_level = LOG_ERRORS
    outputs = session.run_with_ort_values(None, feeds, options)
    return tuple(map(from_ort, outputs))


def _may_bind(session: onnxruntime.InferenceSession, device: torch.device) -> bool:
    """True if a session runs on a device, and torch has all types of its inputs and outputs."""
    values = (*session.get_inputs(), *session.get_outputs())
    return PROVIDERS[device.type] in session.get_providers() and not any(
        value.type in PACKED for value in values
    )


def _run_on_device(
    session: onnxruntime.InferenceSession, inputs: Mapping[str, torch.Tensor], device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Runs a session that reads its inputs where they are, and leaves its outputs on the device.

    Raises:
        InferenceError: An input is empty.
    """
    empty = [name for name, tensor in inputs.items() if not tensor.numel()]
    if empty:
        raise InferenceError(
            f"input {', '.join(empty)} has no elements; ONNX Runtime's provider for CUDA can end "
            "the process then: give inputs on the CPU, or at least one element"
        )
    binding = session.io_binding()
    place = (device.type, device.index or 0)
    given = {name: tensor.detach().contiguous() for name, tensor in inputs.items()}
    for name, tensor in given.items():
        if tensor.device == device:
            kind = int(dtypes.to_onnx(tensor.dtype))
            binding.bind_input(name, *place, kind, list(tensor.shape), tensor.data_ptr())
        else:
            binding.bind_ortvalue_input(name, to_ort(tensor))
    for value in session.get_outputs():
        binding.bind_output(value.name, *place)
    stream = torch.cuda.current_stream(device)
    stream.synchronize()  # ONNX Runtime has a stream of its own, which does not wait for torch's
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    copies = tuple(copy_on_device(value, device) for value in binding.get_outputs())
    stream.synchronize()  # before the originals are freed
    return copies


class _DeviceArray:
    """Describes memory of a value of ONNX Runtime to torch.

    Follows version 3 of the interface of CUDA arrays, which has no names for types that NumPy
    lacks: elements are integers of the same width.
    """

    def __init__(self, value: onnxruntime.OrtValue, width: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(value.shape()),
            "typestr": f"|i{width}" if width == 1 else f"<i{width}",
            "data": (value.data_ptr(), False),
            "version": 3,
        }


def copy_on_device(value: onnxruntime.OrtValue, device: torch.device) -> torch.Tensor:
    """Copies a value in the memory of a CUDA device to a tensor on that device."""
    dtype = dtypes.to_torch(ir.DataType(value.element_type()))
    if not math.prod(value.shape()):
        return torch.empty(value.shape(), dtype=dtype, device=device)
    array: Any = _DeviceArray(value, dtype.itemsize)
    return torch.as_tensor(array, device=device).view(dtype).clone()


def _pack_four_bits(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """Packs integers of four bits, two to a byte.

    ONNX Runtime takes an array of the tensor's shape and reads as many of its bytes as it needs.
    """
    kind = ir.DataType.INT4 if tensor.dtype == torch.int8 else ir.DataType.UINT4
    held = np.zeros(tensor.numel(), np.uint8)
    held[: -(-tensor.numel() // 2)] = dtypes.pack_int4(tensor).numpy()
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        held.reshape(tuple(tensor.shape)), int(kind)
    )


def _unpack(value: onnxruntime.OrtValue, kind: ir.DataType) -> torch.Tensor:
    shape = value.shape()
    data = bytearray(ctypes.string_at(value.data_ptr(), -(-math.prod(shape) // 2)))
    held = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return dtypes.unpack_int4(held, kind, shape)


def _make_scalar(declared: ir.Value, number: Any) -> torch.Tensor:
    if not isinstance(number, (int, float, bool)):
        raise InferenceError(
            f"input {declared.name} takes a tensor or a number; {type(number).__name__} was given"
        )
    dtype = None if declared.dtype is None else dtypes.to_torch(declared.dtype)
    holds = dtype is None or dtype.is_floating_point or dtype.is_complex
    if isinstance(number, float) and not holds:
        raise InferenceError(f"input {declared.name} is {dtype} in the model; {number!r} was given")
    return torch.tensor(number, dtype=dtype)


def _check_input(declared: ir.Value, tensor: torch.Tensor) -> None:
    name, dtype, shape = declared.name, declared.dtype, declared.shape
    if dtype in dtypes.FOUR_BITS:
        _check_four_bits(declared, dtype, tensor)
    elif dtype is not None and dtypes.to_onnx(tensor.dtype) != dtype:
        raise InferenceError(
            f"input {name} is {dtypes.to_torch(dtype)} in the model; {tensor.dtype} was given"
        )
    if shape is None:
        return
    fits = len(shape) == tensor.dim() and all(
        not isinstance(wanted, int) or wanted == size
        for wanted, size in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        raise InferenceError(
            f"input {name} has shape {shape} in the model; {list(tensor.shape)} was given",
            code="OA603",
        )


def _check_four_bits(declared: ir.Value, dtype: ir.DataType, tensor: torch.Tensor) -> None:
    if tensor.dtype != dtypes.FOUR_BITS[dtype]:
        raise InferenceError(
            f"input {declared.name} is {dtype.name} in the model, which is given as "
            f"{dtypes.FOUR_BITS[dtype]}, one number to a byte; {tensor.dtype} was given"
        )
    least, most = (-8, 7) if dtype == ir.DataType.INT4 else (0, 15)
    if tensor.numel() and not least <= int(tensor.min()) <= int(tensor.max()) <= most:
        raise InferenceError(
            f"input {declared.name} is {dtype.name} in the model: numbers from {least} to {most}; "
            f"{int(tensor.min())} to {int(tensor.max())} was given"
        )


def _check_named_sizes(
    declared: ir.Value, tensor: torch.Tensor, sizes: dict[str, tuple[str, int]]
) -> None:
    """Checks that dimensions of one name have one size; ``sizes`` collects those seen so far."""
    for axis, dimension in enumerate(declared.shape or ()):
        name = None if isinstance(dimension, int) else dimension.value
        if name is None:
            continue
        size = tensor.shape[axis]
        where, other = sizes.setdefault(name, (f"input {declared.name}, axis {axis}", size))
        if other != size:
            raise InferenceError(
                f"dimension {name} is {other} in {where}, and {size} in input {declared.name}, "
                f"axis {axis}",
                code="OA603",
            )


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Converts a tensor to NumPy; types that NumPy lacks become those of ``ml_dtypes``."""
    return ir.tensor_adapters.TorchTensor(tensor.detach().cpu().contiguous()).numpy()


def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The inverse of ``to_numpy``."""
    dtype = dtypes.to_torch(ir.DataType.from_numpy(array.dtype))
    bits = _bits_type(dtype)
    if bits is None:
        return _to_tensor(np.array(array))
    unsigned = np.array(array).view(f"uint{8 * array.dtype.itemsize}")
    return torch.from_numpy(unsigned).view(dtype)


def _to_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Shares an array's memory. ONNX Runtime's uint64 is a type of C that torch does not know."""
    return torch.from_numpy(array.view(np.uint64) if array.dtype == np.uint64 else array)


def _bits_type(dtype: torch.dtype) -> torch.dtype | None:
    """Unsigned type of the same width for types that NumPy lacks; None for the others."""
    if dtype == torch.bfloat16:
        return torch.uint16
    return torch.uint8 if str(dtype).startswith("torch.float8") else None


def to_ort(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """Converts a tensor for ONNX Runtime, sharing its memory if it is on the CPU."""
    tensor = tensor.detach().cpu().contiguous()
    bits = _bits_type(tensor.dtype)
    if bits is None:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        tensor.view(bits).numpy(), int(dtypes.to_onnx(tensor.dtype))
    )


def from_ort(value: onnxruntime.OrtValue) -> torch.Tensor:
    """Converts a value that ONNX Runtime computed to a tensor on the CPU."""
    kind = ir.DataType(value.element_type())
    if kind in dtypes.FOUR_BITS:
        return _unpack(value, kind)
    dtype = dtypes.to_torch(kind)
    if _bits_type(dtype) is None:
        return _to_tensor(value.numpy())
    shape = value.shape()
    data = bytearray(ctypes.string_at(value.data_ptr(), math.prod(shape) * dtype.itemsize))
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
