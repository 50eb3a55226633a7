"""Loads the kernels of a target: the operators that it runs, with their element types.

The table is a JSON file beside this one, made by ``python -m onnx_aot.targets.regenerate`` from
the information that ONNX Runtime gives about itself. For each operator and the opset in which it
last changed, the table holds the kernels that ONNX Runtime would consider, each with the types of
its type variables; a variable that a kernel does not mention may be any type. Operators that the
standard defines by other operators, and that ONNX Runtime replaces by these while loading, are
listed by opset, with the types for which a model with only that node loads.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

import onnx.defs
import onnx_ir as ir

__all__ = ["Kernel", "Kernels", "Signature", "decode_kernels", "load_kernels", "signature"]

_PARAMETER = onnx.defs.OpSchema.FormalParameterOption

Kernel = dict[str, frozenset[ir.DataType]]


@dataclasses.dataclass(frozen=True)
class Signature:
    """The type variables of an ONNX operator.

    Attributes:
        version: Opset in which the operator last changed.
        inputs: Type variable of each formal input; the last one repeats if there are more inputs.
            None for a variadic input whose values may differ in type.
        outputs: The same for outputs.
        accepted: Element types that the standard allows, by variable.
    """

    version: int
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    accepted: dict[str, frozenset[ir.DataType]]


@functools.cache
def signature(op_type: str, opset: int) -> Signature | None:
    """The type variables of an operator of the default domain; None if the opset lacks it."""
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None
    accepted = {
        constraint.type_param_str: tensor_types(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
    }
    return Signature(
        schema.since_version,
        tuple(map(_type_variable, schema.inputs)),
        tuple(map(_type_variable, schema.outputs)),
        accepted,
    )


def _type_variable(parameter: Any) -> str | None:
    if parameter.option == _PARAMETER.Variadic and not parameter.is_homogeneous:
        return None
    return str(parameter.type_str)


def tensor_types(types: Any) -> frozenset[ir.DataType]:
    """Element types of texts such as ``tensor(int64)``, without sequences and optional values."""
    names = ir.DataType.__members__
    found = (text[len("tensor(") : -1].upper() for text in types if text.startswith("tensor("))
    return frozenset(names[name] for name in found if name in names)


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The kernels of one version of a runtime.

    Attributes:
        version: Version of the runtime.
        by_operator: Kernels by operator and the opset in which the operator last changed.
        inlined: Element types for which the runtime replaces the operator by its definition, by
            operator and opset.
    """

    version: str
    by_operator: dict[tuple[str, int], tuple[Kernel, ...]]
    inlined: dict[tuple[str, int], frozenset[ir.DataType]]


@functools.cache
def load_kernels(file: str) -> Kernels:
    """Reads a table, once per process."""
    text = importlib.resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return decode_kernels(json.loads(text))


def decode_kernels(data: dict[str, Any]) -> Kernels:
    """Decodes a table as it is stored."""
    members = ir.DataType.__members__
    sets = [frozenset(members[name] for name in names.split()) for names in data["types"]]
    by_operator = {
        (name, int(version)): tuple(
            {variable: sets[index] for variable, index in kernel.items()} for kernel in entries
        )
        for name, versions in data["kernels"].items()
        for version, entries in versions.items()
    }
    inlined = {
        (name, int(opset)): sets[index]
        for name, opsets in data["inlined"].items()
        for opset, index in opsets.items()
    }
    return Kernels(data["version"], by_operator, inlined)
