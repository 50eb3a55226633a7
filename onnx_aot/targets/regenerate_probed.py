"""Writes the tables of runtimes that do not list their kernels, by running models in them.

    python -m onnx_aot.targets.regenerate_probed RUNTIME WHERE [WHERE ...]

RUNTIME is ``openvino``, ``opencv`` or ``onnxruntime-web``. WHERE is the interpreter of an
environment with a release of it, or the folder ``node_modules``; ``python -m nox -s targets`` makes
them. A kernel is in the table if the runtime loads and runs one of the models of ``probe_models``
for these types, and gives what ONNX Runtime does.

onnxruntime-web is built from the sources of ONNX Runtime. Its table has the kernels that ONNX
Runtime lists for the release of that number, without those that the build refuses.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnx_aot.dtypes import EXACT, TOLERANCES, to_torch
from onnx_aot.graph.opset_range import BUILT_OPSET
from onnx_aot.targets import probe_client
from onnx_aot.targets.kernels import FILES, Kernel, load_kernels
from onnx_aot.targets.probe_models import (
    Array,
    Probe,
    decode_array,
    encode_probe,
    make_probes,
    probe_opsets,
)
from onnx_aot.targets.tables import (
    Release,
    Types,
    merge_kernels,
    store_releases,
    write_table,
)

__all__ = ["Answers", "ask", "is_right", "make_release", "make_web_release"]

WEB = "onnxruntime-web"
WEB_TYPES = frozenset(
    {
        *("FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64"),
        *("UINT8", "UINT16", "UINT32", "UINT64"),
    }
)
"""Types that JavaScript has arrays of."""
CRASHES = 500
"""Models that may end the process."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """Records what a release of a runtime makes of models.

    Attributes:
        version: The release.
        outputs: Outputs by name of the probe; None if the runtime refuses the model. Models that
            could not be asked about are absent.
    """

    version: str
    outputs: dict[str, list[Array] | None]


def ask(runtime: str, where: str, probes: Iterable[Probe]) -> Answers:
    """Runs models in a release of a runtime.

    Args:
        runtime: The runtime.
        where: The interpreter of its environment, or the folder ``node_modules``.
        probes: The models.

    Raises:
        RuntimeError: The runtime does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, told = str(Path(folder, "probes")), Path(folder, "answers")
        if runtime == WEB:
            probes = [probe for probe in probes if WEB_TYPES.issuperset(probe.types.values())]
            program = str(Path(__file__).with_name("probe_web.mjs"))
            command = ["node", program, where, asked, str(told)]
        else:
            command = [where, "-I", probe_client.__file__, runtime, asked, str(told)]
        with open(asked, "w", encoding="utf-8") as file:
            file.writelines(f"{encode_probe(probe)}\n" for probe in probes)
        for _ in range(CRASHES):  # a model that ends the process is not asked about again
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode == 0:
                break
            if runtime == WEB or not told.exists():
                raise RuntimeError(f"{command} failed: {done.stderr[-500:]}")
        entries = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    outputs: dict[str, list[Array] | None] = {}
    for entry in entries:
        if entry["name"]:
            given = entry.get("outputs")
            outputs[entry["name"]] = None if given is None else [*map(decode_array, given)]
    return Answers(next(entry["version"] for entry in entries if not entry["name"]), outputs)


def is_right(probe: Probe, answers: Answers) -> bool:
    """True if a runtime gives what is expected, within the tolerances of the types.

    Runtimes that compute DOUBLE in single precision are right, too.
    """
    found = answers.outputs.get(probe.name)
    if found is None or probe.expected is None:
        return found is not None
    if len(found) != len(probe.expected):
        return False
    for array, wanted in zip(found, probe.expected, strict=True):
        if array.dtype != wanted.dtype or array.shape != wanted.shape:
            return False
        if not _is_close(array, wanted):
            return False
    return True


