"""Complex numbers, which ONNX operators do not compute with, as pairs of real values.

A complex tensor is a ``Complex`` while a program is translated. Its translations are in a table of
their own, ``COMPLEX``: the walker uses it for every node that takes or gives a complex tensor. An
operator that treats real and imaginary parts alike (a transposition, a sum) is a row of
``PARTWISE`` and uses its real translation once per part. Graph inputs and outputs are what
``torch.view_as_real`` gives: real and imaginary part in a last dimension of 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import TRANSLATIONS, Translation, find_translation, make_translation
from onnx_aot.torch_compat import Missing

__all__ = [
    "BILINEAR",
    "COMPLEX",
    "PARTWISE",
    "REAL_PART",
    "TRUTH",
    "Complex",
    "from_real",
    "join",
    "parts",
    "real_function",
    "real_recorded",
    "register_complex",
    "split",
    "zeros_like",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor: two real values of one shape and type."""

    real: ir.Value
    imag: ir.Value

    @property
    def shape(self) -> ir.Shape | None:
        """Shape of both parts."""
        return self.real.shape


COMPLEX: dict[Any, Translation] = {}
"""Translations of operators with a complex argument or result, by target."""

PARTWISE: set[Any] = set()
"""Real translations that are used for the real and for the imaginary parts."""

BILINEAR: set[Any] = set()
"""Products: of the arguments named in ``PRODUCTS`` each part is multiplied with each."""

REAL_PART: set[Any] = set()
"""Real translations that are used once, for the real parts; the imaginary ones are zero."""

TRUTH: set[Any] = set()
"""Real translations that only ask whether an element differs from zero."""


def register_complex(*targets: Any) -> Callable[[_F], _F]:
    """Decorator that enters a translation for complex arguments or results.

    The function takes the schema's arguments: a ``Complex`` where the tensor is complex, a value
    where it is real, and returns a ``Complex`` where the result is complex.

    Raises:
        TypeError: The parameters differ from the schema's arguments.
        ValueError: The target has an entry.
    """

    def enter(function: _F) -> _F:
        for target in targets:
            if isinstance(target, Missing):
                continue
            if target in COMPLEX:
                raise ValueError(f"{target} has a translation for complex numbers already")
            COMPLEX[target] = make_translation(target, function)
        return function

    return enter


def parts(op: Builder, value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a value or number; None for the imaginary part of a real one."""
    if isinstance(value, Complex):
        return value.real, value.imag
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def real_function(target: Any) -> Callable[..., Any]:
    """The translation of an operator for real numbers, to be called with all its arguments."""

    def call(op: Builder, *arguments: Any) -> Any:
        translation = find_translation(TRANSLATIONS, target, op.opset)
        assert translation is not None, f"{target} has no translation"
        return translation.function(op, *arguments)

    return call


def real_recorded(recorded: Any) -> Any:
    """What would have been recorded for one part."""
    if isinstance(recorded, (list, tuple)):
        return [real_recorded(item) for item in recorded]
    if isinstance(recorded, torch.Tensor) and recorded.dtype.is_complex:
        return recorded.new_empty(recorded.shape, dtype=recorded.dtype.to_real())
    return recorded


def zeros_like(op: Builder, value: ir.Value) -> ir.Value:
    """Zeros of a value's shape and type."""
    return op.Expand(op.constant(0.0, value.dtype), op.Shape(value))


def from_real(op: Builder, value: Any, dtype: torch.dtype) -> Complex:
    """A value, ``Complex`` or number as a ``Complex`` of a complex dtype."""
    part = dtypes.to_onnx(dtype.to_real())
    real, imag = parts(op, value)
    real = op.cast(real, part)
    return Complex(real, zeros_like(op, real) if imag is None else op.cast(imag, part))


def join(op: Builder, value: Complex) -> ir.Value:
    """What ``torch.view_as_real`` gives: ``[..., 2]``; what was split is taken as it was."""
    whole = _split_from(op, value)
    if whole is not None:
        return whole
    return op.Concat(op.Unsqueeze(value.real, [-1]), op.Unsqueeze(value.imag, [-1]), axis=-1)


def _split_from(op: Builder, value: Complex) -> ir.Value | None:
    """The value that ``split`` made the two parts from; None for others."""
    sources = []
    for position, part in enumerate((value.real, value.imag)):
        node = part.producer()
        if node is None or node.op_type != "Gather":
            return None
        axis = node.attributes.get("axis")
        index: Any = op.literal(node.inputs[1])
        if axis is None or axis.as_int() != -1 or index is None or index.tolist() != position:
            return None
        sources.append(node.inputs[0])
    source, other = sources
    if source is None or source is not other or source.shape is None:
        return None
    return source if source.shape[-1] == 2 else None


def split(op: Builder, value: ir.Value) -> Complex:
    """The inverse of ``join``."""
    return Complex(op.Gather(value, 0, axis=-1), op.Gather(value, 1, axis=-1))
