"""A weight that an embedding and an output layer share is stored once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.ir_passes.cleanups.gemm import transposes_shared_weight
from tests.generation.models import transformers
from tests.serialization.checkpoint_files import write_safetensors
from tests.tolerances import assert_close

ROWS, WIDTH = 600, 32
STATIC, DYNAMIC = None, ({0: "batch", 1: "length"},)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Tied(torch.nn.Module):
    """An embedding whose weight is that of the last layer, too."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(ROWS, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, ROWS, bias=bias)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.norm(self.embed(ids)))
        return found


def tokens(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, ROWS, shape)


def operators(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph]


def large(program: Any) -> list[Any]:
    values = program.model.graph.initializers.values()
    return [v for v in values if v.const_value is not None and v.const_value.size == ROWS * WIDTH]


def assert_stored_once(program: Any, path: Path, weight: Tensor) -> None:
    """The file has one initializer of that size, and is smaller than two of them."""
    program.save(path)
    held = [
        t
        for t in onnx.load(path).graph.initializer
        if list(t.dims) in (list(weight.shape), list(weight.shape)[::-1])
    ]
    assert len(held) == 1
    assert weight.nbytes < path.stat().st_size < 2 * weight.nbytes


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shapes", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["onnxruntime", None])
def test_the_file_holds_the_weight_once(
    tmp_path: Path, dtype: torch.dtype, shapes: Any, target: str | None
) -> None:
    net = Tied().to(dtype).eval()
    program = onnx_aot.export(net, (tokens(2, 5),), dynamic_shapes=shapes, target=target)
    assert_stored_once(program, tmp_path / "model.onnx", net.embed.weight)
    assert operators(program).count("Gemm") == 1
    if target is None:
        return  # ONNX Runtime has no kernels for the types of half width
    for sizes in ((2, 5), (1, 1), (3, 7)) if shapes else ((2, 5),):
        assert_close(program(tokens(*sizes))[0], net(tokens(*sizes)))


def test_no_elements() -> None:
    net = Tied(bias=True).eval()
    program = onnx_aot.export(net, (tokens(2, 5),), dynamic_shapes=DYNAMIC)
    for sizes in ((0, 5), (2, 0), (0, 0)):
        assert program(tokens(*sizes))[0].shape == (*sizes, ROWS)


@pytest.mark.parametrize("shape", [(4,), (2, 5), (2, 1, 3)], ids=str)
def test_the_bias_is_that_of_the_gemm(tmp_path: Path, shape: tuple[int, ...]) -> None:
    net = Tied(bias=True).eval()
    program = onnx_aot.export(net, (tokens(*shape),), dynamic_shapes=({0: "batch"},))
    assert_stored_once(program, tmp_path / "model.onnx", net.embed.weight)
    assert "Add" not in operators(program)
    assert "Transpose" not in operators(program)
    assert_close(program(tokens(6, *shape[1:]))[0], net(tokens(6, *shape[1:])))


def test_one_dynamic_size_needs_no_size_arithmetic() -> None:
    program = onnx_aot.export(Tied().eval(), (tokens(2, 5),), dynamic_shapes=({0: "batch"},))
    assert operators(program)[-3:] == ["Flatten", "Gemm", "Reshape"]
    assert "Shape" not in operators(program)


def test_a_weight_of_one_layer_is_transposed_as_before() -> None:
    net = torch.nn.Linear(WIDTH, ROWS).eval()
    program = onnx_aot.export(net, (torch.randn(2, 5, WIDTH),))
    assert operators(program) == ["MatMul", "Add"]
    assert len(large(program)) == 1


def test_a_transpose_that_is_more_than_a_factor_is_folded() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(ROWS, WIDTH))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x @ self.weight.t() + self.weight.t()[:1], x + self.weight[0]

    net, x = Net().eval(), torch.randn(2, 5, WIDTH)
    program = onnx_aot.export(net, (x,))
    assert "Gemm" not in operators(program)
    for found, expected in zip(program(x), net(x), strict=True):
        assert_close(found, expected)


