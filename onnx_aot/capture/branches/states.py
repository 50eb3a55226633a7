"""Describes what the rest of a model depends on when it asks a question about its data."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.branches.open_values import may_hold_values
from onnx_aot.capture.module_state import Change
from onnx_aot.metadata.user_code import is_users_frame
from onnx_aot.torch_compat import OpOverload, is_data_symbol, symbolic_expression

__all__ = ["State", "read_state"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_KEPT = (
    *(torch.nn.Module, type, CodeType, types.ModuleType, types.BuiltinFunctionType),
    OpOverload,
)

_LARGEST = 20_000
"""Objects in a state; a larger one is equal to no other."""


class State:
    """The local variables and changed attributes of a model at a question.

    Two states are equal if they differ in values of tensors only, and in the numbers of symbols for
    data. What follows is then the same but for the nodes that it reads. A state that is not known
    as a whole is equal to no other.

    Attributes:
        place: The function and the instruction that asks.
        key: What has to be equal.
        nodes: Node of each computed value in the state, in order; None where there is none.
    """

    def __init__(self, place: tuple[CodeType, int], find: Callable[[Any], Any]) -> None:
        self.place, self._find = place, find
        self.nodes: list[torch.fx.Node | None] = []
        self.key: Any = object()
        self._kept: list[Any] = []  # so that their ids stay their own
        self._seen: dict[int, int] = {}
        self._symbols: dict[str, str] = {}
        self._count = 0

    def read(self, frames: Sequence[FrameType], changes: Sequence[Change], known: Any) -> None:
        """Reads variables, attributes, and the answers about symbols that these depend on."""
        if any(may_hold_values(frame.f_code, frame.f_lasti) for frame in frames):
            return
        variables = [
            (frame.f_code, frame.f_lasti, self._freeze(dict(sorted(frame.f_locals.items()))))
            for frame in frames
        ]
        attributes = [
            (id(change.owner), change.name, self._freeze(change.read())) for change in changes
        ]
        answers = {
            (self._write(asked), answer)
            for asked, answer in known.items()
            if any(str(symbol) in self._symbols for symbol in asked.free_symbols)
        }
        if self._count <= _LARGEST:
            self.key = (tuple(variables), tuple(attributes), frozenset(answers))

    def _freeze(self, value: Any) -> Any:
        """Returns something that is equal for equal values, and can be hashed."""
        self._count += 1
        if isinstance(value, torch.Tensor):
            return self._freeze_tensor(value)
        if isinstance(value, _SYMBOLIC):
            self.nodes.append(self._find(value))
            return type(value), self._write(symbolic_expression(value))
        if type(value) in _PLAIN:
            return type(value), repr(value)
        if id(value) in self._seen:
            return "seen", self._seen[id(value)]
        if self._count > _LARGEST:
            return "too many"
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if isinstance(value, _KEPT):
            return "object", id(value)
        if isinstance(value, (list, tuple)):
            return type(value), *map(self._freeze, value)
        if type(value) is dict:
            return dict, *(part for pair in value.items() for part in map(self._freeze, pair))
        if isinstance(value, types.MethodType):
            return "method", self._freeze(value.__self__), self._freeze(value.__func__)
        if isinstance(value, types.FunctionType):
            cells = (cell.cell_contents for cell in value.__closure__ or () if _is_set(cell))
            return value.__code__, *map(self._freeze, cells), self._freeze(value.__defaults__)
        try:
            made, given, *rest = value.__reduce_ex__(2)
        except Exception:  # an iterator, or an object of compiled code
            return "object", id(value)
        state, items, pairs = (*rest, None, None, None)[:3]
        parts = (given, state, list(items or ()), list(pairs or ()))
        return type(value), self._freeze(made), *map(self._freeze, parts)

    def _freeze_tensor(self, tensor: torch.Tensor) -> Any:
        node = self._find(tensor)
        self.nodes.append(node)
        if node is None:
            self._kept.append(tensor)
            return "tensor", id(tensor)
        memo = getattr(tensor, "item_memo", None)  # the number that the tensor was read as
        sizes = (*tensor.shape, *tensor.stride(), *(() if memo is None else (memo,)))
        written = tuple(
            self._write(symbolic_expression(size)) if isinstance(size, _SYMBOLIC) else str(size)
            for size in sizes
        )
        return type(tensor), tensor.dtype, tensor.device, written, tensor.requires_grad

    def _write(self, expression: Any) -> str:
        """An expression with the symbols for data numbered in the order in which they occur."""
        import sympy

        names = {}
        for symbol in sorted(expression.free_symbols, key=str):
            if is_data_symbol(symbol):
                name = str(symbol)
                self._symbols.setdefault(name, f"data{len(self._symbols)}")
                names[symbol] = sympy.Symbol(self._symbols[name])
        return str(expression.xreplace(names))


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def read_state(
    frame: FrameType | None,
    boundary: CodeType,
    tracer: Any,
    changes: Sequence[Change],
    known: Any,
    is_first: bool,
) -> State:
    """Reads the state of the model at a question.

    Args:
        frame: The innermost frame.
        boundary: The code of the function that calls ``forward``.
        tracer: The tracer that records.
        changes: Attributes of modules that ``forward`` has changed.
        known: The answers so far.
        is_first: Whether it is the first question, at which all paths are the same.
    """
    frames = list(_list_frames(frame, boundary))
    place = (frames[0].f_code, frames[0].f_lasti) if frames else (boundary, 0)
    state = State(place, functools.partial(_find_node, tracer))
    if not is_first:
        state.read(frames, changes, known)
    return state


def _list_frames(frame: FrameType | None, boundary: CodeType) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not boundary:
        if is_users_frame(frame):
            yield frame
        frame = frame.f_back


def _find_node(tracer: Any, value: Any) -> torch.fx.Node | None:
    try:
        proxy = tracer.unwrap_proxy(value)
    except Exception:  # torch has different ones for values that it cannot compute from others
        return None
    return proxy.node if isinstance(proxy, torch.fx.Proxy) else None
