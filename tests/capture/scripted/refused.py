"""Functions for ``torch.jit.script`` that ONNX cannot represent."""

# TorchScript reads annotations literally: no `from __future__ import annotations`.

import torch
from torch import Tensor


def text_of_branch(x: Tensor, n: Tensor) -> Tensor:
    kind = "positive" if int(n) > 0 else "negative"
    return x if kind == "positive" else -x


def dtype_of_branch(x: Tensor, n: Tensor) -> Tensor:
    return torch.ones(4, 3, dtype=torch.int64) if int(n) > 0 else x


def rank_of_loop(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        x = x.unsqueeze(0)
    return x


def lists_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    table: list[list[Tensor]] = []
    for _ in range(int(n)):
        table.append([x, x])  # noqa: PERF401
    return table[0][1]


def tuples_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    pairs: list[tuple[Tensor, int]] = []
    for i in range(int(n)):
        pairs.append((x, i))  # noqa: PERF401
    return pairs[0][0]


def key_of_data(x: Tensor, n: Tensor) -> Tensor:
    table = {1: x, 2: x * 2}
    return table[int(n)]


def two_views_written(x: Tensor, n: Tensor) -> Tensor:
    y = x.clone()
    row = y[0]
    for _ in range(int(n)):
        y += 1
        row.mul_(2)
    return y


def shape_of_unknown_rank(x: Tensor, n: Tensor) -> Tensor:
    shape: list[int] = []
    for _ in range(int(n)):
        shape.append(1)  # noqa: PERF401
    return torch.zeros(shape) + x


def returns_a_list(x: Tensor, n: Tensor) -> list[Tensor]:
    out: list[Tensor] = []
    for _ in range(int(n)):
        out.append(x)  # noqa: PERF401
    return out


def returns_an_optional(x: Tensor, n: Tensor) -> Tensor | None:
    out: Tensor | None = None
    if int(n) > 0:
        out = x
    return out


def raises_always(x: Tensor, n: Tensor) -> Tensor:
    if x.dim() == 2:
        raise ValueError("never")
    return x
