"""Shortcuts in models for a single token and for an empty past."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from onnx_aot.dtypes import TOLERANCES, Tolerance
from onnx_aot.errors import DynamicShapeError, VerificationError
from onnx_aot.generation import export_decoder, shortcuts
from onnx_aot.generation.caches import cache_parameter, cached_states
from onnx_aot.generation.examples import CAPTURED, decoder_inputs
from onnx_aot.generation.halves import replace_forward
from onnx_aot.generation.steps import make_step_forward
from tests.generation import models
from tests.generation.models import transformers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Odd(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Gives other results for steps of one token, or without a past."""

    one_token = False

    def forward(self, past_key_values: Any = None, **kwargs: Any) -> Any:
        past = 0 if past_key_values is None else past_key_values.layers[0].keys.shape[2]
        odd = kwargs["input_ids"].shape[1] == 1 if self.one_token else past == 0
        found = super().forward(past_key_values=past_key_values, **kwargs)
        if odd:
            found.logits = found.logits * 2
        return found


@pytest.mark.parametrize("one_token", [False, True])
def test_a_shortcut_that_is_none_is_refused(one_token: bool, tmp_path: Path) -> None:
    """The capture takes the path for several tokens after others; nothing in it shows another."""
    model = models.spread(Odd(transformers.LlamaConfig(**models.DECODER)))
    model.one_token = one_token
    path = tmp_path / "model.onnx"
    where = "6 tokens before and 1 new" if one_token else "0 tokens before and 6 new"
    with pytest.raises(DynamicShapeError, match=f"Odd computes some steps.*{where}"):
        export_decoder(model, path)
    assert not path.exists()


def test_rounding_is_told_from_a_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of other sizes add up products in another order; PyTorch in float64 tells."""
    monkeypatch.setitem(TOLERANCES, torch.float32, Tolerance(0.0, 1e-7))
    model = models.llama()
    export_decoder(model)
    doubled = []
    monkeypatch.setattr(shortcuts, "run_in_double", lambda *_: doubled.append(True))
    with pytest.raises(DynamicShapeError, match="LlamaForCausalLM computes some steps"):
        export_decoder(model)
    assert doubled


def test_a_copy_computes_with_its_own_weights() -> None:
    model = models.llama()
    layout = cached_states(model, {"input_ids": torch.ones(2, 1, dtype=torch.int64)})
    make = functools.partial(make_step_forward, layout=layout, by_token=False)
    with replace_forward(model, make, decoder_inputs(model, layout, CAPTURED)):
        doubled = copy.deepcopy(model).double()
        given = decoder_inputs(model, layout, CAPTURED)
        for layer in given[str(cache_parameter(type(model).forward))].layers:
            layer.keys, layer.values = layer.keys.double(), layer.values.double()
        assert doubled(**given)[0].dtype == torch.float64


def _wrong_for_one_token(op: Any, self: Any) -> Any:
    """SiLU, plus 1 if the sequence has length 1."""
    one = op.Cast(op.Equal(op.Shape(self, start=1, end=2), [1]), to=onnx.TensorProto.FLOAT)
    return op.Add(op.Mul(self, op.Sigmoid(self)), one)


def test_verify_tries_what_the_capture_did_not(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    wrong = {torch.ops.aten.silu.default: _wrong_for_one_token}
    with pytest.raises(VerificationError, match="batch_size=2, sequence_length=1, past_"):
        export_decoder(models.llama(), path, custom_translation_table=wrong, verify=True)
    assert not path.exists()


def test_verify_saves_what_is_right(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    program = export_decoder(models.gpt2(), path, verify=True, external_data=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert program.report.verification is not None
