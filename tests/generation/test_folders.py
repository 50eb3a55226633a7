"""Models whose parameters stay in the files of their folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.generation import Decoder, bundle, folders
from onnx_aot.generation.folders import open_model
from tests.generation import models
from tests.generation.models import prompts, transformers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each model that transformers loads into memory."""
    found: list[str] = []
    original = transformers.AutoModelForCausalLM.from_pretrained

    def load(folder: Any, **options: Any) -> Any:
        found.append(str(folder))
        return original(folder, **options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", load)
    return found


def save(model: Any, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    model.to(dtype).save_pretrained(folder, max_shard_size="8KB")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_folder_is_that_of_a_loaded_model(
    name: str, stored: torch.dtype, tmp_path: Path, loads: list[str], monkeypatch: Any
) -> None:
    source = save(getattr(models, name)(), tmp_path / "source", stored)
    weights = "fp16" if stored is torch.bfloat16 else "fp32"
    for number, chosen in enumerate((weights, "int8", "int4")):
        bundle(source, tmp_path / "mapped", weights=chosen, layout="genai")
        assert len(loads) == number
        with monkeypatch.context() as patched:
            patched.setattr(folders, "_open_mapped", lambda *_: None)
            bundle(source, tmp_path / "loaded", weights=chosen, layout="genai")
        assert len(loads) == number + 1
        assert contents(tmp_path / "mapped") == contents(tmp_path / "loaded")


def test_parameters_are_mapped(tmp_path: Path, loads: list[str]) -> None:
    """Parameters of the type stay in their files; others go to one file, in which each begins at
    a multiple of 64 bytes.
    """
    source, scratch = (
        save(models.llama(), tmp_path / "source", torch.bfloat16),
        tmp_path / "scratch",
    )
    scratch.mkdir()
    same = open_model(source, torch.bfloat16, scratch)
    assert not list(scratch.iterdir())
    cast = open_model(source, torch.float32, scratch)
    assert [path.name for path in scratch.iterdir()] == ["weights"]
    expected = dict(models.llama().to(torch.bfloat16).named_parameters())
    for model in (same, cast):
        assert not model.training
        held = dict(model.named_parameters())
        assert held.keys() == expected.keys()
        for name, parameter in held.items():
            assert torch.equal(parameter.to(torch.bfloat16), expected[name]), name
            assert parameter.data_ptr() % parameter.itemsize == 0
    assert cast.dtype == torch.float32
    assert not loads


def test_verified(tmp_path: Path, loads: list[str]) -> None:
    source = save(models.llama(), tmp_path / "source", torch.bfloat16)
    path = bundle(source, tmp_path / "out", verify=True)
    input_ids, mask = prompts()
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    expected = model.generate(input_ids, attention_mask=mask, do_sample=False, max_new_tokens=6)
    made = Decoder(path).generate(input_ids, mask, max_new_tokens=6)
    assert made.tolist() == expected.tolist()
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.onnx",
    ]
    assert loads == [str(source)]  # by this test


def rename(source: Path) -> None:
    """Gives the weights names that the model does not have."""
    for index in source.glob("*.index.json"):
        content = json.loads(index.read_text())
        content["weight_map"] = {
            name.removeprefix("transformer."): file for name, file in content["weight_map"].items()
        }
        index.write_text(json.dumps(content))
    from safetensors.torch import load_file, save_file

    for file in source.glob("*.safetensors"):
        tensors = {n.removeprefix("transformer."): t for n, t in load_file(file).items()}
        save_file(tensors, file, {"format": "pt"})


def test_weights_that_transformers_renames(tmp_path: Path, loads: list[str]) -> None:
    """The checkpoints of GPT-2 that are on the Hub have no prefix."""
    source = save(models.gpt2(), tmp_path / "source")
    rename(source)
    path = bundle(source, tmp_path / "out")
    assert loads == [str(source)]
    input_ids, mask = prompts()
    made = Decoder(path).generate(input_ids, mask, max_new_tokens=6)
    expected = models.gpt2().generate(
        input_ids, attention_mask=mask, do_sample=False, max_new_tokens=6
    )
    assert made.tolist() == expected.tolist()


def test_tied_weights_that_are_stored_twice(tmp_path: Path, loads: list[str]) -> None:
    """transformers decides which of them counts, if they differ."""
    from safetensors.torch import save_file

    model = models.gpt2()
    source = tmp_path / "source"
    model.save_pretrained(source)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert "lm_head.weight" in tensors
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    folders.open_model(source, torch.float32, tmp_path)
    assert loads == [str(source)]


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    source = save(models.llama(), tmp_path / "source")
    for file in source.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InvalidOptionError, match=r"transformers cannot load the model in .*source"):
        open_model(source, torch.float32, tmp_path)
    (source / "config.json").write_text('{"model_type": "none"}')
    with pytest.raises(InvalidOptionError, match=r"transformers cannot load the model in .*none"):
        open_model(source, torch.float32, tmp_path)
    (source / "config.json").unlink()
    with pytest.raises(InvalidOptionError, match=r"there is no config\.json"):
        bundle(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save(models.llama(), tmp_path / "source", torch.bfloat16)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SaveError, match="free; nothing was written"):
        bundle(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
