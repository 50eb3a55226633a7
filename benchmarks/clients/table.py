"""Lists the models, clients and tools of the matrix."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

__all__ = ["CLIENTS", "COLUMNS", "EXPORTERS", "FOLDER", "MODELS", "TOOLS", "Client"]

FOLDER = Path(__file__).parent
ENVIRONMENTS = Path(".nox")

_CLASSIC = ("mlp", "word_language_model_lstm", "word_language_model_transformer", "dcgan_generator")
_VISION = (
    "super_resolution",
    "squeezenet1_1",
    "resnet18",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
)
_TEXT = ("bert", "distilbert", "gpt2", "llama", "qwen2", "gemma", "t5")
MODELS = (*_CLASSIC, *_VISION, *_TEXT, "vit", "clip", "whisper")
"""Names of rows of ``benchmarks.models``, those with at most 50 MB of weights."""

EXPORTERS = {"ours": "onnx_aot", "peer": "torch.onnx"}


@dataclasses.dataclass(frozen=True)
class Client:
    """A column of the matrix.

    Attributes:
        name: Its name on the page.
        environment: Name of its environment; ``client-`` and this in ``.nox``.
        package: The package whose version the page shows.
        key: How the program inside is told what to do.
        kind: ``client``, ``tool``, ``node`` for a package of JavaScript.
        target: Target of our export, if not the default.
        error: Norm of the difference from PyTorch over the norm of PyTorch's result that is
            accepted; 0 if every element must be within the tolerance of its type.
        makes: Whether the tool is to make nodes, such as quantized ones.
    """

    name: str
    environment: str
    package: str
    key: str
    kind: str = "client"
    target: str = ""
    error: float = 0.0
    makes: bool = False

    @property
    def interpreter(self) -> Path:
        """The Python of the environment; for JavaScript the folder of the packages."""
        folder = ENVIRONMENTS / f"client-{self.environment}"
        if self.kind == "node":
            return folder / "node_modules" / self.key
        scripts = "Scripts" if sys.platform == "win32" else "bin"
        return folder / scripts / "python"


def _release(number: str) -> Client:
    return Client(
        f"ONNX Runtime {number}",
        f"onnxruntime-{number}",
        "onnxruntime",
        "onnxruntime",
        target=f"onnxruntime=={number}",
    )


def _tool(key: str, package: str, error: float = 0.0, makes: bool = False) -> Client:
    return Client(key, "tools", package, key, kind="tool", error=error, makes=makes)


CLIENTS = (
    Client("ONNX Runtime", "tools", "onnxruntime", "onnxruntime"),
    _release("1.20"),
    _release("1.16"),
    Client("onnxruntime-node", "node", "onnxruntime-node", "onnxruntime-node", kind="node"),
    Client("onnxruntime-web", "node", "onnxruntime-web", "onnxruntime-web", kind="node"),
    Client("ONNX reference", "onnx", "onnx", "onnx"),
    Client("OpenVINO", "openvino", "openvino", "openvino"),
    Client("OpenCV", "opencv", "opencv-python-headless", "opencv", target="opencv"),
    Client("tinygrad", "tinygrad", "tinygrad", "tinygrad"),
)

# Norms of differences over those of PyTorch's outputs. Random weights are far from the usual ones,
# whose outliers training has made, so these tell a broken result from a quantized one, no more.
HALF, BYTES, FOUR_BITS = 0.01, 0.25, 0.3

TOOLS = (
    _tool("symbolic_shape_infer", "onnxruntime"),
    _tool("quant_pre_process", "onnxruntime"),
    _tool("quantize_static", "onnxruntime", BYTES, makes=True),
    _tool("quantize_dynamic", "onnxruntime", BYTES, makes=True),
    _tool("matmul_nbits", "onnxruntime", FOUR_BITS, makes=True),
    _tool("transformers optimizer", "onnxruntime"),
    _tool("transformers float16", "onnxruntime", HALF),
    _tool("optimizer and float16", "onnxruntime", HALF),
    _tool("onnxconverter float16", "onnxconverter-common", HALF),
    _tool("opset up", "onnx"),
    _tool("opset down", "onnx"),
    _tool("compose", "onnx"),
    _tool("extract_model", "onnx"),
    _tool("ORT format", "onnxruntime"),
    _tool("onnxslim", "onnxslim"),
    _tool("onnxsim", "onnxsim"),
)

COLUMNS = {column.name: column for column in (*CLIENTS, *TOOLS)}
