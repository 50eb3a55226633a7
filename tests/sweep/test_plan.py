"""Plans in TOML, YAML, JSON and Python become rows; what is not understood is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnx_aot.errors import InvalidOptionError
from onnx_aot.sweep import Limits, Plan, load_plan
from onnx_aot.sweep.plan import parse_memory

TOML = """
preload = ["json"]

[limits]
seconds = 30
memory = "2 GiB"

[checks]
verify = "example"

[matrix]
opset = [18, 20]

[[models]]
factory = "swept_models:encoder"
inputs = ["ids:int64[batch,seq]=0..99"]
matrix = { dynamic = [true, false], target = "none" }

[[models]]
factory = "swept_models:*"
exclude = ["swept_models:encoder"]
limits = { seconds = 5 }
"""


def test_toml(folder: Path) -> None:
    (folder / "plan.toml").write_text(TOML)
    plan = load_plan(folder / "plan.toml")
    assert [row.name for row in plan.rows] == [
        "swept_models:encoder[opset=18,dynamic=true]",
        "swept_models:encoder[opset=18,dynamic=false]",
        "swept_models:encoder[opset=20,dynamic=true]",
        "swept_models:encoder[opset=20,dynamic=false]",
        "swept_models:mlp[opset=18]",
        "swept_models:mlp[opset=20]",
        "swept_models:gate[opset=18]",
        "swept_models:gate[opset=20]",
    ]
    first, last = plan.rows[0], plan.rows[-1]
    assert first.limits == Limits(30, 2 << 30)
    assert last.limits == Limits(5, 2 << 30)
    assert first.settings["export"] == {"opset_version": 18, "target": None}
    assert first.settings["checks"] == {"verify": "example"}
    assert first.options == {"opset": 18, "dynamic": True, "target": "none"}
    assert first.code == ("swept_models",)
    assert plan.preload == ("json",)
    assert plan.name == "plan"


def test_yaml_json_and_python_say_the_same(folder: Path) -> None:
    content = {"models": [{"factory": "swept_models:mlp", "matrix": {"opset": [18, 19]}}]}
    (folder / "a.json").write_text(json.dumps(content))
    (folder / "b.yaml").write_text(
        "models:\n- factory: swept_models:mlp\n  matrix: {opset: [18, 19]}\n"
    )
    (folder / "c.py").write_text(f"PLAN = {content}\n")
    (folder / "d.py").write_text(f"def plan():\n    return {content}\n")
    (folder / "planned.py").write_text(f"def plan():\n    return {content}\n")
    rows = load_plan(content).rows
    for name in ("a.json", "b.yaml", "c.py", "d.py", "planned:plan"):
        assert load_plan(name).rows == rows
    assert load_plan(Plan(rows)).rows == rows


def test_folders_of_configurations_and_checkpoints(folder: Path) -> None:
    for name in ("tiny", "small"):
        (folder / "configs" / name).mkdir(parents=True)
        (folder / "configs" / name / "config.json").write_text("{}")
        (folder / f"{name}.pt").write_bytes(b"")
    plan = load_plan(
        {
            "models": [
                {"transformers": "configs/*", "class": "AutoModel"},
                {"checkpoint": "*.pt", "factory": "swept_models:mlp"},
            ]
        }
    )
    assert [row.name for row in plan.rows] == ["configs/small", "configs/tiny", "small", "tiny"]
    assert plan.rows[0].files == (str(folder / "configs" / "small" / "config.json"),)
    assert plan.rows[2].settings["model"]["factory"] == "swept_models:mlp"


WRONG: list[tuple[Any, str]] = [
    ({}, r"no rows.*\[\[models\]\]"),
    ({"modles": []}, "'modles', which is not understood; known are"),
    ({"models": [{"opset": 3}]}, "entry 1 of models in the plan has 'opset'"),
    ({"models": [{}]}, "names no model. Give one of factory, timm"),
    ({"models": [{"timm": "a", "torchvision": "b"}]}, "names timm and torchvision"),
    ({"models": [{"checkpoint": "a.pt"}]}, "no factory that makes its model"),
    ({"models": [{"factory": "swept_models:no*"}]}, "matches nothing. Correct the pattern"),
    ({"models": [{"factory": "swept_nothing:*"}]}, "no source of a module 'swept_nothing'"),
    ({"models": [{"factory": "swept_*:a"}]}, "only the name after the colon"),
    ({"models": [{"factory": "swept_models:*", "name": "x"}]}, "one name for 3 models"),
    ({"models": [{"factory": "a:b"}, {"factory": "a:b"}]}, "1 names twice, such as 'a:b'"),
    ({"limits": {"seconds": 0}, "models": [{"factory": "a:b"}]}, "seconds = 0 .* not a positive"),
    ({"limits": {"memory": "much"}, "models": [{"factory": "a:b"}]}, 'write it as "4 GB"'),
    ({"checks": {"verfy": 1}, "models": [{"factory": "a:b"}]}, "'verfy'.*known are verify"),
    ({"keep": "some", "models": [{"factory": "a:b"}]}, "keep = 'some'.* never, failed, always"),
    ({"rows": [{"name": "a"}]}, "needs a name and a task"),
]


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_what_is_not_understood(folder: Path, content: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        load_plan(content)


def test_a_file_that_is_no_plan(folder: Path) -> None:
    (folder / "bad.toml").write_text("models = [")
    (folder / "bad.yaml").write_text("a: [")
    (folder / "empty.py").write_text("x = 1")
    (folder / "number.py").write_text("PLAN = 3")
    for name, message in (
        ("bad.toml", "cannot be read"),
        ("bad.yaml", "cannot be read"),
        ("empty.py", "has no plan. Assign one to PLAN"),
        ("number.py", "is a int; expected a Plan"),
        ("missing.toml", "there is no plan missing.toml"),
    ):
        with pytest.raises(InvalidOptionError, match=message):
            load_plan(name)


def test_amounts_of_memory() -> None:
    amounts = {"4 GB": 4_000_000_000, "1.5 GiB": 1_610_612_736, "512MiB": 512 << 20}
    amounts |= {"100 kB": 100_000, "7": 7}
    assert {text: parse_memory(text) for text in amounts} == amounts
    assert parse_memory(5_000) == 5_000
