"""Exports models with transformers' own ONNX exporter, through torch.onnx and onnx_aot."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from benchmarks.models.case import spread_weights
from benchmarks.zoo_models import ZOO, ZooCase
from benchmarks.zoo_models.peer import compare_results
from benchmarks.zoo_models.tiny import MELS
from benchmarks.zoo_models.transformers_rows import make_tokens, model_builder, padding_mask

__all__ = [
    "EXPORTERS",
    "KINDS",
    "ROWS",
    "STAGES",
    "WAYS",
    "GenerationRow",
    "Way",
    "measure",
    "without_patches",
]

STAGES = ("nothing", "exported", "right", "right at both sizes")
EXPORTERS = ("torch.onnx", "onnx_aot")

# Rows of the zoo, by kind of model.
_KINDS = {
    "decoder": "llama gemma3_text gpt2",
    "mixture of experts": "mixtral gpt_oss qwen3_moe deepseek_v3 jetmoe",
    "state space": "mamba mamba2 bamba",
    "encoder": "bert deberta-v2 modernbert tapas",
    "encoder with decoder": "bart t5",
    "vision": "vit hiera segformer resnet dinov2",
    "audio": "wav2vec2 dac audio-spectrogram-transformer whisper",
    "images with text": "clip siglip vipllava",
    "time series": "patchtst",
}


@dataclasses.dataclass(frozen=True)
class GenerationRow:
    """A model that is exported in the parts that ``generate`` consists of.

    Attributes:
        name: Unique name.
        build: Returns the module.
        inputs: Called with batch size and length, returns the arguments of ``generate``.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int, int], dict[str, Any]]

    def parts(self, model: torch.nn.Module, batch: int, seq: int) -> dict[str, Any]:
        """Submodules and their arguments, by the name of the part."""
        from transformers.exporters.utils import decompose_for_generation

        return dict(decompose_for_generation(model, self.inputs(batch, seq)))


def _text_inputs(batch: int, seq: int) -> dict[str, Any]:
    torch.manual_seed(batch)
    mask = padding_mask(batch, seq).flip(1)  # padding comes first, since generated tokens follow
    return {"input_ids": make_tokens(batch, seq), "attention_mask": mask}


def _sound_inputs(batch: int, seq: int) -> dict[str, Any]:
    torch.manual_seed(batch)
    return {"input_features": torch.randn(batch, MELS, 60)}


def _generation_row(model_type: str, auto: str, **options: Any) -> GenerationRow:
    inputs = _sound_inputs if model_type == "whisper" else _text_inputs
    build = model_builder(model_type, auto, use_cache=True, **options)
    return GenerationRow(f"{model_type}, generation", build, inputs)


_GENERATING = (
    _generation_row("llama", "AutoModelForCausalLM"),
    _generation_row("qwen3_moe", "AutoModelForCausalLM"),
    _generation_row("mamba2", "AutoModelForCausalLM", num_heads=8, head_dim=8, n_groups=1),
    _generation_row("bart", "AutoModelForSeq2SeqLM"),
    _generation_row("whisper", "AutoModelForSpeechSeq2Seq", max_source_positions=30),
)

ROWS: dict[str, ZooCase | GenerationRow] = {
    **{name: ZOO[name] for names in _KINDS.values() for name in names.split()},
    **{row.name: row for row in _GENERATING},
}

KINDS = {
    **{name: kind for kind, names in _KINDS.items() for name in names.split()},
    **{row.name: "decoder with a cache" for row in _GENERATING},
}


@dataclasses.dataclass(frozen=True)
class Way:
    """An exporter, with or without transformers' patches for torch.onnx."""

    exporter: str
    patched: bool

    @property
    def label(self) -> str:
        """Name of the way in results."""
        return f"{self.exporter}, {'with' if self.patched else 'without'} the patches"

    @contextlib.contextmanager
    def apply_way(self) -> Iterator[None]:
        """Makes transformers' exporter go this way inside the block."""
        import onnx_aot

        with contextlib.ExitStack() as stack:
            if not self.patched:
                stack.enter_context(without_patches())
            if self.exporter == "onnx_aot":
                stack.enter_context(onnx_aot.installed())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            yield


WAYS = {way.label: way for way in (Way(e, p) for e in EXPORTERS for p in (True, False))}


@contextlib.contextmanager
def without_patches() -> Iterator[None]:
    """Disables the changes that transformers' exporter makes for torch.onnx.

    These replace functions of torch, of onnxscript and of models, rewrite the captured graph, add
    translations, and fix the ONNX model. The remaining changes have no list that could be emptied:
    the flat signature, flat outputs, caches as pytrees, and inputs that are computed beforehand.
    """
    from transformers.exporters import exporter_onnx, utils

    nothing: dict[str, Any] = {"onnx": [], "dynamo": []}
    with (
        mock.patch.dict(utils._PATCHES, nothing),
        mock.patch.dict(utils._FX_NODE_FIXES, nothing),
        mock.patch.dict(exporter_onnx._ONNX_TRANSLATION_TABLE, clear=True),
        mock.patch.object(exporter_onnx, "_IR_FIXES", []),
    ):
        yield


