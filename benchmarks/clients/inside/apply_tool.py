"""Applies a tool to a model and runs the result in ONNX Runtime, in the environment of the tools.

    python apply_tool.py TOOL MODEL FOLDER

The folder has the inputs (``exchange.py``) and gets the outputs, with the number of nodes that the
tool is to make, such as quantized ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from exchange import Case, answer_sizes, load_case
from run_client import Run, load_onnxruntime

UP, DOWN = 22, 18

MODEL_TYPES = {
    "gpt2": "gpt2",
    "t5": "t5",
    "whisper": "bart",
    "clip": "clip",
    "vit": "vit",
}
"""Types that the optimizer for transformers knows, by model; ``bert`` for the others."""

Tool = Callable[[str, Case, Path], str]


def infer_symbolic_shapes(path: str, _case: Case, folder: Path) -> str:
    """Adds the shapes that ONNX Runtime infers; it raises if some stay unknown."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return _save(SymbolicShapeInference.infer_shapes(onnx.load(path)), folder)


def prepare_quantization(path: str, _case: Case, folder: Path) -> str:
    """Prepares a model for quantization, as ONNX Runtime's documentation asks for."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    made = str(folder / "prepared.onnx")
    quant_pre_process(path, made)
    return made


def _prepare_merging(path: str, case: Case, folder: Path) -> str:
    """The same; if shapes stay unknown, once more with ``auto_merge``, as its message says."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    try:
        return prepare_quantization(path, case, folder)
    except Exception:
        made = str(folder / "prepared.onnx")
        quant_pre_process(path, made, auto_merge=True)
        return made


def quantize_static(path: str, case: Case, folder: Path) -> str:
    """Quantizes weights and activations, after the preparation."""
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.given: Iterator[Any] = map(case.feeds, range(len(case.sizes)))

        def get_next(self) -> Any:
            return next(self.given, None)

    made = str(folder / "static.onnx")
    prepared = _prepare_merging(path, case, folder)
    quantization.quantize_static(prepared, made, Samples())
    return made


def quantize_dynamic(path: str, case: Case, folder: Path) -> str:
    """Quantizes weights; activations are quantized in each run."""
    from onnxruntime import quantization

    made = str(folder / "dynamic.onnx")
    prepared = _prepare_merging(path, case, folder)
    quantization.quantize_dynamic(prepared, made)
    return made


def quantize_four_bits(path: str, _case: Case, folder: Path) -> str:
    """Quantizes the weights of matrix products to four bits."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=True)
    quantizer.process()
    return _save(quantizer.model.model, folder)


def fuse_transformer(path: str, case: Case, folder: Path) -> str:
    """Fuses nodes with ONNX Runtime's optimizer for transformers."""
    return _save(_fuse(path, case).model, folder)


def halve_transformer(path: str, _case: Case, folder: Path) -> str:
    """Converts to float16 with the function of ONNX Runtime."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return _save(convert_float_to_float16(onnx.load(path), keep_io_types=True), folder)


def halve_fused_transformer(path: str, case: Case, folder: Path) -> str:
    """Fuses nodes, and converts to float16, as ONNX Runtime's optimizer does on demand."""
    fused = _fuse(path, case)
    fused.convert_float_to_float16(keep_io_types=True)
    return _save(fused.model, folder)


def halve(path: str, _case: Case, folder: Path) -> str:
    """Converts to float16 with onnxconverter_common."""
    from onnxconverter_common.float16 import convert_float_to_float16

    return _save(convert_float_to_float16(onnx.load(path), keep_io_types=True), folder)


def convert_up(path: str, _case: Case, folder: Path) -> str:
    """Converts to a later opset with ONNX's converter."""
    return _save(_convert(path, UP), folder)


def convert_down(path: str, _case: Case, folder: Path) -> str:
    """Converts to an earlier opset with ONNX's converter."""
    return _save(_convert(path, DOWN), folder)


def compose(path: str, case: Case, folder: Path) -> str:
    """Puts a copy of the first output behind the model, with ``onnx.compose``."""
    from onnx import compose as composing
    from onnx import helper

    model = composing.add_prefix(onnx.load(path), "first/")
    given = model.graph.output[0]
    behind = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "behind",
        [onnx.ValueInfoProto(name="x", type=given.type)],
        [onnx.ValueInfoProto(name="y", type=given.type)],
    )
    imports = {entry.domain: entry.version for entry in model.opset_import}
    behind_model = helper.make_model(
        behind,
        opset_imports=[helper.make_opsetid("", imports[""])],
        ir_version=model.ir_version,
    )
    merged = composing.merge_models(model, behind_model, io_map=[(given.name, "x")])
    onnx.checker.check_model(merged, full_check=True)
    wanted = {f"first/{name}": name for name in (*case.inputs, *case.outputs[1:])}
    return _save(_rename(merged, {**wanted, "y": case.outputs[0]}, case), folder)


