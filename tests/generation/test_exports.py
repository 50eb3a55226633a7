"""Decoders with a cache: one program for all steps, and the same tokens as transformers."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.generation import Decoder, export_decoder
from onnx_aot.generation.caches import cache_parameter
from onnx_aot.torch_compat import pytree
from tests.generation import models
from tests.generation.models import Make, assert_same, generated, prompts, stepwise, transformers
from tests.pytree_cleanup import registrations_taken_back

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

DECODERS = [models.gpt2, models.llama, models.qwen2, models.mistral, models.gemma2]
every_decoder = pytest.mark.parametrize("make", DECODERS, ids=lambda make: make.__name__)


@functools.cache
def exported(make: Make) -> tuple[Any, Any, Decoder]:
    """Returns a model, its program (exported without a warning of this package) and a decoder."""
    model = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = export_decoder(model)
    assert not [w.message for w in caught if issubclass(w.category, OnnxExporterWarning)]
    onnx.checker.check_model(program.model_proto, full_check=True)
    return model, program, Decoder(program)


@every_decoder
def test_the_same_tokens_as_transformers(make: Make) -> None:
    """The rows differ in length and are padded on the left; windows are shorter than both."""
    model, _, decoder = exported(make)
    ids, mask = prompts()
    expected = generated(model, input_ids=ids, attention_mask=mask)
    actual = decoder.generate(ids, mask, max_new_tokens=models.STEPS)
    assert actual.tolist() == expected.tolist()
    alone = generated(model, input_ids=torch.cat([ids[1:], ids[1:].flip(1)]))
    assert decoder.generate(ids[1:]).tolist() == alone[:1].tolist()


# Numbers of past and new tokens: first steps, steps of one token, and steps of several tokens.
KINDS = [(0, 6), (6, 1), (5, 4), (9, 3), (0, 1), (1, 1)]


@every_decoder
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("past", "new"), KINDS)
def test_each_kind_of_step(make: Make, batch: int, past: int, new: int) -> None:
    """Compares with the model on all tokens without a cache; row 0 of two is padded."""
    model, _, decoder = exported(make)
    length = past + new
    ids = torch.randint(3, models.VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    if batch == 2:
        mask[0, : length // 3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def others(start: int, stop: int) -> dict[str, torch.Tensor]:
        return {"attention_mask": mask[:, :stop], "position_ids": positions[:, start:stop]}

    with torch.no_grad():
        given = {"attention_mask": mask, "position_ids": positions, "use_cache": False}
        expected = model(ids, **given).logits
    parts = (past, new) if past else (new,)
    actual = stepwise(decoder, decoder.empty_cache(batch), ids, parts, others)
    assert_same(expected[mask.bool()], actual[mask.bool()])


@pytest.mark.parametrize("make", [models.mistral, models.gemma2], ids=lambda make: make.__name__)
def test_a_window_that_the_example_does_not_fill(make: Any) -> None:
    """Generation exceeds the window, and a model with a larger window gives other tokens."""
    model, ids = make(window=16), prompts()[0][1:]
    expected = generated(model, input_ids=torch.cat([ids, ids.flip(1)]))[:1]
    wide = make(window=64).generate(ids, do_sample=False, max_new_tokens=models.STEPS)
    assert wide.tolist() != expected.tolist()
    assert Decoder(export_decoder(model)).generate(ids).tolist() == expected.tolist()


def test_names_and_dimensions() -> None:
    _, program, decoder = exported(models.llama)
    ids, total = "[batch_size,sequence_length]", "past_sequence_length + sequence_length"
    states = [f"{layer}.{which}" for layer in (0, 1) for which in ("key", "value")]
    assert {value.name: str(value.shape) for value in program.model.graph.inputs} == {
        "input_ids": ids,
        "attention_mask": f"[batch_size,{total}]",
        "position_ids": ids,
        **{f"past_key_values.{s}": "[batch_size,1,past_sequence_length,8]" for s in states},
    }
    assert {value.name: str(value.shape) for value in program.model.graph.outputs} == {
        "logits": "[batch_size,sequence_length,64]",
        **{f"present.{s}": f"[batch_size,1,{total},8]" for s in states},
    }
    _, cache = decoder.step(
        {
            "input_ids": torch.ones(3, 5, dtype=torch.int64),
            "attention_mask": torch.ones(3, 5, dtype=torch.int64),
            "position_ids": torch.arange(5).expand(3, 5),
        },
        decoder.empty_cache(3),
    )
    assert {name: value.shape() for name, value in cache.items()} == {
        f"past_key_values.{s}": [3, 1, 5, 8] for s in states
    }


@pytest.mark.parametrize("make", [models.llama, models.gemma2], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "options",
    [{"opset_version": 23}, {"opset_version": 17}, {"optimize": False}],
    ids=str,
)
def test_options_of_the_export(make: Make, options: dict[str, Any]) -> None:
    model, program, _ = exported(make)
    ids, mask = prompts()
    expected = generated(model, input_ids=ids, attention_mask=mask)
    other = export_decoder(model, **options)
    assert [n.op_type for n in other.model.graph] != [n.op_type for n in program.model.graph]
    assert Decoder(other).generate(ids, mask).tolist() == expected.tolist()


def test_programs_files_and_sessions(tmp_path: Path) -> None:
    model = models.llama()
    path = tmp_path / "model.onnx"
    program = export_decoder(model, path, metadata="none", external_data=True)
    assert (tmp_path / "model.onnx.data").exists()
    ids, mask = prompts()
    expected = generated(model, input_ids=ids, attention_mask=mask).tolist()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for source in (program, path, str(path), session):
        assert Decoder(source).generate(ids, mask).tolist() == expected


def test_half_precision() -> None:
    """The cache has the dtype of the model."""
    model = models.llama().half()
    decoder = Decoder(export_decoder(model))
    types = {value.data_type() for value in decoder.empty_cache(2).values()}
    assert types == {"tensor(float16)"}
    ids, mask = prompts()
    expected = generated(model.float(), input_ids=ids, attention_mask=mask)
    agreeing = decoder.generate(ids, mask) == expected
    assert agreeing[:, : ids.shape[1] + 3].all()  # until rounding makes a difference


@pytest.mark.parametrize("both", [False, True])
def test_rows_end(both: bool) -> None:
    """Rows that have ended are padded, and computation stops when all have ended."""
    model, _, decoder = exported(models.llama)
    ids, mask = prompts()
    free = decoder.generate(ids, mask)[:, ids.shape[1] :]
    first, second = int(free[0, 4]), int(free[1, 9])
    ends = [first, second] if both else first
    expected = model.generate(
        ids,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=models.STEPS,
        eos_token_id=ends,
        pad_token_id=2,
    )
    actual = decoder.generate(ids, mask, eos_token_id=ends, pad_token_id=2)
    assert actual.tolist() == expected.tolist()
    assert actual[0, -1] == 2
    if both:
        assert actual.shape[1] <= ids.shape[1] + 10


def test_weights_come_later() -> None:
    """The model has no values at the export; its weights keep the model's names."""
    model = models.llama()
    with onnx_aot.enable_fake_mode():
        empty = transformers.LlamaForCausalLM(model.config).eval()
    program = export_decoder(empty)
    program.apply_weights(model.state_dict())
    ids, mask = prompts()
    expected = generated(model, input_ids=ids, attention_mask=mask)
    assert Decoder(program).generate(ids, mask).tolist() == expected.tolist()


