"""The table of models of other packages is complete, and its rows record the outcome."""

from __future__ import annotations

import copy
import math
import re
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import field, results
from benchmarks.field.case import REQUIREMENTS, FieldCase, Method, noise, read_versions
from benchmarks.field.fixes import FIXES, Fix, Line, Translation
from benchmarks.field.followed import describe_fix, follow_fix
from benchmarks.field.measure import measure_field_row
from benchmarks.zoo_models.measure import RIGHT
from docs.field_page import make_field_page

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_the_table_is_large_enough() -> None:
    assert len(field.FIELD) >= 80
    assert len({case.package for case in field.FIELD.values()}) >= 40


def test_every_row_has_two_sizes() -> None:
    for case in field.FIELD.values():
        first, second = case.sizes
        assert first != second, case.name
        assert first.keys() == second.keys(), case.name
        assert first.get("batch", 1) == 1, case.name


def test_every_package_has_a_version() -> None:
    packages = {case.package.lower() for case in field.FIELD.values()}
    assert packages <= read_versions().keys()


def test_requirements_do_not_replace_torch() -> None:
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", line) for line in pinned)
    assert not {"torch", "torchvision", "onnx-aot"} & read_versions().keys()


def test_stored_results_are_those_of_the_table() -> None:
    kept = results.read_json(field.NAME)
    assert {row["name"] for row in kept["rows"]} <= set(field.FIELD)
    assert kept["summary"] == field.summarize_field(kept["rows"])


def test_the_page_has_every_failure() -> None:
    page, rows = make_field_page(), results.read_json(field.NAME)["rows"]
    assert page == (Path("docs") / "field.md").read_text(encoding="utf-8")
    for row in rows:
        assert f"`{row['name']}`" in page
        assert (f"### {row['name']}\n" in page) == (row["stage"] != RIGHT)


def test_fixes_are_for_rows_that_fail() -> None:
    rows = {row["name"]: row for row in results.read_json(field.NAME)["rows"]}
    assert all(rows[name]["stage"] != RIGHT for name in FIXES)
    assert {name for name, row in rows.items() if "followed" in row} == FIXES.keys()
    assert all(
        rows[name]["followed"]["changed"] == describe_fix(fix) for name, fix in FIXES.items()
    )


# --- contents of a row ---------------------------------------------------------------------------


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def double(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.long() if x.sum() > 0 else x  # no model has one type for both


class Keeping(torch.nn.Module):
    """Keeps a mask in an object, where a plain capture leaves a fake tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.masks = types.SimpleNamespace(last=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.masks.last is None:
            self.masks.last = torch.ones(3) * 2
        return x * self.masks.last


def _case(model: torch.nn.Module) -> FieldCase:
    return FieldCase(
        name="row",
        build=lambda: copy.deepcopy(model),
        inputs=noise("batch", 3),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1}, {"batch": 4}),
        group="tests",
        package="einops",
    )


def _measure(case: FieldCase, peer: bool = False) -> dict[str, Any]:
    """Returns the whole row."""
    return list(measure_field_row(case, peer=peer))[-1]


def test_the_outcome_does_not_wait_for_the_plain_capture() -> None:
    row = next(iter(measure_field_row(_case(Doubled()))))
    assert row["stage"] == RIGHT
    assert row["seconds"].keys() == {"ours"}


def test_a_right_row() -> None:
    row = _measure(_case(Method(Doubled(), "double")))
    assert (row["stage"], row["reason"], row["message"]) == (RIGHT, "", "")
    assert "0/1 specialized" in row["torch_export"]  # the example has batch 1
    assert row["torch_static"] == ""
    assert row["version"] == read_versions()["einops"]
    assert row["seconds"].keys() == {"ours", "plain"}


@pytest.mark.parametrize("peer", [False, True])
def test_a_row_of_a_model_that_plain_captures_write_to(peer: bool) -> None:
    row = _measure(_case(Keeping()), peer=peer)
    assert (row["stage"], row["reason"]) == (RIGHT, "")


def test_a_refused_row_has_the_whole_message() -> None:
    row = _measure(_case(Branching()))
    assert row["stage"] == "runs in PyTorch"
    assert "if x.sum() > 0" in row["message"]
    assert row["torch_export"]
    assert row["torch_static"]


class Looping(torch.nn.Module):
    """Adds rows one by one; its loop counts in a way that three steps do not show."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = iter(range(1000))
        return sum(row * min(next(numbers), 5) for row in x.unbind(0)) + x


LOOP = "return sum(row * min(next(numbers), 5) for row in x.unbind(0)) + x"
WHOLE = "return (x * torch.arange(x.shape[0]).clamp(max=5)[:, None]).sum(0) + x"


@pytest.mark.parametrize(
    ("fix", "changed"),
    [
        (Fix(fixed=("batch",)), "batch left out of dynamic_shapes"),
        (
            Fix(lines=(Line(f"{__name__}:Looping.forward", LOOP, WHOLE),)),
            f"`{LOOP}` written as `{WHOLE}`",
        ),
    ],
)
def test_a_fix_that_works(fix: Fix, changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looping, "forward", Looping.forward)  # restores it
    assert _measure(_case(Looping()))["stage"] != RIGHT
    assert follow_fix(_case(Looping()), fix) == {"changed": changed, "stage": RIGHT, "reason": ""}


def test_a_fix_that_does_not_work() -> None:
    followed = follow_fix(_case(Looping()), Fix(options={"on_specialized": "error"}))
    assert followed["stage"] == "runs in PyTorch"
    assert "fixed" in followed["reason"]


@torch.library.custom_op("test_field::harmonics", mutates_args=())
def harmonics(xyz: torch.Tensor, l_max: int) -> torch.Tensor:
    """Real spherical harmonics of degrees 0 to 2, in closed form."""
    x, y, z = torch.nn.functional.normalize(xyz, dim=-1).unbind(-1)
    degree_1 = [math.sqrt(3) * part for part in (y, z, x)]
    degree_2 = [x * y, y * z, (3 * z * z - 1) / math.sqrt(12), x * z, (x * x - y * y) / 2]
    parts = [torch.ones_like(x), *degree_1, *(math.sqrt(15) * part for part in degree_2)]
    return torch.stack(parts, dim=-1) / math.sqrt(4 * math.pi)


@harmonics.register_fake
def _(xyz: torch.Tensor, l_max: int) -> torch.Tensor:
    return xyz.new_empty(*xyz.shape[:-1], (l_max + 1) ** 2)


class Harmonics(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return harmonics(x, 2)


def test_a_translation_that_works() -> None:
    function = "benchmarks.field.translations:translate_spherical_harmonics"
    fix = Fix(translations=(Translation("test_field.harmonics.default", function),))
    assert follow_fix(_case(Harmonics()), fix) == {
        "changed": "a translation of `test_field.harmonics.default`",
        "stage": RIGHT,
        "reason": "",
    }


def test_a_fix_that_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looping, "forward", Looping.forward)
    line = Line(f"{__name__}:Looping.forward", LOOP, "return x * 2")
    followed = follow_fix(_case(Looping()), Fix(lines=(line,)))
    assert followed["stage"] == "nothing"
    assert "changes it" in followed["reason"]
