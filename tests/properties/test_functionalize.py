"""Random programs with views and in-place writes match eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fx_passes.test_functionalize import assert_functional, functionalized, run

Tensor = torch.Tensor
Operation = Callable[[Tensor, int, int], Tensor]


def _select(x: Tensor, a: int, b: int) -> Tensor:
    return x.select(a % x.dim(), b % x.shape[a % x.dim()]) if x.dim() > 1 else x


def _slice(x: Tensor, a: int, b: int) -> Tensor:
    axis = a % x.dim()
    size = x.shape[axis]
    start = b % size
    return x.narrow(axis, start, size - start)


def _step(x: Tensor, a: int, b: int) -> Tensor:
    return x[b % x.shape[0] :: 1 + a % 3]


def _transpose(x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(a % x.dim(), b % x.dim())


def _permute(x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(x.dim()))
    return x.permute(order[a % x.dim() :] + order[: a % x.dim()])


def _reshape(x: Tensor, a: int, b: int) -> Tensor:
    return x.reshape(-1) if a % 2 else x.reshape(x.shape[0], -1)


def _chunk(x: Tensor, a: int, b: int) -> Tensor:
    pieces = x.chunk(2, a % x.dim())
    return pieces[b % len(pieces)]


def _split(x: Tensor, a: int, b: int) -> Tensor:
    pieces = x.split(2, a % x.dim())
    return pieces[b % len(pieces)]


def _unbind(x: Tensor, a: int, b: int) -> Tensor:
    pieces = x.unbind(a % x.dim())
    return pieces[b % len(pieces)] if x.dim() > 1 else x


def _diagonal(x: Tensor, a: int, b: int) -> Tensor:
    return x.diagonal(a % 2) if x.dim() > 1 and min(x.shape[:2]) > 1 else x


VIEWS: dict[str, Operation] = {
    "select": _select,
    "narrow": _slice,
    "step": _step,
    "transpose": _transpose,
    "permute": _permute,
    "reshape": _reshape,
    "chunk": _chunk,
    "split": _split,
    "unbind": _unbind,
    "diagonal": _diagonal,
    "unsqueeze": lambda x, a, b: x.unsqueeze(a % (x.dim() + 1)) if x.dim() < 4 else x,
    "squeeze": lambda x, a, b: x.squeeze() if x.numel() > 1 else x,
    "contiguous": lambda x, a, b: x.contiguous(),
    "to": lambda x, a, b: x.to(torch.float32),
    "detach": lambda x, a, b: x.detach(),
}
VALUES: dict[str, Operation] = {
    "plus": lambda x, a, b: x + a,
    "clone": lambda x, a, b: x.clone(),
    "where": lambda x, a, b: torch.where(x > b, x, x * a),
}
WRITES: dict[str, Operation] = {
    "add_": lambda x, a, b: x.add_(a),
    "mul_": lambda x, a, b: x.mul_(a - 3),
    "fill_": lambda x, a, b: x.fill_(a),
    "zero_": lambda x, a, b: x.zero_(),
    "neg_": lambda x, a, b: x.neg_(),
    "relu_": lambda x, a, b: x.relu_(),
    "clamp_": lambda x, a, b: x.clamp_(-1 - a, b),
    "masked_fill_": lambda x, a, b: x.masked_fill_(x > b, a),
    "copy_": lambda x, a, b: x.copy_(x.flip(0) + a),
    "set_item": lambda x, a, b: x.__setitem__(a % x.shape[0], b) or x,
    "set_mask": lambda x, a, b: x.__setitem__(x < 0, a) or x,
}
ALL = {**VIEWS, **VALUES, **WRITES}

Instruction = tuple[str, int, int, int]
NUMBERS = st.integers(0, 6)
INSTRUCTIONS = st.tuples(
    st.one_of(
        st.sampled_from(sorted(VIEWS)),
        st.sampled_from(sorted(WRITES)),
        st.sampled_from(sorted(ALL)),
    ),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


class Program(torch.nn.Module):
    """Applies each instruction to one of the existing tensors; returns all tensors."""

    def __init__(self, instructions: list[Instruction]) -> None:
        super().__init__()
        self.instructions = instructions

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = [x.clone()]
        for name, which, a, b in self.instructions:
            made.append(ALL[name](made[which % len(made)], a, b))
        return tuple(tensor + 0 for tensor in made)


@given(st.lists(INSTRUCTIONS, min_size=2, max_size=14))
def test_functionalized_programs_equal_eager(instructions: list[Instruction]) -> None:
    module = Program(instructions)
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6) - 11
    program = functionalized(module, x.clone())
    assert_functional(program)
    for actual, expected in zip(run(program, x.clone()), module(x.clone()), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
