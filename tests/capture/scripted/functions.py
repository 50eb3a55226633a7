"""Functions for ``torch.jit.script``: loops, branches, lists, and what Python has besides."""

# ruff: noqa: RUF005, SIM108, T201
# TorchScript reads annotations as they are written: no `from __future__ import annotations`.

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


# --- lists ---------------------------------------------------------------------------------------


def split_and_stacked(x: Tensor) -> Tensor:
    parts = x.split(1, 0)
    out: list[Tensor] = []
    for p in parts:
        out.append(p * 2)  # noqa: PERF401
    return torch.stack(out)


def comprehension(x: Tensor) -> Tensor:
    return torch.stack([x * i for i in range(3)])


def comprehension_of_rows(x: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in x.unbind(0)], dim=1)


def given_list(xs: list[Tensor]) -> Tensor:
    total = torch.zeros_like(xs[0])
    for x in xs:
        total = total + x
    return total / len(xs)


def enumerated(xs: list[Tensor]) -> Tensor:
    total = torch.zeros_like(xs[0])
    for i, x in enumerate(xs):
        total = total + x * i
    return total


def zipped(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    return [x + y for x, y in zip(xs, ys)]  # noqa: B905


def chosen(xs: list[Tensor], k: Tensor) -> Tensor:
    return xs[int(k)] * 2


def list_methods(x: Tensor) -> Tensor:
    items = [x, x + 1]
    items.insert(0, x - 1)
    items.extend([x * 2, x * 3])
    last = items.pop()
    items.reverse()
    first = items.pop(0)
    items = items[1:] + [last]
    items[0] = first
    return torch.cat(items) * len(items)


def list_methods_in_a_loop(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    items: list[Tensor] = []
    for i in range(int(n)):
        items.append(x + i)
        items.insert(0, x * i)
    items.pop()
    items[1] = x * 100
    return torch.stack(items), items[-1] + len(items)


def shape_list(x: Tensor) -> Tensor:
    shape = list(x.size())
    shape.append(1)
    return x.reshape(shape).expand([-1, -1, 2])


def ints_counted(x: Tensor) -> Tensor:
    sizes: list[int] = []
    for i in range(x.size(0)):
        sizes.append(i * i)  # noqa: PERF401
    return torch.tensor(sizes) + int(sum(sizes))


def floats_counted(x: Tensor) -> Tensor:
    values: list[float] = []
    for i in range(x.size(0)):
        values.append(float(x[i].sum()))  # noqa: PERF401
    return torch.tensor(values) * max(values)


def lists_of_lists(x: Tensor) -> Tensor:
    table = [[x, x + 1], [x * 2]]
    total = torch.zeros_like(x)
    for row in table:
        for item in row:
            total = total + item * len(row)
    return total


def list_of_tuples(x: Tensor) -> Tensor:
    pairs = [(x, 1), (x + 1, 2)]
    total = torch.zeros_like(x)
    for tensor, weight in pairs:
        total = total + tensor * weight
    return total


def membership(x: Tensor, k: int) -> Tensor:
    return x * 2 if k in [1, 3, 5] else x


def membership_of_data(x: Tensor, k: Tensor) -> Tensor:
    return x * 2 if int(k) in [1, 3, 5] else x


def sorted_ints(x: Tensor) -> Tensor:
    order = sorted([3, 1, 2])
    order.sort(reverse=True)
    return x * order[0] + order[-1] + max(order) - min(order)


def chunks(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=1)
    return a.sum(1) - b.sum(1)


def table_of_ints(x: Tensor, k: Tensor) -> Tensor:
    table = [2, 3, 5, 7]
    return x * table[int(k)]


def last_of_split(x: Tensor) -> Tensor:
    parts = torch.split(x, 2)
    return parts[-1].sum(0) + len(parts)


# --- tuples, dicts, strings, optional values -----------------------------------------------------


def swapped(x: Tensor, y: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    pair = (x, y)
    for _ in range(int(n)):
        pair = (pair[1], pair[0] + 1)
    return pair


def dict_of_constants(x: Tensor, name: str) -> Tensor:
    factors = {"one": 1.0, "half": 0.5}
    return x * factors[name] if name in factors else x


def dict_of_tensors(x: Tensor) -> dict[str, Tensor]:
    out = {"x": x}
    out["twice"] = x * 2
    total = torch.zeros_like(x)
    for key, value in out.items():
        total = total + value * len(key)
    out["total"] = total
    return out


def dict_in_a_loop(x: Tensor, n: Tensor) -> Tensor:
    state = {"a": x, "b": x + 1}
    for i in range(int(n)):
        state["a"] = state["a"] + state["b"] * i
    return state["a"]


def dict_given(inputs: dict[str, Tensor]) -> Tensor:
    return inputs["x"] + inputs.get("y", torch.zeros(1)) + len(inputs)


def string_mode(x: Tensor, mode: str = "sum") -> Tensor:
    if mode == "sum":
        return x.sum(0)
    if mode.startswith("me"):
        return x.mean(0)
    raise ValueError(f"unknown mode {mode}")


def optional_given(x: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is not None:
        x = x + bias
    return x


def optional_kept(x: Tensor) -> Tensor:
    state: Tensor | None = None
    for i in range(x.size(0)):
        if state is None:
            state = x[i]
        else:
            state = state * 0.5 + x[i]
    assert state is not None
    return state


def optional_of_branch(x: Tensor) -> Tensor:
    extra: Tensor | None = None
    if bool(x.sum() > 0):
        extra = x * 2
    if extra is not None:
        return x + extra
    return x - 1


def optional_int(x: Tensor, k: int | None = None) -> Tensor:
    return x if k is None else x * k


def defaults(x: Tensor, scale: float = 2.0, add: int = 1, negate: bool = False) -> Tensor:
    y = x * scale + add
    return -y if negate else y


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
