"""Generates random programs."""

from __future__ import annotations

import random

from tests.properties.choices import Choices
from tests.properties.functions import FUNCTIONS, SCATTERS
from tests.properties.programs import Input, Program
from tests.properties.scope import Scope
from tests.properties.values import COMPUTATIONS, CREATIONS, NUMBERS, REDUCTIONS
from tests.properties.views import MOVES, VIEWS
from tests.properties.writes import WRITES, write

__all__ = ["generate"]

EXAMPLES = (
    {"n": 4, "m": 6},
    {"n": 3, "m": 5},
    {"n": 6, "m": 2},
    {"n": 4, "m": 4},
    {"n": 1, "m": 3},
)
DIMS: tuple[tuple[int | str, ...], ...] = (
    ("n", "m"),
    ("m",),
    ("n",),
    ("n", 1),
    ("m", "n"),
    (3, "n"),
    ("n", "m", 2),
    (1, "m"),
    ("2*n", "m"),
    ("n + 1",),
    ("n", "n"),
    (2, 3),
    (),
)
DTYPES = ("float32", "int64", "bool", "int32", "float64", "float16", "bfloat16")
FAMILIES = (
    *(VIEWS, VIEWS, COMPUTATIONS, COMPUTATIONS, REDUCTIONS, MOVES, *[WRITES] * 5),
    *(CREATIONS, NUMBERS, FUNCTIONS, FUNCTIONS, SCATTERS),
)


def generate(random: random.Random) -> Program:
    """Generates two or three inputs and three to ten statements; all results are returned."""
    inputs = [Input("x", random.choice(DTYPES[:4]), ("n", "m"))]
    inputs += [
        Input(name, random.choice(DTYPES), random.choice(DIMS))
        for name in ("y", "z")[: random.randint(1, 2)]
    ]
    example = random.choice(EXAMPLES if random.random() < 0.3 else EXAMPLES[:3])
    scope = Scope(inputs, example)
    for _ in range(random.randint(3, 10)):
        _add_statement(random, scope)
    returned = [v.name for v in scope.values if v.name.startswith("v")]
    if not returned or random.random() < 0.2:
        returned.append("x")
    dims = random.choice(("strings", "strings", "strings", "Dim"))
    body, passed_over = "\n".join(scope.lines), tuple(scope.passed_over)
    return Program(tuple(inputs), example, body, tuple(returned), dims, passed_over)


def _add_statement(random: random.Random, scope: Scope) -> None:
    """Adds a statement of a suitable kind, with a few attempts."""
    for _ in range(8):
        family = random.choice(FAMILIES)
        choices = Choices(random, scope)
        if isinstance(family, dict):
            added = write(choices, random.choice(sorted(WRITES)))
        else:
            added = random.choice(family).apply(choices)
        if added:
            return
