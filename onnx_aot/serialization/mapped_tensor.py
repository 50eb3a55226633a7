"""Tensors in files: mapped when they are read, copied by the system when they are saved."""

from __future__ import annotations

import errno
import math
import mmap
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes
from onnx_aot.torch_compat import is_written_to

__all__ = ["CastTensor", "MappedFile", "Sink", "StoredTensor", "flat_bytes"]

CHUNK = 64 * 1024 * 1024
"""Bytes that are written at once; progress is shown after each chunk."""

BUFFER = 4 * 1024 * 1024
UNSUPPORTED = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK, errno.EXDEV, errno.EPERM}
)
"""Errors of systems that cannot copy from file to file."""


class MappedFile:
    """A file whose bytes are read when tensors on it are used, and never kept in memory."""

    def __init__(self, path: str) -> None:
        """Raises OSError if the file cannot be read."""
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (for as long as this)
        weakref.finalize(self, self._file.close)
        self.size = os.fstat(self._file.fileno()).st_size
        self._mapping: mmap.mmap | None = None

    def read(self, offset: int, count: int) -> bytes:
        """Returns bytes of the file, fewer at its end."""
        self._file.seek(offset)
        return self._file.read(count) or b""

    def map_tensor(self, dtype: torch.dtype, shape: Sequence[int], offset: int) -> torch.Tensor:
        """Returns a tensor on the file's bytes; what is written to it stays in memory.

        Raises:
            ValueError: The tensor extends beyond the end of the file.
        """
        count = math.prod(shape)
        if offset < 0 or offset + count * dtype.itemsize > self.size:
            raise ValueError(f"{self.path} ends before the tensor at byte {offset} does")
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        if self._mapping is None:
            self._mapping = self._map()
        with (
            warnings.catch_warnings(),
            torch.inference_mode(False),
        ):  # whose tensors have no version
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            flat = torch.frombuffer(self._mapping, dtype=dtype, count=count, offset=offset)
            return flat.reshape(tuple(shape))

    def _map(self) -> mmap.mmap:
        try:
            return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError:  # the system promises no memory for as many bytes as could be written to
            return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def copy_to(self, file: Any, offset: int, count: int) -> None:
        """Copies bytes into another file without touching the mapping."""
        if isinstance(file, Sink):
            copied = file.take_from(self._file.fileno(), offset, count)
            offset, count = offset + copied, count - copied
        while count > 0:
            data = self.read(offset, min(BUFFER, count))
            if not data:
                raise OSError(f"{self.path} has become shorter while it was read")
            file.write(data)
            offset, count = offset + len(data), count - len(data)


class StoredTensor(tensor_adapters.TorchTensor):
    """A tensor whose bytes are in a file, in the order that ONNX uses."""

    def __init__(
        self, file: MappedFile, tensor: torch.Tensor, offset: int, name: str | None = None
    ) -> None:
        """``tensor`` is mapped from ``offset`` on."""
        super().__init__(tensor, name=name)
        self._file, self._offset = file, offset

    def with_name(self, name: str) -> StoredTensor:
        """Returns the same tensor under another name."""
        return StoredTensor(self._file, self.raw, self._offset, name)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns an array that cannot be written to: ``tofile`` would not notice."""
        array = super().numpy()
        array.flags.writeable = False
        return array

    def tofile(self, file: Any) -> None:
        """Writes the bytes to a binary file object."""
        if is_written_to(self.raw):
            super().tofile(file)
        else:
            self._file.copy_to(file, self._offset, self.nbytes)


class CastTensor(ir.LazyTensor):
    """A tensor given in another type than the model's, which is cast each time it is read."""

    def __init__(self, given: torch.Tensor, dtype: ir.DataType, name: str | None = None) -> None:
        """``given`` may be on any device; torch does the cast."""
        super().__init__(self._cast, dtype, ir.Shape(tuple(given.shape)), name=name)
        self._given = given

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.dtype},{self.shape}>(name={self.name!r})"

    def torch(self) -> torch.Tensor:
        """Returns the cast tensor, in memory of its own."""
        return self._given.to(dtypes.to_torch(self.dtype))

    def _cast(self) -> tensor_adapters.TorchTensor:
        return tensor_adapters.TorchTensor(self.torch(), name=self.name)


def flat_bytes(data: Any) -> memoryview:
    """Returns the bytes of a buffer without a copy; ``memoryview.cast`` rejects those of ctypes."""
    return np.frombuffer(data, np.uint8).data if memoryview(data).nbytes else memoryview(b"")


class Sink:
    """A binary file that is written in pieces, and reports each of them.

    For files of ours, the operating system copies bytes from other files without going through the
    memory of this process.
    """

    def __init__(self, file: BinaryIO | Any, seen: Callable[[int], None], *, ours: bool) -> None:
        """``seen`` is called with the number of bytes of each piece."""
        self._file = file
        self._seen = seen
        self._copies = ours and hasattr(os, "sendfile")

    def write(self, data: Any) -> int:
        """Writes bytes or another buffer, and returns the number of bytes."""
        view = flat_bytes(data)
        for start in range(0, len(view), CHUNK):
            part = view[start : start + CHUNK]
            self._file.write(part)
            self._seen(len(part))
        return len(view)

    def flush(self) -> None:
        """Hands buffered bytes to the system."""
        self._file.flush()

    def take_from(self, descriptor: int, offset: int, count: int) -> int:
        """Copies bytes of another file as far as the system can, and returns their number."""
        copied = 0
        if not self._copies:
            return copied
        self._file.flush()
        while copied < count:
            try:
                asked = min(CHUNK, count - copied)
                done = os.sendfile(self._file.fileno(), descriptor, offset + copied, asked)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                self._copies = False
                break
            if done == 0:
                break
            copied += done
            self._seen(done)
        self._file.seek(0, os.SEEK_END)  # the buffer does not know that the file has grown
        return copied
