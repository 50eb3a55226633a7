"""The table of kernels matches the installed ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest

from onnx_aot.targets import kernels as kernels_module
from onnx_aot.targets.kernels import FILES, decode_kernels, list_releases, load_kernels
from onnx_aot.targets.regenerate import ask_runtime, make_cuda_table, make_table
from onnx_aot.targets.tables import write_table


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    return ask_runtime()


def test_the_installed_release_is_in_the_table_as_it_answers(answer: dict[str, Any]) -> None:
    assert answer["version"] == onnxruntime.__version__
    release = ".".join(answer["version"].split(".")[:2])
    found = decode_kernels(make_table([answer]), release)
    # A release that is newer than the table has what the newest of the table has.
    known = load_kernels(release if release in list_releases() else list_releases()[-1])
    if known.release == release:
        assert found == known
    else:
        assert found.opset >= known.opset
        assert found.by_operator.keys() >= known.by_operator.keys()


def test_an_entry_is_stored_once_until_it_changes(answer: dict[str, Any]) -> None:
    kernels = answer["kernels"]
    fewer = [kernel for kernel in kernels if kernel[0] != "Gelu"]
    answers = [
        {"version": "1.4.1", "kernels": kernels, "loaded": answer["loaded"]},
        {"version": "1.2.0", "kernels": fewer, "loaded": answer["loaded"]},
        {"version": "1.10.0", "kernels": fewer, "loaded": answer["loaded"]},
    ]
    table = make_table(answers)
    assert list(table["releases"]) == ["1.2", "1.4", "1.10"]
    assert list(table["kernels"]["Gelu"]["20"]) == ["1.4", "1.10"]
    assert list(table["kernels"]["Add"]["14"]) == ["1.2"]
    at = {release: decode_kernels(table, release).by_operator for release in table["releases"]}
    assert ("Gelu", 20) not in at["1.2"]
    assert at["1.4"]["Gelu", 20]
    assert at["1.10"]["Gelu", 20] == ()
    assert (
        at["1.2"]["Add", 14] == at["1.10"]["Add", 14] == load_kernels("1.32").by_operator["Add", 14]
    )


def test_half_types_are_those_of_cuda(answer: dict[str, Any]) -> None:
    """Kernels of other types are those of the CPU, where a model for CUDA runs too."""
    cuda = [
        ["Add", 14, 2147483647, {"T": ["tensor(float16)"]}],
        ["Add", 14, 2147483647, {"T": ["tensor(int8)"]}],
        ["Gelu", 20, 2147483647, {"T": ["tensor(bfloat16)", "tensor(float)"]}],
    ]
    release = ".".join(answer["version"].split(".")[:2])
    kernels = decode_kernels(make_cuda_table([{**answer, "cuda": cuda}]), release).by_operator
    cpu = decode_kernels(make_table([answer]), release).by_operator
    (added,) = kernels["Add", 14]
    (known,) = cpu["Add", 14]
    assert added["T"] - known["T"] == {ir.DataType.FLOAT16}
    assert {ir.DataType.BFLOAT16, ir.DataType.FLOAT} <= kernels["Gelu", 20][0]["T"]
    assert kernels["MatMul", 13] == cpu["MatMul", 13]


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-gpu"])
def test_a_file_is_written_as_it_is_read(runtime: str) -> None:
    text = Path(kernels_module.__file__).with_name(FILES[runtime]).read_text(encoding="utf-8")
    assert write_table(json.loads(text)) == text
