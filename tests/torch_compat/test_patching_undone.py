"""Torch is unchanged however an export ends, and however many run at once."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

import onnx_aot
from onnx_aot.capture.patches import PATCHES
from onnx_aot.errors import (
    CaptureError,
    DynamicShapeError,
    InvalidOptionError,
    SaveError,
    UnsupportedOperatorError,
)
from onnx_aot.torch_compat import FakeTensorMode, Settings, applied
from onnx_aot.torch_compat.captures import PROXY_NODES
from tests.torch_compat.state import every_row, everything

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(4, 3)


class Model(torch.nn.Module):
    """A model whose operations depend on the requested kind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.kind, self.calls = "", 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1  # a capture must not change the count
        y = self.linear(x)
        if self.kind == "raises":
            raise LookupError("the model's own")
        if self.kind == "exits":
            raise SystemExit(3)
        if self.kind == "data" and y.sum() > 0:
            return y.long()
        if self.kind == "both":
            return y * 2 if y.sum() > 0 else y
        if self.kind == "fixed":
            return y.reshape(4, 2)
        if self.kind == "untranslated":
            one = x.new_ones(1)
            return torch.ops.aten._pdist_backward(one, x[:2], 2.0, one)
        if self.kind == "writes":
            self.seen += 1
        if self.kind == "loop":
            return torch.ops.higher_order.while_loop(
                lambda n, s: n < 3, lambda n, s: (n + 1, s * 2), (torch.zeros(()), y), ()
            )
        if self.kind == "attention":
            z = y.detach()[None, None]
            return torch.nn.attention.flex_attention.flex_attention(z, z, z)
        return y


def _model(kind: str) -> Model:
    torch.manual_seed(0)
    model = Model().eval()
    model.kind = kind
    return model


def _export(kind: str, **options: Any) -> Callable[[Model, Path], Any]:
    def run(model: Model, folder: Path) -> Any:
        model.kind = kind
        return onnx_aot.export(model, (X,), **{"dynamic_shapes": ({0: "n"},), **options})

    return run


def _from_program(model: Model, folder: Path) -> Any:
    shapes = {"x": {0: torch.export.Dim("n")}}
    with applied((PROXY_NODES,), Settings()):  # torch itself keeps the graph of its last capture
        program = torch.export.export(model, (X,), dynamic_shapes=shapes)
    return onnx_aot.export(program)