def _is_close(array: Array, wanted: Array) -> bool:
    """Compares with the tolerance of the type, which grows with the largest element."""
    dtype = ir.DataType.from_numpy(wanted.dtype)
    if dtype == ir.DataType.DOUBLE:
        dtype = ir.DataType.FLOAT
    allowed = TOLERANCES.get(to_torch(dtype), EXACT)
    with np.errstate(all="ignore"):
        found, expected = array.astype(np.float64), wanted.astype(np.float64)
        sizes = np.abs(expected[np.isfinite(expected)])
        absolute = allowed.absolute * sizes.max(initial=1.0)
        return np.allclose(found, expected, allowed.relative, absolute, equal_nan=True)


def make_release(probes: Sequence[Probe], answers: Answers) -> Release:
    """Returns the kernels whose models a release runs as expected."""
    right = [probe for probe in probes if is_right(probe, answers)]
    about = {**_find_range(right), "least_opset": BUILT_OPSET}
    by_operator: dict[tuple[str, str], list[Probe]] = collections.defaultdict(list)
    for probe in right:
        if probe.op_type:
            by_operator[probe.op_type, str(probe.version)].append(probe)
    kernels = {key: _collect_kernels(found) for key, found in sorted(by_operator.items())}
    return Release(answers.version, about, kernels, {})


def make_web_release(probes: Sequence[Probe], answers: Answers) -> Release:
    """Returns the kernels of ONNX Runtime, without the types that the build for the web refuses."""
    kernels = load_kernels(".".join(answers.version.split(".")[:2]))
    asked: dict[tuple[str, int], list[Probe]] = collections.defaultdict(list)
    for probe in probes:
        if probe.name in answers.outputs:
            asked[probe.op_type, probe.version].append(probe)
    found = {
        (op_type, str(version)): [
            _without_refused(kernel, asked[op_type, version], answers) for kernel in known
        ]
        for (op_type, version), known in kernels.by_operator.items()
    }
    inlined = {
        (op_type, str(opset)): sorted(dtype.name for dtype in types)
        for (op_type, opset), types in kernels.inlined.items()
    }
    right = [probe for probe in probes if is_right(probe, answers)]
    return Release(answers.version, _find_range(right), found, inlined)


def _without_refused(kernel: Kernel, asked: Iterable[Probe], answers: Answers) -> Types:
    """A kernel without the types for which all models that it is for are refused."""
    names = {variable: {dtype.name for dtype in types} for variable, types in kernel.items()}
    outcomes: dict[tuple[str, str], bool] = collections.defaultdict(bool)
    for probe in asked:
        if all(dtype in names.get(variable, (dtype,)) for variable, dtype in probe.types.items()):
            for pair in probe.types.items():
                outcomes[pair] |= is_right(probe, answers)
    return {
        variable: {dtype for dtype in types if outcomes.get((variable, dtype), True)}
        for variable, types in names.items()
    }


def _find_range(right: Iterable[Probe]) -> dict[str, int]:
    """The opset and the IR version up to which a runtime loads all."""
    loaded: dict[str, set[int]] = collections.defaultdict(set)
    for probe in right:
        if not probe.op_type:
            loaded[probe.name.partition(".")[0]].add(probe.version)
    return {
        kind: next(n for n in itertools.count(min(numbers)) if n + 1 not in numbers)
        for kind, numbers in sorted(loaded.items(), reverse=True)
    }


def _collect_kernels(found: Iterable[Probe]) -> list[Types]:
    """The kernels of an operator, from the combinations of types that are right."""
    found = list(found)
    if any(probe.alone for probe in found):  # one variable was varied at a time
        kernel: Types = collections.defaultdict(set)
        for probe in found:
            for variable, dtype in probe.types.items():
                kernel[variable].add(dtype)
        return [dict(kernel)]
    combinations = dict.fromkeys(tuple(probe.types.items()) for probe in found)
    merged = [{name: {dtype} for name, dtype in one} for one in combinations]
    while len(fewer := merge_kernels(merged)) < len(merged):
        merged = fewer
    return merged


def main() -> None:
    """Writes the table of a runtime beside this file."""
    runtime, *places = sys.argv[1:]
    probes = [*probe_opsets(), *make_probes()]
    make = make_web_release if runtime == WEB else make_release
    releases = [make(probes, ask(runtime, where, probes)) for where in places]
    text = write_table(store_releases(runtime, releases))
    Path(__file__).with_name(FILES[runtime]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
