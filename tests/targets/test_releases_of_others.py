"""Targets that are not ONNX Runtime."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning, VerificationError
from onnx_aot.options import DEFAULT_OPSET
from onnx_aot.targets import find_kernels, find_obstacles, is_target, unsupported_nodes
from onnx_aot.targets import kernels as kernels_module
from onnx_aot.targets.kernels import FILES, list_releases, load_kernels
from onnx_aot.targets.tables import write_table
from tests.tolerances import assert_close

OTHERS = [runtime for runtime in FILES if runtime != "onnxruntime"]
PROBED = ["openvino", "opencv"]


@pytest.mark.parametrize("runtime", OTHERS)
def test_a_runtime_is_a_target_with_or_without_its_release(runtime: str) -> None:
    newest = list_releases(runtime)[-1]
    for target in (runtime, f"{runtime}=={newest}", f"{runtime}=={newest}.3"):
        assert is_target(target)
        assert find_kernels(target) == load_kernels(newest, runtime)
    assert not is_target(f"{runtime}==0.1")
    assert find_kernels(runtime).name == f"{runtime} {newest}"


@pytest.mark.parametrize("runtime", OTHERS)
def test_a_file_is_written_as_it_is_read(runtime: str) -> None:
    text = Path(kernels_module.__file__).with_name(FILES[runtime]).read_text(encoding="utf-8")
    assert write_table(json.loads(text)) == text


@pytest.mark.parametrize("runtime", OTHERS)
def test_the_opset_is_the_default_one_or_one_of_the_table(runtime: str) -> None:
    program = onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=runtime)
    assert program.model.opset_imports[""] == min(DEFAULT_OPSET, find_kernels(runtime).opset)


@pytest.mark.parametrize("runtime", PROBED)
def test_opsets_that_were_not_asked_for_are_refused(runtime: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"operators of {runtime} .* from opset 17 on"):
        onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=runtime, opset_version=13)


@pytest.mark.parametrize("runtime", PROBED)
def test_operators_of_onnx_runtime_alone_are_for_its_family(runtime: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"target is '{runtime}'; only ONNX Runtime"):
        onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=runtime, contrib_ops=True)
    onnx_aot.export(nn.ReLU(), (torch.ones(3),), target="onnxruntime-web", contrib_ops=True)


class Distances(nn.Module):
    """Positions that T5 looks up, and a gate of MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.norm = nn.LayerNorm(4)
        self.slope = nn.PReLU()

    def forward(self, places: Tensor, scores: Tensor) -> Tensor:
        looked_up = self.slope(self.norm(self.embedding(places.abs() % 8)))
        return nn.functional.hardsigmoid(scores) * looked_up


@pytest.mark.parametrize("runtime", OTHERS)
def test_a_model_has_only_kernels_of_its_target_and_is_right(runtime: str) -> None:
    model = Distances().eval()
    given = torch.tensor([-3, 5, 0]), torch.randn(3, 4)
    program = onnx_aot.export(model, given, target=runtime, dynamic_shapes=({0: "n"}, {0: "n"}))
    assert not unsupported_nodes(program.model, runtime)
    onnx.checker.check_model(program.model_proto, full_check=True)
    for sample in (given, (torch.arange(-4, 3), torch.randn(7, 4))):
        assert_close(program(*sample)[0], model(*sample))


def test_opencv_gets_no_hard_sigmoid_and_no_integers_that_it_does_not_compute() -> None:
    given = torch.tensor([-3, 5, 0]), torch.randn(3, 4)
    program = onnx_aot.export(Distances().eval(), given, target="opencv")
    kinds = {node.op_type: node for node in program.model.graph}
    assert not {"Abs", "HardSigmoid", "PRelu"} & kinds.keys()
    assert kinds["Neg"].inputs[0].dtype == ir.DataType.INT64


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


def test_what_a_runtime_lacks_is_named_with_the_line() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"opencv 5\.0 has no kernel for") as raised:
        program = onnx_aot.export(Chosen(), (torch.randn(5),), target="opencv")
    text = str(raised[0].message)
    assert "Compress of FLOAT (1x, first " in text
    assert Path(__file__).name in text
    assert [node.op_type for node in unsupported_nodes(program.model, "opencv")] == ["Compress"]
    obstacles = {found.target: found.reasons for found in find_obstacles(program.model)}
    assert obstacles["opencv==5.0"][0].startswith("no kernel for Compress of FLOAT")
    assert obstacles["openvino==2026.4"] == ()


class Repeated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def goes_on(step: Tensor, x: Tensor) -> Tensor:
            return step < 3

        def body(step: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, x * 2

        return torch.while_loop(goes_on, body, (torch.tensor(0), x))[1]


def test_loops_are_asked_for_too() -> None:
    given = (torch.ones(2),)
    with pytest.warns(OnnxExporterWarning, match="opencv .* has no kernel for Loop"):
        onnx_aot.export(Repeated(), given, target="opencv")
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        onnx_aot.export(Repeated(), given, target="openvino")


def test_a_verification_names_what_onnx_runtime_lacks() -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    with pytest.raises(VerificationError, match=r"no kernel for Tanh of BFLOAT16.*'openvino'"):
        onnx_aot.export(nn.Tanh(), (x,), target="openvino", verify=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_are_kept_for_cuda(dtype: torch.dtype, tmp_path: Path) -> None:
    """A copy for the CPU runs where there is no device."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8)).to(dtype)
    dims = ({0: "batch"},)
    x = torch.randn(3, 8).to(dtype)
    for target, casts in (("onnxruntime-gpu", False), ("onnxruntime", True)):
        program = onnx_aot.export(model, (x,), dynamic_shapes=dims, target=target)
        before = program.model_proto.SerializeToString()
        assert ("Cast" in {node.op_type for node in program.model.graph}) == casts
        assert program.verify().ok
        assert program.model_proto.SerializeToString() == before
        assert not any(size.runtime_refuses for size in program.verify().results)
        compared = program.compare()
        assert compared.ok
        folder = compared.isolate(tmp_path / target, compared.rows[0])
        onnxruntime.InferenceSession(f"{folder}/node.onnx", providers=["CPUExecutionProvider"])
