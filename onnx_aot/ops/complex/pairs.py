"""Complex numbers as pairs of real values, because ONNX operators do not compute with them.

A complex tensor is a ``Complex`` during translation. Its translations are in a table of their own,
``COMPLEX``, which the walker uses for every node that takes or returns a complex tensor. An
operator that treats real and imaginary parts alike (a transposition, a sum) is an entry of
``PARTWISE`` and applies its real translation once per part. Graph inputs and outputs have the form
of ``torch.view_as_real``: real and imaginary part in a last dimension of 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import Translation, find_translation, make_translation, translations
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
    "make_recorded_part",
    "parts",
    "real_function",
    "register_complex",
    "split",
    "zeros_like",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, eq=False)
class Complex:
    """Complex tensor: two real values of the same shape and type."""

    real: ir.Value
    imag: ir.Value

    @property
    def shape(self) -> ir.Shape | None:
        """Shape of both parts."""
        return self.real.shape


COMPLEX: dict[Any, Translation] = {}
"""Translations of operators with a complex argument or result, by target."""

PARTWISE: set[Any] = set()
"""Targets whose real translation is applied to the real and to the imaginary parts."""

BILINEAR: set[Any] = set()
"""Products: each part of one argument in ``PRODUCTS`` is multiplied with each of the other."""

REAL_PART: set[Any] = set()
"""Targets whose real translation is applied to the real parts; the imaginary ones are zero."""

TRUTH: set[Any] = set()
"""Targets whose real translation only tests if an element differs from zero."""


def register_complex(*targets: Any) -> Callable[[_F], _F]:
    """Decorator that registers a translation for complex arguments or results.

    The function takes the schema's arguments, a ``Complex`` for a complex tensor and a value for a
    real one, and returns a ``Complex`` for a complex result.

    Raises:
        TypeError: The parameters differ from the schema's arguments.
        ValueError: The target already has an entry.
    """

    def enter(function: _F) -> _F:
        for target in targets:
            if isinstance(target, Missing):
                continue
            if target in COMPLEX:
                raise ValueError(f"{target} already has a translation for complex numbers")
            COMPLEX[target] = make_translation(target, function)
        return function

    return enter


def parts(op: Builder, value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a value or number; the latter is None for a real one."""
    if isinstance(value, Complex):
        return value.real, value.imag
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def real_function(target: Any) -> Callable[..., Any]:
    """Translation of an operator for real numbers, to be called with all its arguments."""

    def call(op: Builder, *arguments: Any) -> Any:
        translation = find_translation(translations(), target, op.opset)
        assert translation is not None, f"{target} has no translation"
        return translation.function(op, *arguments)

    return call


def make_recorded_part(recorded: Any) -> Any:
    """Recorded value as it would be for one part."""
    if isinstance(recorded, (list, tuple)):
        return [make_recorded_part(item) for item in recorded]
    if isinstance(recorded, torch.Tensor) and recorded.dtype.is_complex:
        return recorded.new_empty(recorded.shape, dtype=recorded.dtype.to_real())
    return recorded


def zeros_like(op: Builder, value: ir.Value) -> ir.Value:
    """Zeros of a value's shape and type."""
    return op.Expand(op.constant(0.0, value.dtype), op.Shape(value))


def from_real(op: Builder, value: Any, dtype: torch.dtype) -> Complex:
    """Converts a value, ``Complex`` or number to a ``Complex`` of a complex dtype."""
    part = dtypes.to_onnx(dtype.to_real())
    real, imag = parts(op, value)
    real = op.cast(real, part)
    return Complex(real, zeros_like(op, real) if imag is None else op.cast(imag, part))


def join(op: Builder, value: Complex) -> ir.Value:
    """Joins parts to ``[..., 2]`` as ``torch.view_as_real`` does; returns the source of a split."""
    whole = _split_from(op, value)
    if whole is not None:
        return whole
    return op.Concat(op.Unsqueeze(value.real, [-1]), op.Unsqueeze(value.imag, [-1]), axis=-1)


def _split_from(op: Builder, value: Complex) -> ir.Value | None:
    """Returns the value that ``split`` made the two parts from, else None."""
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
