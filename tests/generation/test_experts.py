"""Models with mixtures of experts, whose code loops over those that tokens chose."""

from __future__ import annotations

import functools
from typing import Any

import onnx
import pytest
import torch

from onnx_aot.errors import OnnxExporterWarning
from onnx_aot.generation import Decoder, EncoderDecoder, export_decoder, export_encoder
from onnx_aot.generation.experts import all_experts
from tests.generation import models
from tests.generation.models import Make, generated, prompts

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

MIXTURES = [models.switch, models.nllb_moe]
every_model = pytest.mark.parametrize("make", MIXTURES, ids=lambda make: make.__name__)


@functools.cache
def exported(make: Make) -> tuple[Any, Any, Any]:
    """Returns a model, its encoder and its decoder."""
    model = make()
    programs = export_encoder(model), export_decoder(model)
    for program in programs:
        onnx.checker.check_model(program.model_proto, full_check=True)
    return model, *programs


@every_model
def test_the_same_tokens_as_transformers(make: Make) -> None:
    model, encoder, decoder = exported(make)
    ids, mask = prompts(left=False)
    inputs = {"input_ids": ids, "attention_mask": mask}
    expected = generated(model, **inputs)[:, -models.STEPS :]
    both = EncoderDecoder(encoder, decoder)
    start = torch.full((2, 1), model.config.decoder_start_token_id)
    actual = both.generate(inputs, start, max_new_tokens=models.STEPS)
    assert actual[:, 1:].tolist() == expected.tolist()
    alone = {name: tensor[1:] for name, tensor in inputs.items()}
    expected = model.generate(**alone, do_sample=False, max_new_tokens=models.STEPS)
    actual = both.generate(alone, start[1:])
    assert actual.tolist() == expected[:, -models.STEPS - 1 :].tolist()


def test_a_decoder_alone() -> None:
    model = models.longcat()
    ids, mask = prompts()
    expected = generated(model, input_ids=ids, attention_mask=mask)
    with pytest.warns(OnnxExporterWarning, match=r"if token_idx\.numel\(\) == 0"):
        decoder = Decoder(export_decoder(model))
    assert decoder.generate(ids, mask).tolist() == expected.tolist()


@every_model
def test_every_expert_computes(make: Make) -> None:
    """In the context, results are the same, and those without tokens are called too."""
    model = make()
    experts = [m for name, m in model.named_modules() if name.rpartition(".")[2] == "expert_3"]
    assert experts
    called: list[Any] = []
    for expert in experts:
        expert.register_forward_hook(lambda module, *_: called.append(module))
    ids, mask = prompts(left=False)
    given = {
        "input_ids": ids[:, :1],
        "attention_mask": mask[:, :1],
        "decoder_input_ids": ids[:, :1],
    }
    with torch.no_grad():
        expected = model(**given).logits
        chosen = len(called)
        before = dict(vars(experts[0]))
        with all_experts(model):
            torch.testing.assert_close(model(**given).logits, expected)
    assert vars(experts[0]) == before
    assert len(called) - chosen == len(experts) >= chosen
