"""Loads the kernels of a release of a runtime: its operators, with their element types.

The tables are JSON files beside this one. That of ONNX Runtime is made by
``python -m onnx_aot.targets.regenerate`` from the information that its releases give about
themselves, those of other runtimes by ``python -m onnx_aot.targets.regenerate_probed`` from models
that they run. For each operator and the opset in which it last changed, a table holds the kernels
that the runtime would consider, each with the types of its type variables; a variable that a kernel
does not mention may be any type. For onnxruntime-gpu they are those of its CPU provider, and for
float16 and bfloat16 those of its provider for CUDA. Operators that the standard defines by other
operators, and that ONNX Runtime replaces by these while loading, are listed by opset, with the
types for which a model with only that node loads. An entry holds from its release on until the next
entry.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir

from onnx_aot.graph.opset_range import MIN_OPSET

__all__ = [
    "FILES",
    "ONNX_RUNTIME",
    "ONNX_RUNTIME_GPU",
    "Kernel",
    "Kernels",
    "Signature",
    "decode_kernels",
    "list_releases",
    "load_kernels",
    "signature",
    "standard_types",
]

ONNX_RUNTIME = "onnxruntime"
ONNX_RUNTIME_GPU = "onnxruntime-gpu"

FILES = {
    ONNX_RUNTIME: "onnxruntime_cpu.json",
    ONNX_RUNTIME_GPU: "onnxruntime_gpu.json",
    "onnxruntime-web": "onnxruntime_web.json",
    "openvino": "openvino.json",
    "opencv": "opencv.json",
}
"""Files of the tables, by runtime."""

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
    """The kernels of one release of a runtime.

    Attributes:
        runtime: The runtime; empty for the standard itself.
        release: The release, such as ``1.18``.
        least_opset: The lowest opset that the table has the operators of.
        opset: The highest opset that it loads.
        ir_version: The highest IR version that it loads.
        by_operator: Kernels by operator and the opset in which the operator last changed.
        inlined: Element types for which the runtime replaces the operator by its definition, by
            operator and opset.
    """

    runtime: str
    release: str
    least_opset: int
    opset: int
    ir_version: int
    by_operator: dict[tuple[str, int], tuple[Kernel, ...]]
    inlined: dict[tuple[str, int], frozenset[ir.DataType]]

    def has_kernel(self, op_type: str, opset: int) -> bool:
        """Returns True if there is a kernel for an operator as it is in an opset, for any type."""
        found = signature(op_type, opset)
        return found is not None and bool(self.by_operator.get((op_type, found.version)))

    @property
    def name(self) -> str:
        """The runtime and its release, such as ``onnxruntime 1.18``."""
        return f"{self.runtime} {self.release}"


@functools.cache
def _read_table(runtime: str) -> dict[str, Any]:
    path = importlib.resources.files(__package__).joinpath(FILES[runtime])
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table


def list_releases(runtime: str = ONNX_RUNTIME) -> tuple[str, ...]:
    """The releases of a runtime that its table has, the oldest first."""
    return tuple(_read_table(runtime)["releases"])


@functools.cache
def load_kernels(release: str, runtime: str = ONNX_RUNTIME) -> Kernels:
    """Reads the kernels of a release, once per process."""
    return decode_kernels(_read_table(runtime), release, runtime)


def decode_kernels(data: dict[str, Any], release: str, runtime: str = ONNX_RUNTIME) -> Kernels:
    """Decodes what a table says about a release."""
    members = ir.DataType.__members__
    sets = [frozenset(members[name] for name in names.split()) for names in data["types"]]
    order = {name: index for index, name in enumerate(data["releases"])}

    def find(entries: dict[str, Any]) -> Any:
        """The last entry that is not of a later release."""
        earlier = [entry for since, entry in entries.items() if order[since] <= order[release]]
        return earlier[-1] if earlier else None

    by_operator = {
        (name, int(version)): tuple(
            {variable: sets[index] for variable, index in kernel.items()} for kernel in found
        )
        for name, versions in data["kernels"].items()
        for version, entries in versions.items()
        if (found := find(entries)) is not None
    }
    inlined = {
        (name, int(opset)): sets[found]
        for name, opsets in data["inlined"].items()
        for opset, entries in opsets.items()
        if (found := find(entries)) is not None
    }
    about = data["releases"][release]
    return Kernels(
        runtime,
        release,
        about.get("least_opset", MIN_OPSET),
        about["opset"],
        about["ir_version"],
        by_operator,
        inlined,
    )


@functools.cache
def standard_types(opset: int) -> Kernels:
    """The types that ONNX itself accepts in an opset, as a runtime that has all kernels."""
    by_operator: dict[tuple[str, int], tuple[dict[str, frozenset[ir.DataType]], ...]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        types = None if schema.domain else signature(schema.name, opset)
        if types is not None:
            tensors = {variable: found for variable, found in types.accepted.items() if found}
            by_operator[schema.name, types.version] = (tensors,)
    return Kernels("", "", MIN_OPSET, opset, onnx.IR_VERSION, by_operator, {})
