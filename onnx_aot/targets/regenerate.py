"""Writes the tables of ONNX Runtime's kernels, by release.

    python -m onnx_aot.targets.regenerate PYTHON [PYTHON ...]
    python -m onnx_aot.targets.regenerate --cuda PYTHON

Each PYTHON is the interpreter of an environment with another release of ONNX Runtime;
``python -m nox -s targets`` makes them. With ``--cuda`` it has onnxruntime-gpu, on a machine with a
CUDA device; the table then has the CPU kernels, and those for float16 and bfloat16 on the device.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir

from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET
from onnx_aot.targets import probe_runtime
from onnx_aot.targets.kernels import FILES, ONNX_RUNTIME, ONNX_RUNTIME_GPU
from onnx_aot.targets.tables import Release, merge_kernels, store_releases, write_table

__all__ = ["ask_runtime", "make_cuda_table", "make_table"]

OPSETS = range(MIN_OPSET, MAX_OPSET + 1)
IR_VERSIONS = range(8, onnx.IR_VERSION + 1)
UNBOUNDED = 2**31 - 1
HALVES = frozenset({"FLOAT16", "BFLOAT16"})

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


def ask_runtime(python: str = sys.executable) -> dict[str, Any]:
    """Returns what the ONNX Runtime of an environment answers; see ``probe_runtime``."""
    with tempfile.TemporaryDirectory() as folder:
        for name, model in _make_probes():
            Path(folder, f"{name}.onnx").write_bytes(model.SerializeToString())
        command = [python, "-I", probe_runtime.__file__, folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def make_table(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Makes the table from the answers of releases."""
    return store_releases("onnxruntime, CPUExecutionProvider", map(_read_answer, answers))


def make_cuda_table(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Makes the table of the build for CUDA.

    Kernels of other types than the halves are those of the CPU, so that a model without bfloat16
    runs there, too: ONNX Runtime itself puts casts around float16 on the CPU.
    """
    releases = []
    for answer in answers:
        found = _read_answer(answer)
        added = {
            (name, str(version)): [
                kernel for kernel in kernels if any(types & HALVES for types in kernel.values())
            ]
            for name, version, kernels in _collect_kernels(answer["cuda"])
            if version <= found.about["opset"]
        }
        joined = {
            key: merge_kernels([*found.kernels.get(key, ()), *added.get(key, ())])
            for key in sorted(found.kernels.keys() | added.keys())
        }
        releases.append(dataclasses.replace(found, kernels=joined))
    return store_releases("onnxruntime, CUDAExecutionProvider", releases)


def _read_answer(answer: dict[str, Any]) -> Release:
    loaded = set(answer["loaded"])
    opset = max(n for n in OPSETS if f"opset.{n}" in loaded)
    about = {
        "opset": opset,
        "ir_version": max(n for n in IR_VERSIONS if f"ir_version.{n}" in loaded),
    }
    kernels = {
        (name, str(version)): merge_kernels(found)
        for name, version, found in _collect_kernels(answer["kernels"])
        if version <= opset
    }
    inlined: dict[tuple[str, str], list[str]] = {}
    for name in sorted(DEFINED):
        for version in OPSETS:
            types = [t for t in TRIED if f"{name}.{version}.{t}" in loaded]
            if types:
                inlined[name, str(version)] = types
    return Release(answer["version"], about, kernels, inlined)


def _collect_kernels(
    answered: Sequence[Any],
) -> Iterator[tuple[str, int, list[dict[str, set[str]]]]]:
    """Yields each version of an operator in one of the opsets, with the kernels that match it.

    A kernel matches if it begins at the version in which the operator last changed, or if it begins
    earlier and has an end that is not before that version: a kernel without an end is for the
    version that was the latest when the kernel was written.
    """
    registered: dict[str, list[Any]] = {}
    for name, first, last, types in answered:
        registered.setdefault(name, []).append(((first, last), types))
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
            {variable: _names_of_types(texts) for variable, texts in types.items()}
            for span, types in registered[name]
            if _is_kernel_for(span, version)
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


def _make_probes() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields the models that a runtime is asked to load, with their names."""
    for opset in OPSETS:
        yield f"opset.{opset}", _make_model("Identity", opset, [_X], {}, "FLOAT")
    for version in IR_VERSIONS:
        model = _make_model("Identity", MIN_OPSET, [_X], {}, "FLOAT")
        model.ir_version = version
        yield f"ir_version.{version}", model
    for name, (inputs, attributes) in DEFINED.items():
        for opset in OPSETS:
            try:
                schema = onnx.defs.get_schema(name, opset)
            except onnx.defs.SchemaError:
                continue
            accepted = _names_of_types(list(schema.type_constraints[0].allowed_type_strs))
            for dtype in TRIED:
                if dtype in accepted:
                    model = _make_model(name, opset, inputs, attributes, dtype)
                    yield f"{name}.{opset}.{dtype}", model


def _make_model(
    name: str, opset: int, inputs: list[Any], attributes: dict[str, Any], dtype: str
) -> onnx.ModelProto:
    """A model with one node, in the lowest IR version that has the opset."""
    values = [
        onnx.helper.make_tensor_value_info(label, ir.DataType[kind or dtype].value, shape)
        for label, kind, shape in inputs
    ]
    node = onnx.helper.make_node(name, [value.name for value in values], ["y"], **attributes)
    output = onnx.helper.make_tensor_value_info("y", ir.DataType[dtype].value, None)
    graph = onnx.helper.make_graph([node], "probe", values, [output])
    opsets = [onnx.helper.make_opsetid("", opset)]
    least = onnx.helper.find_min_ir_version_for(opsets)
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=least)


def main() -> None:
    """Writes a table beside this file."""
    pythons = [python for python in sys.argv[1:] if python != "--cuda"]
    answers = [ask_runtime(python) for python in pythons or [sys.executable]]
    cuda = "--cuda" in sys.argv
    table = make_cuda_table(answers) if cuda else make_table(answers)
    path = Path(__file__).with_name(FILES[ONNX_RUNTIME_GPU if cuda else ONNX_RUNTIME])
    path.write_text(write_table(table), encoding="utf-8")


if __name__ == "__main__":
    main()
