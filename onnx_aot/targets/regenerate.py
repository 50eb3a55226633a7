"""Writes the table of ONNX Runtime's CPU kernels: ``python -m onnx_aot.targets.regenerate``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir

from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET

__all__ = ["make_table"]

OPSETS = range(MIN_OPSET, MAX_OPSET + 1)
UNBOUNDED = 2**31 - 1
FILE = Path(__file__).with_name("onnxruntime_cpu.json")

# Kernels that are registered, but fail when created or run: operator, variable and type.
REFUSED: dict[str, tuple[str, str]] = {
    "LSTM": ("T", "DOUBLE"),
    "GRU": ("T", "DOUBLE"),
}

# Operators defined by other operators, with inputs and attributes to test whether the definition
# runs: None stands for the type that is tried. FLOAT16 and BFLOAT16 are not tried, because ONNX
# Runtime wraps the parts in casts of its own in some places, but not in all.
TRIED = ("FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "BOOL")
_X = ("x", None, [2, 4, 3])
_Q = [(name, None, [2, 4, 3, 8]) for name in "qkv"]
_SCORES = ("m", "BOOL", [3, 3])
DEFINED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "AffineGrid": ([("t", None, [2, 2, 3]), ("s", "INT64", [4])], {}),
    "Attention": ([*_Q, _SCORES], {}),
    "Celu": ([_X], {"alpha": 2.0}),
    "CenterCropPad": ([_X, ("s", "INT64", [1])], {"axes": [1]}),
    "Clip": ([_X, ("a", None, []), ("b", None, [])], {}),
    "GroupNormalization": ([_X, ("s", None, [4]), ("b", None, [4])], {"num_groups": 4}),
    "Gelu": ([_X], {}),
    "HardSwish": ([_X], {}),
    "LayerNormalization": ([_X, ("s", None, [3]), ("b", None, [3])], {}),
    "LeakyRelu": ([_X], {}),
    "LogSoftmax": ([_X], {}),
    "Mish": ([_X], {}),
    "PRelu": ([_X, ("s", None, [3])], {}),
    "RMSNormalization": ([_X, ("s", None, [3])], {}),
    "Relu": ([_X], {}),
    "RotaryEmbedding": (
        [("x", None, [2, 4, 3, 8]), ("c", None, [2, 3, 4]), ("s", None, [2, 3, 4])],
        {},
    ),
    "Shrink": ([_X], {}),
    "Softmax": ([_X], {}),
    "Softplus": ([_X], {}),
    "Softsign": ([_X], {}),
    "Swish": ([_X], {}),
    "ThresholdedRelu": ([_X], {}),
}


def make_table() -> dict[str, Any]:
    """Makes the table from the installed ONNX Runtime."""
    import onnxruntime

    sets: dict[str, int] = {}

    def add_types(types: Any) -> int:
        return sets.setdefault(" ".join(sorted(types)), len(sets))

    by_operator: dict[str, dict[str, list[dict[str, int]]]] = {}
    for name, version, kernels in _collect_kernels():
        merged = [
            {variable: add_types(types) for variable, types in kernel.items()}
            for kernel in _merge_kernels(kernels)
        ]
        by_operator.setdefault(name, {})[str(version)] = merged
    inlined: dict[str, dict[str, int]] = {}
    for name in sorted(DEFINED):
        for opset in OPSETS:
            types = _find_inlined_types(name, opset)
            if types:
                inlined.setdefault(name, {})[str(opset)] = add_types(types)
    return {
        "runtime": "onnxruntime, CPUExecutionProvider",
        "version": onnxruntime.__version__,
        "types": list(sets),
        "kernels": by_operator,
        "inlined": inlined,
    }


def _collect_kernels() -> Iterator[tuple[str, int, list[dict[str, set[str]]]]]:
    """Yields each version of an operator in one of the opsets, with the kernels that match it.

    A kernel matches if it begins at the version in which the operator last changed, or if it begins
    earlier and has an end that is not before that version: a kernel without an end is for the
    version that was the latest when the kernel was written.
    """
    from onnxruntime.capi import _pybind_state

    registered: dict[str, list[Any]] = {}
    for kernel in _pybind_state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and not kernel.domain:
            registered.setdefault(kernel.op_name, []).append(kernel)
    schemas = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.name not in registered:
            continue
        for opset in OPSETS:
            try:
                found = onnx.defs.get_schema(schema.name, opset)
            except onnx.defs.SchemaError:
                continue
            if not found.deprecated:
                schemas[found.name, found.since_version] = found
    for name, version in sorted(schemas):
        matching = [
            {
                variable: _names_of_types(types)
                for variable, types in kernel.type_constraints.items()
            }
            for kernel in registered[name]
            if _is_kernel_for(kernel.version_range, version)
        ]
        yield name, version, [_without_refused(name, kernel) for kernel in matching]


def _is_kernel_for(span: tuple[int, int], version: int) -> bool:
    first, last = span
    return first == version or (first < version <= last and last != UNBOUNDED)


def _names_of_types(types: list[str]) -> set[str]:
    members = ir.DataType.__members__
    inner = (text[len("tensor(") : -1].upper() for text in types if text.startswith("tensor("))
    return {name for name in inner if name in members}


def _without_refused(name: str, kernel: dict[str, set[str]]) -> dict[str, set[str]]:
    if name not in REFUSED:
        return kernel
    variable, refused = REFUSED[name]
    return {key: types - {refused} if key == variable else types for key, types in kernel.items()}


def _merge_kernels(kernels: list[dict[str, set[str]]]) -> list[dict[str, set[str]]]:
    """Merges kernels that differ in the types of one variable."""
    merged: list[dict[str, set[str]]] = []
    for kernel in kernels:
        for other in merged:
            if other.keys() == kernel.keys():
                differing = [name for name in kernel if kernel[name] != other[name]]
                if len(differing) <= 1:
                    for name in differing:
                        other[name] |= kernel[name]
                    break
        else:
            merged.append({name: set(types) for name, types in kernel.items()})
    return merged


def _find_inlined_types(name: str, opset: int) -> list[str]:
    """Types for which a model with only this operator loads."""
    try:
        schema = onnx.defs.get_schema(name, opset)
    except onnx.defs.SchemaError:
        return []
    inputs, attributes = DEFINED[name]
    accepted = _names_of_types(list(schema.type_constraints[0].allowed_type_strs))
    return [
        dtype
        for dtype in TRIED
        if dtype in accepted and _is_loadable(name, opset, inputs, attributes, dtype)
    ]


def _is_loadable(
    name: str, opset: int, inputs: list[Any], attributes: dict[str, Any], dtype: str
) -> bool:
    import onnxruntime

    if name == "GroupNormalization" and opset < 21:
        attributes = {**attributes, "num_groups": 4}
    values = [
        onnx.helper.make_tensor_value_info(label, ir.DataType[kind or dtype].value, shape)
        for label, kind, shape in inputs
    ]
    node = onnx.helper.make_node(name, [value.name for value in values], ["y"], **attributes)
    output = onnx.helper.make_tensor_value_info("y", ir.DataType[dtype].value, None)
    graph = onnx.helper.make_graph([node], "probe", values, [output])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # the reason does not matter
        return False
    return True


def main() -> None:
    """Writes the table beside this file."""
    parts = []
    for key, value in make_table().items():
        if isinstance(value, dict):
            lines = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
