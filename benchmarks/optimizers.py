"""Lists the nodes that other optimizers still remove from exported graphs.

    python -m benchmarks.optimizers [NAME ...]

Each row is a model of the zoo, exported with every dimension static and with its dynamic
dimensions. onnxslim, onnxsim and ONNX Runtime's optimizer for transformers get each file. The
removed nodes are those of the file less those of the result: a node that is folded to a constant
counts, and a fusion of three nodes into one counts as two. Nodes of branches and loops count.
Weights that are initialized to one number, such as the ones of a normalization, get other values,
as training gives them; otherwise optimizers would remove their multiplication.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.tables import facts, table

KINDS = ("static", "dynamic")
PRODUCTS = {"MatMul", "Add"}
"""Operators that optimizers write as Gemm between two Reshapes."""

NOISE = 0.02
LIMIT = 60.0  # CPU seconds that one optimizer may take for one file

_TEXT = """
llama gemma2 gpt2 gpt_neo gpt_neox gptj falcon bloom opt phi qwen3 olmo2 cohere mixtral bert roberta
distilbert albert electra deberta deberta-v2 mobilebert modernbert roformer mpnet funnel canine t5
bart marian pegasus
""".split()
_CACHED = ["llama with cache", "qwen3 with cache", "gpt_neox with cache"]
_IMAGES = """
vit beit deit dinov2 clip_vision_model siglip_vision_model convnext resnet regnet poolformer
segformer swin swinv2 hiera levit dpt pvt
""".split()
_AUDIO = ["audio-spectrogram-transformer", "patchtst", "wav2vec2", "whisper", "speech_to_text"]
_BOTH = ["clip", "blip", "siglip", "llava"]
_TORCHVISION = """
resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 convnext_tiny vision_transformer
shufflenet_v2_x0_5 squeezenet1_0 googlenet regnet_y_400mf swin_t
""".split()
_TIMM = """
test_vit mixer_s32_224 resnetv2_18 regnetx_002 mobilenetv3_small_050 convnext_atto levit_128s
efficientformer_l1 pit_xs_224 coat_lite_tiny tiny_vit_5m_224 xcit_nano_12_p16_224 gcvit_xxtiny
swin_tiny_patch4_window7_224 ghostnet_050 test_nfnet botnet26t_256 crossvit_tiny_240
""".split()
_OTHERS = "vocoder graph_network policy point_network audio_codec lstm_cells vae unet".split()

SAMPLE = (
    *_TEXT,
    *_CACHED,
    *_IMAGES,
    *_AUDIO,
    *_BOTH,
    *(f"torchvision_{name}" for name in _TORCHVISION),
    *(f"timm_{name}" for name in _TIMM),
    *_OTHERS,
)
"""Models of every group of the zoo, most of which are built and exported within seconds."""


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Exports a model twice and counts the nodes that each optimizer removes."""
    from benchmarks.timing import TooSlow, time_limit

    nodes, removed, errors = {}, {}, {}
    with folder_of(f"optimizers-{name}", settings) as folder:
        for kind, path in _export(name, folder, errors):
            before = _count_operators(path)
            nodes[kind] = before.total()
            for optimizer, optimize in OPTIMIZERS.items():
                key = f"{kind}, {optimizer}"
                try:
                    with time_limit(LIMIT, cpu=True), silenced():
                        after = _count_operators(optimize(path))
                except (Exception, TooSlow) as error:  # what another package does
                    errors[key] = describe(error)
                    continue
                removed[key] = {
                    "nodes": before.total() - after.total(),
                    "gone": dict((before - after).most_common()),
                    "new": dict((after - before).most_common()),
                }
    return {"nodes": nodes, "removed": removed, "errors": errors}


