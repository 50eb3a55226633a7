"""Functions for ``torch.jit.script``: loops, branches and other Python constructs."""

# ruff: noqa: T201
# TorchScript reads annotations literally: no `from __future__ import annotations`.

import math

import torch
from torch import Tensor

# --- for -----------------------------------------------------------------------------------------


def add_steps(x: Tensor, y: int) -> Tensor:
    for i in range(y):
        x = x + i
    return x


def add_steps_of_a_tensor(x: Tensor, y: Tensor) -> Tensor:
    for i in range(int(y)):
        x = x + i
    return x


def from_start_by_step(x: Tensor, n: Tensor) -> Tensor:
    for i in range(1, int(n), 2):
        x = x * 2 + i
    return x


def downwards(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[0])
    for i in range(x.size(0) - 1, -1, -1):
        total = total * 0.5 + x[i]
    return total


def triangle(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        for j in range(i):
            x = x + i * j
    return x


def nested_ranges(x: Tensor) -> Tensor:
    total = torch.zeros(1)
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            total = total + x[i, j] * (i + 1) * j
    return total


def rows_collected(x: Tensor) -> Tensor:
    rows: list[Tensor] = []
    total = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        total = total + x[i]
        rows.append(total)
    return torch.stack(rows)


def rows_written(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for i in range(x.size(0)):
        out[i] = x[i] * i
    return out


def window_written(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for i in range(1, x.size(0)):
        out[i] = out[i - 1] + x[i]
    return out


def in_place(x: Tensor, n: Tensor) -> Tensor:
    y = x.clone()
    for i in range(int(n)):
        y += i
        y.mul_(2)
    return y


def growing(x: Tensor, n: Tensor) -> Tensor:
    out = x
    for _ in range(int(n)):
        out = torch.cat([out, x + out.size(0)])
    return out


def shrinking(x: Tensor) -> Tensor:
    total = torch.zeros(1)
    rest = x
    while rest.size(0) > 1:
        total = total + rest[0].sum() * rest.size(0)
        rest = rest[1:]
    return total


def rows_of_the_tensor(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[0])
    for row in x:
        total = torch.maximum(total, row) + 1
    return total


def recurrence(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    outs: list[Tensor] = []
    for t in range(x.size(0)):
        h = torch.tanh(x[t] + h)
        outs.append(h)
    return torch.stack(outs), h


def fibonacci(x: Tensor, n: Tensor) -> Tensor:
    a, b = 0, 1
    for _ in range(int(n)):
        a, b = b, a + b
    return x * a


def float_total(x: Tensor, n: Tensor) -> Tensor:
    total = 0.0
    for i in range(int(n)):
        total += i / 2
    return x + total


def flag_of_any_negative(x: Tensor) -> Tensor:
    found = False
    for i in range(x.size(0)):
        if bool(x[i].min() < 0):
            found = True
    return x * 2 if found else x


def leaves_unread(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        y = x * i
        x = x + y.sum()
    return x


def matrix_power(x: Tensor, n: Tensor) -> Tensor:
    out = torch.eye(x.size(0))
    for _ in range(int(n)):
        out = out @ x
    return out


def horner(x: Tensor, coefficients: list[float]) -> Tensor:
    out = torch.zeros_like(x)
    for c in coefficients:
        out = out * x + c
    return out


# --- while, break, continue, return --------------------------------------------------------------


def until_large(x: Tensor) -> Tensor:
    while x.sum() < 10:
        x = x + 1
    return x


def until_large_counted(x: Tensor) -> tuple[Tensor, int]:
    n = 0
    while bool(x.sum() < 10) and n < 5:
        x = x + 1
        n += 1
    return x, n


def halved(x: Tensor, n: int) -> Tensor:
    while n > 0:
        x = x + n
        n = n // 2
    return x


def collatz(x: Tensor, n: Tensor) -> Tensor:
    value = int(n)
    steps = 0
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return x + steps


def newton(x: Tensor) -> Tensor:
    guess = x
    error = float((guess * guess - x).abs().max())
    while error > 1e-3:
        guess = 0.5 * (guess + x / guess)
        error = float((guess * guess - x).abs().max())
    return guess


def breaks(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        if bool(x[i].sum() > 2):
            break
        total = total + x[i]
    return total


def breaks_at(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        if i == 3:
            break
        x = x * 2
    return x


def continues(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        if i % 2 == 1:
            continue
        x = x + i
    return x


def returns_early(x: Tensor) -> Tensor:
    for i in range(x.size(0)):
        if bool(x[i].sum() > 1):
            return x[i]
    return x[0] * 0


def returns_from_branch(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x + 1
    y = x * 2
    if bool(y.min() < -1):
        return y
    return y - 1


def inner_while(x: Tensor) -> Tensor:
    for _ in range(2):
        k = 0
        while bool(x.max() > 4):
            x = x / 2
            k += 1
        x = x + k * 3
    return x


def greedy(table: Tensor, start: Tensor) -> Tensor:
    token = start
    tokens = [token]
    for _ in range(20):
        token = table[int(token)].argmax()
        tokens.append(token)
        if int(token) == 0:
            break
    return torch.stack(tokens)


# --- if ------------------------------------------------------------------------------------------


def by_sign(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def by_size(x: Tensor) -> Tensor:
    if x.size(0) > 2:
        x = x * 2
    return x


def by_parity(x: Tensor) -> Tensor:
    n = x.size(0)
    return x.sum(0) / n if n % 2 == 0 else x[n // 2]


def chain(x: Tensor) -> Tensor:
    s = float(x.sum())
    if s > 10:
        y = x
    elif s > 0:
        y = -x
    elif s > -10:
        y = x * 3
    else:
        y = torch.zeros_like(x)
    return y


def nested_ifs(x: Tensor, flag: bool) -> Tensor:
    if flag:
        if bool(x[0, 0] > 0):
            x = x + 1
            if bool(x[0, 0] > 2):
                x = x * 10
        else:
            x = x - 1
    return x


def connectives(x: Tensor) -> Tensor:
    low, high = bool(x.min() < 0), bool(x.max() > 1)
    if (low and high) or not (low or high):
        return x.abs()
    return x + 1


def by_rank(x: Tensor) -> Tensor:
    if x.dim() == 2:
        x = x.unsqueeze(0)
    return x.mean(1)


def by_dtype(x: Tensor) -> Tensor:
    if x.dtype == torch.float32:
        return x.to(torch.float64) / 2
    return x.to(torch.float64)


def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    if bool(x.sum() > 0):
        a, b = x, x + 1
    else:
        a, b = x * 2, x
    return b, a


def other_sizes(x: Tensor) -> Tensor:
    y = x[:1] if bool(x.sum() > 0) else x
    return y * 2


def number_of_branch(x: Tensor) -> Tensor:
    n = 1 if bool(x.sum() > 0) else 2
    return x[:n] * n


def float_of_branch(x: Tensor) -> Tensor:
    scale = 0.5 if bool(x.sum() > 0) else 3.0
    return x * scale + scale


def written_in_branch(x: Tensor) -> Tensor:
    y = x.clone()
    if bool(x.sum() > 0):
        y[0] = 7.0
    else:
        y.mul_(2)
    return y + 1


def appended_in_branch(x: Tensor) -> Tensor:
    parts = [x]
    if bool(x.sum() > 0):
        parts.append(x + 1)
    return torch.cat(parts)


def raises(x: Tensor) -> Tensor:
    if bool(x.max() > 100):
        raise ValueError("too large")
    return x.sqrt()


def asserts(x: Tensor) -> Tensor:
    assert x.size(1) == 3, "three columns are needed"
    assert bool(x.min() > -100), f"too small: {x.min()}"
    return x + 1


def empty_or_not(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return torch.zeros(3)
    return x.sum(0)


# --- functions and numbers -----------------------------------------------------------------------


def _relu_or_double(x: Tensor, double: bool) -> Tensor:
    if double:
        return x * 2
    return torch.relu(x)


def _signed(x: Tensor) -> tuple[Tensor, int]:
    if bool(x.sum() > 0):
        return x, 1
    return -x, -1


def calls_functions(x: Tensor) -> Tensor:
    y, sign = _signed(_relu_or_double(x, False))
    z, other = _signed(_relu_or_double(x, True))
    return y * sign + z * other


def number_arithmetic(x: Tensor, n: Tensor) -> Tensor:
    k = int(n)
    a = (k * 3 - 1) // 2 + k % 3 + abs(-k) + max(k, 4) - min(k, 2)
    b = float(k) / 3 + math.sqrt(float(k)) + round(2.6) + math.floor(k / 2) + 2.0**k
    return x * a + b


def items_as_indices(x: Tensor, i: Tensor) -> Tensor:
    k = i.item()
    return x[int(k)] + x[: int(k)].sum()


def zeros_of_number(x: Tensor, n: Tensor) -> Tensor:
    out = torch.zeros(int(n), x.size(1))
    return torch.cat([x, out + 1])


def reshaped_by_sizes(x: Tensor) -> Tensor:
    n, m = x.shape
    return x.view(n * m, 1).permute(1, 0).reshape(m, n)


def masked_rows(x: Tensor, lengths: Tensor) -> Tensor:
    rows: list[Tensor] = []
    for i in range(x.size(0)):
        n = int(lengths[i])
        rows.append(x[i, :n].sum())
    return torch.stack(rows)


def printed(x: Tensor) -> Tensor:
    print("shape", x.size())
    return x.exp()


def moved(x: Tensor, flag: bool = True) -> Tensor:
    dtype = torch.float64 if flag else None
    return x.to(x.device) + x.to(torch.device("cpu"), dtype).to("cpu", torch.float32)
