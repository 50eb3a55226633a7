"""Reduces a failing program."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from tests.properties.programs import Program

__all__ = ["reduced"]


def reduced(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Removes statements, results and inputs that are not needed for the failure."""
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, shrunk = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one item less that still define every name they use."""
    lines = program.body.strip().splitlines()
    if len(program.returned) > 1:
        for name in program.returned:
            rest = tuple(other for other in program.returned if other != name)
            yield dataclasses.replace(program, returned=rest)
            yield dataclasses.replace(program, returned=(name,))
    for index in reversed(range(len(lines))):
        left = lines[index].partition(" = ")[0]
        assigns = re.fullmatch(r"v\d+(, v\d+)*", left)
        named = set(re.findall(r"\w+", left)) if assigns else set()
        rest = lines[:index] + lines[index + 1 :]
        returned = tuple(name for name in program.returned if name not in named)
        if returned and not named & set(re.findall(r"\w+", " ".join(rest))):
            yield dataclasses.replace(program, body="\n".join(rest), returned=returned)
    for given in program.inputs:
        others = tuple(other for other in program.inputs if other is not given)
        used = re.findall(r"\w+", " ".join([*lines, *program.returned]))
        if others and given.name not in used:
            yield dataclasses.replace(program, inputs=others)
