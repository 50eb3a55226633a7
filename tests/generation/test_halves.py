"""Encoder-decoder models: the encoder computes keys and values once, the decoder runs all steps."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import onnx
import pytest
import torch

from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.generation import Decoder, EncoderDecoder, export_decoder, export_encoder
from tests.generation import models
from tests.generation.models import Make, assert_same, generated, prompts, stepwise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

BOTH = [models.t5, models.bart, models.whisper]
every_model = pytest.mark.parametrize("make", BOTH, ids=lambda make: make.__name__)


def inputs_for(make: Make) -> dict[str, torch.Tensor]:
    """Returns two rows for the encoder; if they are text, the first one is shorter."""
    if make is models.whisper:
        generator = torch.Generator().manual_seed(5)
        return {"input_features": torch.randn(2, models.MELS, models.FRAMES, generator=generator)}
    ids, mask = prompts(left=False)
    return {"input_ids": ids, "attention_mask": mask}


@functools.cache
def exported(make: Make) -> tuple[Any, Any, Any]:
    """Returns a model, its encoder and its decoder, exported without a warning of this package."""
    model = make()
    before = dict(vars(model))
    features = {"inputs": inputs_for(make)} if make is models.whisper else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder, decoder = export_encoder(model, **features), export_decoder(model)
    assert not [w.message for w in caught if issubclass(w.category, OnnxExporterWarning)]
    assert vars(model) == before
    for program in (encoder, decoder):
        onnx.checker.check_model(program.model_proto, full_check=True)
    return model, encoder, decoder


@every_model
def test_the_same_tokens_as_transformers(make: Make) -> None:
    model, encoder, decoder = exported(make)
    inputs = inputs_for(make)
    expected = generated(model, **inputs)[:, -models.STEPS :]
    start = torch.full((2, 1), model.config.decoder_start_token_id)
    both = EncoderDecoder(encoder, decoder)
    actual = both.generate(inputs, start, max_new_tokens=models.STEPS)
    assert actual[:, :1].tolist() == start.tolist()
    assert actual[:, 1:].tolist() == expected.tolist()
    alone = {name: tensor[1:] for name, tensor in inputs.items()}
    assert both.generate(alone, start[1:]).tolist() == actual[1:].tolist()


@every_model
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("lengths", [(6,), (6, 1), (5, 4), (1,), (1, 1)], ids=str)
def test_each_kind_of_step(make: Make, batch: int, lengths: tuple[int, ...]) -> None:
    """Compares with the model on all tokens at once, without a cache."""
    model, encoder, decoder = exported(make)
    inputs = {name: tensor[:batch] for name, tensor in inputs_for(make).items()}
    ids = torch.randint(3, models.VOCABULARY, (batch, sum(lengths)))
    with torch.no_grad():
        expected = model(**inputs, decoder_input_ids=ids, use_cache=False)
    names = [str(value.name) for value in encoder.model.graph.outputs]
    outputs = dict(zip(names, encoder(**inputs), strict=True))
    assert_same(expected.encoder_last_hidden_state, outputs.pop("last_hidden_state"))

    def others(start: int, stop: int) -> dict[str, torch.Tensor]:
        given = {n.replace("present", "past_key_values"): held for n, held in outputs.items()}
        if "attention_mask" in inputs:
            given["encoder_attention_mask"] = inputs["attention_mask"]
        return given

    loop = Decoder(decoder)
    assert_same(expected.logits, stepwise(loop, loop.empty_cache(batch), ids, lengths, others))


def test_names_and_dimensions() -> None:
    _, encoder, decoder = exported(models.t5)
    read, ids = "[batch_size,encoder_sequence_length]", "[batch_size,sequence_length]"
    states = [f"{layer}.{{}}.{which}" for layer in (0, 1) for which in ("key", "value")]
    own = "[batch_size,2,{},8]".format
    assert _shapes(encoder.model.graph.inputs) == {"input_ids": read, "attention_mask": read}
    assert _shapes(encoder.model.graph.outputs) == {
        "last_hidden_state": "[batch_size,encoder_sequence_length,16]",
        **{f"present.{s.format('encoder')}": own("encoder_sequence_length") for s in states},
    }
    past = {n: own("past_sequence_length") for n in (s.format("decoder") for s in states)}
    assert _shapes(decoder.model.graph.inputs) == {
        "input_ids": ids,
        "encoder_attention_mask": read,
        **{f"past_key_values.{name}": shape for name, shape in past.items()},
        **{
            f"past_key_values.{s.format('encoder')}": own("encoder_sequence_length") for s in states
        },
    }
    total = own("past_sequence_length + sequence_length")
    assert _shapes(decoder.model.graph.outputs) == {
        "logits": "[batch_size,sequence_length,64]",
        **{f"present.{name}": total for name in past},
    }


def _shapes(values: Any) -> dict[str, str]:
    return {str(value.name): str(value.shape) for value in values}


@every_model
def test_each_weight_is_in_the_program_that_uses_it(make: Make) -> None:
    """Names are the model's; the encoder's program also has the decoder's key and value weights."""
    model, encoder, decoder = exported(make)
    of_encoder, of_decoder = (_weights(program, model) for program in (encoder, decoder))
    assert of_decoder
    assert not [name for name in of_decoder if name.startswith(("encoder.", "model.encoder."))]
    crossing = {name for name in of_encoder if ".decoder." in f".{name}"}
    assert {name.split(".")[-2] for name in crossing} in ({"k", "v"}, {"k_proj", "v_proj"})
    assert not crossing & of_decoder


def _weights(program: Any, model: Any) -> set[str]:
    """Returns module names of a program's weights, except embeddings, which both may have."""
    names = {str(name).removesuffix("_folded") for name in program.model.graph.initializers}
    return {name for name in names & {*model.state_dict()} if ".embed_tokens." not in name}


def test_verified() -> None:
    model = models.t5()
    encoder, decoder = export_encoder(model, verify=True), export_decoder(model, verify=True)
    assert encoder.report.verification is not None
    assert decoder.report.verification is not None
    assert "forward" not in vars(model)


def test_what_is_not_accepted() -> None:
    _, encoder, decoder = exported(models.t5)
    _, other, _ = exported(models.whisper)
    with pytest.raises(InvalidOptionError, match="LlamaForCausalLM has no encoder"):
        export_encoder(models.llama())
    with pytest.raises(InvalidOptionError, match="reads input_features; pass an example"):
        export_encoder(models.whisper())
    with pytest.raises(InvalidOptionError, match=r"returns past_key_values\.0\.decoder\.key, "):
        EncoderDecoder(decoder, decoder)
    both = EncoderDecoder(other, decoder)
    start = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(InferenceError, match="the model also takes encoder_attention_mask"):
        both.generate(inputs_for(models.whisper), start)
    with pytest.raises(InferenceError, match="the model also takes attention_mask"):
        EncoderDecoder(encoder, decoder).generate({"input_ids": start}, start)
