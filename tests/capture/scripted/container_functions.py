"""Functions for ``torch.jit.script``: lists, tuples, dicts, strings and optional values."""

# ruff: noqa: RUF005, SIM108
# TorchScript reads annotations literally: no `from __future__ import annotations`.

import torch
from torch import Tensor

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