def test_without_the_rule_the_runtime_transposes(tmp_path: Path) -> None:
    net = Tied().eval()
    program = onnx_aot.export(net, (tokens(2, 5),), optimize={"fold_constants"})
    assert operators(program)[-2:] == ["Transpose", "MatMul"]
    assert_stored_once(program, tmp_path / "model.onnx", net.embed.weight)
    assert transposes_shared_weight(program.model.graph[-2])
    assert_close(program(tokens(2, 5))[0], net(tokens(2, 5)))


def test_other_weights() -> None:
    net, other = Tied().eval(), Tied().eval()
    torch.nn.init.normal_(other.embed.weight)
    program = onnx_aot.export(net, (tokens(2, 5),), dynamic_shapes=DYNAMIC)
    program.apply_weights(other.state_dict())
    assert_close(program(tokens(3, 2))[0], other(tokens(3, 2)))


def test_the_weight_as_an_input() -> None:
    net, ids = Tied().eval(), tokens(2, 5)
    program = onnx_aot.export(net, (ids,), weights_as_inputs=["embed.weight", "head.weight"])
    given = [v for v in program.model.graph.inputs if list(v.shape or ()) == [ROWS, WIDTH]]
    assert len(given) == len(program.weights) == 1
    assert operators(program).count("Gemm") == 1
    assert "Transpose" not in operators(program)
    assert_close(program(ids)[0], net(ids))


def test_shards_of_a_fake_model(tmp_path: Path) -> None:
    net = Tied().eval()
    write_safetensors(tmp_path / "model.safetensors", dict(net.named_parameters()))
    with onnx_aot.enable_fake_mode():
        fake = Tied().eval()
    program = onnx_aot.export(fake, (tokens(2, 5),), dynamic_shapes=DYNAMIC)
    program.apply_weights(tmp_path / "model.safetensors")
    path = tmp_path / "saved" / "model.onnx"
    path.parent.mkdir()
    program.save(path, external_data="safetensors", max_shard_size="1GB")
    stored = sum(file.stat().st_size for file in path.parent.glob("*.safetensors"))
    assert net.embed.weight.nbytes < stored < 2 * net.embed.weight.nbytes
    (found,) = onnxruntime.InferenceSession(path).run(None, {"ids": tokens(3, 2).numpy()})
    assert_close(torch.from_numpy(found), net(tokens(3, 2)))


CONFIG = {"vocab_size": ROWS, "tie_word_embeddings": True}
SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}


def gpt2() -> Any:
    config = transformers.GPT2Config(n_embd=WIDTH, n_layer=1, n_head=2, **CONFIG)
    return transformers.GPT2LMHeadModel(config)


def t5() -> Any:
    sizes = {"d_model": WIDTH, "d_kv": 8, "d_ff": WIDTH, "num_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **CONFIG))


def llama() -> Any:
    config = transformers.LlamaConfig(intermediate_size=WIDTH, **SMALL, **CONFIG)
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("build", [gpt2, t5, llama])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_language_models(tmp_path: Path, build: Any, dynamic: bool) -> None:
    torch.manual_seed(0)
    net = build().eval()
    names = ["input_ids", "decoder_input_ids"] if build is t5 else ["input_ids"]
    sizes = {0: "batch", 1: "length"} if dynamic else {}
    given = {name: tokens(2, 6) for name in names}
    program = onnx_aot.export(
        net,
        (),
        kwargs={**given, "use_cache": False},
        dynamic_shapes={**dict.fromkeys(names, sizes), "use_cache": None} if dynamic else None,
    )
    program.save(tmp_path / "model.onnx")
    held = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert len([t for t in held if set(t.dims) == {ROWS, WIDTH}]) == 1
    stored = sum(len(tensor.raw_data) for tensor in held)
    everything = sum(weight.nbytes for weight in net.parameters())
    assert stored < everything + ROWS * WIDTH * 4 // 2
    other = {name: tokens(3, 9) if dynamic else tokens(2, 6) for name in names}
    assert_close(program(**other, use_cache=False)[0], net(**other, use_cache=False)[0])
