"""Runs models in the ONNX Runtime of this environment, for a process of another environment.

    python serve_runtime.py

Reads from standard input and writes to standard output: lengths of eight bytes, each followed by
that many bytes. A request is a model, or inputs for the last model in the format of
``numpy.savez``; the answer is one byte, 0 for an error with its text, or 1 with the outputs in the
same format.
``conformance.other_releases`` has the other side. It needs nothing but ONNX Runtime and NumPy.
"""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Any

__all__ = ["MODEL", "RUN", "read_block", "write_block"]

MODEL, RUN = b"m", b"r"


def read_block(stream: IO[bytes]) -> bytes:
    """Reads a block.

    Raises:
        EOFError: The other process has ended.
    """
    length = stream.read(8)
    if len(length) < 8:
        raise EOFError
    return stream.read(int.from_bytes(length, "little"))


def write_block(stream: IO[bytes], *parts: bytes) -> None:
    """Writes a block that consists of the parts."""
    stream.write(sum(map(len, parts)).to_bytes(8, "little"))
    for part in parts:
        stream.write(part)
    stream.flush()


def _load(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(session: Any, feeds: bytes) -> bytes:
    import numpy as np

    with np.load(io.BytesIO(feeds)) as loaded:
        outputs = session.run(None, {name: loaded[name] for name in loaded.files})
    buffer = io.BytesIO()
    np.savez(buffer, **{f"output_{i}": value for i, value in enumerate(outputs)})
    return buffer.getvalue()


def main() -> None:
    """Serves until the other process ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    session = None
    while True:
        try:
            request = read_block(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if request[:1] == MODEL:
                session = _load(request[1:])
                result = b""
            else:
                result = _run(session, request[1:])
        except Exception as error:
            write_block(answers, b"\0", f"{type(error).__name__}: {error}".encode())
        else:
            write_block(answers, b"\1", result)


if __name__ == "__main__":
    main()