def _scripted(model: Model, folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(copy.deepcopy(model), (X,))  # tracing counts its calls
    return onnx_aot.export(traced, (X,), dynamic_shapes=({0: "n"},))


def _saved(model: Model, folder: Path) -> Any:
    return onnx_aot.export(model, (X,), f=folder / "model.onnx", report=True)


def _not_saved(model: Model, folder: Path) -> Any:
    return onnx_aot.export(model, (X,), f=folder / "absent" / "model.onnx")


ENDINGS: dict[str, tuple[Callable[[Model, Path], Any], type[BaseException] | None]] = {
    "right": (_export(""), None),
    "static": (_export("", dynamic_shapes=None), None),
    "strict": (_export("", strategies=("strict",)), None),
    "draft": (_export("data", strategies=("draft",)), None),
    "trace": (_export("data", strategies=("trace",)), None),
    "from a program": (_from_program, None),
    "from TorchScript": (_scripted, None),
    "writes to a buffer": (_export("writes"), None),
    "loop": (_export("loop"), None),
    "flex_attention": (_export("attention"), None),
    "saved, with a report": (_saved, None),
    "not saved": (_not_saved, SaveError),
    "the model raises": (_export("raises"), CaptureError),
    "the model exits": (_export("exits"), SystemExit),
    "data decides": (_export("data"), CaptureError),
    "data decides, both sides": (_export("both"), None),
    "data decides, strictly": (_export("data", strategies=("strict",)), CaptureError),
    "fixed dimension": (_export("fixed"), DynamicShapeError),
    "fixed dimension, accepted": (_export("fixed", on_specialized="allow"), None),
    "no translation": (_export("untranslated"), UnsupportedOperatorError),
    "wrong option": (_export("", opset_version=3), InvalidOptionError),
    "wrong strategy": (_export("", strategies=("none",)), InvalidOptionError),
    "wrong dimension": (_export("", dynamic_shapes=({5: "n"},)), DynamicShapeError),
}


# draft export and traces warn of their limits, and strict captures of the counted calls
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.filterwarnings("ignore::onnx_aot.errors.OnnxExporterWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left(ending: str, tmp_path: Path) -> None:
    run, error = ENDINGS[ending]
    model = _model("")
    for _ in range(2):  # the first run imports modules, which stay imported
        before = everything(model)
        if error is None:
            run(model, tmp_path)
        else:
            with pytest.raises(error):
                run(model, tmp_path)
        model.kind = ""
        after = everything(model)
    assert {name for name in before if before[name] != after.get(name)} == set()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    x = torch.randn(7, 3)
    with torch.no_grad():
        torch.testing.assert_close(program(x)[0], model(x))


# --- threads -------------------------------------------------------------------------------------


class Branchy(torch.nn.Module):
    """One of many models that differ in sizes, operators and failures."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = torch.nn.Linear(3, 2 + number % 5)
        layers = (torch.nn.GRU(2 + number % 5, 3), torch.nn.LayerNorm(2 + number % 5))
        self.layer = layers[number % 2]
        for name, weight in self.named_parameters():  # threads share the random generator
            values = torch.linspace(-1, 1 + len(name) / 9, weight.numel())
            weight.data = values.reshape(weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.linear(x))
        y = y[0] if isinstance(y, tuple) else y
        if self.number % 3 == 0:
            return y[1:].cumsum(0)
        if self.number % 3 == 1:
            return torch.cat([y, y.flip(0)]).softmax(-1)
        return y.reshape(-1, y.shape[-1]).mean(1)


def _differs(number: int) -> str:
    """Returns a description of the errors in a model's export, if any."""
    model = Branchy(number).eval()
    x = torch.linspace(-1, 1, 3 * (4 + number % 3)).reshape(-1, 3)
    strategies = ("strict",) if number % 10 == 7 else ("non-strict",)
    dynamic_shapes = None if number % 4 == 3 else ({0: "rows"},)
    program = onnx_aot.export(model, (x,), dynamic_shapes=dynamic_shapes, strategies=strategies)
    other = x if dynamic_shapes is None else torch.linspace(-1, 1, 3 * 9).reshape(-1, 3)
    with torch.no_grad():
        expected = model(other)
    try:
        torch.testing.assert_close(program(other)[0], expected, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        return f"{number}: {error}"
    return ""


def test_eight_threads_export_twenty_models_each() -> None:
    reference = Branchy(0).eval()
    assert _differs(0) == _differs(7) == ""
    before = everything(reference)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(_differs, range(160)))
    assert [wrong for wrong in found if wrong] == []
    after = everything(reference)
    assert {name for name in before if before[name] != after[name]} == set()


def test_other_threads_see_torch_as_it_is() -> None:
    """A thread calls functions that captures replace, while another one exports."""
    ends, seen = threading.Event(), []

    class Asks(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.tensor_split(2)[0] + len(x)

    def look() -> None:
        while not ends.is_set():
            split = Asks()(torch.randn(5, 3))
            seen.append((split.shape, torch.is_grad_enabled(), split.grad_fn))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(12):
            assert _differs(number) == ""
    finally:
        ends.set()
        thread.join()
    assert set(seen) == {(torch.Size([3, 3]), True, None)}


def test_other_threads_compare_sizes_as_torch_does() -> None:
    """All rows apply, but no trace runs, because torch's own traces record other threads' sizes."""

    def compare() -> tuple[Any, ...]:
        env = ShapeEnv()
        fake = FakeTensorMode(shape_env=env).from_tensor(torch.ones(1, 4))
        n, u = fake.shape[1], env.create_unbacked_symint()
        with contextlib.suppress(GuardOnDataDependentSymNode):
            bool(u > 1)
            return ("an answer about data",)
        return type(fake.shape[0]), type(n), bool(n != 1), len(env.guards), str(n - n)

    plain = compare()
    assert plain[:3] == (int, torch.SymInt, True)
    with applied(PATCHES, every_row(_model(""))), ThreadPoolExecutor(1) as thread:
        assert compare() != plain  # sizes of 1 are dynamic in this thread
        assert thread.submit(compare).result() == plain
