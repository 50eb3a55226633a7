"""transformers' own ONNX exporter on top of this one, without its patches for torch.onnx."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.onnx

import onnx_aot
from benchmarks import results, transformers_exporters
from benchmarks.models.torchvision_cpu import load_torchvision

load_torchvision()  # before transformers, which imports it
pytest.importorskip("transformers.exporters")

from benchmarks.zoo_models.through_transformers import (  # noqa: E402
    KINDS,
    ROWS,
    STAGES,
    WAYS,
    Way,
    measure,
    without_patches,
)
from benchmarks.zoo_models.transformers_rows import make_tokens, model_builder, padding_mask  # noqa: E402
from tests.pytree_cleanup import registrations_taken_back  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ORIGINAL = torch.onnx.export


@pytest.fixture(autouse=True)
def _taken_back() -> Iterator[None]:
    with registrations_taken_back():
        yield


@pytest.mark.parametrize("name", ROWS)
def test_without_the_patches(name: str) -> None:
    found = measure(name, Way("onnx_aot", patched=False))
    assert found["stage"] == STAGES[-1], found["reason"]
    assert torch.onnx.export is ORIGINAL


# Nodes added without values, translations written for torch.onnx, replaced functions of torch.
@pytest.mark.parametrize("name", ["tapas", "gpt_oss", "vipllava"])
def test_with_the_patches(name: str) -> None:
    found = measure(name, Way("onnx_aot", patched=True))
    assert found["stage"] == STAGES[-1], found["reason"]


def test_nothing_of_the_patches_is_left() -> None:
    """The rows above are exported without these patches."""
    from transformers.exporters import exporter_onnx, utils

    full = [utils._PATCHES["onnx"], utils._FX_NODE_FIXES["onnx"], exporter_onnx._IR_FIXES]
    assert all(full)
    where = torch.where
    with without_patches(), utils.apply_patches("onnx"), utils.apply_patches("dynamo"):
        assert torch.where is where
        assert not exporter_onnx._ONNX_TRANSLATION_TABLE
        assert not exporter_onnx._IR_FIXES
        assert not utils._FX_NODE_FIXES["onnx"]
    assert operator.floordiv in exporter_onnx._ONNX_TRANSLATION_TABLE
    assert [utils._PATCHES["onnx"], utils._FX_NODE_FIXES["onnx"], exporter_onnx._IR_FIXES] == full


def _decoder(**options: Any) -> Any:
    torch.manual_seed(0)
    return model_builder("llama", "AutoModelForCausalLM", **options)().eval()


def _words(batch: int, seq: int) -> dict[str, Any]:
    return {"input_ids": make_tokens(batch, seq), "attention_mask": padding_mask(batch, seq)}


def test_what_it_saves(tmp_path: Path) -> None:
    """It saves two files and loads them again; names are those of the input and output leaves."""
    from transformers.exporters import ExportedModel, OnnxConfig, OnnxExporter

    model, inputs = _decoder(), _words(2, 7)
    with onnx_aot.installed():
        exported = OnnxExporter().export(model, dict(inputs), OnnxConfig(dynamic=True))
    exported.save_pretrained(tmp_path)
    assert (tmp_path / "model.onnx.data").exists()
    saved = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    assert saved.producer_name == "onnx_aot"
    assert [value.name for value in saved.graph.input] == ["input_ids", "attention_mask"]
    assert [value.name for value in saved.graph.output] == ["logits"]
    again, longer = ExportedModel.from_pretrained(tmp_path), _words(3, 11)
    with torch.no_grad():
        torch.testing.assert_close(again(**longer).logits, model(**longer).logits)


def test_a_static_cache() -> None:
    """The model writes to its inputs; the runner takes the last outputs for the model's own."""
    from transformers.exporters import OnnxConfig, OnnxExporter
    from transformers.exporters.utils import decompose_for_generation

    model = _decoder(use_cache=True)
    settings = copy.deepcopy(model.generation_config)
    settings.cache_implementation = "static"
    given = _words(2, 7)
    given["attention_mask"] = torch.ones_like(given["attention_mask"])
    parts = decompose_for_generation(model, dict(given), generation_config=settings)
    with onnx_aot.installed(), pytest.warns(onnx_aot.OnnxExporterWarning, match="are not outputs"):
        exported = OnnxExporter().export_for_generation(
            model, dict(given), OnnxConfig(), generation_config=settings
        )
    assert list(parts) == ["prefill", "decode"]
    for name, (module, inputs) in parts.items():
        with torch.no_grad():
            expected = module(**copy.deepcopy(inputs))
        actual = exported.runners[name](**copy.deepcopy(inputs))
        torch.testing.assert_close(actual.logits, expected.logits)
        for one, other in zip(
            actual.past_key_values.layers, expected.past_key_values.layers, strict=True
        ):
            torch.testing.assert_close(one.keys, other.keys)
            torch.testing.assert_close(one.values, other.values)


def test_what_is_kept_is_of_these_rows() -> None:
    kept = results.read_json(transformers_exporters.NAME)
    names = [row["name"] for row in kept["rows"]]
    assert names == [name for name in ROWS if name in names]
    assert len(names) >= 20
    assert all(list(row["ways"]) == list(WAYS) for row in kept["rows"])
    assert kept["summary"] == transformers_exporters.summarize(kept["rows"])
    page = (results.ROOT / "docs" / "migrating-from-torch-onnx.md").read_text(encoding="utf-8")
    assert transformers_exporters.render(kept["rows"], kept["summary"]) in page


def test_rows_are_of_every_kind() -> None:
    assert KINDS.keys() == ROWS.keys()
    assert len(set(KINDS.values())) == 10
