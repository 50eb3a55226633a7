"""One value of a captured graph beside the one of its ONNX model, and where both come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch

from onnx_aot.inspection.value_mapping import Pair, paired_values

__all__ = ["ComparedValue", "Origin", "Source"]

Origin = Literal["", "own", "inherited", "runtime"]


@dataclasses.dataclass(frozen=True)
class ComparedValue:
    """One value of the captured graph beside the one of the ONNX model that holds it.

    Attributes:
        fx_node: Its name in the captured graph, ``program.exported_program``.
        operator: What computes it there, such as ``"aten.linear.default"``.
        onnx_value: Its name in the ONNX model. A complex value inside of the model is two, of
            which this is the real part.
        onnx_operators: Types of the ONNX nodes that make it from the compared values before it.
        module: Path of the module that it is computed in, ``"layers.31.mlp"``; empty in the
            outermost.
        location: The user's line that it comes from, as ``"file:line in function: code"``, or
            empty.
        expected: PyTorch's type and shape, ``"float32[2, 3]"``; ``actual`` the ONNX model's.
        max_absolute: Largest ``|a - b|`` over the elements; ``max_relative`` largest
            ``|a - b| / |b|``, where b, PyTorch's, is not 0.
        within: Whether type and shape agree, and every element is within the type's tolerance, or
            that of a less precise type that it is computed from.
        origin: Where a value that is not within it went wrong. ``"own"``: its nodes give a wrong
            value from PyTorch's own inputs too. ``"inherited"``: from these they give the right
            one. ``"runtime"``: it is right once values before it can be seen, so that ONNX Runtime
            does not fuse nodes around them. Empty: not examined, because one before it is to blame.
        remark: How many elements differ and which one most, and what else was found.
        random: Whether a random operator has a part in the value, so that only type and shape were
            compared.
        output: Whether the model returns the value.
    """

    fx_node: str
    operator: str
    onnx_value: str
    onnx_operators: tuple[str, ...]
    module: str
    location: str
    expected: str
    actual: str
    max_absolute: float
    max_relative: float
    within: bool
    origin: Origin = ""
    remark: str = ""
    random: bool = False
    output: bool = False

    @property
    def drifts(self) -> bool:
        """Whether a value inside of the model is beyond its tolerance by what it inherits alone.

        Rounding adds up there; whether that matters shows in what the model returns.
        """
        return not self.within and self.origin == "inherited" and not self.output


@dataclasses.dataclass(frozen=True)
class Source:
    """What was compared.

    Attributes:
        program: An ``ONNXProgram`` with an exported program.
        inputs: What its model gets, by name.
        other: Names of captured values whose ONNX values are not theirs.
    """

    program: Any
    inputs: Mapping[str, torch.Tensor]
    other: Collection[str] = ()

    def pairs(self) -> list[Pair]:
        """Captured values with the ONNX values that hold them."""
        return paired_values(self.program.model.graph, self.program.exported_program, self.other)
