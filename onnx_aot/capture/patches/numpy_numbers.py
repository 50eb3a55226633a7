"""Gives symbolic sizes what NumPy's numbers have, where models compute sizes with NumPy.

``np.minimum(8, x.shape[1])`` asks which of them is smaller, and its result is the one or the other.
``np.ceil(np.log2(n)).astype(int).item()`` calls methods of the numbers that functions of NumPy
return; for a symbolic number they return one too, which has no such methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onnx_aot.capture.sizes.guards import ask_for_user
from onnx_aot.torch_compat import Attribute, Patch, fix_sizes_of

__all__ = ["NUMPY_NUMBERS", "Rounded"]

SYMBOLIC = (torch.SymInt, torch.SymFloat)

sym_max: Any = torch.sym_max
sym_min: Any = torch.sym_min

FUNCTIONS: dict[Any, Any] = {np.maximum: sym_max, np.minimum: sym_min}


class Rounded(int):
    """A number with the methods that those of NumPy have, as ``numpy.ceil`` returns them."""

    def astype(self, dtype: Any) -> Any:
        """The number in another type of NumPy."""
        return np.dtype(dtype).type(self)

    def item(self) -> int:
        """The number of Python."""
        return int(self)


def _convert(number: Any, dtype: Any) -> Any:
    """``number.astype(dtype)``; a type that may round the number fixes the sizes."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return torch.sym_int(number)  # type: ignore[no-untyped-call]
    is_exact = kind == np.float64 or (kind == np.float32 and isinstance(number, torch.SymInt))
    if is_exact:  # for sizes below 2**24
        return torch.sym_float(number)  # type: ignore[no-untyped-call]
    return kind.type(fix_sizes_of(number))


def _apply(number: Any, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Applies a function of NumPy's, which NumPy asks for if an argument is a symbolic number."""
    plain = [each.item() if isinstance(each, np.number) else each for each in inputs]
    if (
        method == "__call__"
        and function in FUNCTIONS
        and not options
        and all(isinstance(each, (int, float, *SYMBOLIC)) for each in plain)
    ):
        return FUNCTIONS[function](*plain)
    # objects call the methods of the same name, as without this function
    objects = [np.array(each, object) if isinstance(each, SYMBOLIC) else each for each in inputs]
    return ask_for_user(getattr(function, method), *objects, **options)


def _make_row(attribute: str, replacement: Any, without: str) -> Patch:
    return Patch(
        f"{attribute} of a size",
        lambda original, settings: replacement,
        without,
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(kind, attribute) for kind in SYMBOLIC],
    )


NUMPY_NUMBERS: tuple[Patch, ...] = (
    _make_row("astype", _convert, "Models that call numpy.ceil(size).astype(int) are refused."),
    _make_row("item", lambda number: number, "Models that call numpy.ceil(size).item() fail."),
    _make_row("__array_ufunc__", _apply, "numpy.minimum of a dynamic size limits it."),
)
