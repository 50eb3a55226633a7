"""A sample of the zoo is correct at both sizes, and its rows record the outcome of each model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import results, zoo
from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.zoo_models import GROUPS, ZOO, ZooCase
from benchmarks.zoo_models.measure import RIGHT, STAGES, measure
from onnx_aot import sweep

load_torchvision()  # before transformers, which imports it
pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SLICE = (
    "phi",
    "opt",
    "bloom",
    "falcon",
    "granite",
    "mixtral",
    "mamba",
    "qwen3 with cache",
    "albert",
    "electra",
    "bart",
    "deit",
    "poolformer",
    "mobilevitv2",
    "segformer",
    "siglip",
    "patchtst",
    "torchvision_squeezenet1_0",
    "unet",
    "vae",
    "audio_codec",
    "encodec",
    "mimi",
    "vocoder",
    "graph_network",
    "policy",
    "lstm_cells",
    "dinov2",
)


@pytest.mark.parametrize("name", SLICE)
def test_slice(name: str) -> None:
    row = measure(ZOO[name], plain=False)
    assert row["stage"] == RIGHT, row["reason"]
    assert row["max_absolute"] < 1e-3


def test_every_row_has_two_sizes() -> None:
    assert all(len(case.sizes) == 2 for case in ZOO.values())
    assert all(case.sizes[0] != case.sizes[1] for case in ZOO.values())


def test_what_is_kept_is_of_these_rows() -> None:
    kept = results.read_json(zoo.NAME)
    assert {row["name"] for row in kept["rows"]} <= set(ZOO)
    assert {row["group"] for row in kept["rows"]} <= set(GROUPS)
    assert kept["summary"] == zoo.summarize(kept["rows"])


# --- contents of a row ---------------------------------------------------------------------------


class Scaled(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class OnlySeven(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(7.0)


class Untranslated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = x.new_ones(1)
        slope: torch.Tensor = torch.ops.aten._pdist_backward(one, x[:2], 2.0, one)
        return slope


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.long() if x.sum() > 0 else x  # no model has one type for both


def _case(model: torch.nn.Module, seq: int = 7) -> ZooCase:
    return ZooCase(
        name="row",
        build=lambda: model,
        inputs=lambda batch, seq: ((torch.randn(batch, seq),), {}),
        dynamic_shapes=({0: "batch", 1: "seq"},),
        sizes=({"batch": 2, "seq": 7}, {"batch": 3, "seq": seq}),
        group="tests",
    )


def test_a_right_row() -> None:
    row = measure(_case(Scaled(2.0), seq=9))
    assert (row["stage"], row["reason"], row["torch_export"]) == (RIGHT, "", "")
    assert row["fixed"] == []
    assert row["nodes"] == {"fx": 3, "ours": 1}
    assert set(row["seconds"]) == {"ours", "plain"}


def test_outputs_that_would_agree_anyway_are_refused() -> None:
    row = measure(_case(Scaled(1e-6), seq=9))
    assert row["stage"] == STAGES[0]
    assert "too small to compare" in row["reason"]
    row = measure(_case(Scaled(float("nan")), seq=9))
    assert "not numbers" in row["reason"]


def test_a_dimension_that_nobody_takes_is_fixed() -> None:
    row = measure(_case(OnlySeven()))
    assert (row["stage"], row["fixed"]) == (RIGHT, ["seq"])


def test_what_fails_says_why() -> None:
    row = measure(_case(Untranslated()))
    assert row["stage"] == "captured"
    assert row["reason"].startswith("UnsupportedOperatorError")
    row = measure(_case(Branching()))
    assert row["stage"] == "runs in PyTorch"
    assert row["torch_export"]
    assert "/" not in row["reason"]


def test_a_row_that_takes_too_long(tmp_path: Path) -> None:
    done = sweep.run(zoo.make_plan(["policy"], limit=0.01), tmp_path, progress=False)
    row = zoo.row_of(done.results[0])
    assert row["reason"] == "takes longer than 0.01 s"
    summary = zoo.summarize([row])
    assert summary["architectures"] == 1
    assert summary["of these right at both sizes"] == 0


def test_the_share_of_torch_onnx() -> None:
    row = measure(_case(Scaled(2.0), seq=9), peer=True)
    assert row["torch_onnx"]["stage"] == RIGHT
    wrong = {**row, "torch_onnx": {"stage": "exported", "reason": "differs"}}
    summary = zoo.summarize([row, wrong])
    assert summary["given to torch.onnx"] == 2
    assert summary["of these right with torch.onnx"] == 1
    latency = row["torch_onnx"]["latency"]
    assert summary[zoo.LATENCY_RATIO] == round(latency["ours"] / latency["peer"], 2)
