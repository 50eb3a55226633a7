"""Generates random programs."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET
from tests.properties.choices import Choices
from tests.properties.functions import FUNCTIONS, SCATTERS
from tests.properties.indexing import INDEXING
from tests.properties.layers import LAYERS
from tests.properties.losses import LOSSES
from tests.properties.programs import Input, Program, used_by
from tests.properties.regions import REGIONS
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
    ("n", 4),
    ("n", 3, "m"),
    (2, "n", 6),
    ("n", 2, "m", 3),
    ("n", 2, 5, 4),
    (0, "n"),
)
DTYPES = ("float32", "int64", "bool", "int32", "float64", "float16", "bfloat16", "uint8", "int16")
LAYOUTS = (*["plain"] * 5, "transposed", "stepped", "expanded")
TAKES = (*["arguments"] * 4, "tuple", "list", "dict", "dataclass", "named tuple")
RETURNS = ("tuple", "tuple", "list", "dict", "dataclass", "named tuple", "nested", "single")
TENSORS = (
    *(VIEWS, VIEWS, COMPUTATIONS, COMPUTATIONS, REDUCTIONS, MOVES, *[WRITES] * 5),
    *(CREATIONS, NUMBERS, FUNCTIONS, FUNCTIONS, SCATTERS, INDEXING, REGIONS),
)
"""Families of programs that are mainly views and writes."""
MODULES = (
    *(LAYERS, LAYERS, LAYERS, LOSSES, REGIONS, REGIONS, INDEXING, INDEXING, WRITES, WRITES),
    *(VIEWS, COMPUTATIONS, REDUCTIONS, MOVES, NUMBERS, FUNCTIONS),
)
"""Families of programs that are mainly layers and control flow."""


def generate(random: random.Random) -> Program:
    """Generates two or three inputs and three to ten statements; all results are returned."""
    dynamic, training = random.random() < 0.7, random.random() < 0.15
    families = random.choice((TENSORS, MODULES, MODULES))
    inputs = _draw_inputs(random, features=families is MODULES)
    example = random.choice(EXAMPLES if random.random() < 0.3 else EXAMPLES[:3])
    scope = Scope(inputs, example, dynamic=dynamic, training=training)
    for _ in range(random.randint(3, 10)):
        _add_statement(random, scope, families)
    returned = [v.name for v in scope.values if v.name.startswith("v")]
    if not returned or random.random() < 0.2:
        returned.append("x")
    body = "\n".join(scope.lines)
    return Program(
        inputs=tuple(inputs),
        example=example,
        body=body,
        returned=tuple(returned),
        dims=random.choice(("strings", "strings", "strings", "Dim")) if dynamic else "none",
        passed_over=tuple(scope.passed_over),
        members=tuple(m for m in scope.members if used_by(m, body)),
        takes=random.choice(TAKES) if len(inputs) > 1 else "arguments",
        returns=random.choice(RETURNS),
        opset=random.choice((None, *range(MIN_OPSET, MAX_OPSET + 1))),
        training=training,
    )


def _draw_inputs(random: random.Random, *, features: bool) -> list[Input]:
    """Draws ``x`` of two dynamic sizes, and one or two more inputs."""
    first = ("n", "m") if not features else random.choice((("n", 4), ("n", 3, "m"), ("n", "m", 3)))
    inputs = [Input("x", random.choice(("float32", *DTYPES[: 1 if features else 4])), first)]
    for name in ("y", "z")[: random.randint(1, 2)]:
        dtype = random.choice(("float32", *DTYPES))
        inputs.append(Input(name, dtype, random.choice(DIMS)))
    return [dataclasses.replace(given, layout=random.choice(LAYOUTS)) for given in inputs]


def _add_statement(random: random.Random, scope: Scope, families: Sequence[Any]) -> None:
    """Adds a statement of a suitable kind, with a few attempts."""
    for _ in range(8):
        family = random.choice(families)
        choices = Choices(random, scope)
        if isinstance(family, dict):
            added = write(choices, random.choice(sorted(WRITES)))
        else:
            added = random.choice(family).apply(choices)
        if added:
            return
