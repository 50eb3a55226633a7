"""Folders that other programs load; ``nox -s bundles`` loads them in those programs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.generation import Decoder, bundle
from tests.cli.conftest import call
from tests.generation import models
from tests.generation.models import prompts, transformers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "vocab.txt": "a"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of transformers with a Llama and the files of a tokenizer."""
    folder = tmp_path / "source"
    models.llama().save_pretrained(folder)
    for name, text in TOKENIZER.items():
        (folder / name).write_text(text)
    return folder


def tokens_of(path: Path) -> list[list[int]]:
    input_ids, attention_mask = prompts()
    return Decoder(path).generate(input_ids, attention_mask, max_new_tokens=6).tolist()


def expected(model: Any) -> list[list[int]]:
    input_ids, mask = prompts()
    made = model.generate(input_ids, attention_mask=mask, do_sample=False, max_new_tokens=6)
    return made.tolist()


@pytest.mark.parametrize(
    ("layout", "file"),
    [("optimum", "model.onnx"), ("transformers.js", "onnx/model.onnx"), ("genai", "model.onnx")],
)
def test_layouts(source: Path, tmp_path: Path, layout: str, file: str) -> None:
    path = bundle(source, tmp_path / "out", layout=layout)
    assert path == tmp_path / "out" / file
    present = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    always = {"config.json", "generation_config.json", file, *TOKENIZER}
    assert present == always | ({"genai_config.json"} if layout == "genai" else set())
    assert tokens_of(path) == expected(models.llama())


def test_what_genai_is_told(source: Path, tmp_path: Path) -> None:
    bundle(source, tmp_path, layout="genai")
    told = json.loads((tmp_path / "genai_config.json").read_text())["model"]
    assert (told["bos_token_id"], told["pad_token_id"], told["vocab_size"]) == (1, 0, 64)
    decoder = told["decoder"]
    sizes = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_size")
    assert [decoder[name] for name in sizes] == [2, 2, 1, 8]
    exported = onnx.load(tmp_path / "model.onnx")
    assert exported.opset_import[0].version == 23
    names = {value.name for value in exported.graph.input}
    layers = decoder["inputs"]["past_key_names"] % 1, decoder["inputs"]["past_value_names"] % 1
    assert {"input_ids", "attention_mask", "position_ids", *layers} <= names
    assert {"input_ids", "attention_mask", "position_ids"} <= decoder["inputs"].keys()


def logits_of(path: Path) -> np.ndarray[Any, Any]:
    """Logits of the prompts, without a past."""
    session = onnxruntime.InferenceSession(path)
    input_ids, mask = prompts()
    positions = mask.cumsum(-1).sub(1).clamp(min=0)
    feeds = {"input_ids": input_ids, "attention_mask": mask, "position_ids": positions}
    past = torch.zeros(len(input_ids), 2, 0, 8)
    names = [value.name for value in session.get_inputs()]
    made = session.run(["logits"], {n: feeds.get(n, past).numpy() for n in names})
    return np.asarray(made[0])[mask.bool().numpy()]


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def test_into_the_folder_of_the_model(source: Path) -> None:
    path = bundle(source, source)
    assert {name: (source / name).read_text() for name in TOKENIZER} == TOKENIZER
    assert tokens_of(path) == expected(models.llama())


def test_weights(tmp_path: Path) -> None:
    model = models.gpt2()
    before = [name for name, weight in model.named_parameters() if weight.dtype != torch.float32]
    halves = bundle(model, tmp_path / "fp16", weights="fp16")
    assert onnx.load(halves).graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert before == [n for n, w in model.named_parameters() if w.dtype != torch.float32] == []
    exact = logits_of(bundle(model, tmp_path / "fp32"))
    level, handlers = logging.getLogger().level, list(logging.getLogger().handlers)
    for weights, operator, error in (("int8", "MatMulInteger", 0.05), ("int4", "MatMulNBits", 0.3)):
        path = bundle(model, tmp_path / weights, layout="transformers.js", weights=weights)
        assert path.name == {"int8": "model_int8.onnx", "int4": "model_q4.onnx"}[weights]
        assert operator in operators(path)
        assert "Gemm" not in operators(path)
        difference = np.linalg.norm(logits_of(path) - exact)
        assert 0 < difference < error * np.linalg.norm(exact)
        assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    assert (logging.getLogger().level, logging.getLogger().handlers) == (level, handlers)


def test_a_file_of_its_own_for_the_weights(tmp_path: Path) -> None:
    path = bundle(models.llama(), tmp_path, layout="transformers.js", external_data=True)
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["transformers.js_config"] == {"use_external_data_format": True}
    assert tokens_of(path) == expected(models.llama())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"layout": "tflite"},
            "layout is 'tflite'; expected one of optimum, transformers.js, genai",
        ),
        ({"weights": "int2"}, "weights is 'int2'; expected one of fp32, fp16, int8, int4"),
    ],
)
def test_what_is_not_known(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        bundle(models.llama(), tmp_path, **options)


def test_what_is_no_decoder(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"there is no config\.json in"):
        bundle(tmp_path / "none", tmp_path)
    with pytest.raises(InvalidOptionError, match="has an encoder"):
        bundle(models.t5(), tmp_path)
    with pytest.raises(InvalidOptionError, match="expected a language model of transformers"):
        bundle(torch.nn.Linear(2, 2), tmp_path)


def test_the_command(source: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    done = call("bundle", str(source), "-o", target, "--for", "genai", "--verify")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"saved to {tmp_path / 'out' / 'model.onnx'}\n"
    older = ("--no-bounded", "--target", "onnxruntime==1.31", "--weights", "int4")
    done = call("bundle", str(source), "-o", target, "--for", "genai", *older)
    assert done.exit_code == 0, done.output
    assert "MatMulNBits" in operators(tmp_path / "out" / "model.onnx")
    done = call("bundle", str(source), "-o", target, "--for", "optimum", "--by-token")
    assert done.exit_code == 0, done.output
    assert "Loop" in operators(tmp_path / "out" / "model.onnx")
    done = call("bundle", str(source), "-o", target, "--for", "tflite")
    assert done.exit_code == 2
    assert "expected one of optimum" in done.stderr


def test_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<pad>": 0, "<bos>": 1, "a": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    bundle(models.llama(), tmp_path, tokenizer=tokenizer)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("a")["input_ids"] == [2]
