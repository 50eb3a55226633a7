"""Models for genai whose attention rotates queries and keys, and takes them joined."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

from onnx_aot.generation import Decoder, bundle, export_decoder
from onnx_aot.generation.fused_inputs import keep_padding, rotate_inside, take_joined
from onnx_aot.generation.shared_caches import in_place
from tests.generation.models import DECODER, STEPS, WINDOW, WINDOW_AND_FULL, spread, transformers
from tests.generation.test_genai import ROWS, InPlace, expected

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

WIDE = {**DECODER, "hidden_size": 32, "head_dim": 16}
"""Heads as wide as the operator rotates them."""


def llama() -> Any:
    return spread(transformers.LlamaForCausalLM(transformers.LlamaConfig(**WIDE)))


def qwen2() -> Any:
    """Model whose queries, keys and values have a bias."""
    sizes = {name: size for name, size in WIDE.items() if name != "head_dim"}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    return spread(model)


def qwen3() -> Any:
    """Model that normalizes queries and keys of each head."""
    return spread(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**WIDE)))


def gemma3() -> Any:
    """Model with a window and other rotations in every other layer, and a tied output layer."""
    config = transformers.Gemma3TextConfig(
        **WIDE, sliding_window=WINDOW, layer_types=WINDOW_AND_FULL
    )
    return spread(transformers.Gemma3ForCausalLM(config))


def phi3() -> Any:
    """Model with one matrix for queries, keys and values."""
    sizes = {name: size for name, size in WIDE.items() if name != "head_dim"}
    return spread(transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes)))


MODELS: dict[Callable[[], Any], bool] = {
    llama: True,
    qwen2: True,
    qwen3: False,
    gemma3: False,
    phi3: True,
}
"""Models, and whether nothing stands between the joined product and attention."""


def attentions(path: Path) -> list[onnx.NodeProto]:
    nodes = onnx.load(path).graph.node
    return [node for node in nodes if node.op_type == "GroupQueryAttention"]


def operators(path: Path) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_tokens_are_those_of_pytorch(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Padding may stand on either side, and texts may go on with several tokens."""
    model = make()
    path = bundle(model, tmp_path, layout="genai", verify=True, bounded=False)
    nodes, found = attentions(path), operators(path)
    attributes = [{a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} for n in nodes]
    assert [given.get("do_rotary") for given in attributes] == [1, 1]
    assert all((not n.input[1] and not n.input[2]) is MODELS[make] for n in nodes)
    gone = ("RotaryEmbedding", "Cos", "Sin", "Slice")
    assert not any(found[name] for name in gone)
    wanted = expected(model, ROWS)
    assert len({token for row in wanted for token in row}) >= 8
    for left in (False, True):
        for shared in (True, False):
            runner = InPlace(path, len(ROWS), shared=shared)
            assert runner.generate(ROWS, left, STEPS) == wanted, (left, shared)


@pytest.mark.parametrize("weights", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("make", [llama, gemma3], ids=lambda make: make.__name__)
def test_types_of_weights(tmp_path: Path, make: Callable[[], Any], weights: str) -> None:
    """Tokens are those of the same file with a cache that grows; with fp16, also PyTorch's."""
    model = make()
    path = bundle(model, tmp_path, layout="genai", weights=weights, bounded=False)
    rows, steps = [ROWS[0], ROWS[0][::-1]], 8
    grown = Decoder(path).generate(torch.tensor(rows), max_new_tokens=steps).tolist()
    assert InPlace(path, 2).generate(rows, False, steps) == grown
    if weights == "fp16":
        assert grown == expected(model, rows, steps)
        return
    name = {"int8": "MatMulInteger", "int4": "MatMulNBits"}[weights]
    found = operators(path)
    assert (found[name], found["MatMul"], found["Transpose"]) == (9, 0, 0)


def test_rotations_of_a_part_of_each_head(tmp_path: Path) -> None:
    """These are no node of their own, so they stay."""
    sizes = {name: size for name, size in WIDE.items() if name != "head_dim"}
    config = transformers.StableLmConfig(**sizes)
    model = spread(transformers.StableLmForCausalLM(config))
    path = bundle(model, tmp_path, layout="genai", verify=True)
    assert not any(a.name == "do_rotary" for node in attentions(path) for a in node.attribute)
    assert InPlace(path, len(ROWS)).generate(ROWS, False, STEPS) == expected(model, ROWS)


def test_rotations_by_other_positions() -> None:
    """Angles that depend on the cache, or positions that are no input, stay as they are."""
    names = in_place(True)
    assert names is not None
    program = export_decoder(llama(), opset_version=23, bounded=False, optimize=names)
    graph = program.model.graph
    (cast,) = (
        n for n in graph if n.op_type == "Cast" and n.outputs[0].consumers()[0].op_type == "Mul"
    )
    source = cast.inputs[0]
    assert source is not None
    doubled = ir.node("Add", [source, source])
    doubled.outputs[0].type, doubled.outputs[0].shape = source.type, source.shape
    graph.insert_before(cast, doubled)
    cast.replace_input_with(0, doubled.outputs[0])
    assert rotate_inside(program, 64) == 0


def test_each_step_says_what_it_changed() -> None:
    names = in_place(True)
    assert names is not None
    program = export_decoder(phi3(), opset_version=23, bounded=False, optimize=names)
    assert [keep_padding(program), keep_padding(program)] == [2, 0]
    assert take_joined(program) == 0  # of rotated queries
    assert [rotate_inside(program, 64), rotate_inside(program, 64)] == [2, 0]
    assert [take_joined(program), take_joined(program)] == [2, 0]
    onnx.checker.check_model(program.model_proto, full_check=True)
