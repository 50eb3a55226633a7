"""Messages of torch that this package parses match those of the installed torch."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim
from torch.fx.experimental import symbolic_shapes

from onnx_aot.torch_compat import texts
from tests.torch_compat.models import function

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(4, 3)


def _refused(model: Any, args: tuple[Any, ...] = (X,), **options: Any) -> Exception:
    """Returns torch.export's error for a function."""

    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return model(x)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        torch.export.export(Module(), args, strict=False, **options)
    return caught.value


def test_constraints_on_sizes() -> None:
    fixed = _refused(lambda x: x.reshape(4, 3) * 2, dynamic_shapes=({0: Dim("n")},))
    assert texts.violates_constraints(fixed)
    assert texts.constraint_sentences(fixed)
    assert not texts.violates_constraints(ValueError("other"))
    assert not texts.is_without_conditions(fixed)
    unsolved = AssertionError(
        "Expected op to be '==', got < for 3/2 < m"
    )  # see test_specialization
    assert texts.violates_constraints(unsolved)
    assert texts.is_without_conditions(unsolved)


def test_a_suggested_fix_and_a_guard() -> None:
    even = _refused(lambda x: x.reshape(-1, 2, 3), dynamic_shapes=({0: Dim("n", max=9)},))
    assert texts.suggested_fixes(even)[-1].replace(" ", "").endswith("=2*_n")
    limited = _refused(
        lambda x: x * 2 if x.shape[0] < 7 else x, dynamic_shapes=({0: Dim("n", max=9)},)
    )
    guards = [texts.generated_guard(s) for s in texts.constraint_sentences(limited)]
    (guard,) = [guard for guard in guards if guard]
    assert texts.SIZE_TERM.search(guard) is not None
    assert "L[" not in texts.without_locals(guard)
    assert "x" in texts.without_locals(guard)


def test_suggested_dims_can_be_pasted() -> None:
    error = ValueError("Suggested fixes:\n  _t = Dim('_t', max=oo)\n  t = 4*_t\n")
    assert texts.suggested_fixes(error) == ["_t = Dim('_t')", "t = 4*_t"]


def test_a_guard_has_no_infinite_end() -> None:
    sentence = "Not all values satisfy the generated guard 33 <= n and n <= IntInfinity()."
    assert texts.generated_guard(sentence.rstrip(".")) == "33 <= n"


def test_a_relation_of_two_sizes() -> None:
    """Torch rarely rejects equal sizes; the module that does contains the sentences."""
    written = inspect.getsource(symbolic_shapes)
    said = [f"The values of n {text} m." for text in _RELATIONS if text in written]
    assert len(said) == 2
    assert all(map(texts.is_relation, said))
    assert not texts.is_relation("The values of n must always be related to the values of m.")


_RELATIONS = ("must always be equal", "was inferred to be equal to ")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (lambda x: torch.from_numpy(x.numpy()), "numpy"),
        (lambda x: x + x.untyped_storage().data_ptr(), "memory"),
        (lambda x: x + x.data_ptr(), "memory"),
        (lambda x: x + (1 if torch.equal(x, x + 1) else 2), "answers"),
        (lambda x: x * len(f"{x.shape[0]:3d}"), "text"),
    ],
    ids=["numpy", "storage", "pointer", "answer", "text"],
)
def test_kinds_of_failures(model: Any, kind: str) -> None:
    options = {"dynamic_shapes": ({0: Dim("n")},)} if kind == "text" else {}
    found = texts.failure_kind(_refused(model, **options))
    assert found is not None
    assert found[0] == kind


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda held: np.fmod(held, 2.0), "numpy, sizes"),
        (lambda held: np.arctan2(held, 2.0), "numpy, sizes"),
        (np.sqrt, "numpy, sizes"),
        (lambda held: held[0].shape, None),
    ],
    ids=["two operands", "angle", "one operand", "no function"],
)
def test_numpy_calls_methods_of_what_an_array_holds(function: Any, kind: str | None) -> None:
    """So it does with symbolic sizes, which make an array one of objects."""
    with pytest.raises((AttributeError, TypeError)) as caught:
        function(np.array([0.5], dtype=object))
    found = texts.failure_kind(caught.value)
    assert (found and found[0]) == kind


