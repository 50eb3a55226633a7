"""Attention on a cache of which it is given a buffer, and masks that tell what it attends to."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import onnx_aot
from onnx_aot.generation.shared_caches import read_lengths_of_mask, states_not_in_place
from onnx_aot.ir_passes import names_of_passes
from tests.tolerances import assert_close

HEADS, GROUPS, WIDTH = 4, 2, 8
ROWS, PAST = 3, 5
Mask = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Makes a mask of indices of keys, of queries, and the padding ``[batch, 1, 1, total]``."""


def causal(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys <= rows) & mask


def from_the_left(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return mask & (rows + 1 > keys)


def window(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys > rows - 4) & (keys <= rows) & mask


def window_from_the_left(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (rows <= keys + 3) & mask & (keys <= rows)


def one_ahead(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys <= rows + 1) & mask


def not_causal(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys > rows - 4) & mask


def without_padding(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys <= rows) & (mask | True)


def chunks(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    return (keys <= rows) & (keys // 4 == rows // 4) & mask


def each_query(keys: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """A query whose own token is padding attends to nothing."""
    return (keys <= rows) & mask & (rows >= 0) & mask.transpose(2, 3)[:, :, -rows.shape[2] :]


class Step(torch.nn.Module):
    """One layer: keys and values of new tokens, behind those of earlier ones."""

    def __init__(self, mask: Mask = causal, width: int = WIDTH, scale: float | None = None) -> None:
        super().__init__()
        self.mask, self.width, self.scale = mask, width, scale

    def forward(
        self, x: Tensor, mask: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        sizes = [heads * self.width for heads in (HEADS, GROUPS, GROUPS)]
        query, key, value = (
            part.view(*part.shape[:2], -1, self.width).transpose(1, 2)
            for part in torch.split(x, sizes, 2)
        )
        keys, values = torch.cat([past_keys, key], 2), torch.cat([past_values, value], 2)
        rows = torch.arange(x.shape[1]) + past_keys.shape[2]
        allowed = self.mask(
            torch.arange(mask.shape[1])[None, None, None, :],
            rows[None, None, :, None],
            mask.bool()[:, None, None, :],
        )
        attended = self.attend(
            query,
            keys.repeat_interleave(HEADS // GROUPS, 1),
            values.repeat_interleave(HEADS // GROUPS, 1),
            allowed,
        )
        return attended.transpose(1, 2).flatten(2), keys, values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            query, keys, values, attn_mask=allowed, scale=self.scale
        )


class Capped(Step):
    """Attention whose scores before the mask are between two numbers, as in Gemma 2."""

    def __init__(self, cap: float, factor: float, mask: Mask = causal) -> None:
        super().__init__(mask)
        self.cap, self.factor = cap, factor

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        scores = query @ keys.transpose(2, 3) * 0.5
        scores = torch.tanh(scores / self.cap) * self.factor
        bias = torch.where(allowed, 0.0, torch.finfo(scores.dtype).min)
        return torch.softmax(scores + bias, -1) @ values


class KeysReadTwice(Step):
    """Keys that the result needs in another way, too."""

    def forward(
        self, x: Tensor, mask: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        attended, keys, values = super().forward(x, mask, past_keys, past_values)
        return attended + keys.sum(), keys, values


class Counting(Step):
    """Tokens that are counted by the length of the cache."""

    def forward(
        self, x: Tensor, mask: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        attended, keys, values = super().forward(x, mask, past_keys, past_values)
        return attended + past_keys.shape[2], keys, values


def inputs(batch: int, rows: int, past: int, width: int = WIDTH) -> tuple[Tensor, ...]:
    """New tokens, a mask without padding, keys and values."""
    draw = torch.Generator().manual_seed(batch + rows + past)
    x = torch.randn(batch, rows, (HEADS + 2 * GROUPS) * width, generator=draw)
    cache = [torch.randn(batch, GROUPS, past, width, generator=draw) for _ in range(2)]
    return x, torch.ones(batch, past + rows, dtype=torch.int64), *cache


def export(model: Step, opset: int = 23, **options: Any) -> onnx_aot.ONNXProgram:
    cache = {0: "batch", 2: "past"}
    return onnx_aot.export(
        model.eval(),
        inputs(2, ROWS, PAST, model.width),
        dynamic_shapes=({0: "batch", 1: "rows"}, {0: "batch", 1: "past + rows"}, cache, cache),
        opset_version=opset,
        optimize={*names_of_passes(), "shared_cache"} - {"attention_of_heads"},
        **options,
    )


def count(program: onnx_aot.ONNXProgram) -> int:
    nodes = collections.Counter(node.op_type for node in program.model.graph)
    assert (nodes["Softmax"] == 0) or not nodes["GroupQueryAttention"]
    return nodes["GroupQueryAttention"]


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize(
    ("mask", "kept"),
    [(causal, -1), (from_the_left, -1), (window, 4), (window_from_the_left, 4)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_masks_that_fit(mask: Mask, kept: int, opset: int) -> None:
    model = Step(mask, scale=0.5)
    program = export(model, opset)
    assert count(program) == 1
    onnx.checker.check_model(program.model_proto, full_check=True)
    (node,) = (n for n in program.model.graph if n.op_type == "GroupQueryAttention")
    assert node.attributes.get_int("local_window_size", -1) == kept
    assert math.isclose(node.attributes["scale"].as_float(), 0.5)
    for sizes in ((2, 6, 0), (3, 1, 7), (1, 4, 5), (1, 1, 0)):
        given = inputs(*sizes)
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)


class Sinks(Step):
    """Attention with another score in each row, whose weight is dropped, as in gpt-oss."""

    def __init__(self, place: int = -1, mask: Mask = causal) -> None:
        super().__init__(mask)
        self.sinks = torch.nn.Parameter(torch.linspace(-1.0, 2.0, HEADS))
        self.place = place

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        scores = query @ keys.transpose(2, 3) * 0.5
        scores = scores + torch.where(allowed, 0.0, torch.finfo(scores.dtype).min)
        sinks = self.sinks[None, :, None, None].expand(*scores.shape[:3], 1)
        if self.place == 0:
            return torch.softmax(torch.cat([sinks, scores], -1), -1)[..., 1:] @ values
        return torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1] @ values


@pytest.mark.parametrize("mask", [causal, window], ids=lambda mask: mask.__name__)
def test_sinks(mask: Mask) -> None:
    model = Sinks(mask=mask)
    program = export(model)
    assert count(program) == 1
    for sizes in ((2, 6, 0), (3, 1, 7), (1, 4, 5), (1, 1, 0)):
        given = inputs(*sizes)
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)
    program.apply_weights({"sinks": torch.zeros(HEADS)})
    with torch.no_grad():
        model.sinks.zero_()
    for found, wanted in zip(program(*given), model(*given), strict=True):
        assert_close(found, wanted)


def test_sinks_in_front() -> None:
    model = Sinks(0)
    program = export(model)
    assert count(program) == 0
    given = inputs(2, 4, 6)
    for found, wanted in zip(program(*given), model(*given), strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("cap", [1.5, -1.5])
@pytest.mark.parametrize("mask", [causal, window], ids=lambda mask: mask.__name__)
def test_scores_with_a_cap(mask: Mask, cap: float) -> None:
    model = Capped(cap, cap, mask)
    program = export(model)
    assert count(program) == 1
    (node,) = (n for n in program.model.graph if n.op_type == "GroupQueryAttention")
    assert node.attributes["softcap"].as_float() == 1.5
    for sizes in ((2, 6, 0), (3, 1, 7), (1, 4, 5), (1, 1, 0)):
        given = inputs(*sizes)
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)
    given = inputs(2, 6, 0)
    capped, others = model(*given)[0], Capped(1e6, 1e6, mask)(*given)[0]
    assert not torch.allclose(capped, others, atol=1e-2)


def test_scores_with_another_factor_than_the_cap() -> None:
    model = Capped(1.5, 2.5)
    program = export(model)
    assert count(program) == 0
    given = inputs(2, 4, 6)
    for found, wanted in zip(program(*given), model(*given), strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize(
    "mask", [one_ahead, not_causal, without_padding, chunks, each_query], ids=lambda m: m.__name__
)
def test_masks_that_do_not_fit(mask: Mask) -> None:
    model = Step(mask)
    program = export(model)
    assert count(program) == 0
    given = inputs(2, 4, 6)
    for found, wanted in zip(program(*given), model(*given), strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("model", [Step(width=6), KeysReadTwice()], ids=["width", "read twice"])
def test_caches_that_do_not_fit(model: Step) -> None:
    program = export(model)
    assert count(program) == 0
    given = inputs(2, 4, 6, model.width)
    for found, wanted in zip(program(*given), model(*given), strict=True):
        assert_close(found, wanted)


def test_only_where_it_is_named() -> None:
    program = onnx_aot.export(
        Step(),
        inputs(2, ROWS, PAST),
        dynamic_shapes=(
            {0: "batch", 1: "rows"},
            {0: "batch", 1: "past + rows"},
            *[{0: "batch", 2: "past"}] * 2,
        ),
        opset_version=23,
        contrib_ops=True,
    )
    assert count(program) == 0


def make_buffers(batch: int) -> list[onnxruntime.OrtValue]:
    """Keys and values of 12 positions, which are all NaN."""
    empty = [np.full((batch, GROUPS, 12, WIDTH), math.nan, np.float32) for _ in range(2)]
    return [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in empty]  # shares memory


def run_in_place(
    session: onnxruntime.InferenceSession, x: Tensor, mask: Tensor, buffers: Sequence[Any]
) -> Tensor:
    """Returns the first output; the others stand in the buffers then."""
    given, returned = session.get_inputs(), session.get_outputs()
    binding = session.io_binding()
    binding.bind_cpu_input(given[0].name, x.numpy())
    binding.bind_cpu_input(given[1].name, mask.numpy())
    binding.bind_output(returned[0].name)
    for index, buffer in enumerate(buffers):
        binding.bind_ortvalue_input(given[2 + index].name, buffer)
        binding.bind_ortvalue_output(returned[1 + index].name, buffer)
    session.run_with_iobinding(binding)
    return torch.from_numpy(binding.get_outputs()[0].numpy())


def test_lengths_of_buffers_are_not_read() -> None:
    """Buffers do not tell how many tokens there were."""
    names = ["input_ids", "attention_mask", "past_key_values.0.key", "past_key_values.0.value"]
    program = export(Counting(), input_names=names)
    assert count(program) == 1
    assert states_not_in_place(program) == []
    read_lengths_of_mask(program)
    onnx.checker.check_model(program.model_proto, full_check=True)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x, mask, *_ = inputs(1, 6, 0)
    buffers, none = make_buffers(1), torch.zeros(1, GROUPS, 0, WIDTH)
    run_in_place(session, x[:, :4], mask[:, :4], buffers)
    found = run_in_place(session, x[:, 4:], mask, buffers)
    _, keys, values = Counting()(x[:, :4], mask[:, :4], none, none)
    assert_close(found, Counting()(x[:, 4:], mask, keys, values)[0])


def test_padding_in_front_and_behind() -> None:
    """The first step of two rows, and one more token for each, in buffers of 12 positions."""
    model = Step(window)
    session = onnxruntime.InferenceSession(export(model).model_proto.SerializeToString())
    x, mask, *_ = inputs(2, 6, 0)
    mask[0, :2] = 0
    mask[1, 4:] = 0
    buffers = make_buffers(2)
    first = run_in_place(session, x, mask, buffers)
    later, one, *_ = inputs(2, 1, 0)
    second = run_in_place(session, later, torch.cat([mask, one], 1), buffers)
    for row, tokens in enumerate((slice(2, 6), slice(0, 4))):
        text = torch.cat([x[row, tokens], later[row]])[None]
        none = torch.zeros(1, GROUPS, 0, WIDTH)
        wanted, *_ = model(text, torch.ones(1, 5, dtype=torch.int64), none, none)
        assert_close(first[row, tokens], wanted[0, :4])
        assert_close(second[row], wanted[0, 4:])
    assert not first[0, :2].any()