def measure(name: str, way: Way) -> dict[str, Any]:
    """Measures how far a row gets.

    Returns:
        The last ``stage``, the ``reason`` why no later one was reached, and ``fixed``: the
        dimensions that were fixed by the capture, which transformers makes with ``torch.export``.
    """
    row = ROWS[name]
    found: dict[str, Any] = {"stage": STAGES[0], "reason": "", "fixed": []}
    samples = _of_zoo if isinstance(row, ZooCase) else _of_generation
    try:
        for stage, calls in zip(STAGES[1:], samples(row, way, found), strict=True):
            for label, runner, module, inputs in calls:
                wrong = _wrong_output(runner, module, inputs)
                if wrong:
                    return found | {"reason": f"{label}{wrong}"}
            found["stage"] = stage
    except Exception as error:  # reported in the row
        from benchmarks.zoo_models.measure import shorten_reason

        return found | {"reason": shorten_reason(_root(error))}
    return found


def _root(error: BaseException) -> BaseException:
    """Returns the original cause of an error, or the first error of this package on the way."""
    from onnx_aot import OnnxExporterError

    while error.__cause__ is not None and not isinstance(error, OnnxExporterError):
        error = error.__cause__
    return error


Calls = list[tuple[str, Any, torch.nn.Module, Mapping[str, Any]]]


def _of_zoo(row: ZooCase, way: Way, found: dict[str, Any]) -> Iterator[Calls]:
    """Exports, and yields an empty list; then yields the calls to compare at each size."""
    from transformers.exporters import OnnxConfig, OnnxExporter

    model, inputs = row.make(), row.sample(0)[1]
    config = OnnxConfig(dynamic_shapes=_make_automatic(row.dynamic_shapes))
    with way.apply_way():
        exported = OnnxExporter().export(model, dict(inputs), config)
    found["fixed"] = _fixed_dimensions(exported.program, row.dynamic_shapes)
    yield []
    for index in range(2):
        yield [("", exported, model, row.sample(index, found["fixed"])[1])]


def _of_generation(row: GenerationRow, way: Way, found: dict[str, Any]) -> Iterator[Calls]:
    from transformers.exporters import OnnxConfig, OnnxExporter

    torch.manual_seed(0)
    model = row.build().eval()
    spread_weights(model)
    with way.apply_way():
        exported = OnnxExporter().export_for_generation(
            model, row.inputs(2, 7), OnnxConfig(dynamic=True)
        )
    yield []
    for batch, seq in ((2, 7), (3, 10)):
        yield [
            (f"{part}: ", exported.runners[part], module, inputs)
            for part, (module, inputs) in row.parts(model, batch, seq).items()
        ]


def _make_automatic(spec: Any) -> Any:
    """Replaces names of dynamic dimensions by ``Dim.AUTO``: static where the model fixes them."""
    if isinstance(spec, dict):
        return {key: _make_automatic(value) for key, value in spec.items()}
    return torch.export.Dim.AUTO if isinstance(spec, str) else spec


def _fixed_dimensions(program: Any, dynamic_shapes: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Names of dynamic dimensions that are static in the inputs of the ONNX model."""
    shapes = {value.name: value.shape for value in program.graph.inputs}
    return sorted(
        {
            name
            for given, axes in dynamic_shapes.items()
            for axis, name in axes.items()
            if given in shapes and isinstance(shapes[given][axis], int)
        }
    )


def _wrong_output(runner: Any, module: torch.nn.Module, inputs: Mapping[str, Any]) -> str:
    """Describes the first output that differs from PyTorch's, by the rules of ``verify=True``."""

    def run(model: torch.nn.Module, _: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        with torch.no_grad():
            return _tensor_leaves(model(**copy.deepcopy(dict(kwargs))))

    taken = runner.metadata.kwargs if hasattr(runner, "metadata") else inputs
    actual = _tensor_leaves(
        runner(**copy.deepcopy({k: v for k, v in inputs.items() if k in taken}))
    )
    expected = run(module, (), inputs)
    if len(expected) != len(actual):
        return f"{len(actual)} outputs instead of {len(expected)}"
    names = [f"output {index}" for index in range(len(expected))]
    differences = compare_results(names, expected, actual, run, (module, (), inputs))
    return next((f"{d.name}: {d.details}" for d in differences if not d.right), "")


def _tensor_leaves(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
