"""Branches and loops: cond and while_loop, nested, with writes, and with zero and more steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_slices

from tests.translate.bodies import Case, Model, check

Tensor = torch.Tensor


def zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


# --- cond ----------------------------------------------------------------------------------------


def by_contents(m: Model, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: m.linear(x).sin(), lambda x: x.cos() + 1, (x,))


def by_size(m: Model, x: Tensor) -> Any:
    return torch.cond(x.shape[0] > 4, lambda x: x.cos(), lambda x: x.sin(), (x,))


def sizes_differ(m: Model, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x[:2].clone(), lambda x: torch.cat([x, x]), (x,))


def numbers(m: Model, x: Tensor) -> Any:
    count, y = torch.cond(x.sum() > 0, lambda x: (5, x.sin()), lambda x: (2, x.cos()), (x,))
    return y + count, count


def sizes_inside(m: Model, x: Tensor) -> Any:
    def positive(x: Tensor) -> Tensor:
        count = x.abs().sum().to(torch.int64).item()
        return (x > 0).nonzero().sum() + torch.arange(count).sum()

    def negative(x: Tensor) -> Tensor:
        count = x.abs().amax().to(torch.int64).item() + 1
        return torch.arange(count).sum() + torch.tensor(3)

    return torch.cond(x.sum() > 0, positive, negative, (x,))


def one_element(m: Model, x: Tensor) -> Any:
    return torch.cond(x.sum(0, keepdim=True).sum(1) > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def of_constants(m: Model, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda: torch.ones(2), lambda: torch.zeros(2), ())


def in_types(m: Model, x: Tensor) -> Any:
    given = (x.double(), x > 0, x.to(torch.int32), x.half(), x.to(torch.bfloat16))
    return torch.cond(
        x.sum() > 0,
        lambda *t: tuple(v * 2 if v.dtype != torch.bool else ~v for v in t),
        lambda *t: tuple(v.clone() for v in t),
        given,
    )


def random(m: Model, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x) * 0 + x, lambda x: x * 2, (x,))


CONDITIONALS = [
    Case(by_contents, nodes=("If",)),
    Case(by_size, sizes=(4, 5, 1, 9), nodes=("If",)),
    Case(sizes_differ),
    Case(numbers),
    Case(sizes_inside),
    Case(one_element),
    Case(of_constants),
    Case(in_types),
    Case(random),
]


# --- while_loop ----------------------------------------------------------------------------------


def until_sum(m: Model, x: Tensor) -> Any:
    """The counter is a vector with one element, as in torch's first example."""
    return while_loop(lambda i, x: i.sum() < 10, lambda i, x: (i + 1, x.sin()), (torch.zeros(1), x))


def by_number(m: Model, x: Tensor) -> Any:
    """Carries a Python number, as in torch's second example; an empty input runs no step."""
    return while_loop(lambda i, x: 2 * i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x))


def with_weights(m: Model, x: Tensor) -> Any:
    return while_loop(
        lambda i, y: i < y.shape[0] - 1, lambda i, y: (i + 1, m.linear(y) + x), (zero(), x)
    )


def sizes_of_steps(m: Model, x: Tensor) -> Any:
    """Sizes differ from step to step, in the condition and in the body."""
    return while_loop(
        lambda i, y: torch.arange(i).sum() < 20,
        lambda i, y: (i + 1, y + torch.arange(i).sum() * torch.ones(i).sum()),
        (0, x),
    )


def by_flag(m: Model, x: Tensor) -> Any:
    return while_loop(
        lambda go, y: ~~go, lambda go, y: (y.abs().sum() < 10, y * 2 + 1), (torch.tensor(True), x)
    )


def complex_numbers(m: Model, x: Tensor) -> Any:
    given = torch.complex(x, x + 1)
    _, y = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y * 0.3), (zero(), given))
    return torch.view_as_real(y)


def of_a_dict(m: Model, x: Tensor) -> Any:
    return while_loop(
        lambda s: s["i"] < 3,
        lambda s: ({"i": s["i"] + 1, "x": [s["x"][0] * 2]},),
        ({"i": zero(), "x": [x]},),
    )


def new_constants(m: Model, x: Tensor) -> Any:
    table = torch.tensor([1.0, 2.0, 3.0])
    return while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y + table + torch.tensor(2.0)), (zero(), x)
    )


LOOPS = [
    Case(until_sum, nodes=("Loop",)),
    Case(by_number, sizes=(4, 0, 1, 9), nodes=("Loop",)),
    Case(with_weights, sizes=(4, 1, 2)),
    Case(sizes_of_steps),
    Case(by_flag),
    Case(complex_numbers),
    Case(of_a_dict, containers=True),
    Case(new_constants),
]


# --- writes --------------------------------------------------------------------------------------


def branch_writes(m: Model, x: Tensor) -> Any:
    y = x.clone()

    def row(y: Tensor) -> Tensor:
        y[0].add_(1)
        return y.sin()

    return torch.cond(x.sum() > 0, row, lambda y: y.cos(), (y,)) + y


