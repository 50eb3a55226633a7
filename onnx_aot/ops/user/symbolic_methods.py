"""Adapts the static method ``symbolic(g, ...)`` of a ``torch.autograd.Function``.

``g.op("Domain::Name", *inputs, alpha_f=0.5, axes_i=[0, 1], outputs=2)`` emits a node, as it does in
the exporter that such methods were first written for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.builder.rollback import DeclinedError
from onnx_aot.errors import OnnxExporterError
from onnx_aot.ops.registry import Translation, make_translation

__all__ = ["symbolic_translations"]


class _Call(Protocol):
    def arguments(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> list[Any]: ...


class _Function(Protocol):
    """An operator that stands for a function, see ``capture/patches/autograd_functions.py``."""

    @property
    def function(self) -> Any: ...
    @property
    def target(self) -> Any: ...
    def call(self, number: int) -> _Call: ...


def symbolic_translations(
    functions: Iterable[_Function], failed: dict[str, None]
) -> dict[Any, tuple[Translation, ...]]:
    """Returns an entry of the operator table per function that has a ``symbolic``.

    Args:
        functions: The functions.
        failed: Gets a sentence per ``symbolic`` that fails when it is called.
    """
    entries: dict[Any, tuple[Translation, ...]] = {}
    for kept in functions:
        made = make_translation(kept.target, _make_translation(kept, failed))
        entry = Translation(made.target, made.function, made.since, made.arguments, True)
        entries[kept.target] = (entry,)
    return entries


def _make_translation(kept: _Function, failed: dict[str, None]) -> Callable[..., Any]:
    name = f"{kept.function.__qualname__}.symbolic"

    def translate_symbolic(
        op: Builder, tensors: list[ir.Value | None], sizes: list[Any], call: int
    ) -> list[ir.Value]:
        wrapped = [None if value is None else SymbolicValue(value) for value in tensors]
        numbers = [SymbolicValue(size) if isinstance(size, ir.Value) else size for size in sizes]
        arguments = kept.call(call).arguments(wrapped, numbers)
        try:
            returned = kept.function.symbolic(SymbolicGraph(op), *arguments)
            return _unwrap_results(returned, len(op.result))
        except OnnxExporterError:
            raise
        except Exception as error:
            problem = f"{name} failed: {type(error).__name__}: {error}"
            failed[f"{problem}. forward was exported instead"] = None
            raise DeclinedError(problem) from error

    translate_symbolic.__name__ = name
    return translate_symbolic


def _unwrap_results(returned: Any, wanted: int) -> list[ir.Value]:
    items = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    values = [item.value for item in items if isinstance(item, SymbolicValue)]
    if len(values) != wanted:
        raise TypeError(f"it returned {len(values)} values, forward returns {wanted} tensors")
    return values


class SymbolicValue:
    """A value of the graph, with the methods that code written for torch.onnx calls."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    def setType(self, type_: Any) -> SymbolicValue:  # noqa: N802, ARG002
        """Does nothing: types come from the capture."""
        return self

    def type(self) -> SymbolicType:
        """Returns the element type and the sizes."""
        return SymbolicType(self.value)


class SymbolicType:
    """The type of a value."""

    def __init__(self, value: ir.Value) -> None:
        self._value = value

    def sizes(self) -> list[int | None] | None:
        """Returns the dimensions, None for dynamic ones; None for all if they are not known."""
        shape = self._value.shape
        return None if shape is None else [d if isinstance(d, int) else None for d in shape.dims]

    def dim(self) -> int | None:
        """Returns the number of dimensions, or None if it is not known."""
        return None if self._value.shape is None else len(self._value.shape)

    def dtype(self) -> torch.dtype | None:
        """Returns the element type, or None if it is not known."""
        return None if self._value.dtype is None else dtypes.to_torch(self._value.dtype)

    def with_dtype(self, dtype: Any) -> SymbolicType:  # noqa: ARG002
        """Does nothing; its result is passed to ``setType``."""
        return self

    with_sizes = with_dtype


class SymbolicGraph:
    """``g``, the first argument of a ``symbolic``."""

    def __init__(self, op: Builder) -> None:
        self._op = op
        self.opset = op.opset

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Emits one node.

        Args:
            name: The operator, ``"Domain::Name"`` or ``"Name"`` for one of ONNX's own.
            *inputs: Values, torch tensors, numbers, None for one that is absent.
            outputs: Number of outputs.
            **attributes: Names end with ``_i``, ``_f``, ``_s`` or ``_t`` for ints, floats, strings
                and tensors; a list of these makes a list.

        Returns:
            The output, or a tuple of them if there are several.

        Raises:
            TypeError: The name of an attribute ends differently.
        """
        domain, _, op_type = name.rpartition("::")
        plain = dict(_parse_attribute(key, value) for key, value in attributes.items())
        if not domain and op_type == "Constant" and isinstance(plain.get("value"), torch.Tensor):
            return SymbolicValue(self._op.constant(plain["value"]))
        returned = self._op.call_op(
            op_type,
            [item.value if isinstance(item, SymbolicValue) else item for item in inputs],
            plain,
            domain="" if domain == "onnx" else domain,
            outputs=outputs,
        )
        if isinstance(returned, tuple):
            return tuple(map(SymbolicValue, returned))
        return SymbolicValue(returned)


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "i": int,
    "f": float,
    "s": str,
    "t": lambda value: value if isinstance(value, torch.Tensor) else torch.tensor(value),
}


def _parse_attribute(key: str, value: Any) -> tuple[str, Any]:
    """``("axes_i", (0, 1))`` -> ``("axes", [0, 1])``."""
    name, _, ending = key.rpartition("_")
    if not name or ending not in _FORMS:
        raise TypeError(f"the attribute {key!r} must end in _i, _f, _s or _t, which gives its type")
    form = _FORMS[ending]
    if value is None:
        return name, None
    many = isinstance(value, (list, tuple))
    return name, [form(item) for item in value] if many else form(value)
