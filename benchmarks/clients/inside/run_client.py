"""Runs a model in one client, in the environment of that client.

    python run_client.py CLIENT MODEL FOLDER

The folder has the inputs (``exchange.py``) and gets the outputs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exchange import Case, answer_sizes, load_case

Run = Callable[[int], Sequence[Any]]


def load_onnxruntime(path: str, case: Case) -> Run:
    """Loads a model in ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda index: session.run(None, case.feeds(index))


def load_reference(path: str, case: Case) -> Run:
    """Loads a model in ONNX's reference implementation."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    return lambda index: evaluator.run(None, case.feeds(index))


def load_openvino(path: str, case: Case) -> Run:
    """Loads a model in OpenVINO, which may otherwise compute in bfloat16."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    compiled = core.compile_model(core.read_model(path), "CPU", options)

    def run(index: int) -> Sequence[Any]:
        found = compiled(dict(zip(range(len(case.inputs)), case.sizes[index], strict=True)))
        return [found[port] for port in range(len(case.outputs))]

    return run


def load_opencv(path: str, case: Case) -> Run:
    """Loads a model in OpenCV's module dnn."""
    import cv2

    cv2.setNumThreads(1)
    network = cv2.dnn.readNetFromONNX(path)

    def run(index: int) -> Sequence[Any]:
        for name, value in case.feeds(index).items():
            network.setInput(value, name)
        return network.forward(list(case.outputs))

    return run


def load_tinygrad(path: str, case: Case) -> Run:
    """Loads a model in tinygrad, once per size: a runner keeps the first sizes it sees."""
    from tinygrad import Tensor
    from tinygrad.nn.onnx import OnnxRunner

    OnnxRunner(path)

    def run(index: int) -> Sequence[Any]:
        feeds = {name: Tensor(value) for name, value in case.feeds(index).items()}
        found = OnnxRunner(path)(feeds)
        return [found[name].numpy() for name in case.outputs]

    return run


CLIENTS = {
    "onnxruntime": load_onnxruntime,
    "onnx": load_reference,
    "openvino": load_openvino,
    "opencv": load_opencv,
    "tinygrad": load_tinygrad,
}


def main() -> None:
    """Runs the model that the command line names."""
    client, path, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    case = load_case(folder)
    answer_sizes(folder, lambda: CLIENTS[client](path, case))
    os._exit(0)  # what a client does at the end of the interpreter is not judged


if __name__ == "__main__":
    main()