def extract(path: str, case: Case, folder: Path) -> str:
    """Takes out the first half of the nodes, which must load, and the whole with ``onnx.utils``."""
    from onnx import utils

    graph = onnx.load(path).graph
    in_middle = graph.node[len(graph.node) // 2]
    half, whole = str(folder / "half.onnx"), str(folder / "whole.onnx")
    known = {value.name for value in graph.value_info} | set(case.outputs)
    produced = [name for name in in_middle.output if name]
    missing = [name for name in produced if name not in known]
    if missing:
        raise ValueError(f"no type and shape of {missing[0]}")
    utils.extract_model(path, half, list(case.inputs), produced)
    onnxruntime.InferenceSession(half, providers=["CPUExecutionProvider"])
    utils.extract_model(path, whole, list(case.inputs), list(case.outputs))
    return whole


def convert_to_ort(path: str, _case: Case, folder: Path) -> str:
    """Converts to ONNX Runtime's own format."""
    from onnxruntime.tools.convert_onnx_models_to_ort import (
        OptimizationStyle,
        convert_onnx_models_to_ort,
    )

    convert_onnx_models_to_ort(Path(path), folder, optimization_styles=[OptimizationStyle.Fixed])
    return str(next(folder.glob("*.ort")))


def slim(path: str, _case: Case, folder: Path) -> str:
    """Optimizes with onnxslim."""
    import onnxslim

    return _save(onnxslim.slim(onnx.load(path)), folder)


def simplify(path: str, _case: Case, folder: Path) -> str:
    """Optimizes with onnxsim."""
    import onnxsim

    made, is_right = onnxsim.simplify(onnx.load(path))
    if not is_right:
        raise ValueError("onnxsim's own check fails")
    return _save(made, folder)


def _fuse(path: str, case: Case) -> Any:
    from onnxruntime.transformers.optimizer import optimize_model

    kind = MODEL_TYPES.get(case.name, "bert")
    return optimize_model(path, model_type=kind, num_heads=0, hidden_size=0, opt_level=0)


def _convert(path: str, opset: int) -> onnx.ModelProto:
    from onnx import version_converter

    return version_converter.convert_version(onnx.load(path), opset)


def _rename(model: onnx.ModelProto, names: dict[str, str], case: Case) -> onnx.ModelProto:
    """Renames values, and orders the outputs as in the case."""
    for node in model.graph.node:
        for held in (node.input, node.output):
            for place, name in enumerate(held):
                held[place] = names.get(name, name)
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    by_name = {value.name: value for value in model.graph.output}
    del model.graph.output[:]
    model.graph.output.extend(by_name[name] for name in case.outputs)
    return model


def _save(model: onnx.ModelProto, folder: Path) -> str:
    made = str(folder / "made.onnx")
    onnx.save(model, made)
    return made


TOOLS: dict[str, Tool] = {
    "symbolic_shape_infer": infer_symbolic_shapes,
    "quant_pre_process": prepare_quantization,
    "quantize_static": quantize_static,
    "quantize_dynamic": quantize_dynamic,
    "matmul_nbits": quantize_four_bits,
    "transformers optimizer": fuse_transformer,
    "transformers float16": halve_transformer,
    "optimizer and float16": halve_fused_transformer,
    "onnxconverter float16": halve,
    "opset up": convert_up,
    "opset down": convert_down,
    "compose": compose,
    "extract_model": extract,
    "ORT format": convert_to_ort,
    "onnxslim": slim,
    "onnxsim": simplify,
}

COUNTED = {
    "quantize_static": ("QuantizeLinear",),
    "quantize_dynamic": ("MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM"),
    "matmul_nbits": ("MatMulNBits", "GatherBlockQuantized"),
    "transformers optimizer": (
        "Attention",
        "MultiHeadAttention",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "EmbedLayerNormalization",
        "BiasGelu",
        "FastGelu",
        "QuickGelu",
    ),
}
"""Operators that each tool has to make."""


def main() -> None:
    """Applies the tool that the command line names."""
    tool, path, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    case = load_case(folder)
    made: dict[str, int] = {}

    def load() -> Run:
        with contextlib.redirect_stdout(io.StringIO()):
            result = TOOLS[tool](path, case, folder)
        if tool in COUNTED:
            nodes = onnx.load(result, load_external_data=False).graph.node
            made.update(dict.fromkeys(COUNTED[tool], 0))
            for node in nodes:
                if node.op_type in made:
                    made[node.op_type] += 1
        return load_onnxruntime(result, case)

    answer_sizes(folder, load, made=made)
    os._exit(0)


if __name__ == "__main__":
    main()
