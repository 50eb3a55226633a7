"""Selects and calls the translations of nodes that take or return complex tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.pairs import (
    BILINEAR,
    COMPLEX,
    PARTWISE,
    REAL_PART,
    TRUTH,
    Complex,
    from_real,
    join,
    make_recorded_part,
    split,
    zeros_like,
)
from onnx_aot.ops.families import import_complex_families
from onnx_aot.ops.registry import TRANSLATIONS, Argument, Translation
from onnx_aot.torch_compat import OpOverload, schema_of
from onnx_aot.translate.promote import SELECTORS, common_dtype, needs_promotion

__all__ = ["call_complex", "complex_translation", "is_complex", "join_complex", "split_complex"]

Call = Callable[[list[Any]], Any]


def is_complex(node: torch.fx.Node, known: dict[torch.fx.Node, bool]) -> bool:
    """True if a node takes or returns a complex tensor; ``known`` caches this for results."""
    for one in (node, *node.all_input_nodes):
        holds = known.get(one)
        if holds is None:
            holds = known[one] = _holds_complex(one.meta.get("val"))
        if holds:
            return True
    return False


def _holds_complex(recorded: Any) -> bool:
    if isinstance(recorded, torch.Tensor):
        return recorded.dtype.is_complex
    if isinstance(recorded, (list, tuple)):
        return any(_holds_complex(item) for item in recorded)
    return False


def complex_translation(target: Any, real: Translation | None) -> Translation | None:
    """Returns the translation for complex numbers, given the one for real numbers, or None."""
    import_complex_families()
    if real is not None and _is_custom(target, real):
        return real
    entry = COMPLEX.get(target)
    if entry is not None:
        return entry
    known = any(target in table for table in (PARTWISE, BILINEAR, REAL_PART, TRUTH))
    return real if known else None


def _is_custom(target: Any, translation: Translation) -> bool:
    """True if a translation is the user's, which takes and returns ``Complex``."""
    return translation not in TRANSLATIONS.get(target, ())


def join_complex(op: Builder, value: Any) -> Any:
    """Converts complex values, also in lists, to the form of ``torch.view_as_real``."""
    if isinstance(value, list):
        return [join_complex(op, item) for item in value]
    return join(op, value) if isinstance(value, Complex) else value


def split_complex(
    op: Builder, value: Any, recorded: Any, describe: Callable[[ir.Value, torch.Tensor], None]
) -> Any:
    """Inverse of ``join_complex``, for values that the capture recorded as complex tensors.

    ``describe`` sets the type and the shape of a recorded tensor on a value.
    """
    if isinstance(value, (list, tuple)) and isinstance(recorded, (list, tuple)):
        pairs = zip(value, recorded, strict=False)
        return [split_complex(op, one, other, describe) for one, other in pairs]
    if isinstance(value, ir.Value) and _holds_complex(recorded):
        describe(value, torch.view_as_real(recorded))
        return split(op, value)
    return list(value) if isinstance(value, tuple) else value


def call_complex(
    op: Builder, node: torch.fx.Node, translation: Translation, arguments: list[Any]
) -> Any:
    """Calls a translation that ``complex_translation`` chose.

    Args:
        op: The builder; its ``result`` is the value that the capture recorded for the node.
        node: The FX node.
        translation: One for complex numbers, or the one for real numbers if the operator is in
            ``PARTWISE``, ``BILINEAR``, ``REAL_PART`` or ``TRUTH``.
        arguments: In the translation's order, complex tensors as ``Complex``.
    """
    target, bound = node.target, translation.arguments or ()
    if needs_promotion(target):
        _promote(op, node, bound, arguments)

    def call(values: list[Any]) -> Any:
        returned = translation.function(op, *values)
        return list(returned) if isinstance(returned, tuple) else returned

    if target in COMPLEX or _is_custom(target, translation):
        return call(arguments)
    if target in TRUTH:
        return call([_cast_to_bool(op, value) for value in arguments])
    recorded = op.result
    op.result = make_recorded_part(recorded)
    try:
        if target in BILINEAR:
            return _expand_bilinear(op, call, arguments, recorded)
        numbers = _number_positions(target, bound)
        real = call(_select_part(op, arguments, numbers, imaginary=False))
        if not _holds_complex(recorded):
            return real
        if target in REAL_PART:
            return Complex(real, zeros_like(op, real))
        imaginary = call(_select_part(op, arguments, numbers, imaginary=True))
    finally:
        op.result = recorded
    if isinstance(real, list):
        return [
            Complex(one, two) if _holds_complex(item) else one
            for one, two, item in zip(real, imaginary, recorded, strict=True)
        ]
    return Complex(real, imaginary)


