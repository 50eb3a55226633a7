"""Asks the ONNX Runtime of this environment for its kernels, and which models it loads.

    python probe_runtime.py FOLDER

``onnx_aot.targets.regenerate`` runs this file with the Python of an environment that has a release
of ONNX Runtime, and perhaps nothing else. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["probe_runtime"]


def probe_runtime(folder: str) -> dict[str, Any]:
    """Returns the release, its kernels, and the names of the models that it loads.

    Args:
        folder: Folder of models, ``*.onnx``.

    Returns:
        ``version``; ``kernels``, each a name, the first and the last opset, and types by variable;
        ``cuda``, the same of the provider for CUDA, if there is one; ``loaded``, names of files
        without their suffix.
    """
    import onnxruntime
    from onnxruntime.capi import _pybind_state

    kernels: dict[str, list[Any]] = {"CPUExecutionProvider": [], "CUDAExecutionProvider": []}
    for kernel in _pybind_state.get_all_opkernel_def():
        if kernel.provider in kernels and not kernel.domain:
            entry = (kernel.op_name, *kernel.version_range, dict(kernel.type_constraints))
            kernels[kernel.provider].append(entry)
    files = sorted(Path(folder).glob("*.onnx"))
    return {
        "version": onnxruntime.__version__,
        "kernels": kernels["CPUExecutionProvider"],
        "cuda": kernels["CUDAExecutionProvider"],
        "loaded": [file.stem for file in files if _is_loadable(file.read_bytes())],
    }


def _is_loadable(model: bytes) -> bool:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # the reason does not matter
        return False
    return True


if __name__ == "__main__":
    json.dump(probe_runtime(sys.argv[1]), sys.stdout)
