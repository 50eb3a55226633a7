"""Sizes, views, reductions and selections are right at every size."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.models.every_size import SizeCase, check, parametrize
from tests.ops.rows import bools, floats, ints

# --- sizes that are computed ---------------------------------------------------------------------


def size_arithmetic(x: Tensor) -> list[int]:
    n = x.shape[0]
    return [
        -(-n // 4),
        (n - 7) // 2,
        (n - 7) // -2,
        n % 3,
        (n - 7) % 3,
        (7 - n) % 3,
        -n // 3,
        max(n - 5, 2),
        min(n, 3) * n,
        abs(n - 4),
        n**2,
        int(n / 3),
        round(n / 2),
        int((n - 7) / 2),
    ]


def negative_modulus(x: Tensor) -> list[int]:
    n = x.shape[0]
    return [n % -3, (n - 7) % -3]


def two_sizes(x: Tensor, y: Tensor) -> list[int]:
    n, m = x.shape[0], y.shape[0]
    return [n * m, n - m, (n - m) // 2, (n - m) % 5, n // (m + 1), (n + m) // 3 * 2]


SYMBOLS = [
    SizeCase("size_arithmetic", size_arithmetic, (floats("n"),)),
    SizeCase("size_modulo_negative", negative_modulus, (floats("n"),)),
    SizeCase("sizes_of_two", two_sizes, (floats("n"), floats("m"))),
    SizeCase("numbers", lambda x, k: (x * k, x + k // 2, k % 3), (floats("n"), "k")),
    SizeCase("numel", lambda x: x / max(x.numel(), 1), (floats("n", "m"),)),
    SizeCase(
        "ceil_padding",
        lambda x: F.pad(x, (0, -(-x.shape[1] // 4) * 4 - x.shape[1])),
        (floats("n", "m"),),
    ),
    SizeCase(
        "pad_to_even",
        lambda x: F.pad(x, (0, x.shape[1] % 2, 0, x.shape[0] % 2)),
        (floats("n", "m"),),
    ),
]

# --- tensors of computed sizes -------------------------------------------------------------------

CREATION = [
    SizeCase("arange", lambda x: torch.arange(x.shape[0]) + x, (floats("n"),)),
    SizeCase("arange_from", lambda x: torch.arange(1, x.shape[0] * 2 + 1, 2) * x, (floats("n"),)),
    SizeCase("arange_down", lambda x: torch.arange(x.shape[0], 0, -1), (floats("n"),)),
    SizeCase("arange_step", lambda x: torch.arange(0, x.shape[0], 3), (floats("n"),)),
    SizeCase("arange_float", lambda x: torch.arange(0.5, x.shape[0], 0.75), (floats("n"),)),
    SizeCase("full", lambda x: torch.full((x.shape[1], x.shape[0]), 2.5), (floats("n", "m"),)),
    SizeCase(
        "full_of_size", lambda x: torch.full((2, x.shape[0]), x.shape[1]), (floats("n", "m"),)
    ),
    SizeCase("zeros", lambda x: torch.cat([x, torch.zeros(2, x.shape[1])]), (floats("n", "m"),)),
    SizeCase("ones", lambda x: torch.ones(x.shape[0] + 1, x.shape[1] // 2), (floats("n", "m"),)),
    SizeCase("new_zeros", lambda x: x.new_zeros(x.shape[1], 2, x.shape[0]), (floats("n", "m"),)),
    SizeCase("empty_like", lambda x: torch.empty_like(x).fill_(3), (floats("n", "m"),)),
    SizeCase("eye", lambda x: torch.eye(x.shape[0]), (floats("n", "m"),)),
    SizeCase("eye_wide", lambda x: torch.eye(x.shape[0], x.shape[1]), (floats("n", "m"),)),
    SizeCase("linspace", lambda x: torch.linspace(-1, 1, x.shape[0]), (floats("n"),)),
    SizeCase("linspace_end", lambda x: torch.linspace(0, x.shape[0], 5), (floats("n"),)),
    SizeCase("logspace", lambda x: torch.logspace(0, 1, x.shape[0]), (floats("n"),)),
    SizeCase(
        "tril_indices",
        lambda x: torch.tril_indices(x.shape[0], x.shape[1]),
        (floats("n", "m"),),
    ),
    SizeCase("causal_mask", lambda x: torch.full((x.shape[0],) * 2, -1e9).triu(1), (floats("n"),)),
    SizeCase("hann_window", lambda x: torch.hann_window(x.shape[0]), (floats("n"),)),
    SizeCase(
        "meshgrid",
        lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij"),
        (floats("n", "m"),),
    ),
    SizeCase("cartesian_prod", torch.cartesian_prod, (floats("n"), floats("m"))),
    SizeCase("tensor_of_size", lambda x: x.sum() / torch.tensor(x.shape[0] + 1), (floats("n"),)),
    SizeCase("scalar_tensor", lambda x: torch.scalar_tensor(x.shape[0]) + x, (floats("n"),)),
]

# --- views ---------------------------------------------------------------------------------------

VIEWS = [
    SizeCase(
        "reshape_merge", lambda x: x.reshape(x.shape[0] * x.shape[1], 3), (floats("n", "m", 3),)
    ),
    SizeCase(
        "reshape_swap", lambda x: x.reshape(x.shape[1], x.shape[0], -1), (floats("n", "m", 3),)
    ),
    SizeCase("reshape_rest", lambda x: x.reshape(-1, 2), (floats("n", "m", 4),)),
    SizeCase(
        "reshape_two_rest",
        lambda x: x.reshape(x.shape[0], x.shape[1] * 2, -1),
        (floats("n", "m", 6),),
    ),
    SizeCase(
        "reshape_split", lambda x: x.view(x.shape[0], x.shape[1], 2, 3), (floats("n", "m", 6),)
    ),
    SizeCase(
        "view_heads", lambda x: x.view(x.shape[0], -1, 2, 3).transpose(1, 2), (floats("n", "m", 6),)
    ),
    SizeCase(
        "view_back",
        lambda x: x.transpose(1, 2).reshape(x.shape[0], -1, 6),
        (floats("n", 2, "m", 3),),
    ),
    SizeCase("flatten", lambda x: x.flatten(), (floats("n", "m", 3),)),
    SizeCase("flatten_from", lambda x: x.flatten(1), (floats("n", "m", 3),)),
    SizeCase("flatten_to", lambda x: x.flatten(0, 1), (floats("n", "m", 3),)),
    SizeCase("unflatten", lambda x: x.unflatten(1, (2, 3)), (floats("n", 6, "m"),)),
    SizeCase("unflatten_rest", lambda x: x.unflatten(0, (-1, 1)), (floats("n", "m"),)),
    SizeCase("view_as", lambda x, y: x.view_as(y), (floats("n", "m"), floats("n", "m"))),
    SizeCase(
        "expand",
        lambda x, y: x.expand(y.shape[0], -1, y.shape[1]),
        (floats("k", 1), floats("n", "m")),
    ),
    SizeCase("expand_as", lambda x, y: x[:, None].expand_as(y), (floats("n"), floats("n", "m"))),
    SizeCase("repeat", lambda x: x.repeat(2, x.shape[0]), (floats("n", "m"),)),
    SizeCase("repeat_interleave", lambda x: x.repeat_interleave(3, 0), (floats("n", "m"),)),
    SizeCase(
        "repeat_interleave_size", lambda x: x.repeat_interleave(x.shape[0], 1), (floats("n", "m"),)
    ),
    SizeCase("repeat_interleave_flat", lambda x: x.repeat_interleave(2), (floats("n", "m"),)),
    SizeCase(
        "repeat_interleave_counts",
        lambda x, c: x.repeat_interleave(c, 0),
        (floats("n", "m"), ints("n", low=0, high=4)),
    ),
    SizeCase("tile", lambda x: x.tile(x.shape[1], 2), (floats("n", "m"),)),
    SizeCase(
        "permute", lambda x: x.permute(2, 0, 1).contiguous().view(3, -1), (floats("n", "m", 3),)
    ),
    SizeCase("movedim", lambda x: x.movedim(0, -1), (floats("n", "m", 3),)),
    SizeCase("diagonal", lambda x: x.diagonal(), (floats("n", "m"),)),
    SizeCase("diagonal_off", lambda x: x.diagonal(2), (floats("n", "m"),)),
    SizeCase("diag_embed", lambda x: x.diag_embed(1), (floats("n", "m"),)),
    SizeCase("unfold", lambda x: x.unfold(1, 3, 2), (floats("n", "m"),)),
    SizeCase("unfold_all", lambda x: x.unfold(0, 1, 1), (floats("n", "m"),)),
    SizeCase("im2col", lambda x: F.unfold(x, 3, padding=1), (floats("n", 2, "h", "w"),)),
    SizeCase("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (floats("n", 8, "h", "w"),)),
    SizeCase(
        "pixel_unshuffle",
        lambda x: F.pixel_unshuffle(x, 2),
        (floats("n", 2, "h", "w"),),
        {"h": 8},
        ({"h": 12, "w": 4},),
        least=1,
    ),
    SizeCase("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (floats("n", 4, "h", "w"),)),
    SizeCase("as_strided", lambda x: x.as_strided((x.shape[0],), (1,)), (floats("n", 3),)),
    SizeCase("unbind_static", lambda x: x.unbind(1), (floats("n", 3),)),
    SizeCase(
        "squeeze_dynamic",
        lambda x: x.squeeze(0),
        (floats("n", "m"),),
        sizes=({"n": 2}, {"n": 5}),
        least=2,
        warning=r"at every size: axis 0 \(n\) at .*every_size\.py:",
    ),
    SizeCase("squeeze_doubled", lambda x: torch.cat([x, x]).squeeze(), (floats("n", 1, 3),)),
    SizeCase("squeeze_static", lambda x: x.squeeze(1), (floats("n", 1, "m"),)),
    SizeCase("stack", lambda x: torch.stack([x, x + 1], -1), (floats("n", "m"),)),
]

# --- slices and parts ----------------------------------------------------------------------------


def halves(x: Tensor) -> Tensor:
    """A single row gives only one part, which is an error in PyTorch."""
    left, right = x.chunk(2)
    return torch.cat([left * 2, right])


def each_of_three(x: Tensor) -> Tensor:
    """Four rows give two parts and one row gives one."""
    return torch.cat([part * (index + 1) for index, part in enumerate(x.chunk(3))])


SLICES = [
    SizeCase("slice_past_the_end", lambda x: x[2:100], (floats("n", "m"),)),
    SizeCase("slice_from_past_the_end", lambda x: x[5:], (floats("n", "m"),)),
    SizeCase("slice_negative_start", lambda x: x[-3:], (floats("n", "m"),)),
    SizeCase("slice_negative_end", lambda x: x[:, :-2], (floats("n", "m"),)),
    SizeCase("slice_both_negative", lambda x: x[-5:-1], (floats("n", "m"),)),
    SizeCase("slice_steps", lambda x: x[1::2, ::3], (floats("n", "m"),)),
    SizeCase(
        "slice_half", lambda x: (x[: x.shape[0] // 2], x[x.shape[0] // 2 :]), (floats("n", "m"),)
    ),
    SizeCase("slice_by_other", lambda x, y: x[: y.shape[0]], (floats("n"), floats("m"))),
    SizeCase("slice_by_difference", lambda x, y: x[y.shape[0] - 3 :], (floats("n"), floats("m"))),
    SizeCase("slice_last", lambda x: x[:, -1], (floats("n", "m"),)),
    SizeCase(
        "slice_write",
        lambda x: x.clone().index_fill_(0, torch.tensor([0]), 2.0),
        (floats("n", "m"),),
        least=1,
    ),
    SizeCase("narrow", lambda x: x.narrow(1, 1, x.shape[1] - 1), (floats("n", "m"),)),
    SizeCase("select_middle", lambda x: x.select(1, x.shape[1] // 2), (floats("n", "m"),)),
    SizeCase("split_static_axis", lambda x: x.split([2, 4], 1), (floats("n", 6),)),
    SizeCase("split_sizes", lambda x: x.split([1, x.shape[0] - 1]), (floats("n", 3),)),
    SizeCase(
        "split_halves",
        lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2]),
        (floats("n", 3),),
    ),
    SizeCase(
        "split_dynamic",
        lambda x: x.split(2),
        (floats("n", 3),),
        {"n": 4},
        error="cut into 2 pieces",
    ),
    SizeCase("chunk_dynamic", halves, (floats("n", 3),)),
    # ONNX Runtime raises an error for empty inputs, which have pieces of no size.
    SizeCase("chunk_of_three", each_of_three, (floats("n", 3),), {"n": 7}, least=1),
    SizeCase("chunk_static_axis", lambda x: x.chunk(3, 1), (floats("n", 7),)),
    SizeCase("tensor_split_dynamic", lambda x: x.tensor_split(3), (floats("n", 3),)),
    SizeCase("tensor_split_at", lambda x: x.tensor_split((1, 3), 1), (floats("n", "m"),), least=1),
    SizeCase("hsplit_static", lambda x: x.hsplit(2), (floats("n", 4),)),
    SizeCase("cat_sizes", lambda x, y: torch.cat([x, y, x]), (floats("n", 3), floats("m", 3))),
    SizeCase(
        "cat_other_axis", lambda x, y: torch.cat([x, y], 1), (floats("n", "m"), floats("n", "k"))
    ),
    SizeCase("roll", lambda x: x.roll(1, 0), (floats("n", "m"),)),
    SizeCase("roll_negative", lambda x: x.roll((-2, 3), (0, 1)), (floats("n", "m"),)),
    SizeCase("roll_flat", lambda x: x.roll(5), (floats("n", "m"),)),
    SizeCase("roll_by_size", lambda x: x.roll(x.shape[1] // 2, 0), (floats("n", "m"),)),
    SizeCase("roll_by_number", lambda x, k: x.roll(k, 0), (floats("n", "m"), "k")),
    SizeCase("flip", lambda x: x.flip(0, 1), (floats("n", "m"),)),
    SizeCase("rot90", lambda x: x.rot90(), (floats("n", "m"),)),
    SizeCase("tril", lambda x: x.tril(), (floats("n", "m"),)),
    SizeCase("triu", lambda x: x.triu(-1), (floats("n", "m"),)),
    SizeCase("triu_by_size", lambda x: x.triu(x.shape[1] - x.shape[0]), (floats("n", "m"),)),
    SizeCase(
        "pad_by_other", lambda x, y: F.pad(x, (y.shape[0], 1)), (floats("n", "m"), floats("k"))
    ),
    SizeCase("pad_negative", lambda x: F.pad(x, (-1, 2)), (floats("n", "m"),)),
    SizeCase("pad_reflect", lambda x: F.pad(x, (1, 1), mode="reflect"), (floats("n", "m"),)),
    SizeCase(
        "pad_replicate",
        lambda x: F.pad(x, (2, x.shape[1] // 2), mode="replicate"),
        (floats("n", "m"),),
    ),
    SizeCase(
        "pad_circular", lambda x: F.pad(x, (1, 1), mode="circular"), (floats("n", 2, "m"),), least=1
    ),
]

# --- broadcasting --------------------------------------------------------------------------------

BROADCASTING = [
    SizeCase("add", torch.add, (floats("n", "m"), floats("m"))),
    SizeCase("add_example_1", torch.add, (floats("n", "m"), floats("n", "m")), {"n": 1}),
    SizeCase("add_column", torch.add, (floats("n", 1), floats("m"))),
    SizeCase("add_one_dynamic", torch.add, (floats("n", 3), floats(4, 3)), error="n"),
    SizeCase("add_one_dynamic_1", torch.add, (floats("n", 3), floats(1, 3))),
    SizeCase("add_one_dynamic_example_1", torch.add, (floats("n", 3), floats(1, 3)), {"n": 1}),
    SizeCase("where", torch.where, (bools("n", 1), floats("m"), floats("n", "m"))),
    SizeCase("batched_times", lambda x, y: x[:, None] * y[None], (floats("n", 3), floats("m", 3))),
    SizeCase(
        "broadcast_to",
        lambda x, y: torch.broadcast_to(x, (y.shape[0], *x.shape)),
        (floats("m"), floats("n")),
    ),
    SizeCase(
        "broadcast_tensors",
        torch.broadcast_tensors,
        (floats("n", 1), floats("m")),
    ),
    SizeCase("cdist", torch.cdist, (floats("n", 3), floats("m", 3))),
]
"""A size of 1 in the example is not assumed to be 1."""

# --- reductions ----------------------------------------------------------------------------------

REDUCTIONS = [
    SizeCase("sum", lambda x: (x.sum(), x.sum(0), x.sum((0, 1), True)), (floats("n", "m"),)),
    SizeCase("mean", lambda x: (x.mean(), x.mean(1)), (floats("n", "m"),)),
    SizeCase("prod", lambda x: (x.prod(), x.prod(1)), (floats("n", "m"),)),
    SizeCase("var", lambda x: (x.var(1), x.std(0, unbiased=False)), (floats("n", "m"),)),
    SizeCase("amax", lambda x: x.amax(1), (floats("n", "m"),)),
    SizeCase("max", lambda x: x.max(1), (floats("n", "m"),)),
    SizeCase("argmin", lambda x: x.argmin(0), (floats("n", "m"),)),
    SizeCase("median", lambda x: x.median(1), (floats("n", "m"),)),
    SizeCase("all_any", lambda x: ((x > 0).all(), (x > 0).any(1)), (floats("n", "m"),)),
    SizeCase("norm", lambda x: (x.norm(), x.norm(dim=1), x.norm(1, 0)), (floats("n", "m"),)),
    SizeCase("logsumexp", lambda x: x.logsumexp(1), (floats("n", "m"),)),
    SizeCase("softmax", lambda x: (x.softmax(1), x.log_softmax(0)), (floats("n", "m"),)),
    SizeCase("cumsum", lambda x: (x.cumsum(0), x.cumsum(1)), (floats("n", "m"),)),
    SizeCase("cumprod", lambda x: x.cumprod(1), (floats("n", "m"),)),
    SizeCase("cummax", lambda x: x.cummax(1), (floats("n", "m"),)),
    SizeCase("logcumsumexp", lambda x: x.logcumsumexp(1), (floats("n", "m"),)),
    SizeCase("diff", lambda x: x.diff(dim=1), (floats("n", "m"),)),
    SizeCase("sort", lambda x: x.sort(1), (floats("n", "m"),)),
    SizeCase("argsort", lambda x: x.argsort(0, descending=True), (floats("n", "m"),)),
    SizeCase("topk_of_size", lambda x: x.topk(x.shape[1] // 2, 1), (floats("n", "m"),)),
    SizeCase("topk_limited", lambda x: x.topk(min(x.shape[1], 4), 1), (floats("n", "m"),)),
    SizeCase("kthvalue", lambda x: x.kthvalue(1, 1), (floats("n", "m"),)),
    SizeCase("count_nonzero", lambda x: x.count_nonzero(1), (ints("n", "m", low=-1, high=2),)),
    SizeCase("bincount", lambda x: torch.bincount(x, minlength=4), (ints("n", low=0, high=4),)),
    SizeCase("histc", lambda x: torch.histc(x, 4, -3, 3), (floats("n"),)),
    SizeCase("layer_norm", lambda x: F.layer_norm(x, (6,)), (floats("n", "m", 6),)),
    SizeCase(
        "layer_norm_dynamic", lambda x: F.layer_norm(x, x.shape[1:]), (floats("n", "m"),), least=1
    ),
    SizeCase("group_norm", lambda x: F.group_norm(x, 2), (floats("n", 4, "h", "w"),)),
    SizeCase("instance_norm", F.instance_norm, (floats("n", 2, "h", "w"),), {"n": 2}),
    SizeCase("batch_norm", nn.BatchNorm2d(3).eval(), (floats("n", 3, "h", "w"),)),
    SizeCase("cross_entropy", F.cross_entropy, (floats("n", 5), ints("n", low=0, high=5))),
]
"""Reductions also work on empty tensors."""

# --- choosing elements ---------------------------------------------------------------------------


def scattered(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(1, index, x)


def index_put(x: Tensor, index: Tensor) -> Tensor:
    x = x.clone()
    x[index] = 7.0
    return x


def index_put_pairs(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return x.index_put((i, j), torch.tensor(2.0))


def slice_put(x: Tensor) -> Tensor:
    x = x.clone()
    x[1:, : x.shape[1] // 2] = 5.0
    x[-1:] += 1
    return x


def mask_put(x: Tensor) -> Tensor:
    x = x.clone()
    x[x > 0] = 0.0
    return x


CHOICES = [
    SizeCase(
        "gather", lambda x, i: x.gather(1, i), (floats("n", 5), ints("n", "m", low=0, high=5))
    ),
    SizeCase(
        "index_select",
        lambda x, i: x.index_select(0, i),
        (floats(5, "m"), ints("n", low=0, high=5)),
    ),
    SizeCase("index", lambda x, i: x[i], (floats(5, "m"), ints("n", "k", low=-5, high=5))),
    SizeCase(
        "index_two",
        lambda x, i, j: x[i, :, j],
        (floats(5, "m", 4), ints("n", low=0, high=5), ints("n", low=0, high=4)),
    ),
    SizeCase(
        "index_with_arange",
        lambda x, i: x[torch.arange(x.shape[0]), i],
        (floats("n", 5), ints("n", low=0, high=5)),
    ),
    SizeCase(
        "index_last", lambda x, i: x[torch.arange(x.shape[0]), -1], (floats("n", "m"), ints("n"))
    ),
    SizeCase(
        "take_along_dim",
        lambda x: torch.take_along_dim(x, x.argsort(1), 1),
        (floats("n", "m"),),
    ),
    SizeCase("take", lambda x: x.take(torch.arange(x.numel())), (floats("n", "m"),)),
    SizeCase(
        "embedding", lambda w, i: F.embedding(i, w), (floats(5, "k"), ints("n", "m", low=0, high=5))
    ),
    SizeCase("one_hot", lambda i: F.one_hot(i, 5), (ints("n", "m", low=0, high=5),)),
    SizeCase(
        "one_hot_of_size",
        lambda i: F.one_hot(i % i.shape[0], i.shape[0]),
        (ints("n", low=0, high=5),),
    ),
    SizeCase("scatter_add", scattered, (floats("n", 5), ints("n", 5, low=0, high=5))),
    SizeCase(
        "scatter_value",
        lambda x, i: x.scatter(0, i, 1.0),
        (floats("n", "m"), ints(1, "m", low=0, high=1)),
    ),
    SizeCase(
        "scatter_reduce",
        lambda x, i: torch.zeros(5).scatter_reduce(0, i, x, "amax"),
        (floats("n"), ints("n", low=0, high=5)),
    ),
    SizeCase(
        "index_add",
        lambda x, i: torch.zeros(5, x.shape[1]).index_add(0, i, x),
        (floats("n", "m"), ints("n", low=0, high=5)),
    ),
    SizeCase(
        "index_copy",
        lambda x, i: x.index_copy(0, i, x[:1] * 2),
        (floats("n", "m"), ints(1, low=0, high=1)),
    ),
    SizeCase("index_put", index_put, (floats(5, "m"), ints("n", low=0, high=5))),
    SizeCase(
        "index_put_pairs",
        index_put_pairs,
        (floats(5, 4), ints("n", low=0, high=5), ints("n", low=0, high=4)),
    ),
    SizeCase("slice_put", slice_put, (floats("n", "m"),)),
    SizeCase("mask_put", mask_put, (floats("n", "m"),)),
    SizeCase("masked_fill", lambda x, m: x.masked_fill(m, -1.0), (floats("n", "m"), bools("m"))),
    SizeCase(
        "searchsorted",
        lambda x, y: torch.searchsorted(x.sort().values, y),
        (floats("n"), floats("m")),
    ),
    SizeCase("bucketize", lambda x: torch.bucketize(x, torch.arange(3.0)), (floats("n", "m"),)),
    SizeCase("isin", torch.isin, (ints("n"), ints("m"))),
]

# --- sizes that depend on values -----------------------------------------------------------------


def pairs_of_selected(x: Tensor, mask: Tensor) -> Tensor:
    chosen = x[mask]
    return chosen @ chosen.T


def unique_counts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values * counts, values[inverse], counts.sum()


SELECTED = [
    SizeCase("nonzero", lambda x: (x > 0).nonzero(), (floats("n", "m"),)),
    SizeCase("nonzero_sum", lambda x: (x > 0).nonzero().sum(0), (floats("n", "m"),)),
    SizeCase(
        "nonzero_tuple", lambda x: x[torch.nonzero(x > 0, as_tuple=True)], (floats("n", "m"),)
    ),
    SizeCase(
        "nonzero_gather",
        lambda x: x.flatten()[(x.flatten() > 0).nonzero().squeeze(1)].sort().values,
        (floats("n", "m"),),
    ),
    SizeCase("masked_select", lambda x: x.masked_select(x > 0), (floats("n", "m"),)),
    SizeCase(
        "masked_select_cat",
        lambda x: torch.cat([x.masked_select(x > 0), x.flatten()]),
        (floats("n", "m"),),
    ),
    SizeCase("masked_select_mean", lambda x: x[x > 0].mean(), (floats("n", "m"),)),
    SizeCase("masked_select_cumsum", lambda x: x[x > 0].cumsum(0), (floats("n", "m"),)),
    SizeCase("masked_rows", lambda x, m: x[m].sum(1), (floats("n", "m"), bools("n"))),
    SizeCase("masked_rows_matmul", pairs_of_selected, (floats("n", 3), bools("n"))),
    SizeCase(
        "masked_rows_linear",
        lambda x, m: F.linear(x[m], torch.ones(2, 3)),
        (floats("n", 3), bools("n")),
    ),
    SizeCase(
        "masked_two_axes", lambda x, m: x[m].softmax(-1), (floats("n", "m", 3), bools("n", "m"))
    ),
    SizeCase("masked_arange", lambda x: torch.arange(x[x > 0].shape[0]), (floats("n"),)),
    SizeCase(
        "masked_put_back",
        lambda x, m: torch.zeros_like(x).masked_scatter(m, x[m] * 2),
        (floats("n", "m"), bools("n", "m")),
    ),
    SizeCase("unique", torch.unique, (ints("n", "m"),)),
    SizeCase("unique_counts", unique_counts, (ints("n", low=0, high=4),)),
    SizeCase("unique_rows", lambda x: torch.unique(x, dim=0), (ints("n", 2, low=0, high=2),)),
    SizeCase("unique_consecutive", torch.unique_consecutive, (ints("n", low=0, high=2),)),
    SizeCase("size_from_value", lambda x, k: x[: k.item()], (floats("n"), ints(low=0, high=3))),
    SizeCase("zeros_of_value", lambda k: torch.zeros(k.item(), 2), (ints(low=0, high=3),)),
]


@parametrize(
    [*SYMBOLS, *CREATION, *VIEWS, *SLICES, *BROADCASTING, *REDUCTIONS, *CHOICES, *SELECTED]
)
def test_at_every_size(case: SizeCase) -> None:
    check(case)