def test_a_device_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("CUDA is there")
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        torch.zeros(3, device="cuda")
    found = texts.failure_kind(caught.value)
    # builds with CUDA have a different message from those without
    assert found is None or found[0] == "device"
    if torch.version.cuda is None:
        assert found == ("device", "CUDA")


def test_a_custom_operator_without_a_fake_kernel() -> None:
    with torch.library._scoped_library("onnx_aot_texts", "FRAGMENT") as library:
        library.define("gadget(Tensor x) -> Tensor")
        library.impl("gadget", torch.clone, "CPU")
        error = _refused(torch.ops.onnx_aot_texts.gadget)
    assert texts.needs_data(error)
    assert texts.failure_kind(error) == ("fake-kernel", "onnx_aot_texts.gadget")


def test_a_model_that_needs_its_data() -> None:
    error = _refused(lambda x: x * 2 if x.sum() > 0 else x)
    assert texts.needs_data(error)
    said = texts.only_says(error)
    assert "TORCH_LOGS" not in said
    assert "The following call raised this error" not in said
    assert len(said) < len(str(error))
    symbol = texts.CONTENT_SIZE.search(said)
    assert symbol is not None


def test_files_of_the_arithmetic_of_symbols() -> None:
    """Frames after the user's line are arithmetic of symbols or other files of torch."""
    error = _refused(lambda x: x * 2 if x.sum() > 0 else x)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    asked = max(i for i, file in enumerate(files) if file == __file__)
    assert files[asked + 1 :]
    others = [file for file in files[asked + 1 :] if not texts.is_arithmetic(file)]
    # the rest are torch's own files, and no modules that a user would write
    assert all(f"{os.sep}torch{os.sep}" in file for file in others)
    assert texts.is_arithmetic(files[-1])


def test_modules_and_transforms_by_their_names() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(lambda row: row * 2)(x)

    program = torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim("n")},), strict=False)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert sum(map(texts.is_vmap_value, targets)) == 2
    assert any(map(texts.is_vmap_mark, targets))
    assert any(map(texts.is_transform, targets))
    assert not texts.is_transform(torch.ops.aten.mul.Tensor)


def test_paths_of_modules() -> None:
    """Nodes that torch adds have their own path, and closures appear in others."""

    class Inner(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + x.shape[0]

    program = torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim("n")},), strict=False)
    stacks = [node.meta.get("nn_module_stack") or {} for node in program.graph.nodes]
    paths = {path for stack in stacks for path, _ in stack.values()}
    assert "inner" in paths | {texts.TRACED_ROOT.sub("", path) for path in paths}
    assert texts.TRACED_ROOT.sub("", "L['self']._modules['inner'].layer") == "layer"
    assert texts.TRACED_ROOT.sub("", "_export_root.layer") == "layer"
    assert texts.TRACED_ROOT.sub("", "inner.layer") == "inner.layer"


def test_questions_of_dynamo_about_sizes() -> None:
    """A strict capture that branches on a size is asked by this function."""
    seen = []

    def branch(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x

    class Branching(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return branch(x)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and texts.asks_in_dynamo(frame.f_code):
            seen.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        torch.export.export(Branching(), (X,), dynamic_shapes=({0: Dim.AUTO},), strict=True)
    finally:
        sys.setprofile(before)
    assert seen


def test_sizes_in_messages() -> None:
    def differ(x: Tensor) -> Tensor:
        return x[1:] + x

    with pytest.raises(Exception, match="size") as caught:
        torch.export.export(function(differ)(), (X,), dynamic_shapes=({0: Dim.AUTO},), strict=False)
    assert texts.names_sizes(caught.value)
    assert not texts.names_sizes(ValueError("expected 4 columns in sizes77"))
