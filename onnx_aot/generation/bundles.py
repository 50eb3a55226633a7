"""Writes a language model as a folder that a runtime loads: model, configuration and tokenizer."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.generation.exports import export_decoder, is_recurrent, save_program
from onnx_aot.generation.folders import check_folder, open_model
from onnx_aot.generation.genai import describe_for_genai, export_for_genai
from onnx_aot.generation.integers import to_int4, to_int8

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

INTEGERS = {"int8": to_int8, "int4": to_int4}

NOT_FOR_INTEGERS = {"matmul_add_to_gemm", "gemm_of_shared_weight", "gemm_of_transposed"}
"""Rules that are left out before factors become integers: there are no such operators for Gemm."""

FOR_INTEGERS = {"stored_factors"}
"""Rules on request for the same reason: only stored factors become integers."""


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
        weights: ``"fp32"``; ``"fp16"``, which also computes in float16; ``"int8"``, with
            activations that are quantized when the model runs; ``"int4"``, blocks of 32 elements
            with a scale each, as ``MatMulNBits`` reads them. The last two are for factors of
            products; embeddings stay as they are.
        tokenizer: A tokenizer of transformers, or a folder with its files; by default those of the
            model's folder.
        **options: Options of ``export_decoder``. For genai, the opset is 23 by default, and
            ``bounded=False`` is for a beam search: else layers with a sliding window keep the
            window alone, in buffers that the runtime has to share. ``verify=True`` compares the
            program before factors become integers.

    Returns:
        The path of the model's file.

    Raises:
        InvalidOptionError: The layout or the weights are not known, the model has an encoder, or
            recurrent states that the program does not know, or an option is not accepted.
        OnnxExporterError: As ``export_decoder`` raises.
    """
    _check_choice("layout", layout, LAYOUTS)
    _check_choice("weights", weights, tuple(WEIGHTS))
    target = Path(folder)
    if isinstance(model, (str, os.PathLike)):
        check_folder(model)
    target.mkdir(parents=True, exist_ok=True)
    if not isinstance(model, (str, os.PathLike)):
        own = copy.deepcopy(model).half() if weights == "fp16" else model
        return _write(own, target, layout, weights, tokenizer, options)
    with tempfile.TemporaryDirectory(dir=target, ignore_cleanup_errors=True) as scratch:
        dtype = torch.float16 if weights == "fp16" else torch.float32
        opened = open_model(model, dtype, scratch)
        if weights == "fp16":
            opened = opened.half()  # its buffers too
        return _write(
            opened, target, layout, weights, model if tokenizer is None else tokenizer, options
        )


def _write(
    model: Any, target: Path, layout: str, weights: str, tokenizer: Any, options: dict[str, Any]
) -> Path:
    """Writes the folder of a model whose parameters have the type in which it computes."""
    from onnx_aot.ir_passes import names_of_passes

    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise InvalidOptionError(
            f"{name} has an encoder; a bundle is of a decoder alone. Export both with "
            "export_encoder and export_decoder",
            code="OA701",
        )
    is_for_js = layout == "transformers.js"
    if not is_for_js and is_recurrent(model):
        raise InvalidOptionError(
            f"{name} has recurrent states, for which {layout} has no inputs. Use "
            "layout='transformers.js', which knows some of these models, or export_decoder and "
            "Decoder",
            code="OA701",
        )
    if layout != "genai":  # these programs read the number of tokens from the keys of any layer
        options = {"bounded": False, **options}
    path = target / "onnx" / WEIGHTS[weights] if is_for_js else target / "model.onnx"
    path.parent.mkdir(exist_ok=True)
    quantize = INTEGERS.get(weights)
    if quantize is not None:
        options = {"optimize": {*names_of_passes(), *FOR_INTEGERS} - NOT_FOR_INTEGERS, **options}
    export = export_for_genai if layout == "genai" else export_decoder
    program = export(model, **options)
    if quantize is not None:
        quantize(program)
    save_program(program, path, options)
    model.config.save_pretrained(target)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(target)
    _write_tokenizer(tokenizer, target)
    if layout == "genai":
        _write_json(target / "genai_config.json", describe_for_genai(model, program))
    elif is_for_js:
        _describe_for_js(target / "config.json", path)
    return path


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOptionError(
            f"{name} is {value!r}; expected one of {', '.join(known)}", code="OA701"
        )


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
