"""Makes a program that fails smaller."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from tests.properties.programs import Program

__all__ = ["reduced"]


def reduced(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The program without statements, results and inputs that it also fails without."""
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, shrunk = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less that still define every name they use."""
    lines = program.body.strip().splitlines()
    if len(program.returned) > 1:
        for name in program.returned:
            rest = tuple(other for other in program.returned if other != name)
            yield dataclasses.replace(program, returned=rest)
            yield dataclasses.replace(program, returned=(name,))
    for index in reversed(range(len(lines))):
        name = lines[index].partition(" = ")[0]
        rest = lines[:index] + lines[index + 1 :]
        used = re.findall(r"\w+", " ".join([*rest, *program.returned]))
        if name not in used or not re.fullmatch(r"v\d+", name):
            yield dataclasses.replace(program, body="\n".join(rest))
        elif name in program.returned and len(program.returned) > 1:
            used = re.findall(r"\w+", " ".join(rest))
            if name not in used:
                returned = tuple(other for other in program.returned if other != name)
                yield dataclasses.replace(program, body="\n".join(rest), returned=returned)
    for given in program.inputs:
        others = tuple(other for other in program.inputs if other is not given)
        if len(others) > 0 and not re.search(
            rf"\b{given.name}\b", program.source()[20:].partition("\n")[2]
        ):
            yield dataclasses.replace(program, inputs=others)
