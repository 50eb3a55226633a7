"""Result of comparing one captured value with its ONNX value, and the programs of both."""

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
    """One value of the captured graph, compared with the ONNX value that holds it.

    Attributes:
        fx_node: Its name in the captured graph, ``program.exported_program``.
        operator: The operator that computes it there, such as ``"aten.linear.default"``.
        onnx_value: Its name in the ONNX model. A complex value inside the model is stored as two
            values; this is the name of the real part.
        onnx_operators: Types of the ONNX nodes that compute it from earlier compared values.
        module: Path of the module that computes it, such as ``"layers.31.mlp"``; empty for the
            outermost module.
        location: The user's line that it comes from, as ``"file:line in function: code"``, or
            empty.
        expected: PyTorch's type and shape, ``"float32[2, 3]"``; ``actual`` the ONNX model's.
        max_absolute: Largest ``|a - b|`` over the elements; ``max_relative`` largest
            ``|a - b| / |b|`` over those where b, PyTorch's value, is not 0.
        within: Whether type and shape agree, and every element is within the type's tolerance, or
            that of a less precise type that it is computed from.
        origin: Source of the error in a value that is not within tolerance. ``"own"``: its nodes
            give a wrong value from PyTorch's inputs too. ``"inherited"``: they give the right value
            from PyTorch's inputs. ``"runtime"``: it is right if inner values are outputs too, which
            keeps ONNX Runtime from fusing nodes around them. Empty: unknown, for example not
            examined because an earlier value is to blame.
        remark: How many elements differ and which one most, and any other findings.
        random: Whether the value depends on a random operator, so that only type and shape were
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
        """True if an inner value exceeds its tolerance only because of its inputs.

        Rounding adds up there; the model's outputs show whether that matters.
        """
        return not self.within and self.origin == "inherited" and not self.output


@dataclasses.dataclass(frozen=True)
class Source:
    """The program and inputs that were compared.

    Attributes:
        program: An ``ONNXProgram`` with an exported program.
        inputs: Inputs of its model, by name.
        other: Names that stand for different values in the captured graph and the ONNX model.
    """

    program: Any
    inputs: Mapping[str, torch.Tensor]
    other: Collection[str] = ()

    def pairs(self) -> list[Pair]:
        """Pairs of captured values and the ONNX values that hold them."""
        return paired_values(self.program.model.graph, self.program.exported_program, self.other)