def branch_returns_what_it_writes(m: Model, x: Tensor) -> Any:
    y = x.clone()
    return torch.cond(x.sum() > 0, lambda y: y.sin_(), lambda y: y + 1, (y,)) + y


def branch_writes_a_buffer(m: Model, x: Tensor) -> Any:
    def count(x: Tensor) -> Tensor:
        m.total.add_(x.sum(0))
        return x + m.total

    return torch.cond(x.sum() > 0, count, lambda x: x * 2, (x,))


def branch_writes_a_view(m: Model, x: Tensor) -> Any:
    def second(x: Tensor) -> Tensor:
        m.total[1:2].mul_(2).add_(x.sum())
        return m.total * 2

    return torch.cond(x.sum() > 0, second, lambda x: x.sum(0), (x,)), m.total + 1


def loop_writes(m: Model, x: Tensor) -> Any:
    seen = x.clone()

    def step(i: Tensor) -> tuple[Tensor]:
        seen.add_(i)
        return (i + 1,)

    (i,) = while_loop(lambda i: i < seen.shape[0], step, (zero(),))
    return seen + i


def inner_branch_writes(m: Model, x: Tensor) -> Any:
    def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        def count(y: Tensor) -> Tensor:
            m.total.add_(1)
            return y * 0.5

        return i + 1, torch.cond(y.sum() > 1, count, lambda y: y + 1, (y,))

    return while_loop(lambda i, y: i < 4, step, (zero(), x))


WRITES = [
    Case(branch_writes),
    Case(branch_returns_what_it_writes),
    Case(branch_writes_a_buffer, state=True),
    Case(branch_writes_a_view, state=True),
    Case(loop_writes),
    Case(inner_branch_writes, state=True),
]


# --- nesting -------------------------------------------------------------------------------------


def doubled_or_mapped(m: Model, y: Tensor) -> Any:
    return torch.cond(y.sum() > 0, m.linear, lambda y: y * 2, (y,))


def cond_in_while(m: Model, x: Tensor) -> Any:
    return while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, doubled_or_mapped(m, y)), (zero(), x)
    )


def cond_in_while_in_scan(m: Model, x: Tensor) -> Any:
    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = cond_in_while(m, row + state)[1]
        return after, after.clone()

    return scan(step, torch.zeros(3), x)


def while_in_cond(m: Model, x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda x: while_loop(
            lambda i, y: i < x.shape[0], lambda i, y: (i + 1, m.linear(y)), (zero(), x)
        )[1],
        lambda x: x * 2,
        (x,),
    )


def while_in_while(m: Model, x: Tensor) -> Any:
    def step(i: int, y: Tensor) -> tuple[int, Tensor]:
        inner = while_loop(lambda j, y: j < i, lambda j, y: (j + 1, y + j), (0, y))
        return i + 1, inner[1]

    return while_loop(lambda i, y: i < 4, step, (0, x))


def cond_in_map(m: Model, x: Tensor) -> Any:
    return map_slices(lambda row: doubled_or_mapped(m, row), x)


NESTED = [
    Case(cond_in_while, nodes=("Loop", "If")),
    Case(cond_in_while_in_scan, nodes=("Scan", "Loop", "If")),
    Case(while_in_cond, nodes=("Loop", "If")),
    Case(while_in_while, nodes=("Loop",)),
    Case(cond_in_map, nodes=("Scan", "If")),
]


# --- wrappers of functions -----------------------------------------------------------------------


class Square(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


def autograd_function(m: Model, x: Tensor) -> Any:
    y = Square.apply(x)
    return torch.cond(x.sum() > 0, lambda x: Square.apply(m.linear(x)), lambda x: y + 1, (x,))


def checkpoint(m: Model, x: Tensor) -> Any:
    def saved(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(m.linear, x, use_reentrant=False)

    return torch.cond(x.sum() > 0, saved, lambda x: x + 1, (saved(x),))


def without_gradient(m: Model, x: Tensor) -> Any:
    def branch(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = m.linear(x)
        return y + 1

    return torch.cond(x.sum() > 0, branch, lambda x: m.linear(x * 2), (x,))


def cond_under_autocast(m: Model, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.cond(x.sum() > 0, m.linear, lambda x: m.linear(x * 2), (x,))


def autocast_in_cond(m: Model, x: Tensor) -> Any:
    def branch(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.linear(x)

    return torch.cond(x.sum() > 0, branch, lambda x: m.linear(x * 2).to(torch.bfloat16), (x,))


WRAPPED = [
    Case(autograd_function),
    Case(checkpoint),
    Case(without_gradient),
    Case(cond_under_autocast),
    Case(autocast_in_cond),
]

CASES = [*CONDITIONALS, *LOOPS, *WRITES, *NESTED, *WRAPPED]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_control_flow(case: Case) -> None:
    check(case)
