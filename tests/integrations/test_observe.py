"""Inputs and dynamic dimensions from observed calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from onnx_aot.errors import InvalidOptionError

Tensor = torch.Tensor


class Scaled(torch.nn.Module):
    def forward(
        self,
        x: Tensor,
        pair: dict[str, Tensor],
        scale: float = 1.0,
        twice: bool = False,
        **rest: Any,
    ) -> Tensor:
        y = x * scale + pair["a"] + rest.get("bias", 0)
        return y * 2 if twice else y


def inputs(n: int) -> tuple[Any, ...]:
    return torch.randn(n, 3), {"a": torch.randn(n, 1)}


def test_what_differs_is_dynamic() -> None:
    model = Scaled()
    with onnx_aot.observe(model) as observed:
        for n in (2, 7, 4):
            model(*inputs(n), scale=float(n), bias=torch.ones(3))
    model(*inputs(9))  # calls after the context are not observed
    (kind,) = observed.kinds
    assert kind.count == 3
    assert list(kind.kwargs) == ["x", "pair", "scale", "bias"]
    assert kind.kwargs["x"].shape == (7, 3)  # of the largest call
    dynamic = Dim.DYNAMIC
    assert kind.dynamic_shapes == {
        "x": {0: dynamic}, "pair": {"a": {0: dynamic}}, "scale": dynamic, "bias": None
    }  # fmt: skip
    program = onnx_aot.export(model, kwargs=observed.kwargs, dynamic_shapes=observed.dynamic_shapes)
    x, pair = inputs(5)
    given = {"x": x, "pair": pair, "scale": 0.5, "bias": torch.rand(3)}
    torch.testing.assert_close(program(**given)[0], model(**given))


def test_flags_and_missing_arguments_make_kinds() -> None:
    model = Scaled()
    with onnx_aot.observe(model) as observed:
        for n in (2, 3):
            model(*inputs(n), 1.0, True)
        model(*inputs(4))
    most, other = observed.kinds
    assert most.count == 2
    assert most.kwargs["twice"] is True
    assert list(other.kwargs) == ["x", "pair"]
    assert other.dynamic_shapes is None
    assert str(observed).splitlines()[0].startswith("2 calls with x [3, 3]; pair [3, 1]")


def test_tensors_are_as_the_call_got_them() -> None:
    class Adds(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1)

    model = Adds()
    with onnx_aot.observe(model) as observed:
        model(torch.zeros(3))
    assert observed.kwargs["x"].tolist() == [0, 0, 0]


# The cache asks whether its past is empty, and the observed one never is.
@pytest.mark.filterwarnings("ignore:the model's code branches on sizes")
def test_a_decoder_that_generates() -> None:
    load_torchvision()
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.randint(3, 50, (2, 4))
    with onnx_aot.observe(model) as observed:
        model.generate(tokens, max_new_tokens=5, do_sample=False, pad_token_id=0)
    decode = observed.kinds[0]
    assert decode.count >= 3
    assert decode.kwargs["input_ids"].shape == (2, 1)
    assert str(decode).startswith(f"{decode.count} calls with")
    program = onnx_aot.export(model, kwargs=decode.kwargs, dynamic_shapes=decode.dynamic_shapes)
    caches = [v for v in program.inputs if v.shape is not None and len(v.shape) == 4]
    assert len(caches) == 4
    assert all(isinstance(v.shape[2], str) for v in caches)  # grows from call to call


@pytest.mark.parametrize("model", [lambda x: x, 3])
def test_only_modules_are_observed(model: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"takes an nn\.Module"), onnx_aot.observe(model):
        pass


def test_no_call() -> None:
    with onnx_aot.observe(Scaled()) as observed:
        pass
    assert str(observed) == "no calls"
    with pytest.raises(InvalidOptionError, match="no call of the model"):
        observed.kwargs  # noqa: B018


def test_parameters_without_names_are_refused() -> None:
    class Sums(torch.nn.Module):
        def forward(self, *xs: Tensor) -> Tensor:
            return sum(xs)  # type: ignore[return-value]

    model = Sums()
    with onnx_aot.observe(model), pytest.raises(InvalidOptionError, match=r"takes \*xs"):
        model(torch.ones(2), torch.ones(2))
    model(torch.ones(2))  # the model has no leftover attributes
