"""Functions for ``torch.jit.script`` with lists whose length depends on the inputs."""

# TorchScript reads annotations literally: no `from __future__ import annotations`.

import torch
from torch import Tensor


def chosen_of_two(x: Tensor, n: Tensor) -> Tensor:
    return [x, x * 2][int(n) % 2]


def steps_stacked(x: Tensor, n: Tensor) -> Tensor:
    steps: list[Tensor] = []
    for i in range(int(n)):
        steps.append(x * i)  # noqa: PERF401
    return torch.stack(steps)


def stacked_last(x: Tensor, n: Tensor) -> Tensor:
    steps = [x]
    for i in range(int(n)):
        steps.append(x * i)  # noqa: PERF401
    return torch.stack(steps, dim=-1)


def pieces_joined(x: Tensor, n: Tensor) -> Tensor:
    steps: list[Tensor] = []
    for piece in x.split(2):
        steps.append(piece.sum(0, keepdim=True) * n)  # noqa: PERF401
    return torch.cat(steps, dim=1)


def inserted_first(x: Tensor, n: Tensor) -> Tensor:
    steps = [x]
    for i in range(int(n)):
        steps.insert(0, steps[-1] + i)
    return torch.stack(steps)


def popped(x: Tensor, n: Tensor) -> Tensor:
    steps = [x]
    for i in range(int(n)):
        steps.append(x * i)  # noqa: PERF401
    last = steps.pop()
    return steps[1] + last * steps[-1]


def counted(x: Tensor, n: Tensor) -> Tensor:
    steps = [x]
    while len(steps) < int(n):
        steps.append(x)
    return x * len(steps)


def rows(x: Tensor, n: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x.unbind():
        total = total * 0.5 + row
    return total + n


def doubled_or_less(x: Tensor, n: Tensor) -> Tensor:
    if int(n) > 2:  # noqa: SIM108
        y = x * 2
    else:
        y = x - n
    return y