def _export(name: str, folder: str, errors: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Writes the static and the dynamic file; dimensions that are refused are fixed."""
    import onnx_aot
    from benchmarks.ways import remove_dimensions
    from benchmarks.zoo_models import ZOO
    from benchmarks.zoo_models.measure import FIXED

    warnings.simplefilter("ignore")
    case = ZOO[name]
    model = case.make()
    _vary_equal_weights(model)
    for kind in KINDS:
        path = os.path.join(folder, f"{kind}.onnx")
        for fixed in FIXED if kind == "dynamic" else ((),):
            shapes = remove_dimensions(case.dynamic_shapes, fixed) if kind == "dynamic" else None
            if os.path.exists(path):
                break
            args, kwargs = case.sample(0)
            try:
                onnx_aot.export(model, args, path, kwargs=kwargs, dynamic_shapes=shapes)
            except Exception as error:  # tried again with fewer dynamic dimensions
                errors[kind] = describe(error)
            else:
                errors.pop(kind, None)
        if os.path.exists(path):
            yield kind, path


def _vary_equal_weights(model: Any) -> None:
    """Adds noise to the weights whose elements are all equal."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point() and weight.numel() and weight.min() == weight.max():
                weight.add_(torch.randn_like(weight), alpha=NOISE)


def describe(error: BaseException) -> str:
    """The first line of an error, shortened."""
    from benchmarks.zoo_models.measure import shorten_reason

    return shorten_reason(error)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards what optimizers print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _slim(path: str) -> Any:
    import onnx
    import onnxslim

    return onnxslim.slim(onnx.load(path))


def _simplify(path: str) -> Any:
    import onnx
    import onnxsim

    return onnxsim.simplify(onnx.load(path))[0]


def _fuse_transformer(path: str) -> Any:
    from onnxruntime.transformers.optimizer import optimize_model

    return optimize_model(path, model_type="bert", opt_level=0).model


OPTIMIZERS: dict[str, Callable[[str], Any]] = {
    "onnxslim": _slim,
    "onnxsim": _simplify,
    "transformers optimizer": _fuse_transformer,
}


def _count_operators(model: Any) -> collections.Counter[str]:
    """Counts the nodes of a model, or of the model in a file, by operator."""
    import onnx

    if isinstance(model, str):
        model = onnx.load(model, load_external_data=False)
    operators: collections.Counter[str] = collections.Counter()
    pending = [model.graph, *model.functions]
    while pending:
        for node in pending.pop().node:
            operators[node.op_type] += 1
            for attribute in node.attribute:
                pending.extend(attribute.graphs)
                if attribute.HasField("g"):
                    pending.append(attribute.g)
    return operators


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts the files from which an optimizer removes nothing, and the operators it removes."""
    summary: dict[str, Any] = {"models": f"{len(rows)} of {len(SAMPLE)}"}
    for optimizer in OPTIMIZERS:
        for kind in KINDS:
            found = [row["removed"].get(f"{kind}, {optimizer}") for row in rows]
            results = [result["nodes"] for result in found if result is not None]
            if not results:
                continue
            whole = sum(nodes <= 0 for nodes in results)
            text = f"{whole} of {len(results)} ({whole / len(results):.1%})"
            summary[f"{kind} files from which {optimizer} removes no node"] = text
            others = sum(not result["gone"].keys() - PRODUCTS for result in found if result)
            if optimizer != "transformers optimizer":  # which does not write products anew
                text = f"{others} of {len(results)} ({others / len(results):.1%})"
                summary[f"{kind} files from which {optimizer} removes at most products"] = text
    return summary


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    parts = [facts(summary)]
    for optimizer in OPTIMIZERS:
        parts += [f"### {optimizer}", _list_operators(rows, optimizer)]
    failed = [[row["name"], key, text] for row in rows for key, text in row["errors"].items()]
    if failed:
        parts += ["### Failures", table(("Model", "Way", "Remark"), failed)]
    return "\n\n".join(parts)


def _list_operators(rows: list[dict[str, Any]], optimizer: str) -> str:
    """Table of the operators of which an optimizer leaves fewer, the most frequent first."""
    counts: collections.Counter[str] = collections.Counter()
    models: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        for kind in KINDS:
            found = row["removed"].get(f"{kind}, {optimizer}")
            if found is None or found["nodes"] <= 0:
                continue
            for operator, count in found["gone"].items():
                counts[operator] += count
                models[operator][row["name"]] += count
    if not counts:
        return "It removes no node."
    body = [
        [operator, count, len(models[operator]), _most(models[operator])]
        for operator, count in counts.most_common()
    ]
    return table(("Operator", "Nodes", "Models", "Remark"), body)


def _most(models: collections.Counter[str]) -> str:
    most = ", ".join(f"{name} ({count})" for name, count in models.most_common(6))
    return f"{most}, ..." if len(models) > 6 else most


BENCHMARK = Benchmark("optimizers", lambda: SAMPLE, ("gpt2", "policy"), measure, summarize)

if __name__ == "__main__":
    main()
