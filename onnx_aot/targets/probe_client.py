"""Runs models in OpenVINO or OpenCV, in an environment that has one of them and NumPy.

    python probe_client.py RUNTIME PROBES ANSWERS

``onnx_aot.targets.regenerate_probed`` runs this file. Each line of PROBES is a model with inputs;
ANSWERS gets a line with the outputs, or with the reason why there are none. A model that ends the
process has no line, only one that says that it was begun.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["RUNTIMES"]

Entry = dict[str, Any]
Run = Callable[[bytes, Sequence[Entry], Sequence[str]], list[Entry]]

OPENVINO_TYPES = {
    "boolean": "bool",
    "bf16": "bfloat16",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def start_openvino() -> tuple[str, Run]:
    """Returns the version of OpenVINO, and a function that runs a model on its CPU device."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    types = {name: key for key, name in OPENVINO_TYPES.items()}

    def run(model: bytes, inputs: Sequence[Entry], outputs: Sequence[str]) -> list[Entry]:
        request = core.compile_model(core.read_model(model, b""), "CPU", options)
        request = request.create_infer_request()
        for place, entry in enumerate(inputs):
            kind = getattr(openvino.Type, types[entry["dtype"]])
            tensor = openvino.Tensor(kind, openvino.Shape(entry["shape"]))
            if tensor.byte_size:
                source = np.frombuffer(base64.b64decode(entry["data"]), np.uint8)
                tensor.data.reshape(-1).view(np.uint8)[:] = source
            request.set_input_tensor(place, tensor)
        request.infer()
        found = [request.get_output_tensor(place) for place in range(len(outputs))]
        return [
            _encode(OPENVINO_TYPES[tensor.element_type.get_type_name()], tensor.data)
            for tensor in found
        ]

    return openvino.__version__.partition("-")[0], run


def start_opencv() -> tuple[str, Run]:
    """Returns the version of OpenCV, and a function that runs a model in its module dnn."""
    import cv2

    cv2.setNumThreads(1)

    def run(model: bytes, inputs: Sequence[Entry], outputs: Sequence[str]) -> list[Entry]:
        network = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
        for entry in inputs:
            array = np.frombuffer(base64.b64decode(entry["data"]), entry["dtype"])
            network.setInput(array.reshape(entry["shape"]), entry["name"])
        return [_encode(array.dtype.name, array) for array in network.forward(list(outputs))]

    return cv2.__version__, run


RUNTIMES = {"openvino": start_openvino, "opencv": start_opencv}


def _encode(dtype: str, array: Any) -> Entry:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def main() -> None:
    """Runs the models that have no line among the answers yet."""
    runtime, probes, answers = sys.argv[1:]
    version, run = RUNTIMES[runtime]()
    begun: set[str] = set()
    if os.path.exists(answers):
        with open(answers, encoding="utf-8") as given:
            begun = {json.loads(line)["name"] for line in given}
    with open(probes, encoding="utf-8") as asked, open(answers, "a", encoding="utf-8") as told:

        def tell(**entry: Any) -> None:
            told.write(json.dumps(entry) + "\n")
            told.flush()

        tell(name="", version=version)
        for line in asked:
            probe = json.loads(line)
            name = probe["name"]
            if name in begun:
                continue
            tell(name=name)
            try:
                outputs = run(base64.b64decode(probe["model"]), probe["inputs"], probe["outputs"])
                tell(name=name, outputs=outputs)
            except Exception as error:
                tell(name=name, reason=str(error)[:300])
    os._exit(0)  # what a runtime does at the end of the interpreter does not matter


if __name__ == "__main__":
    main()
