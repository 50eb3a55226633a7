"""Decoders with sliding windows: a bounded cache, and the same tokens as transformers."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from onnx_aot.errors import OnnxExporterWarning
from onnx_aot.generation import Decoder, bundle, export_decoder
from onnx_aot.generation.layers import keep_windows, set_position
from tests.generation import models
from tests.generation.models import Make, assert_same, generated, prompts, stepwise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

WINDOWED = [models.mistral, models.gemma2, models.gpt_oss, models.llama4]
every_model = pytest.mark.parametrize("make", WINDOWED, ids=lambda make: make.__name__)

KEPT = models.WINDOW - 1
"""Earlier positions that a token attends to within a window."""


@functools.cache
def exported(make: Make, bounded: bool = True) -> tuple[Any, Any, Decoder]:
    """Returns a model, its program (exported without a warning of this package) and a decoder."""
    model = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = export_decoder(model, bounded=bounded)
    assert not [w.message for w in caught if issubclass(w.category, OnnxExporterWarning)]
    onnx.checker.check_model(program.model_proto, full_check=True)
    return model, program, Decoder(program)


@every_model
@pytest.mark.parametrize("length", [KEPT, KEPT + 1, 7, 13])
@pytest.mark.parametrize("bounded", [True, False])
def test_the_same_tokens_as_transformers(make: Make, length: int, bounded: bool) -> None:
    """Prompts are shorter than the window, as long, and longer; 20 steps pass it five times."""
    model, _, decoder = exported(make, bounded)
    ids, mask = prompts(length=length)
    if length <= models.WINDOW:  # the first row has a token
        mask[0] = torch.arange(length) >= length - 1
        ids = torch.where(mask.bool(), ids.clamp(min=3), 0)
    expected = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=models.STEPS
    )
    assert len(expected[:, length:].unique()) >= 5
    assert decoder.generate(ids, mask).tolist() == expected.tolist()
    alone = model.generate(ids[1:], do_sample=False, max_new_tokens=models.STEPS)
    assert decoder.generate(ids[1:]).tolist() == alone.tolist()


@every_model
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("lengths", [(2, 1, 1, 1, 1), (9, 1, 3, 1), (3, 5, 2), (1,) * 9], ids=str)
def test_steps_while_the_window_fills(make: Make, batch: int, lengths: tuple[int, ...]) -> None:
    """Compares with the model on all tokens without a cache; row 0 of two is padded."""
    model, _, decoder = exported(make)
    total = sum(lengths)
    ids = torch.randint(3, models.VOCABULARY, (batch, total))
    mask = torch.ones_like(ids)
    if batch == 2:
        mask[0, :2] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def others(start: int, stop: int) -> dict[str, torch.Tensor]:
        return {"attention_mask": mask[:, :stop], "position_ids": positions[:, start:stop]}

    with torch.no_grad():
        given = {"attention_mask": mask, "position_ids": positions, "use_cache": False}
        expected = model(ids, **given).logits
    actual = stepwise(decoder, decoder.empty_cache(batch), ids, lengths, others)
    assert_same(expected[mask.bool()], actual[mask.bool()])


def shapes(values: Any) -> dict[str, str]:
    return {value.name: str(value.shape) for value in values if "key_values" in value.name}


def test_names_and_dimensions() -> None:
    _, program, decoder = exported(models.gemma2)
    window, total = "past_window_length", "past_sequence_length + sequence_length"
    sizes = [window, "past_sequence_length"]
    assert {value.name: str(value.shape) for value in program.model.graph.inputs} == {
        "input_ids": "[batch_size,sequence_length]",
        "attention_mask": f"[batch_size,{total}]",
        "position_ids": "[batch_size,sequence_length]",
        **{
            f"past_key_values.{layer}.{which}": f"[batch_size,1,{size},8]"
            for layer, size in enumerate(sizes)
            for which in ("key", "value")
        },
    }
    after = [f"min({KEPT}, {window} + sequence_length)", total]
    assert {value.name: str(value.shape) for value in program.model.graph.outputs} == {
        "logits": "[batch_size,sequence_length,64]",
        **{
            f"present.{layer}.{which}": f"[batch_size,1,{size},8]"
            for layer, size in enumerate(after)
            for which in ("key", "value")
        },
    }
    cache, length = decoder.empty_cache(2), 0
    for new in (2, 1, 5, 1):
        length += new
        given = {
            "input_ids": torch.ones(2, new, dtype=torch.int64),
            "attention_mask": torch.ones(2, length, dtype=torch.int64),
            "position_ids": torch.arange(length - new, length).expand(2, new),
        }
        _, cache = decoder.step(given, cache)
        assert cache["past_key_values.0.key"].shape() == [2, 1, min(length, KEPT), 8]
        assert cache["past_key_values.1.value"].shape() == [2, 1, length, 8]


def test_a_model_of_windows_alone() -> None:
    _, program, _ = exported(models.mistral)
    inputs = {value.name: str(value) for value in program.inputs}
    assert inputs["attention_mask"] == "attention_mask: int64[batch_size, total_sequence_length]"
    assert "past_sequence_length" not in " ".join(inputs.values())


def test_all_positions() -> None:
    """One length for all layers, which other runtimes expect."""
    _, program, _ = exported(models.gemma2, bounded=False)
    sizes = {str(value.shape) for value in program.model.graph.inputs if "key_values" in value.name}
    assert sizes == {"[batch_size,1,past_sequence_length,8]"}


def test_a_bundle_has_all_positions(tmp_path: Path) -> None:
    path = bundle(models.mistral(), tmp_path)
    inputs = onnx.load(path).graph.input
    names = [
        dim.dim_param for v in inputs if "key" in v.name for dim in v.type.tensor_type.shape.dim
    ]
    assert "past_sequence_length" in names
    assert "past_window_length" not in names


def test_layers_that_use_the_states_of_others() -> None:
    model = models.gemma3n()
    program = export_decoder(model)
    names = [str(value.name) for value in program.inputs if "key" in str(value.name)]
    assert len(names) == 4
    ids, mask = prompts()
    expected = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=8)
    actual = Decoder(program).generate(ids, mask, max_new_tokens=8)
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("make", [models.mistral, models.gemma2], ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [{"opset_version": 17}, {"optimize": False}], ids=str)
def test_options_of_the_export(make: Make, options: dict[str, Any]) -> None:
    ids, mask = prompts()
    model = make()
    expected = generated(model, input_ids=ids, attention_mask=mask)
    assert (
        Decoder(export_decoder(model, **options)).generate(ids, mask).tolist() == expected.tolist()
    )


def test_layers_of_other_models_are_left_alone() -> None:
    """transformers lists each class of a layer that says what it is for, and takes the last."""
    from transformers import cache_utils

    class Layer(cache_utils.DynamicSlidingWindowLayer):  # type: ignore[misc]
        _layer_type = "tests_of_onnx_aot"

    known = getattr(cache_utils, "DYNAMIC_LAYER_TYPE_MAPPING", {})
    assert known.get("tests_of_onnx_aot", Layer) is Layer
    cache = cache_utils.DynamicCache()
    cache.layers = [Layer(sliding_window=4)]
    cache.layers[0].update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
    keep_windows(cache, bounded=True)
    set_position(cache, 1)
    assert isinstance(cache.layers[0], Layer)
    assert type(cache.layers[0]) is not Layer
    assert known.pop("tests_of_onnx_aot", Layer) is Layer
