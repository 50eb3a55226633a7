"""Targets: the installed ONNX Runtime, or a release of it."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import ConversionError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.options import DEFAULT_OPSET
from onnx_aot.targets import (
    check_ir_version,
    find_kernels,
    find_obstacles,
    find_release,
    is_target,
    releases,
    unsupported_nodes,
)
from tests.tolerances import assert_close

OLDEST = "onnxruntime==1.16"


class Block(nn.Module):
    """Has operators that became ONNX operators one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.rms = nn.LayerNorm(8), nn.RMSNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.attention(x, x, x)
        return nn.functional.gelu(self.rms(self.norm(x + y)))


@pytest.fixture
def no_installed_release(monkeypatch: pytest.MonkeyPatch) -> Any:
    releases._find_installed_release.cache_clear()
    yield monkeypatch
    releases._find_installed_release.cache_clear()


@pytest.mark.parametrize("target", ["onnxruntime==1.18", "onnxruntime==1.18.1"])
def test_a_release_is_named_with_or_without_its_last_number(target: str) -> None:
    assert is_target(target)
    assert find_release(target) == "1.18"


@pytest.mark.parametrize(
    "target", ["tensorrt", "onnxruntime==1.99", "onnxruntime==1", "onnxruntime>=1.18", "", 3]
)
def test_other_targets_are_refused_with_those_that_there_are(target: Any) -> None:
    assert not is_target(target)
    with pytest.raises(InvalidOptionError, match=r"'onnxruntime==1\.16' to 'onnxruntime==1\.\d+'"):
        onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=target)


def test_the_documentation_of_the_option_names_the_releases() -> None:
    known = releases.list_releases()
    documented = " ".join((onnx_aot.export.__doc__ or "").split())
    assert f"{known[0]} to {known[-1]}" in documented


def test_no_release_means_the_installed_one() -> None:
    wanted = ".".join(onnxruntime.__version__.split(".")[:2])
    assert find_release("onnxruntime") == wanted


@pytest.mark.parametrize(("version", "release"), [("1.20.1", "1.20"), ("9.1", None), ("0.9", None)])
def test_a_release_that_the_table_does_not_have_is_the_nearest(
    version: str, release: str | None, no_installed_release: pytest.MonkeyPatch
) -> None:
    no_installed_release.setattr(metadata, "version", lambda name: version)
    known = releases.list_releases()
    assert find_release("onnxruntime") == (release or known[-1 if version > "1" else 0])


def test_without_any_installed_it_is_the_newest(no_installed_release: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    no_installed_release.setattr(metadata, "version", version)
    assert find_release("onnxruntime") == releases.list_releases()[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_export_for_an_old_release_has_what_that_loads(dtype: torch.dtype) -> None:
    model, x = Block().eval().to(dtype), torch.randn(2, 5, 8, dtype=dtype)
    program = onnx_aot.export(model, (x,), target=OLDEST, dynamic_shapes=({0: "n", 1: "t"},))
    kernels = find_kernels(OLDEST)
    assert program.model.opset_imports[""] == kernels.opset < DEFAULT_OPSET
    assert program.model.ir_version <= kernels.ir_version
    assert not unsupported_nodes(program.model, OLDEST)
    assert find_obstacles(program.model)[0].reasons == ()
    onnx.checker.check_model(program.model_proto, full_check=True)
    y = torch.randn(3, 4, 8, dtype=dtype)
    assert_close(program(y)[0], model(y))


def test_the_default_opset_is_that_of_the_package_where_the_release_loads_it() -> None:
    program = onnx_aot.export(nn.ReLU(), (torch.ones(3),), target="onnxruntime==1.20")
    assert program.model.opset_imports[""] == DEFAULT_OPSET


def test_a_later_opset_than_the_release_loads_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"onnxruntime 1\.16 loads opsets up to 19: pass"):
        onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=OLDEST, opset_version=20)


def _model(ir_version: int, opset: int) -> ir.Model:
    text = f"""
        <ir_version: {ir_version}, opset_import: ["" : {opset}]>
        graph (bfloat16[2, "n"] x) => (bfloat16[2, "n"] z) {{ y = Tanh(x) z = Tanh(y) }}
    """
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_an_ir_version_that_the_release_does_not_load_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"needs IR version 10(.|\n)*BFLOAT16(.|\n)*up to 9"):
        check_ir_version(_model(10, 19), OLDEST)


def test_obstacles_are_named_by_release() -> None:
    found = {one.target: one.reasons for one in find_obstacles(_model(10, 21))}
    assert found[OLDEST] == (
        "IR version 10; it loads up to 9",
        "opset 21; it loads up to 19",
    )
    (reason,) = found["onnxruntime==1.18"]
    assert reason.startswith("no kernel for Tanh of BFLOAT16 (2x, first ")


def test_nodes_that_nothing_replaces_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the release had no kernel, and no other type would do."""
    from onnx_aot.targets.legalize import _Plan, _Planner

    nothing = _Plan(ir.DataType.FLOAT, ())
    monkeypatch.setattr(_Planner, "plan", lambda self, node, opset: nothing)
    with pytest.warns(OnnxExporterWarning, match=r"1\.16 has no kernel for Relu of FLOAT \(1x"):
        onnx_aot.export(nn.ReLU(), (torch.ones(3),), target=OLDEST)
