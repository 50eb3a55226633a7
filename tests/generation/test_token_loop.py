"""Decoders with states of fixed size: the same tokens as transformers, in steps of any length."""

from __future__ import annotations

import functools
import inspect
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import onnx_aot
from onnx_aot.errors import DynamicShapeError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.generation import Decoder, bundle, export_decoder, shortcuts
from onnx_aot.generation.caches import cache_parameter
from tests.generation import models
from tests.generation.models import Make, assert_same, generated, prompts, stepwise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

RECURRENT = [
    models.lfm2,
    models.mamba,
    models.mamba2,
    models.rwkv,
    models.jamba,
    models.falcon_h1,
    models.qwen3_next,
]
every_model = pytest.mark.parametrize("make", RECURRENT, ids=lambda make: make.__name__)


@functools.cache
def exported(make: Make) -> tuple[Any, Any, Decoder]:
    """Returns a model, its program and a decoder."""
    model = make()
    before = dict(vars(model))
    program = export_decoder(model)
    assert vars(model) == before
    onnx.checker.check_model(program.model_proto, full_check=True)
    return model, program, Decoder(program)


def expected_tokens(make: Make, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the tokens of transformers for two rows, of which the first is padded on the left.

    With RWKV, transformers gives one row the state of the other: each is generated alone. It reads
    padding as tokens.
    """
    model, _, _ = exported(make)
    if make is not models.rwkv:
        return generated(model, input_ids=ids, attention_mask=mask)
    each = [model.generate(row[None], do_sample=False, max_new_tokens=models.STEPS) for row in ids]
    return torch.cat(each)


@every_model
@pytest.mark.parametrize("length", [7, 12])
def test_the_same_tokens_as_transformers(make: Make, length: int) -> None:
    model, _, decoder = exported(make)
    ids, mask = prompts(length=length)
    expected = expected_tokens(make, ids, mask)
    assert len(expected[:, length:].unique()) >= 8
    assert decoder.generate(ids, mask).tolist() == expected.tolist()
    alone = model.generate(ids[1:], do_sample=False, max_new_tokens=models.STEPS)
    assert decoder.generate(ids[1:]).tolist() == alone.tolist()


@every_model
@pytest.mark.parametrize("lengths", [(9, 1, 3), (1, 1, 1), (70,), (8, 8)], ids=str)
def test_steps_of_any_length(make: Make, lengths: tuple[int, ...]) -> None:
    """Compares with the model on all tokens without a cache; chunks of models have 4 or 64."""
    model, _, decoder = exported(make)
    total = sum(lengths)
    ids = torch.randint(3, models.VOCABULARY, (2, total))
    mask = torch.ones_like(ids)
    mask[0, : min(2, total - 1)] = 0
    text = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    taken = inspect.signature(model.forward).parameters
    with torch.no_grad():
        given = {name: tensor for name, tensor in text.items() if name in taken}
        expected = model(ids, **given, use_cache=False).logits

    def others(start: int, stop: int) -> dict[str, torch.Tensor]:
        return {
            "attention_mask": mask[:, :stop],
            "position_ids": text["position_ids"][:, start:stop],
        }

    actual = stepwise(decoder, decoder.empty_cache(2), ids, lengths, others)
    assert_same(expected[mask.bool()], actual[mask.bool()])


NAMES = {
    models.mamba2: ("past_conv.1", "past_ssm.1"),
    models.jamba: ("past_conv.0", "past_ssm.0", "past_key_values.1.key"),
    models.qwen3_next: ("past_conv.0", "past_recurrent.0", "past_key_values.1.value"),
    models.rwkv: ("past_state.0", "past_state.4"),
}


@pytest.mark.parametrize("make", NAMES, ids=lambda make: make.__name__)
def test_names(make: Make) -> None:
    """The names are those of transformers.js, where it has some."""
    _, program, _ = exported(make)
    names = [str(value.name) for value in program.inputs]
    assert {*NAMES[make]} <= {*names}
    states = [name for name in names if name.startswith("past_")]
    present = [f"present{n.removeprefix('past_key_values').removeprefix('past')}" for n in states]
    assert [str(value.name) for value in program.outputs] == ["logits", *present]


def test_sizes_do_not_grow() -> None:
    _, program, decoder = exported(models.lfm2)
    ids, total = "[batch_size,sequence_length]", "past_sequence_length + sequence_length"
    assert {value.name: str(value.shape) for value in program.model.graph.inputs} == {
        "input_ids": ids,
        "attention_mask": f"[batch_size,{total}]",
        "position_ids": ids,
        "past_conv.0": "[batch_size,16,3]",
        "past_key_values.1.key": "[batch_size,1,past_sequence_length,8]",
        "past_key_values.1.value": "[batch_size,1,past_sequence_length,8]",
    }
    assert {value.name: str(value.shape) for value in program.model.graph.outputs} == {
        "logits": "[batch_size,sequence_length,64]",
        "present_conv.0": "[batch_size,16,3]",
        "present.1.key": f"[batch_size,1,{total},8]",
        "present.1.value": f"[batch_size,1,{total},8]",
    }
    cache = decoder.empty_cache(3)
    one = torch.ones(3, 5, dtype=torch.int64)
    given = {"input_ids": one, "attention_mask": one, "position_ids": torch.arange(5).expand(3, 5)}
    _, after = decoder.step(given, cache)
    assert {name: value.shape() for name, value in cache.items()} == {
        "past_conv.0": [3, 16, 3],
        "past_key_values.1.key": [3, 1, 0, 8],
        "past_key_values.1.value": [3, 1, 0, 8],
    }
    assert after["past_conv.0"].shape() == [3, 16, 3]
    assert after["past_key_values.1.key"].shape() == [3, 1, 5, 8]
    _, program, _ = exported(models.mamba)
    mask = next(value for value in program.inputs if value.name == "attention_mask")
    assert str(mask) == "attention_mask: int64[batch_size, total_sequence_length]"


def operators(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph]


def test_ways_to_read_a_step() -> None:
    """Several tokens at once, or one after another in a loop; the results are the same."""
    model, program, _ = exported(models.mamba2)
    assert operators(program).count("Loop") == 1
    at_once = export_decoder(model, by_token=False)
    assert "Loop" not in operators(at_once)
    ids, mask = prompts(length=8)
    expected = generated(model, input_ids=ids, attention_mask=mask)
    assert Decoder(at_once).generate(ids, mask).tolist() == expected.tolist()
    assert "Loop" not in operators(exported(models.lfm2)[1])
    model = models.gemma2()  # its window is in the mask then
    one_by_one = export_decoder(model, by_token=True)
    assert "Loop" in operators(one_by_one)
    expected = generated(model, input_ids=ids, attention_mask=mask)
    assert Decoder(one_by_one).generate(ids, mask).tolist() == expected.tolist()


def test_a_model_that_forgets_its_state_for_several_tokens() -> None:
    """Mamba's code for several tokens begins with zeros."""
    with pytest.raises(onnx_aot.OnnxExporterError):
        export_decoder(models.mamba(), by_token=False)


def test_a_loop_over_pieces_of_a_text() -> None:
    """Qwen3-Next's code for several tokens has a Python loop over pieces of 64."""
    model, _, _ = exported(models.qwen3_next)
    decoder = Decoder(export_decoder(model, by_token=False))
    for length in (7, 65, 130):
        ids, mask = prompts(length=length)
        expected = expected_tokens(models.qwen3_next, ids, mask)
        assert decoder.generate(ids, mask).tolist() == expected.tolist()


def test_models_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    differs = "Zamba2ForCausalLM computes a text differently.*by_token=True accepts"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(DynamicShapeError, match=differs):
            export_decoder(models.zamba2(), path)
    assert not [w for w in caught if issubclass(w.category, OnnxExporterWarning)]
    with pytest.raises(InvalidOptionError, match="RecurrentGemmaForCausalLM returns no states"):
        export_decoder(models.recurrent_gemma(), path)
    assert not path.exists()


def test_a_model_whose_steps_differ_from_a_text(tmp_path: Path) -> None:
    """It is accepted if the program may compute what the model does for single tokens."""
    model, path = models.zamba2(), tmp_path / "model.onnx"
    with pytest.warns(OnnxExporterWarning, match="reads one token after another, a prompt too"):
        export_decoder(model, path, by_token=True)
    ids, mask = prompts()
    tokens = Decoder(path).generate(ids, mask, max_new_tokens=models.STEPS)
    cache, read = None, ids[1:]  # the row without padding
    parameter = str(cache_parameter(type(model).forward))
    for i in range(read.shape[1] + models.STEPS - 1):
        found = model(input_ids=read[:, i : i + 1], use_cache=True, **{parameter: cache})
        cache = getattr(found, parameter)
        if i >= ids.shape[1] - 1:
            read = torch.cat([read, found.logits[:, -1].argmax(-1)[:, None]], 1)
    assert tokens[1:].tolist() == read.tolist()


def test_steps_that_differ_from_single_tokens_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        shortcuts, "_read_by_token", lambda *_: torch.zeros(2, 10, models.VOCABULARY)
    )
    with pytest.raises(DynamicShapeError, match=r"differ.*reads one token after another"):
        export_decoder(models.zamba2(), by_token=True)


