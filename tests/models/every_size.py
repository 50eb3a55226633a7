"""Small functions whose results depend on sizes: exported once, correct at every size.

A case is exported with its named sizes dynamic. The file passes ``onnx.checker`` with shape
inference and is compared with eager PyTorch at several sizes, including 1 and 0, in value, type
and shape; the declared shapes are also checked. Sizes that PyTorch itself rejects are skipped.
A function that cannot be correct at every size must fail at the export.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.inspection.verification import format_differences
from onnx_aot.inspection.verify import verify_against
from tests.ops.rows import EVERY_SIZE, T


@dataclasses.dataclass(frozen=True)
class SizeCase:
    """One function.

    Attributes:
        name: Name of the test.
        call: The function or module to export.
        args: Inputs (``T``s and numbers). Named sizes of a ``T`` are dynamic, and so is a
            number that is given as the name of a size.
        example: Named sizes of the example where they differ from ``EVERY_SIZE``.
        sizes: More sizes to try, in addition to ``EVERY_SIZE``.
        least: The smallest size that is tried; ``most`` is the largest.
        error: Error message of the export if it rejects the function.
        warning: Warning of the export.
    """

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    example: dict[str, int] = dataclasses.field(default_factory=dict)
    sizes: tuple[dict[str, int], ...] = ()
    least: int = 0
    most: int = 99
    error: str = ""
    warning: str = ""

    def inputs(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        return tuple(
            arg.example(sizes) if isinstance(arg, T) else sizes.get(arg, arg) for arg in self.args
        )

    def dynamic_shapes(self) -> tuple[Any, ...]:
        shapes = tuple(
            arg.dynamic_axes()
            if isinstance(arg, T)
            else (torch.export.Dim.DYNAMIC if isinstance(arg, str) else None)
            for arg in self.args
        )
        return (shapes,)

    def all_sizes(self) -> list[dict[str, int]]:
        used = {s for arg in self.args for s in (arg.sizes if isinstance(arg, T) else [arg])}
        found: list[dict[str, int]] = []
        for more in ({**EVERY_SIZE[0], **self.example}, *EVERY_SIZE, *self.sizes):
            sizes = {name: n for name, n in {**EVERY_SIZE[0], **more}.items() if name in used}
            tried = all(self.least <= size <= self.most for size in sizes.values())
            if tried and sizes not in found:
                found.append(sizes)
        return found


class Called(nn.Module):
    """Calls a case's function, even one that has no signature."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        return self.call(*inputs)


def check(case: SizeCase) -> None:
    """Runs a case; see the docstring of the module."""
    torch.manual_seed(0)
    first, *others = case.all_sizes()
    model, inputs = Called(case.call), case.inputs(first)
    expected = (
        pytest.raises(onnx_aot.OnnxExporterError, match=case.error)
        if case.error
        else pytest.warns(onnx_aot.OnnxExporterWarning, match=case.warning)
        if case.warning
        else contextlib.nullcontext()
    )
    with expected:
        program = onnx_aot.export(model, inputs, dynamic_shapes=case.dynamic_shapes())
    if case.error:
        return
    onnx.checker.check_model(program.model_proto, full_check=True)
    compared = 0
    for sizes in (first, *others):
        torch.manual_seed(1)
        inputs = case.inputs(sizes)
        if sizes is not first and refused(model, inputs):
            continue
        differences = verify_against(program, model, inputs, {})
        assert all(d.within for d in differences), f"{sizes}\n{format_differences(differences)}"
        check_declared(program, inputs)
        compared += 1
    assert compared > bool(first)


def refused(model: Called, inputs: tuple[Any, ...]) -> bool:
    """True if PyTorch rejects inputs of these sizes."""
    try:
        with torch.no_grad():
            model(*inputs)
    except (RuntimeError, IndexError, ValueError, AssertionError):
        return True
    return False


def check_declared(program: Any, inputs: tuple[Any, ...]) -> None:
    """Declared output sizes that are numbers or names of input sizes match the outputs."""
    known: dict[Any, int] = {}
    for value, given in zip(program.model.graph.inputs, inputs, strict=True):
        sizes = given.shape if isinstance(given, Tensor) else ()
        known |= {
            d.value: n for d, n in zip(value.shape, sizes, strict=True) if hasattr(d, "value")
        }
    for value, given in zip(program.model.graph.outputs, program(*inputs), strict=True):
        declared = [d if isinstance(d, int) else known.get(d.value) for d in value.shape]
        wanted = [n if d is None else d for d, n in zip(declared, given.shape, strict=True)]
        assert list(given.shape) == wanted, f"{value.name} is {given.shape}, not {value.shape}"


def parametrize(cases: Iterable[SizeCase]) -> Any:
    """``@parametrize(CASES)`` makes one test per case; warnings of eager PyTorch are ignored."""

    def marked(test: Any) -> Any:
        for message in ("var", "std", "LSTM with projections"):
            test = pytest.mark.filterwarnings(f"ignore:{message}.*:UserWarning")(test)
        return pytest.mark.parametrize("case", list(cases), ids=lambda case: case.name)(test)

    return marked
