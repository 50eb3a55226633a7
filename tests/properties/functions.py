"""Instructions that call larger functions: layers, scatters, searches."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, always, never
from tests.properties.scope import Value

__all__ = ["FUNCTIONS", "SCATTERS"]

INTEGERS = (torch.int64, torch.int32)


def _layer(c: Choices) -> str:
    x = c.tensor(lambda v: v.dtype == torch.float32 and v.rank in (2, 3))
    channels = f"{x.name}.shape[-2]"
    form = c.of(
        "F.layer_norm({x}, {x}.shape[-1:])",
        "F.normalize({x}, dim=-1)",
        "F.max_pool1d({x}, 2, 1)",
        "F.avg_pool1d({x}, 2, 1, 1)",
        "F.adaptive_avg_pool1d({x}, 1)",
        "F.adaptive_avg_pool1d({x}, 3)",
        "F.interpolate({x}[None] if {x}.dim() == 2 else {x}, scale_factor=2)",
        "F.conv1d({x}, torch.ones(2, {channels}, 2), padding=1)",
        "F.scaled_dot_product_attention({x}, {x}, {x})",
        "F.pad({x}, [1, 1], mode='replicate')",
        "torch.cdist({x}, {x}, p=1)",
        "F.glu({x}.repeat_interleave(2, -1))",
        "F.cosine_similarity({x}, {x} + 1, dim=-1)",
    )
    if "channels" in form and (len(set(x.sizes(-2))) > 1 or 0 in x.sizes(-2)):
        # torch.export specializes the channels; without any, eager torch gives no new ones either
        raise DoesNotFitError
    if form.startswith(("F.layer_norm", "F.adaptive")) and x.name.startswith("v"):
        raise DoesNotFitError  # empty tensor, see EMPTY_REFUSED
    if "attention" in form and len(set(x.sizes(-1))) > 1:
        raise DoesNotFitError  # empty products
    return form.format(x=x.name, channels=channels)


def _embed(c: Choices) -> str:
    index = c.integers(rank=1).name
    form = c.of(
        "F.embedding({i}.long() % 3, self.weight)",
        "F.one_hot({i}.long() % 4, 4)",
        "self.weight[{i}.long() % 3]",
        "self.memory[:, {i}.long() % 3]",
        "self.memory[{i}.long() % 2, {i}.long() % 3]",
        "F.embedding_bag(({i}.long() % 3).flatten()[None], self.weight)",
    )
    return form.format(i=index)


def _search(c: Choices) -> str:
    x = c.numbers(exact=True)
    form = c.of(
        "torch.bucketize({x}, torch.tensor([-2, 0, 3]))",
        "torch.searchsorted(torch.tensor([-2, 0, 3]), {x}, right=True)",
        "torch.isin({x}, torch.tensor([0, 1, 2]))",
        "torch.isclose({x}, {x} * 1)",
        "torch.heaviside({x}, {x})",
        "{x}.flatten().unique(return_inverse=True)[1]",
        "torch.bincount({x}.long().abs().flatten(), minlength=3)",
        "torch.histc({x}.float(), 4, -4, 4)",
        "torch.where({x} > 0)[0]",
        "{x}.flatten().unique_consecutive()",
    )
    return form.format(x=x.name)


def _combine(c: Choices) -> str:
    x = c.tensor(lambda v: v.dtype in (torch.float32, torch.int64))
    y = c.fitting(x, lambda v: v.dtype == x.dtype)
    form = c.of(
        "torch.addcmul({x}, {x}, {y})",
        "torch.lerp({x}, {y}, 0.5)" if x.floating else "torch.gcd({x}, {y})",
        "torch.clamp({x}, max={y})",
        "torch.fmax({x}, {y})",
        "torch.hypot({x}, {y}) ** 2" if x.floating else "{x} << ({y}.abs() % 3)",
        "{x} ** 2",
        "{x}.pow(3)",
        "2 ** {x}.clamp(0, 3)",
        "torch.rsub({x}, {y}, alpha=2)",
        "torch.tensordot({x}, {x}, dims={x}.dim())",
        "torch.meshgrid({x}.flatten(), {y}.flatten(), indexing='ij')[0]",
        "torch.cartesian_prod({x}.flatten(), {y}.flatten())",
        "torch.copysign({x}, {y})",
        "torch.broadcast_tensors({x}, {y})[0]",
        "torch.atleast_2d({x})",
        "torch.kron({x}, {y})",
        "torch.hstack([{x}, {x}])",
        "torch.block_diag({x}.flatten(), {y}.flatten())",
    )
    return form.format(x=x.name, y=y.name)


def _scalar(c: Choices) -> str:
    """Floating point arithmetic on sizes."""
    x = c.tensor(lambda v: v.dtype in (torch.float32, torch.float64))
    size = c.size()
    form = c.of(
        "{x} / {size}",
        "{x} * ({size} / 2)",
        "{x} * {size} ** 0.5",
        "{x} + float({size})",
        "{x} * (1 / ({size} + 1))",
        "torch.full((2,), {size} / 2)",
        "torch.arange({size} / 2)",
        "{x} * int({size} * 0.5)",
        "{x} * torch.sym_max({size}, 2)",
        "{x}.sum() / {x}.numel()",
        "{x}.expand(torch.sym_max({size}, 2), *{x}.shape)",
    )
    return form.format(x=x.name, size=size)


def _source(c: Choices, x: Value) -> Value:
    """Chooses a tensor to scatter: same shape and dtype, and equally exact."""
    return c.alike(x, lambda v: v.dtype == x.dtype)


def _scatter(c: Choices) -> str:
    x = c.tensor(rank=1)
    y = _source(c, x)
    axis = c.between(0, x.rank - 1)
    rows = f"torch.arange({x.name}.shape[{axis}])"
    # eager's copies into a part keep strides, and with them the memory that windows share
    form = c.of(
        "{x}.index_copy({axis}, {rows}.flip(0), {y})",
        "{x}.index_add({axis}, {rows} // 2, {y})",
        "{x}.masked_scatter({mask}, {y})",
        "{x}.clone().select_scatter({y}.select({axis}, 0), {axis}, -1)",
        "{x}.clone().slice_scatter({y}.narrow({axis}, 0, {x}.shape[{axis}] - 1), {axis}, 1)",
        "{x}.index_put(({rows}.flip(0),), {y})",
        "{x}.index_fill({axis}, {rows}[::2], 1)",
        "{x}.put({rows}, {y}.flatten()[:{x}.shape[{axis}]])",
        "{x}.take({rows})",
        "torch.where({mask}, {x}, {y}.flip({axis}))",
    )
    if x.dtype == torch.bool and "index_add" in form:
        raise DoesNotFitError
    if "index_put" in form:
        rows = f"torch.arange({x.name}.shape[0])"
    mask = c.mask(x, selects=True) if "{mask}" in form else ""
    return form.format(x=x.name, y=y.name, axis=axis, rows=rows, mask=mask)


FUNCTIONS = [
    Instruction("layer", _layer, never, computes=True),
    Instruction("layer", _layer, never, computes=True),
    Instruction("embed", _embed, always),
    Instruction("search", _search, always, unbacked=True),
    Instruction("combine", _combine, computes=True),
    Instruction("combine", _combine, computes=True),
    Instruction("scalar", _scalar, never, computes=True),
]
SCATTERS = [Instruction("scatter", _scatter, computes=True)]
