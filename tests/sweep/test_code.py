"""A row depends on its modules, on those that they import, on versions and on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep import Row
from onnx_aot.sweep.code import Dependencies


def _depends(folder: Path, **fields: object) -> dict[str, str]:
    row = Row("a", **fields)  # type: ignore[arg-type]
    return Dependencies((str(folder),)).of(row)


def test_modules_that_are_imported_count(folder: Path) -> None:
    before = _depends(folder, code=("swept_models",))
    assert {"module:swept_models", "module:swept_layers", "onnx_aot", "python"} <= before.keys()
    assert "module:torch" not in before  # a version stands for what is installed
    layers = folder / "swept_layers.py"
    layers.write_text(layers.read_text() + "# changed\n")
    after = _depends(folder, code=("swept_models",))
    assert {name for name in after if after[name] != before[name]} == {"module:swept_layers"}


def test_packages_and_relative_imports(folder: Path) -> None:
    (folder / "nets" / "inner").mkdir(parents=True)
    (folder / "nets" / "__init__.py").write_text("")
    (folder / "nets" / "inner" / "__init__.py").write_text("from ..blocks import block")
    (folder / "nets" / "blocks.py").write_text("import timm_is_missing")
    (folder / "nets" / "broken.py").write_text("def (")
    found = _depends(folder, code=("nets.inner", "nets.broken"))
    modules = {name for name in found if name.startswith("module:nets")}
    assert modules == {
        "module:nets", "module:nets.inner", "module:nets.blocks", "module:nets.broken",
    }  # fmt: skip


def test_files_count_by_their_contents(folder: Path) -> None:
    path = folder / "weights.pt"
    path.write_bytes(b"1")
    before = _depends(folder, files=(str(path),))
    path.write_bytes(b"2")
    assert _depends(folder, files=(str(path),)) != before
    with pytest.raises(InvalidOptionError, match=r"names the file .*missing.pt, which cannot"):
        _depends(folder, files=(str(folder / "missing.pt"),))


def test_an_interpreter_that_does_not_run(folder: Path) -> None:
    dependencies = Dependencies((), {"2.0": str(folder / "python")})
    with pytest.raises(SweepError, match="of the plan's environments does not run"):
        dependencies.of(Row("a", torch="2.0"))
