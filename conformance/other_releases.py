"""Runs models in a release of ONNX Runtime that another environment has."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from conformance import serve_runtime
from conformance.serve_runtime import MODEL, RUN, read_block, write_block

__all__ = ["OtherSession", "Release", "find_release"]


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of ONNX Runtime.

    Attributes:
        target: The release as an option of the export, such as ``onnxruntime==1.16``.
        python: The interpreter of an environment that has it.
    """

    target: str
    python: str


def find_release(release: str) -> Release:
    """Returns a release whose environment ``python -m nox -s targets`` has made.

    Raises:
        FileNotFoundError: There is no such environment.
    """
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    python = Path(".nox", f"onnxruntime-{release}", scripts, "python").absolute()
    if not python.exists():
        raise FileNotFoundError(f"no environment {python}; python -m nox -s targets makes it")
    return Release(f"onnxruntime=={release}", str(python))


_servers: dict[str, subprocess.Popen[bytes]] = {}


class OtherSession:
    """A model in the process of another environment, as the inference session of a program.

    Raises:
        RuntimeError: The release does not load the model, or the process crashed.
    """

    def __init__(self, release: Release, model: bytes) -> None:
        self._release = release
        self._ask(MODEL, model)

    def get_inputs(self) -> list[Any]:
        """Inputs whose values need packing; there are none."""
        return []

    def run_with_ort_values(self, _names: None, feeds: Mapping[str, Any], _options: Any) -> Any:
        """Runs the model on values of the installed ONNX Runtime; returns a list of such."""
        buffer = io.BytesIO()
        np.savez(buffer, **{name: value.numpy() for name, value in feeds.items()})
        with np.load(io.BytesIO(self._ask(RUN, buffer.getvalue()))) as outputs:
            return [_own_value(outputs[f"output_{i}"]) for i in range(len(outputs.files))]

    def _ask(self, kind: bytes, data: bytes) -> bytes:
        server = _find_server(self._release.python)
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            write_block(server.stdin, kind, data)
            answer = read_block(server.stdout)
        except (EOFError, OSError):
            code = _end_server(_servers.pop(self._release.python))
            raise RuntimeError(f"the process ended with exit code {code}") from None
        if answer[:1] == b"\0":
            raise RuntimeError(answer[1:].decode())
        return answer[1:]


def _own_value(array: np.ndarray[Any, Any]) -> Any:
    """A value with memory of its own: one made from an array does not keep it alive."""
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype.type)
    value.update_inplace(np.ascontiguousarray(array))
    return value


def _find_server(python: str) -> subprocess.Popen[bytes]:
    if python not in _servers:
        command = [python, "-I", serve_runtime.__file__]
        _servers[python] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    return _servers[python]


def _end_server(server: subprocess.Popen[bytes]) -> int:
    """Ends a process, which may have ended already, and returns its exit code."""
    server.kill()
    for pipe in (server.stdin, server.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):  # nobody reads the rest of a request
            pipe.close()
    return server.wait()


@atexit.register
def _end_servers() -> None:
    for server in _servers.values():
        _end_server(server)
