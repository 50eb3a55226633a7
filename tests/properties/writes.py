"""Instructions that write in place, also through views."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError, shares
from tests.properties.indexing import write_indexed
from tests.properties.scope import Value

__all__ = ["WRITES", "write"]


def _with_number(c: Choices, x: Value) -> str:
    k = c.between(0, 3)
    if x.dtype == torch.bool:
        return c.of(f"{x.name}.fill_({bool(k)})", f"{x.name}.zero_()", f"{x.name}.logical_not_()")
    return c.of(
        f"{x.name}.add_({k})",
        f"{x.name}.sub_({k})",
        f"{x.name}.mul_({k - 2})",
        f"{x.name} += {k}",
        f"{x.name}.fill_({k})",
        f"{x.name}.zero_()",
        f"{x.name}.neg_()",
        f"{x.name}.relu_()",
        f"{x.name}.clamp_(-1, {k})",
        f"{x.name}.add_({c.size()})",
    )


def _with_tensor(c: Choices, x: Value) -> str:
    y = c.into(x).name
    if x.dtype == torch.bool:
        return c.of(f"{x.name}.copy_({y})", f"{x.name} &= {y}", f"{x.name}.logical_xor_({y})")
    return c.of(
        f"{x.name}.copy_({y})",
        f"{x.name}.add_({y})",
        f"{x.name}.mul_({y})",
        f"{x.name} -= {y}",
        f"{x.name}.add_({y}, alpha=2)",
        f"{x.name}[:] = {y}",
        f"{x.name}[...] = {y}",
    )


def _mask(c: Choices, x: Value) -> str:
    mask = c.mask(x, selects=True)
    k = c.between(0, 3) if x.dtype != torch.bool else c.of("True", "False")
    return c.of(
        f"{x.name}[{mask}] = {k}",
        f"{x.name}.masked_fill_({mask}, {k})",
        f"{x.name}[{mask}] *= 2",
        f"{x.name}.copy_(torch.where({mask}, {x.name}, {k}))",
    )


def _item(c: Choices, x: Value) -> str:
    if x.rank == 0:
        raise DoesNotFitError
    axis = c.between(0, x.rank - 1)
    start = ":, " * axis
    where = c.of(
        "0", "-1", f"{c.bound()}:{c.bound()}", "::2", "1:", ":-1", f"{c.bound()}:{c.bound()}:2"
    )
    k = c.between(0, 3) if x.dtype != torch.bool else c.of("True", "False")
    form = c.between(0, 3)
    if form == 0 and x.dtype != torch.bool:
        return f"{x.name}[{start}{where}] += {k}"
    if form == 1:
        y = c.into(x).name
        return f"{x.name}[{start}{where}] = {y}"
    if form == 2:
        return f"{x.name}[{start}{where}].fill_({k})"
    return f"{x.name}[{start}{where}] = {k}"


def _indexed(c: Choices, x: Value) -> str:
    """Writes at indices; repeated indices get the same value or are summed."""
    if x.rank == 0:
        raise DoesNotFitError
    axis = c.between(0, x.rank - 1)
    index = c.integers().name
    fits = f"({index}.long() % {x.name}.shape[{axis}])"
    k = c.between(0, 3) if x.dtype != torch.bool else c.of("True", "False")
    form = c.between(0, 4)
    if form == 0:
        return f"{x.name}[{':, ' * axis}{fits}] = {k}"
    if form == 1:
        return f"{x.name}.index_fill_({axis}, {fits}.flatten(), {k})"
    if x.dtype == torch.bool:
        raise DoesNotFitError
    if form == 2:
        ones = f"torch.ones_like({fits}, dtype={x.name}.dtype)"
        return f"{x.name}.index_put_(({', '.join([fits] * x.rank)},), {ones}, accumulate=True)"
    y = c.alike(x, lambda v: v.dtype in (torch.int64, torch.int32) and v.exact)
    fits = f"({y.name}.long() % {x.name}.shape[{axis}])"
    if form == 3:
        return f"{x.name}.scatter_({axis}, {fits}, {k})"
    z = c.alike(x, lambda v: v.dtype == x.dtype and v.exact)
    return c.of(
        f"{x.name}.scatter_add_({axis}, {fits}, {z.name}.clone())",
        f"{x.name}.scatter_reduce_({axis}, {fits}, {z.name}.clone(), 'amax')",
    )


def _whole(c: Choices, x: Value) -> str:
    """Writes to a whole tensor: results for ``out=``, and pure shape changes."""
    form = c.between(0, 3)
    if form == 0 and x.name.startswith("v") and x.rank > 0:
        axes = f"{c.axis(x)}, {c.axis(x)}"
        return f"{x.name}.{c.of(f'transpose_({axes})', 'unsqueeze_(0)', 'swapaxes_(0, -1)')}"
    y = c.alike(x, lambda v: v.dtype == x.dtype and (v.exact or not x.exact) and not shares(v, x))
    if x.dtype == torch.bool:
        return f"torch.logical_or({x.name}, {y.name}, out={x.name})"
    return c.of(
        f"torch.add({y.name}, {y.name}, out={x.name})",
        f"torch.mul({x.name}, {y.name}, out={x.name})",
        f"{x.name}.addcmul_({y.name}, {y.name})",
        f"{x.name}.index_add_(0, torch.arange({x.name}.shape[0]), {y.name})",
        f"{x.name}.masked_scatter_({x.name} > 0, {y.name})",
        f"{x.name}.copy_({y.name}.flip(0))",
        f"{x.name}.cumsum_(0)",
    )


WRITES = {
    "whole": _whole,
    "number": _with_number,
    "tensor": _with_tensor,
    "mask": _mask,
    "item": _item,
    "slice": _item,
    "indices": _indexed,
    "any index": write_indexed,
}


def write(c: Choices, name: str) -> bool:
    """Adds a statement that writes; returns False if none fits."""
    try:
        target = c.writable()
        statement = WRITES[name](c, target)
    except DoesNotFitError:
        return False
    return c.scope.write(statement, target)