def _promote(
    op: Builder, node: torch.fx.Node, bound: Sequence[Argument], values: list[Any]
) -> None:
    """Applies the promotion rule for pointwise operators to the type of the parts."""
    recorded = node.meta["val"]
    dtype = common_dtype(node) if recorded.dtype == torch.bool else recorded.dtype
    if dtype is None:
        return
    part = dtypes.to_onnx(dtype.to_real() if dtype.is_complex else dtype)

    def cast(value: Any) -> Any:
        if isinstance(value, Complex):
            return Complex(op.cast(value.real, part), op.cast(value.imag, part))
        if isinstance(value, list):
            return [cast(item) for item in value]
        return op.cast(value, part) if isinstance(value, ir.Value) else value

    for index, (argument, value) in enumerate(zip(bound, values, strict=True)):
        if argument.name not in SELECTORS:
            values[index] = cast(value)


def _cast_to_bool(op: Builder, value: Any) -> Any:
    if isinstance(value, list):
        return [_cast_to_bool(op, item) for item in value]
    if not isinstance(value, Complex):
        return value
    real, imag = (op.Cast(part, to=ir.DataType.BOOL) for part in (value.real, value.imag))
    return op.Or(real, imag)


def _number_positions(target: Any, bound: Sequence[Argument]) -> frozenset[int]:
    """Positions of the arguments that are numbers to compute with, such as a fill value."""
    if not isinstance(target, OpOverload):
        return frozenset()
    numbers = {a.name for a in schema_of(target).arguments if "number" in str(a.type).lower()}
    return frozenset(index for index, argument in enumerate(bound) if argument.name in numbers)


def _select_part(
    op: Builder, arguments: list[Any], numbers: frozenset[int], *, imaginary: bool
) -> list[Any]:
    return [
        _part_of(op, value, index in numbers, imaginary) for index, value in enumerate(arguments)
    ]


def _part_of(op: Builder, value: Any, number: bool, imaginary: bool) -> Any:
    if isinstance(value, Complex):
        return value.imag if imaginary else value.real
    if isinstance(value, list):
        return [_part_of(op, item, False, imaginary) for item in value]
    if isinstance(value, torch.dtype) and value.is_complex:
        return value.to_real()
    if isinstance(value, ir.Value):
        # a real operand among complex ones; indices and masks are not of a floating type
        real_operand = imaginary and dtypes.is_floating(value.dtype)
        return zeros_like(op, value) if real_operand else value
    if number and isinstance(value, (complex, float, int)):
        given = complex(value)
        return given.imag if imaginary else given.real
    return value


def _expand_bilinear(op: Builder, call: Call, arguments: list[Any], recorded: torch.Tensor) -> Any:
    """Computes ``(a + bi)(c + di)`` of the first two tensors, and adds a third one."""
    positions = [
        index for index, value in enumerate(arguments) if isinstance(value, (Complex, ir.Value))
    ]
    first, second, *rest = positions
    added = [arguments[index] for index in rest]
    for index in rest:
        arguments[index] = None

    def call_with(left: Any, right: Any) -> Any:
        values = list(arguments)
        values[first], values[second] = left, right
        return call(values)

    a, b = arguments[first], arguments[second]
    if isinstance(a, Complex) and isinstance(b, Complex):
        real = op.Sub(call_with(a.real, b.real), call_with(a.imag, b.imag))
        imag = op.Add(call_with(a.real, b.imag), call_with(a.imag, b.real))
    elif isinstance(a, Complex):
        real, imag = call_with(a.real, b), call_with(a.imag, b)
    else:
        real, imag = call_with(a, b.real), call_with(a, b.imag)
    for bias in added:
        pair = from_real(op, bias, recorded.dtype)
        # one number per channel, before the spatial dimensions of a convolution's weight
        spatial = op.rank(b.real if isinstance(b, Complex) else b) - 2
        axes = list(range(1, 1 + spatial))
        real = op.Add(real, op.Unsqueeze(pair.real, axes) if axes else pair.real)
        imag = op.Add(imag, op.Unsqueeze(pair.imag, axes) if axes else pair.imag)
    return Complex(real, imag)
