"""Attention, images and recurrent layers are correct at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.models.every_size import SizeCase, check, parametrize
from tests.ops.rows import bools, floats, ints

# --- products and attention ----------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5
    length, total = scores.shape[-2:]
    keep = torch.ones(length, total, dtype=torch.bool).tril(total - length)
    return scores.masked_fill(~keep, -1e9).softmax(-1) @ v


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True).eval()

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x)


QKV = (floats("n", "h", "l", 4), floats("n", "h", "m", 4), floats("n", "h", "m", 4))
SAME = (floats("n", "h", "l", 4), floats("n", "h", "l", 4), floats("n", "h", "l", 4))

PRODUCTS = [
    SizeCase("matmul", torch.matmul, (floats("n", "m"), floats("m", "k"))),
    SizeCase("matmul_vector", torch.matmul, (floats("n", "m"), floats("m"))),
    SizeCase("matmul_batched", torch.matmul, (floats("k", "n", "m"), floats("m", 3))),
    SizeCase("bmm", torch.bmm, (floats("n", "m", "k"), floats("n", "k", "l"))),
    SizeCase("baddbmm", torch.baddbmm, (floats("l"), floats("n", "m", "k"), floats("n", "k", "l"))),
    SizeCase("linear", nn.Linear(4, 3), (floats("n", "m", 4),)),
    SizeCase("addmm", torch.addmm, (floats("k"), floats("n", "m"), floats("m", "k"))),
    SizeCase("outer", torch.outer, (floats("n"), floats("m"))),
    SizeCase("dot", torch.dot, (floats("n"), floats("n"))),
    SizeCase(
        "tensordot",
        lambda x, y: torch.tensordot(x, y, dims=([1], [0])),
        (floats("n", "m"), floats("m", "k", 2)),
    ),
    SizeCase("kron", torch.kron, (floats("n", 2), floats("m", 3))),
    SizeCase(
        "einsum",
        lambda x, y: torch.einsum("bij,bjk->bik", x, y),
        (floats("n", "m", "k"), floats("n", "k", "l")),
    ),
    SizeCase(
        "einsum_outer", lambda x, y: torch.einsum("i,j->ji", x, y), (floats("n"), floats("m"))
    ),
    SizeCase("einsum_heads", lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), QKV[:2], least=1),
    SizeCase(
        "einsum_sum",
        lambda x, y: torch.einsum("bij,ij->b", x, y),
        (floats("n", "m", "k"), floats("m", "k")),
    ),
    SizeCase("attention", attention, QKV),
    SizeCase("attention_causal", causal, SAME),
    SizeCase("attention_causal_lengths", causal, QKV),
    SizeCase("attention_mask", masked, (*QKV, bools("l", "m"))),
    SizeCase("attention_float_mask", masked, (*QKV, floats("n", 1, "l", "m"))),
    SizeCase("attention_by_hand", by_hand, QKV),
    SizeCase("multi_head", SelfAttention().eval(), (floats("n", "l", 6),), least=1),
    SizeCase(
        "encoder_layer",
        nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval(),
        (floats("n", "l", 6),),
    ),
]

# --- images --------------------------------------------------------------------------------------


def pooled(*sizes: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.adaptive_avg_pool2d(x, sizes)


IMAGE = floats("n", 2, "h", "w")
TO_12 = ({"h": 12, "w": 12}, {"h": 7, "w": 5}, {"h": 2, "w": 1}, {"h": 6, "w": 3})
SQUARE = {"h": 9, "w": 9}

IMAGES = [
    SizeCase("adaptive_avg_1", pooled(1, 1), (IMAGE,), SQUARE, TO_12),
    SizeCase("adaptive_avg_3", pooled(3, 3), (IMAGE,), SQUARE, TO_12),
    SizeCase("adaptive_avg_7", pooled(7, 7), (IMAGE,), SQUARE, TO_12),
    SizeCase("adaptive_avg_1_5", pooled(1, 5), (IMAGE,), SQUARE, TO_12),
    SizeCase("adaptive_avg_none", pooled(None, 4), (IMAGE,), SQUARE, TO_12),
    SizeCase(
        "adaptive_avg_half",
        lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, 2)),
        (IMAGE,),
        SQUARE,
        TO_12,
    ),
    SizeCase("adaptive_avg_unbatched", pooled(3, 2), (floats(2, "h", "w"),), SQUARE, TO_12),
    SizeCase("adaptive_avg_1d", lambda x: F.adaptive_avg_pool1d(x, 4), (floats("n", 2, "w"),)),
    SizeCase(
        "adaptive_avg_3d",
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)),
        (floats("n", 2, "k", "h", "w"),),
    ),
    SizeCase("adaptive_max_3", lambda x: F.adaptive_max_pool2d(x, 3), (IMAGE,), SQUARE, TO_12),
    SizeCase(
        "adaptive_max_indices",
        lambda x: F.adaptive_max_pool2d(x, (2, 5), return_indices=True),
        (IMAGE,),
        SQUARE,
        TO_12,
    ),
    SizeCase("max_pool", lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    SizeCase("max_pool_ceil", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    SizeCase("avg_pool", lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    SizeCase(
        "avg_pool_ceil",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (IMAGE,),
    ),
    SizeCase(
        "avg_pool_whole",
        lambda x: F.avg_pool2d(x, x.shape[2:]),
        (IMAGE,),
    ),
    SizeCase("avg_pool1d_whole", lambda x: F.avg_pool1d(x, x.shape[2]), (floats("n", 2, "w"),)),
    SizeCase(
        "avg_pool3d_whole", lambda x: F.avg_pool3d(x[None], x.shape[1:], ceil_mode=True), (IMAGE,)
    ),
    SizeCase("max_pool_whole", lambda x: F.max_pool2d(x, x.shape[2:]) * x, (IMAGE,)),
    SizeCase("max_pool1d_whole", lambda x: F.max_pool1d(x, x.size(2), 1), (floats("n", 2, "w"),)),
    SizeCase(
        "avg_pool_half",
        lambda x: F.avg_pool2d(x, (x.shape[2] // 2, 1)),
        (IMAGE,),
        error="right for .* only",
    ),
    SizeCase(
        "max_pool_whole_padded",
        lambda x: F.max_pool2d(x, x.shape[2:], padding=1),
        (IMAGE,),
        error=r"axis 2 \(.h.\): fixed at 9",
    ),
    SizeCase("lp_pool", lambda x: F.lp_pool1d(x.abs(), 2, 3), (floats("n", 2, "w"),)),
    SizeCase("conv", nn.Conv2d(2, 3, 3, 2, 1), (IMAGE,)),
    SizeCase("conv_same", nn.Conv2d(2, 3, 4, padding="same"), (IMAGE,)),
    SizeCase("conv_transpose", nn.ConvTranspose2d(2, 3, 3, 2, 1), (IMAGE,)),
    SizeCase("conv_unbatched", nn.Conv1d(2, 3, 3, padding=1), (floats(2, "w"),)),
    SizeCase("nearest_by_scale", lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    SizeCase("nearest_by_fraction", lambda x: F.interpolate(x, scale_factor=0.6), (IMAGE,)),
    SizeCase(
        "bilinear_by_scale", lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), (IMAGE,)
    ),
    SizeCase(
        "bilinear_aligned",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    SizeCase("bilinear_to_size", lambda x: F.interpolate(x, (5, 7), mode="bilinear"), (IMAGE,)),
    SizeCase(
        "bilinear_to_1",
        lambda x: F.interpolate(x, (1, 7), mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    SizeCase(
        "bilinear_to_other",
        lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear"),
        (IMAGE, floats(1, 1, "m", "k")),
    ),
    SizeCase(
        "aligned_to_other",
        lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear", align_corners=True),
        (IMAGE, floats(1, 1, "m", "k")),
    ),
    SizeCase(
        "bicubic_to_half",
        lambda x: F.interpolate(x, (x.shape[2] // 2, x.shape[3] * 2), mode="bicubic"),
        (IMAGE,),
    ),
    SizeCase(
        "bicubic_aligned_to_other",
        lambda x, y: F.interpolate(x, y.shape[2:], mode="bicubic", align_corners=True),
        (IMAGE, floats(1, 1, "m", "k")),
    ),
    SizeCase(
        "nearest_exact",
        lambda x: F.interpolate(x, (x.shape[2] + 3, 5), mode="nearest-exact"),
        (IMAGE,),
    ),
    SizeCase("area", lambda x: F.interpolate(x, (3, 4), mode="area"), (IMAGE,)),
    SizeCase(
        "linear_to_other",
        lambda x, y: F.interpolate(x, y.shape[0], mode="linear", align_corners=True),
        (floats("n", 2, "w"), floats("m")),
    ),
    SizeCase(
        "trilinear",
        lambda x: F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=True),
        (floats("n", 1, "k", "h", "w"),),
    ),
    SizeCase(
        "antialias", lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (IMAGE,)
    ),
    SizeCase(
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (IMAGE, floats("n", "m", "k", 2, low=-1.2, high=1.2)),
    ),
    SizeCase(
        "affine_grid",
        lambda t, x: F.affine_grid(t, [t.shape[0], 1, x.shape[0], x.shape[1]], align_corners=False),
        (floats("n", 2, 3), floats("h", "w")),
    ),
]

# --- recurrent layers ----------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A recurrent layer that takes its input and states as separate arguments."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = kind(3, 4, **options).eval()

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        if not states:
            return self.layer(x)
        return self.layer(x, states if len(states) == 2 else states[0])


def packed(x: Tensor, lengths: Tensor) -> Tensor:
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    return PACKED(sequence)[1]


PACKED = nn.GRU(3, 4).eval()
TIMES = floats("l", "n", 3)
BATCHES = floats("n", "l", 3)

RECURRENT = [
    SizeCase(f"{kind.__name__.lower()}_{name}", Recurrent(kind, **options), args, least=1)
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for name, options, args in (
        ("plain", {}, (TIMES,)),
        ("batch_first", {"batch_first": True}, (BATCHES,)),
        ("bidirectional", {"bidirectional": True}, (TIMES,)),
        ("layers", {"num_layers": 2, "bias": False}, (TIMES,)),
        ("everything", {"num_layers": 2, "bidirectional": True, "batch_first": True}, (BATCHES,)),
        ("unbatched", {"bidirectional": True}, (floats("l", 3),)),
    )
]
RECURRENT += [
    SizeCase(
        "lstm_states", Recurrent(nn.LSTM), (TIMES, floats(1, "n", 4), floats(1, "n", 4)), least=1
    ),
    SizeCase("gru_states", Recurrent(nn.GRU, num_layers=2), (TIMES, floats(2, "n", 4)), least=1),
    SizeCase("rnn_states", Recurrent(nn.RNN, bidirectional=True), (TIMES, floats(2, "n", 4))),
    SizeCase(
        "lstm_states_unbatched", Recurrent(nn.LSTM), (floats("l", 3), floats(1, 4), floats(1, 4))
    ),
    SizeCase("lstm_projected", Recurrent(nn.LSTM, proj_size=2), (TIMES,)),
    SizeCase("rnn_relu", Recurrent(nn.RNN, nonlinearity="relu", batch_first=True), (BATCHES,)),
    SizeCase("lstm_cell", nn.LSTMCell(3, 4), (floats("n", 3),), least=1),
    SizeCase("gru_packed", packed, (TIMES, ints("n", low=1, high=2)), least=1),
]


@parametrize([*PRODUCTS, *IMAGES, *RECURRENT])
def test_at_every_size(case: SizeCase) -> None:
    check(case)
