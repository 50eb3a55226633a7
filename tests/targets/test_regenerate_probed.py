"""Tables of kernels from running models, with ONNX Runtime as the runtime that is asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest

from onnx_aot.targets import find_kernels
from onnx_aot.targets.kernels import Kernels, list_releases, load_kernels
from onnx_aot.targets.probe_models import Probe, make_probes, probe_opsets
from onnx_aot.targets.regenerate_probed import Answers, is_right, make_release, make_web_release

ASKED = {"Abs", "Gather", "Where", "ReduceSum", "Mod", "Loop", "LayerNormalization", "MaxUnpool"}


@pytest.fixture(scope="module")
def probes() -> list[Probe]:
    return [*probe_opsets(), *make_probes(ASKED)]


@pytest.fixture(scope="module")
def answers(probes: list[Probe]) -> Answers:
    """Returns what the installed ONNX Runtime answers."""
    return Answers(onnxruntime.__version__, {probe.name: run(probe) for probe in probes})


def run(probe: Probe) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data, providers = probe.model.SerializeToString(), ["CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(data, options, providers)
        return session.run(None, dict(probe.inputs))
    except Exception:
        return None


def test_running_models_finds_the_kernels_that_onnx_runtime_lists(
    probes: list[Probe], answers: Answers
) -> None:
    """Half precision is left out: ONNX Runtime inserts casts where it has no kernel."""
    listed = find_kernels("onnxruntime")
    made = make_release(probes, answers)
    assert made.about == {"opset": listed.opset, "ir_version": listed.ir_version, "least_opset": 17}
    assert {name for name, _ in made.kernels} == ASKED
    halves = {"FLOAT16", "BFLOAT16"}
    for probe in probes:
        if probe.op_type and not halves & set(probe.types.values()):
            named = any(
                all(dtype in kernel[name] for name, dtype in probe.types.items())
                for kernel in made.kernels.get((probe.op_type, str(probe.version)), ())
            )
            if named != is_listed(listed, probe):
                assert probe.version > listed.opset, probe.name


def is_listed(listed: Kernels, probe: Probe) -> bool:
    types = {name: ir.DataType[dtype] for name, dtype in probe.types.items()}
    return any(
        all(dtype in kernel.get(name, {dtype}) for name, dtype in types.items())
        for kernel in listed.by_operator.get((probe.op_type, probe.version), ())
    )


def test_a_kernel_that_is_wrong_or_of_another_type_is_not_in_the_table(
    probes: list[Probe], answers: Answers
) -> None:
    probe = next(p for p in probes if p.op_type == "Abs" and p.types == {"T": "FLOAT"})
    (right,) = answers.outputs[probe.name] or ()
    assert is_right(probe, answers)
    for wrong in ([right + 1], [right.astype("float16")], [right[None]], [], None):
        assert not is_right(probe, Answers("1.0.0", {probe.name: wrong}))


def test_the_build_for_the_web_has_what_it_does_not_refuse(
    probes: list[Probe], answers: Answers
) -> None:
    version = f"{list_releases()[-1]}.0"
    known = load_kernels(list_releases()[-1])
    refused = {p.name: None for p in probes if p.types.get("T") == "INT8" and p.op_type == "Abs"}
    changed = dataclasses.replace(answers, version=version, outputs={**answers.outputs, **refused})
    made = make_web_release(probes, changed).kernels
    listed = {dtype.name for dtype in known.by_operator["Abs", 13][0]["T"]}
    assert made["Abs", "13"][0]["T"] == listed - {"INT8"}
    assert made["Exp", "13"][0]["T"] == {t.name for t in known.by_operator["Exp", 13][0]["T"]}
