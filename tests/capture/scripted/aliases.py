"""Functions for ``torch.jit.script`` that write in place to aliased tensors."""

# TorchScript reads annotations literally: no `from __future__ import annotations`.

import torch
from torch import Tensor


def written_after_a_loop(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    for i in range(int(n)):
        y = y + i
    y += 1
    return y


def written_after_a_branch(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1 if int(n) > 0 else x * 2
    y += 1
    return y * x.sum()


def data_written(x: Tensor) -> Tensor:
    y = x.data * 2
    y.data[0].mul_(3)
    return (y + 1).data


def view_of_outer_written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    for i in range(int(n)):
        row = y[0]
        row += i
    return y


def local_written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    for i in range(int(n)):
        y = torch.relu(y)
        y += i
        y[0] = 1.0
    return y


def one_of_two_written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    z = y if int(n) > 0 else x * 2
    z += 1
    return y + z


def written_before_it_is_replaced(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    z = y
    for _ in range(int(n)):
        z += 1
        z = z * 2
    return y + z


def unread_alias(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    for _ in range(int(n)):
        y += 1
        y = y * 2
    return y


def written_in_some_steps(x: Tensor, n: Tensor) -> Tensor:
    total = torch.zeros(3)
    steps = 0
    for i in range(x.size(0)):
        if i < int(n):
            total += x[i]
            steps += 1
        else:
            total -= 1
    return total if steps == 0 else total / steps
