"""Reduces a failing program."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.properties.programs import Program, used_by

__all__ = ["reduced"]

ASSIGNED = re.compile(r"^\s*(v\d+(?:, v\d+)*) =", re.MULTILINE)


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
    statements = program.statements
    if len(program.returned) > 1:
        for name in program.returned:
            yield _sliced(program, name)
        for name in program.returned:
            rest = tuple(other for other in program.returned if other != name)
            yield dataclasses.replace(program, returned=rest)
            yield dataclasses.replace(program, returned=(name,))
    for index in reversed(range(len(statements))):
        assigned = set(re.findall(r"\bv\d+\b", " ".join(ASSIGNED.findall(statements[index]))))
        rest_of_body = "\n".join(statements[:index] + statements[index + 1 :])
        returned = tuple(name for name in program.returned if name not in assigned)
        returned = returned or (program.inputs[0].name,)
        if not assigned & set(re.findall(r"\w+", rest_of_body)):
            members = tuple(m for m in program.members if used_by(m, rest_of_body))
            yield dataclasses.replace(
                program, body=rest_of_body, returned=returned, members=members
            )
    for given in program.inputs:
        others = tuple(other for other in program.inputs if other is not given)
        used = re.findall(r"\w+", " ".join([program.body, *program.returned]))
        if others and given.name not in used:
            yield dataclasses.replace(program, inputs=others)
    yield from _plainer(program)


def _sliced(program: Program, name: str) -> Program:
    """The program with one result, and the statements that it depends on."""
    needed = {name}
    kept: list[str] = []
    for statement in reversed(program.statements):
        assigned = set(re.findall(r"\bv\d+\b", " ".join(ASSIGNED.findall(statement))))
        named = set(re.findall(r"\b(?:v\d+|[xyz]|memory|counter)\b", statement))
        if needed & (assigned or named):
            kept.insert(0, statement)
            needed |= named
    body = "\n".join(kept)
    members = tuple(m for m in program.members if used_by(m, body))
    return dataclasses.replace(program, body=body, returned=(name,), members=members)


def _plainer(program: Program) -> Iterator[Program]:
    """Programs with one option less."""
    plain: dict[str, Any] = {
        "takes": "arguments",
        "returns": "tuple",
        "opset": None,
        "training": False,
    }
    for name, value in plain.items():
        if getattr(program, name) != value:
            yield dataclasses.replace(program, **{name: value})
    for index, given in enumerate(program.inputs):
        if given.layout != "plain":
            inputs = list(program.inputs)
            inputs[index] = dataclasses.replace(given, layout="plain")
            yield dataclasses.replace(program, inputs=tuple(inputs))
    for member in program.members:
        if ".register_" in member:
            rest = tuple(other for other in program.members if other != member)
            yield dataclasses.replace(program, members=rest)
