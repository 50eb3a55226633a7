"""Instructions with Python control flow and context managers around others."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, never

__all__ = ["REGIONS"]


def _simple(c: Choices, x: str) -> str:
    return c.of(
        f"{x} + {c.between(1, 3)}", f"{x} * 2", f"{x} - {x}", f"{x}.flip(0)", x, f"{x}.clone()"
    )


def _condition(c: Choices) -> str:
    """A condition on sizes."""
    form = c.of(
        "{size} > {k}",
        "{size} == {k}",
        "{size} % 2 == 0",
        "{size} >= {k}",
        "{size} > 1",
        "{size} != 1",
        "{size} < {other}",
        "{size}",
        "not {size}",
        "{size} > {k} and {other} > 1",
        "{size} == {other} or {size} > {k}",
    )
    other = c.size() if "{other}" in form else ""
    return form.format(size=c.size(), k=c.between(0, 6), other=other)


def _branch(c: Choices) -> str:
    """A branch on sizes; often both ways give the same, as in a shortcut of a library."""
    x = c.numbers(rank=1)
    one, other, condition = _simple(c, x.name), _simple(c, x.name), _condition(c)
    return c.of(
        f"{one} if {condition} else {other}",
        f"if {condition}:\n    result = {one}\nelse:\n    result = {other}",
        f"if {condition}:\n    result = {one}\nelse:\n    result = {one}",
    )


def _attribute(c: Choices) -> str:
    """Control flow on what is known of a tensor besides its sizes."""
    x = c.numbers(rank=1)
    condition = c.of(
        f"{x.name}.dim() > 1",
        f"{x.name}.is_floating_point()",
        f"{x.name}.dtype == torch.float32",
        "self.training",
        "self.counter is None",
        "isinstance(self.weight, nn.Parameter)",
        f"{x.name}.numel() >= 0",
        f"len({x.name}.shape) in (1, 2)",
        "hasattr(self, 'memory')",
    )
    return f"{_simple(c, x.name)} if {condition} else {_simple(c, x.name)}"


def _loop(c: Choices) -> str:
    """Loops and comprehensions over dimensions of one size."""
    x = c.numbers(rank=1)
    fixed = [a for a, s in enumerate(x.shape()) if len(set(s)) == 1 and 0 < s[0] < 6]
    if not fixed or x.unbacked:
        raise DoesNotFitError
    axis = c.of(*fixed)
    part = f"{x.name}.select({axis}, i)"
    indices = f"range({x.name}.shape[{axis}])"
    return c.of(
        f"torch.stack([{part} * (i + 1) for i in {indices}], {axis})",
        f"sum({part} for i in {indices})",
        f"torch.stack([part * 2 for part in {x.name}.unbind({axis})], -1)",
        f"torch.stack([*{x.name}.unbind({axis})][::-1], {axis})",
        f"torch.stack(sorted({x.name}.unbind({axis}), key=lambda part: part.dim()), {axis})",
        f"torch.cat([{x.name}.narrow({axis}, i, 1) for i in {indices} if i % 2 == 0], {axis})",
    )


def _without_gradient(c: Choices) -> str:
    """Context managers that change no value."""
    x = c.tensor(rank=1)
    manager = c.of(
        "torch.no_grad()",
        "torch.enable_grad()",
        "torch.set_grad_enabled(False)",
        'torch.autocast("cpu", enabled=False)',
    )
    text = x.name if x.dtype == torch.bool else _simple(c, x.name)
    return f"with {manager}:\n    result = {text}"


def _autocast(c: Choices) -> str:
    """Products in a type of half precision."""
    x, size, _ = c.features((2, 3), -1)
    dtype = c.of("bfloat16", "bfloat16", "float16")
    text = c.of(
        f"{x} @ {x}.mT",
        f"{c.layer(f'nn.Linear({size}, {c.between(1, 3)})')}({x})",
        f"F.linear({x}, {x} if {x}.dim() == 2 else {x}[0])",
        f"{x} + 1",
        f"({x} @ {x}.mT).softmax(-1)",
        f"F.mse_loss({x}.to(torch.{dtype}), {x})",
    )
    return f'with torch.autocast("cpu", dtype=torch.{dtype}):\n    result = {text}'


REGIONS = [
    *[Instruction("branch", _branch)] * 2,
    Instruction("attribute", _attribute),
    Instruction("loop", _loop, computes=True),
    Instruction("without gradient", _without_gradient),
    Instruction("autocast", _autocast, never, computes=True),
]
