"""Writes a language model as a folder that a runtime loads: model, configuration and tokenizer."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.generation.exports import export_decoder, is_recurrent, save_program
from onnx_aot.generation.genai import describe_for_genai, export_for_genai

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["LAYOUTS", "WEIGHTS", "bundle"]

LAYOUTS = ("optimum", "transformers.js", "genai")
"""Programs that a folder can be written for."""

WEIGHTS = {
    "fp32": "model.onnx",
    "fp16": "model_fp16.onnx",
    "int8": "model_int8.onnx",
    "int4": "model_q4.onnx",
}
"""Types of the weights, and the names of files by which transformers.js finds them."""

TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.tiktoken",
    "spiece.model",
    "chat_template*",
)
"""Files of a tokenizer in a folder of transformers."""

BLOCK = 32
"""Elements of a row of weights that share a scale in int4."""

NOT_FOR_INTEGERS = {"matmul_add_to_gemm", "gemm_of_shared_weight", "gemm_of_transposed"}
"""Rules that are left out before weights become integers: the tools know MatMul only."""

FOR_INTEGERS = {"stored_factors"}
"""Rules on request for the same reason: the tools know stored weights only."""


def bundle(
    model: str | os.PathLike[str] | torch.nn.Module,
    folder: str | os.PathLike[str],
    *,
    layout: str = "optimum",
    weights: str = "fp32",
    tokenizer: str | os.PathLike[str] | Any | None = None,
    **options: Any,
) -> Path:
    """Exports a language model with its cache into a folder that another program loads.

    ========================  ================================================================
    ``layout``                loaded by
    ========================  ================================================================
    ``"optimum"``             ``ORTModelForCausalLM.from_pretrained(folder)``
    ``"transformers.js"``     ``AutoModelForCausalLM.from_pretrained(folder, {dtype: "fp32"})``
    ``"genai"``               ``onnxruntime_genai.Model(folder)``
    ========================  ================================================================

    Args:
        model: A folder of transformers with ``config.json``, weights and tokenizer; or a
            ``...ForCausalLM`` of transformers in evaluation mode.
        folder: Folder to write to. It is made if needed; files of the same names are replaced.
        layout: One of ``LAYOUTS``.
        weights: ``"fp32"``; ``"fp16"``, which also computes in float16; ``"int8"``, quantized by
            ONNX Runtime with activations in int8; ``"int4"``, blocks of 32 elements with a scale
            each, as ``MatMulNBits`` reads them. The last two leave embeddings as they are, and
            write one file of at most 2 GB.
        tokenizer: A tokenizer of transformers, or a folder with its files; by default those of the
            model's folder.
        **options: Options of ``export_decoder``, such as ``verify=True``. The opset for genai is
            23 by default.

    Returns:
        The path of the model's file.

    Raises:
        InvalidOptionError: The layout or the weights are not known, the model has an encoder, or
            recurrent states that the program does not know, or an option is not accepted.
        OnnxExporterError: As ``export_decoder`` raises.
    """
    from onnx_aot.ir_passes import names_of_passes

    _check_choice("layout", layout, LAYOUTS)
    _check_choice("weights", weights, tuple(WEIGHTS))
    loaded: Any = _load(model) if isinstance(model, (str, os.PathLike)) else model
    config = getattr(loaded, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidOptionError(
            f"{type(loaded).__name__} has an encoder; a bundle is of a decoder alone. Export both "
            "with export_encoder and export_decoder",
            code="OA701",
        )
    is_for_js = layout == "transformers.js"
    if not is_for_js and is_recurrent(loaded):
        raise InvalidOptionError(
            f"{type(loaded).__name__} has recurrent states, for which {layout} has no inputs. Use "
            "layout='transformers.js', which knows some of these models, or export_decoder and "
            "Decoder",
            code="OA701",
        )
    # These programs read the number of earlier tokens from the keys of any layer.
    options = {"bounded": False, **options}
    if weights == "fp16":
        own = isinstance(model, (str, os.PathLike))
        loaded = (loaded if own else copy.deepcopy(loaded)).half()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    path = target / "onnx" / WEIGHTS[weights] if is_for_js else target / "model.onnx"
    path.parent.mkdir(exist_ok=True)
    quantize = {"int8": _to_int8, "int4": _to_int4}.get(weights)
    if quantize is not None:
        options = {"optimize": {*names_of_passes(), *FOR_INTEGERS} - NOT_FOR_INTEGERS, **options}
    export = export_for_genai if layout == "genai" else export_decoder
    program = export(loaded, **options)
    _save(program, path, quantize, options)
    loaded.config.save_pretrained(target)
    generation = getattr(loaded, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(target)
    if tokenizer is None and isinstance(model, (str, os.PathLike)):
        tokenizer = model
    _write_tokenizer(tokenizer, target)
    if layout == "genai":
        _write_json(target / "genai_config.json", describe_for_genai(loaded, program))
    elif is_for_js:
        _describe_for_js(target / "config.json", path)
    return path


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOptionError(
            f"{name} is {value!r}; expected one of {', '.join(known)}", code="OA701"
        )


def _load(folder: str | os.PathLike[str]) -> Any:
    import transformers

    if not (Path(folder) / "config.json").is_file():
        raise InvalidOptionError(
            f"there is no config.json in {os.fspath(folder)}; pass the folder of a model of "
            "transformers, as save_pretrained writes it",
            code="OA701",
        )
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return loaded.eval()


def _write_tokenizer(tokenizer: Any, target: Path) -> None:
    if tokenizer is None:
        return
    if not isinstance(tokenizer, (str, os.PathLike)):
        tokenizer.save_pretrained(target)
        return
    for pattern in TOKENIZER:
        for file in Path(tokenizer).glob(pattern):
            with contextlib.suppress(shutil.SameFileError):  # the model's own folder
                shutil.copy(file, target / file.name)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# --- integers ------------------------------------------------------------------------------------


def _save(
    program: ONNXProgram,
    path: Path,
    quantize: Callable[[str, str], None] | None,
    options: Mapping[str, Any],
) -> None:
    """Saves a program; to quantize it, in float32 beside the file whose place the result takes."""
    if quantize is None:
        save_program(program, path, options)
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        whole = os.path.join(temporary, "whole.onnx")
        save_program(program, whole, options)
        with _root_logger_kept():
            quantize(whole, os.path.join(temporary, path.name))
        os.replace(os.path.join(temporary, path.name), path)


@contextlib.contextmanager
def _root_logger_kept() -> Iterator[None]:
    """Keeps ONNX Runtime's tools from changing all logging by ``logging.basicConfig``.

    That function does nothing when the root logger has a handler.
    """
    nothing = logging.NullHandler()
    logging.getLogger().addHandler(nothing)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nothing)


def _to_int8(source: str, path: str) -> None:
    """Quantizes the matrices of products; activations are quantized when the model runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source,
        path,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        extra_options={"EnableSubgraph": True},  # recurrent models read tokens in a loop
    )


def _to_int4(source: str, path: str) -> None:
    """Writes the matrices of products as ``com.microsoft.MatMulNBits``."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load(source), block_size=BLOCK, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    quantizer.model.save_model_to_file(path, use_external_data_format=False)


# --- layouts -------------------------------------------------------------------------------------


def _describe_for_js(config: Path, model: Path) -> None:
    """Gives a separate file of weights the name that transformers.js expects, and tells it so."""
    beside = model.with_name(f"{model.name}.data")
    if not beside.exists():
        return
    import onnx

    proto = onnx.load(os.fspath(model), load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = f"{model.name}_data"
    part = model.with_name(f"{model.name}.part")
    onnx.save(proto, os.fspath(part))
    beside.replace(model.with_name(f"{model.name}_data"))
    part.replace(model)
    content = json.loads(config.read_text(encoding="utf-8"))
    content["transformers.js_config"] = {"use_external_data_format": True}
    _write_json(config, content)