class Encoder(transformers.BertPreTrainedModel):  # type: ignore[misc, name-defined]
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return input_ids


def test_what_cannot_be_exported() -> None:
    bert = transformers.BertModel(
        transformers.BertConfig(**DECODER_OF_BERT, num_hidden_layers=1, is_decoder=False)
    )
    with pytest.raises(InvalidOptionError, match="BertModel returns no states"):
        export_decoder(bert.eval())
    with pytest.raises(InvalidOptionError, match=r"Encoder\.forward takes none of cache, past"):
        export_decoder(Encoder(transformers.BertConfig()).eval())
    with pytest.raises(InvalidOptionError, match="Linear; expected a language model"):
        export_decoder(torch.nn.Linear(2, 2))
    small = {**models.DECODER, "num_hidden_layers": 1, "layer_types": ["conv"]}
    with pytest.raises(InvalidOptionError, match="Lfm2ForCausalLM fails on one token"):
        export_decoder(transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**small)).eval())


DECODER_OF_BERT = {
    "vocab_size": 8, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8
}  # fmt: skip


def test_options_that_are_not_accepted() -> None:
    model = models.llama()
    with pytest.raises(InvalidOptionError, match="this function sets input_names, dynamic_shapes"):
        export_decoder(model, input_names=["a"], dynamic_shapes=None)
    with pytest.raises(InvalidOptionError, match="has shortcuts"):
        export_decoder(model, runtime_checks=True)


def test_what_cannot_be_run() -> None:
    _, _, decoder = exported(models.llama)
    ids, mask = prompts(left=False)
    with pytest.raises(InferenceError, match="padded on the right"):
        decoder.generate(ids, mask)
    with pytest.raises(InferenceError, match=r"input_ids is \[2, 7\] and attention_mask \[2, 6\]"):
        decoder.generate(ids, mask[:, 1:])
    with pytest.raises(InferenceError, match="also takes attention_mask, position_ids"):
        decoder.step({"input_ids": ids}, decoder.empty_cache(2))
    program = onnx_aot.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(InvalidOptionError, match="a decoder has input_ids and past_key_values"):
        Decoder(program)


def test_no_mask_that_is_too_long_or_short() -> None:
    """A call checks the size of the mask, which is a sum of two dimensions."""
    model, program, _ = exported(models.llama)
    one = torch.zeros(2, 1, 4, 8)
    held = {str(cache_parameter(model.forward)): transformers.DynamicCache([(one, one)] * 2)}
    ids = torch.ones(2, 3, dtype=torch.int64)
    given: dict[str, Any] = {"input_ids": ids, "position_ids": ids, **held, "use_cache": True}
    assert program(**given, attention_mask=torch.ones(2, 7, dtype=torch.int64))[0].shape[1] == 3
    for length in (6, 8):
        with pytest.raises(InferenceError, match="attention_mask"):
            program(**given, attention_mask=torch.ones(2, length, dtype=torch.int64))


def test_where_a_library_takes_caches_apart_otherwise() -> None:
    """transformers' own exporter registers caches in its own way, which is kept."""
    from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model

    model = models.llama()
    with registrations_taken_back(), onnx_aot.installed():
        register_cache_pytrees_for_model(model)
        flatten = pytree.SUPPORTED_NODES[transformers.DynamicCache].flatten_fn
        program = export_decoder(model)
        assert pytree.SUPPORTED_NODES[transformers.DynamicCache].flatten_fn is flatten
    assert program.outputs[1].name == "present.0.key"


def test_a_decoder_for_cuda_generates_where_there_is_no_device() -> None:
    model = models.llama().bfloat16()
    ids, mask = prompts()
    of_cuda = Decoder(export_decoder(model, target="onnxruntime-gpu"))
    of_cpu = Decoder(export_decoder(model))
    generate = {"max_new_tokens": 4}
    assert of_cuda.generate(ids, mask, **generate).tolist() == (
        of_cpu.generate(ids, mask, **generate).tolist()
    )
