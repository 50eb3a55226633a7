"""Torch is spared work on which no result depends, and results are the same without that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import onnx_aot
from onnx_aot.serialization.mapped_tensor import MappedFile
from onnx_aot.torch_compat import SPARED_WORK, find_capabilities
from tests.serialization.checkpoint_files import write_safetensors
from tests.torch_compat.models import Example, function, rows
from tests.torch_compat.without import absent, differs, exported, shows

TRACKED = "torch.fx.experimental.proxy_tensor:track_tensor_tree"
PRODUCED = "torch.export._trace:_produce_aten_artifact"
BOUND = "torch.export._trace:_replace_unbacked_bindings"
TREES = "torch.export._trace:pytree"
SOURCE = "torch.export.exported_program:_create_graph_module_for_export"

WEIGHTS = 12


class Weighted(nn.Module):
    """Has many weights for its number of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(WEIGHTS // 2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.relu()


DYNAMIC = Example(Weighted, rows)
STATIC = Example(Weighted, rows, dynamic_shapes=None)


@contextmanager
def counted(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts the calls of a function or method."""
    calls: Counter[str] = Counter()
    original = getattr(owner, name)

    def count(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return original(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, count)
        yield calls


def calls_of_modes(example: Example, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the mode that traces a model is called while it is exported."""
    from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler as Handler

    with counted(Handler, "__torch_function__", monkeypatch) as calls:
        program = exported(example)
    assert not differs(example, program, example.sizes[: 1 if example is STATIC else None])
    return calls["__torch_function__"]


def off() -> set[str]:
    """Rows that this release of torch does not have."""
    return {row.name for row in find_capabilities(SPARED_WORK).off}


STACK = [f"torch:_C._{name}_torch_function_stack" for name in ("len", "pop", "push_on")]


@shows(TRACKED, PRODUCED, *STACK)
@pytest.mark.parametrize("name", [TRACKED, PRODUCED, *STACK])
@pytest.mark.parametrize("example", [DYNAMIC, STATIC], ids=["dynamic", "static"])
def test_modes_are_not_called_for_each_weight(
    example: Example, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of_modes(example, monkeypatch)
    with absent(name):
        more = calls_of_modes(example, monkeypatch)
    assert name in off() or calls < more - 2 * WEIGHTS
    if example is STATIC and not off():
        assert calls < 3 * WEIGHTS


class Seen(TorchFunctionMode):
    """A mode of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_are_called_as_before() -> None:
    def calls() -> int:
        with Seen() as mode:
            program = exported(DYNAMIC)
        assert not differs(DYNAMIC, program)
        return mode.calls

    seen = calls()
    with absent(TRACKED, PRODUCED):
        assert calls() == seen


@shows(BOUND)
def test_sizes_of_data_are_looked_for_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.fx.experimental import symbolic_shapes

    def looks() -> int:
        with counted(symbolic_shapes, "_free_unbacked_symbols_with_path", monkeypatch) as calls:
            program = exported(STATIC)
        assert not differs(STATIC, program, STATIC.sizes[:1])
        return calls["_free_unbacked_symbols_with_path"]

    number = looks()
    with absent(BOUND):
        assert BOUND in off() or number < looks()


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x * 2)


@shows(TREES)
@pytest.mark.parametrize("dynamic_shapes", [None, ({0: "n"},)], ids=["static", "dynamic"])
def test_modules_of_nodes_are_named_alike(
    dynamic_shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils import _pytree

    example = Example(Nested, rows, dynamic_shapes=dynamic_shapes)

    def stacks() -> tuple[list[Any], int]:
        with counted(_pytree, "tree_map", monkeypatch) as calls:
            program = exported(example)
        assert not differs(example, program, example.sizes if dynamic_shapes else example.sizes[:1])
        nodes = program.exported_program.graph.nodes
        return [node.meta.get("nn_module_stack") for node in nodes], calls["tree_map"]

    found, number = stacks()
    with absent(TREES):
        expected, more = stacks()
    assert found == expected
    assert any(found)
    assert TREES in off() or number < more


@pytest.mark.parametrize("dynamic_shapes", [None, ({0: "n"},)], ids=["static", "dynamic"])
def test_sizes_of_data_have_nodes(dynamic_shapes: Any) -> None:
    selected = function(lambda x: x[x > 0] * 2)
    example = Example(selected, rows, dynamic_shapes=dynamic_shapes)
    program = exported(example)
    assert not differs(example, program, example.sizes if dynamic_shapes else example.sizes[:1])
    nodes = program.exported_program.graph.nodes
    assert any("unbacked_bindings" in node.meta for node in nodes)


@shows(SOURCE)
@pytest.mark.parametrize("example", [DYNAMIC, STATIC], ids=["dynamic", "static"])
def test_source_of_programs_is_generated_when_it_is_asked_for(example: Example) -> None:
    from torch.fx._lazy_graph_module import _LazyGraphModule

    def captured() -> Any:
        program = exported(example)
        assert not differs(example, program, example.sizes[:1])
        return program.exported_program

    module = captured().graph_module
    assert SOURCE in off() or (isinstance(module, _LazyGraphModule) and module._needs_recompile())
    with absent(SOURCE):
        assert not isinstance(captured().graph_module, _LazyGraphModule)
    assert "relu" in module.code


def test_programs_can_be_run_and_saved(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = Weighted().eval()
    x = torch.randn(2, 3)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "n"},)).exported_program
    torch.export.save(program, tmp_path / "program.pt2")
    again = torch.export.load(tmp_path / "program.pt2")
    more = torch.randn(5, 3)
    for one in (program, again):
        torch.testing.assert_close(one.module()(more), model(more))


@shows("torch:Tensor._version")
def test_weights_in_files_are_not_mapped_for_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    copy_to = MappedFile.copy_to

    def count(self: MappedFile, file: Any, offset: int, size: int) -> None:
        copied.append(size)
        copy_to(self, file, offset, size)

    monkeypatch.setattr(MappedFile, "copy_to", count)
    model = nn.Linear(30, 20)
    write_safetensors(tmp_path / "weights.safetensors", model.state_dict())
    program = onnx_aot.export(model, (torch.ones(2, 30),), optimize=False)
    program.apply_weights(tmp_path / "weights.safetensors")
    program.save(tmp_path / "copied.onnx")
    assert copied == [30 * 20 * 4]  # the bias is stored with the graph
    with absent("torch:Tensor._version"):
        program.save(tmp_path / "mapped.onnx")
    assert len(copied) == 1
    assert (tmp_path / "copied.onnx").read_bytes() == (tmp_path / "mapped.onnx").read_bytes()