def test_a_verified_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model, _, _ = exported(models.mamba)  # another one has other biases
    program = export_decoder(model, path, verify=True, external_data=True)
    assert program.report.verification is not None
    ids, mask = prompts()
    expected = expected_tokens(models.mamba, ids, mask)
    assert Decoder(path).generate(ids, mask).tolist() == expected.tolist()


def test_half_precision() -> None:
    """Rounding is told from errors. The state of Mamba is kept in float32."""
    model = models.jamba().half()
    decoder = Decoder(export_decoder(model))
    types = {name: value.data_type() for name, value in decoder.empty_cache(2).items()}
    assert types["past_key_values.1.key"] == types["past_conv.0"] == "tensor(float16)"
    assert types["past_ssm.0"] == "tensor(float)"
    ids, mask = prompts()
    expected = generated(model.float(), input_ids=ids, attention_mask=mask)
    assert decoder.generate(ids, mask)[:, : ids.shape[1] + 2].tolist() == (
        expected[:, : ids.shape[1] + 2].tolist()
    )


def test_weights_without_values() -> None:
    """Nothing can be compared then."""
    with onnx_aot.enable_fake_mode():
        empty = models.mamba()
    with pytest.raises(InvalidOptionError, match="recurrent states, and weights without values"):
        export_decoder(empty)


def bodies(graph: onnx.GraphProto) -> list[str]:
    """Operators of a graph and of the graphs in it."""
    found = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            found += bodies(attribute.g)
    return found


@pytest.mark.parametrize(
    ("weights", "operator"), [("int8", "MatMulInteger"), ("int4", "MatMulNBits")]
)
def test_bundles(tmp_path: Path, weights: str, operator: str) -> None:
    model, _, decoder = exported(models.falcon_h1)
    path = bundle(model, tmp_path, layout="transformers.js")
    ids, mask = prompts()
    assert Decoder(path).generate(ids, mask).tolist() == decoder.generate(ids, mask).tolist()
    quantized = bundle(model, tmp_path, layout="transformers.js", weights=weights)
    assert operator in bodies(onnx.load(quantized).graph)
    for layout in ("optimum", "genai"):
        with pytest.raises(InvalidOptionError, match=f"recurrent states, for which {layout} has"):
            bundle(model, tmp_path / layout, layout=layout)
