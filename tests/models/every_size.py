"""Small functions whose results depend on sizes: exported once, right at every size.

A row is exported with its named sizes dynamic. The file passes ``onnx.checker`` with shape
inference and is compared with eager PyTorch at several sizes, 1 and 0 among them, in value, type
and shape, which is the one that the model declares. Sizes that PyTorch itself refuses are passed
over. What cannot be right at every size is an error at the export.
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
from tests.ops.rows import T

FIXED = r"inputs\[0\], axis 0 \('n'\): fixed at 4\n.*\n *at .*every_size"
"""What the export says where torch's capture takes the first size as a number."""

SIZES: tuple[dict[str, int], ...] = (
    {"n": 4, "m": 6, "k": 5, "h": 9, "w": 8, "l": 3},
    {"n": 1, "m": 1, "k": 1, "h": 1, "w": 1, "l": 1},
    {"n": 3, "m": 7, "k": 2, "h": 7, "w": 5, "l": 5},
    {"n": 9, "m": 5, "k": 8, "h": 12, "w": 13, "l": 4},
    {"n": 1, "m": 8, "k": 1, "h": 16, "w": 3, "l": 1},
    {"n": 0, "m": 0, "k": 0, "h": 0, "w": 0, "l": 0},
    {"n": 0, "m": 6, "k": 5, "h": 9, "w": 8, "l": 3},
    {"n": 4, "m": 0, "k": 5, "h": 9, "w": 8, "l": 0},
)
"""Values of the named sizes; the first set is the example."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One function.

    Attributes:
        name: Of the test.
        call: What is exported, a function or a module.
        args: Inputs, ``T``s and numbers; sizes of a ``T`` that have names are dynamic, and so is a
            number given by the name of a size.
        example: What the named sizes are in the example, where not as in ``SIZES``.
        sizes: Further sizes; those of ``SIZES`` are tried too.
        least: The smallest size that is tried, and ``most`` the largest.
        error: What the export says where it refuses the function.
        warning: What it warns of.
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
            {axis: size for axis, size in enumerate(arg.sizes) if isinstance(size, str)}
            if isinstance(arg, T)
            else (torch.export.Dim.DYNAMIC if isinstance(arg, str) else None)
            for arg in self.args
        )
        return (shapes,)

    def all_sizes(self) -> list[dict[str, int]]:
        used = {s for arg in self.args for s in (arg.sizes if isinstance(arg, T) else [arg])}
        found: list[dict[str, int]] = []
        for more in ({**SIZES[0], **self.example}, *SIZES, *self.sizes):
            sizes = {name: n for name, n in {**SIZES[0], **more}.items() if name in used}
            tried = all(self.least <= size <= self.most for size in sizes.values())
            if tried and sizes not in found:
                found.append(sizes)
        return found


class Called(nn.Module):
    """Calls a row's function, also one that has no signature."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        return self.call(*inputs)


def check(row: Row) -> None:
    """Runs a row; see the module's docstring."""
    torch.manual_seed(0)
    first, *others = row.all_sizes()
    model, inputs = Called(row.call), row.inputs(first)
    expected = (
        pytest.raises(onnx_aot.OnnxExporterError, match=row.error)
        if row.error
        else pytest.warns(onnx_aot.OnnxExporterWarning, match=row.warning)
        if row.warning
        else contextlib.nullcontext()
    )
    with expected:
        program = onnx_aot.export(model, inputs, dynamic_shapes=row.dynamic_shapes())
    if row.error:
        return
    onnx.checker.check_model(program.model_proto, full_check=True)
    compared = 0
    for sizes in (first, *others):
        torch.manual_seed(1)
        inputs = row.inputs(sizes)
        if sizes is not first and refused(model, inputs):
            continue
        differences = verify_against(program, model, inputs, {})
        assert all(d.within for d in differences), f"{sizes}\n{format_differences(differences)}"
        check_declared(program, inputs)
        compared += 1
    assert compared > bool(first)


def refused(model: Called, inputs: tuple[Any, ...]) -> bool:
    """Whether PyTorch takes no such sizes."""
    try:
        with torch.no_grad():
            model(*inputs)
    except (RuntimeError, IndexError, ValueError, AssertionError):
        return True
    return False


def check_declared(program: Any, inputs: tuple[Any, ...]) -> None:
    """The numbers among the declared sizes of outputs, and the names of inputs' sizes, hold."""
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


def parametrize(rows: Iterable[Row]) -> Any:
    """``@parametrize(ROWS)`` makes a test per row; what eager PyTorch warns of is not looked at."""

    def marked(test: Any) -> Any:
        for message in ("var", "std", "LSTM with projections"):
            test = pytest.mark.filterwarnings(f"ignore:{message}.*:UserWarning")(test)
        return pytest.mark.parametrize("row", list(rows), ids=lambda row: row.name)(test)

    return marked
