"""Implements TorchScript operators on numbers, strings, lists and dicts, by operator name.

Functions get the recorder and the arguments. Known values are computed; values that depend on
inputs are recorded. Operators on tensors are not here: the interpreter calls them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.capture.scripted.recorder import Recorder
from onnx_aot.capture.scripted.specs import as_sequence, as_tensor, describe, join
from onnx_aot.capture.scripted.values import Cell, Leaf, Maybe, is_known
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import aten
from onnx_aot.torch_ops.scripted_ops import (
    SequenceVal,
    sequence_append,
    sequence_at,
    sequence_erase,
    sequence_insert,
    sequence_length,
)

__all__ = ["LISTS", "NUMBERS", "as_number", "to_bool", "to_float", "to_int"]


_DTYPES = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}


# --- numbers -------------------------------------------------------------------------------------


def _kind(value: Any) -> type:
    if isinstance(value, Leaf):
        return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value.val)]
    return bool if isinstance(value, bool) else float if isinstance(value, float) else int


def to_int(recorder: Recorder, value: Any) -> Any:
    """Converts a number to an int; floats are truncated."""
    if not isinstance(value, Leaf):
        return int(value)
    if _kind(value) is bool:
        return recorder.call(torch.sym_ite, value, 1, 0)
    return value if _kind(value) is int else recorder.call(math.trunc, value)


def to_float(recorder: Recorder, value: Any) -> Any:
    """Converts a number to a float."""
    if not isinstance(value, Leaf):
        return float(value)
    if _kind(value) is bool:
        value = to_int(recorder, value)
    return value if _kind(value) is float else recorder.call(torch.sym_float, value)


def to_bool(recorder: Recorder, value: Any) -> Any:
    """Converts a number to a bool: True if it is not 0."""
    if not isinstance(value, Leaf):
        return bool(value)
    return value if _kind(value) is bool else recorder.call(operator.ne, value, 0)


def as_number(recorder: Recorder, value: Any) -> Any:
    """Converts a recorded bool among operands of arithmetic to an int; others are unchanged."""
    return to_int(recorder, value) if isinstance(value, Leaf) and _kind(value) is bool else value


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(recorder: Recorder, *operands: Any) -> Any:
        return recorder.call(function, *(as_number(recorder, operand) for operand in operands))

    return run


def _compare_with(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(recorder: Recorder, left: Any, right: Any) -> Any:
        if _kind(left) is bool and _kind(right) is bool:
            for one, other in ((left, right), (right, left)):
                if not isinstance(one, Leaf):  # a constant decides the result or is neutral
                    decided = one if function is operator.or_ else not one
                    return one if decided else other
        return recorder.call(function, left, right)

    return run


def _compare_equal(recorder: Recorder, left: Any, right: Any) -> Any:
    if isinstance(left, Cell) or isinstance(right, Cell):
        return _equal_lists(recorder, left, right)
    return recorder.call(operator.eq, as_number(recorder, left), as_number(recorder, right))


def _equal_lists(recorder: Recorder, left: Any, right: Any) -> Any:
    one, other = (c.content if isinstance(c, Cell) else list(c) for c in (left, right))
    if not isinstance(one, list) or not isinstance(other, list):
        raise CaptureError("lists whose length depends on the inputs cannot be compared")
    if len(one) != len(other):
        return False
    result: Any = True
    for a, b in zip(one, other, strict=True):
        result = _compare_with(operator.and_)(recorder, result, _compare_equal(recorder, a, b))
    return result


def _not_equal(recorder: Recorder, left: Any, right: Any) -> Any:
    return _not(recorder, _compare_equal(recorder, left, right))


def _not(recorder: Recorder, value: Any) -> Any:
    return (
        recorder.call(torch.sym_not, to_bool(recorder, value))
        if isinstance(value, Leaf)
        else not value
    )


def _divide(recorder: Recorder, left: Any, right: Any) -> Any:
    return recorder.call(operator.truediv, to_float(recorder, left), to_float(recorder, right))


def _power(recorder: Recorder, left: Any, right: Any) -> Any:
    if is_known((left, right)):
        return float(left) ** float(right)
    return recorder.call(operator.pow, to_float(recorder, left), to_float(recorder, right))


def _choose_extreme(
    function: Callable[..., Any], symbolic: Callable[..., Any]
) -> Callable[..., Any]:
    def run(recorder: Recorder, *operands: Any) -> Any:
        values = list(operands)
        if len(operands) == 1:
            values = operands[0].content
            if isinstance(values, Leaf):
                reduced = aten.amax.default if symbolic is torch.sym_max else aten.amin.default
                return recorder.item(recorder.call(reduced, values))
        if is_known(values):
            return function(values)
        result = values[0]
        for value in values[1:]:
            result = recorder.call(symbolic, result, value)
        return result

    return run


def _take_absolute(recorder: Recorder, value: Any) -> Any:
    if not isinstance(value, Leaf):
        return abs(value)
    return recorder.call(torch.sym_max, value, recorder.call(operator.neg, value))


def _round(recorder: Recorder, value: Any, digits: int | None = None) -> Any:
    if not isinstance(value, Leaf):
        return round(value, digits or 0) if isinstance(value, float) else value
    tensor = recorder.call(aten.scalar_tensor.default, value, dtype=torch.float64)
    if digits:
        rounded = recorder.call(aten.round.decimals, tensor, decimals=digits)
    else:
        rounded = recorder.call(aten.round.default, tensor)
    return recorder.item(rounded)


def _of_float(name: str) -> Callable[..., Any]:
    """A function of ``math``; floats that depend on inputs use the operator on tensors."""

    def run(recorder: Recorder, *operands: Any) -> Any:
        if is_known(operands):
            return getattr(math, name)(*operands)
        tensors = [
            recorder.call(aten.scalar_tensor.default, operand, dtype=torch.float64)
            for operand in operands
        ]
        packet = getattr(aten, name)
        overload = packet.Tensor if "Tensor" in packet.overloads() else packet.default
        return recorder.item(recorder.call(overload, *tensors))

    return run


def _round_with(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(recorder: Recorder, value: Any) -> Any:
        if not isinstance(value, Leaf):
            return function(value)
        return value if _kind(value) is int else recorder.call(function, value)

    return run


def _range_length(recorder: Recorder, low: Any, high: Any, step: Any) -> Any:
    """The length of ``range(low, high, step)``."""
    if is_known((low, high, step)):
        return len(range(low, high, step))
    if isinstance(step, Leaf):
        raise CaptureError("the step of a range depends on the inputs")
    extent = recorder.call(operator.sub, high, low)
    if step < 0:
        extent, step = recorder.call(operator.neg, extent), -step
    rounded = recorder.call(operator.add, extent, step - 1)
    return recorder.call(torch.sym_max, recorder.call(operator.floordiv, rounded, step), 0)


def _range_item(recorder: Recorder, index: Any, low: Any, step: Any) -> Any:
    return recorder.call(operator.add, recorder.call(operator.mul, index, step), low)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "ge": operator.ge,
    "gt": operator.gt,
    "floordiv": operator.floordiv,
    "le": operator.le,
    "lt": operator.lt,
    "mul": operator.mul,
    "neg": operator.neg,
    "remainder": operator.mod,
    "sub": operator.sub,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
}

NUMBERS: dict[str, Callable[..., Any]] = {
    **{name: _arithmetic(function) for name, function in _ARITHMETIC.items()},
    **{
        name: _of_float(name)
        for name in ("acos", "asin", "atan", "atan2", "cos", "erf", "exp", "log", "log10", "log1p")
    },
    **{name: _of_float(name) for name in ("log2", "sin", "sinh", "cosh", "sqrt", "tan", "tanh")},
    "__and__": _compare_with(operator.and_),
    "__not__": _not,
    "__derive_index": _range_item,
    "__or__": _compare_with(operator.or_),
    "__range_length": _range_length,
    "__xor__": _not_equal,
    "Bool": to_bool,
    "Float": to_float,
    "Int": to_int,
    "abs": _take_absolute,
    "ceil": _round_with(math.ceil),
    "div": _divide,
    "eq": _compare_equal,
    "floor": _round_with(math.floor),
    "max": _choose_extreme(max, torch.sym_max),
    "min": _choose_extreme(min, torch.sym_min),
    "ne": _not_equal,
    "pow": _power,
    "round": _round,
    "truediv": _divide,
}
"""Operators whose first operand is not a list: on ints, floats, bools and strings."""


# --- lists and dicts -----------------------------------------------------------------------------


def _is_sequence(cell: Cell) -> bool:
    return isinstance(cell.content, Leaf) and isinstance(cell.content.val, SequenceVal)


def _append(recorder: Recorder, cell: Cell, item: Any) -> Cell:
    if isinstance(cell.content, list):
        cell.content = [*cell.content, item]
    elif _is_sequence(cell):
        val = _append_recorded(recorder, cell.content, item)
        cell.content = recorder.record(sequence_append, val, cell.content, item)
    else:
        dtype = cell.content.val.dtype
        one = as_tensor([item], dtype, recorder)
        cell.content = recorder.call(aten.cat.default, [cell.content, one])
    return cell


def _append_recorded(recorder: Recorder, sequence: Leaf, item: Leaf) -> SequenceVal:
    """The recorded value for a list after an element is added."""
    from onnx_aot.capture.scripted.specs import Sequence, vals

    element = describe(sequence)
    assert isinstance(element, Sequence)
    assert element.element is not None
    joined = join(element.element, describe(item))
    if joined == element.element:
        return SequenceVal(sequence.val.element)
    return SequenceVal(vals(joined, recorder)[0])


def _get_item(recorder: Recorder, cell: Any, index: Any) -> Any:
    if isinstance(cell, (str, tuple)):
        return cell[index]
    content = cell.content
    if isinstance(content, dict):
        return _entry(cell, index)
    if isinstance(content, list):
        if not isinstance(index, Leaf):
            return content[index]
        content = _as_leaf(recorder, cell)
    if isinstance(content.val, SequenceVal):
        val = recorder.fresh(content.val.element)
        return recorder.record(sequence_at, val, content, index)
    return recorder.item(recorder.call(aten.select.int, content, 0, index))


def _as_leaf(recorder: Recorder, cell: Cell) -> Leaf:
    """Converts a list of known length so that an index that depends on inputs can be used."""
    if isinstance(cell.content, list) and cell.element in _DTYPES:
        return as_tensor(cell, _DTYPES[cell.element], recorder)
    return as_sequence(cell, recorder)


def _entry(cell: Cell, key: Any) -> Any:
    if isinstance(key, Leaf):
        raise CaptureError("the key of a dict depends on the inputs; only its values may")
    if key not in cell.content:
        raise CaptureError(f"the dict has no key {key!r}; it has {list(cell.content)}")
    return cell.content[key]


def _set_item(recorder: Recorder, cell: Cell, index: Any, item: Any) -> Cell:
    if isinstance(cell.content, dict):
        if isinstance(index, Leaf):
            raise CaptureError("the key of a dict depends on the inputs; only its values may")
        cell.content = {**cell.content, index: item}
    elif isinstance(cell.content, list) and not isinstance(index, Leaf):
        content = list(cell.content)
        content[index] = item
        cell.content = content
    else:
        leaf = _as_leaf(recorder, cell)
        if isinstance(leaf.val, SequenceVal):
            val = _append_recorded(recorder, leaf, item)
            rest = recorder.record(sequence_erase, leaf.val, leaf, index)
            place = index
            if isinstance(index, Leaf) or index < 0:  # the same place, counted from the front
                length = _length(recorder, Cell(leaf))
                place = recorder.call(operator.mod, index, length)
            cell.content = recorder.record(sequence_insert, val, rest, place, item)
        else:
            cell.content = recorder.call(aten.clone.default, leaf)
            one = recorder.call(aten.select.int, cell.content, 0, index)
            value = recorder.call(aten.scalar_tensor.default, item, dtype=leaf.val.dtype)
            recorder.call(aten.copy_.default, one, value)
    return cell


def _length(recorder: Recorder, cell: Any) -> Any:
    content = cell.content if isinstance(cell, Cell) else cell
    if not isinstance(content, Leaf):
        return len(content)
    if isinstance(content.val, SequenceVal):
        return recorder.record(sequence_length, recorder.new_size(), content)
    return recorder.call(aten.sym_size.int, content, 0)


def _pop(recorder: Recorder, cell: Cell, index: Any = -1, *default: Any) -> Any:
    content = cell.content
    if isinstance(content, dict):
        value = content[index] if index in content or not default else default[0]
        cell.content = {key: item for key, item in content.items() if key != index}
        return value
    if isinstance(content, list) and not isinstance(index, Leaf):
        value = content[index]
        rest = list(content)
        del rest[index]
        cell.content = rest
        return value
    leaf = _as_leaf(recorder, cell)
    if not isinstance(leaf.val, SequenceVal):
        raise CaptureError("pop from a list of numbers whose length depends on the inputs")
    value = _get_item(recorder, Cell(leaf), index)
    cell.content = recorder.record(sequence_erase, leaf.val, leaf, index)
    return value


def _delete(recorder: Recorder, cell: Cell, index: Any) -> None:
    _pop(recorder, cell, index)


def _insert(recorder: Recorder, cell: Cell, index: Any, item: Any) -> None:
    if isinstance(cell.content, list) and not isinstance(index, Leaf):
        content = list(cell.content)
        content.insert(index, item)
        cell.content = content
        return
    leaf = _as_leaf(recorder, cell)
    if not isinstance(leaf.val, SequenceVal):
        raise CaptureError("insert into a list of numbers whose length depends on the inputs")
    cell.content = recorder.record(
        sequence_insert, _append_recorded(recorder, leaf, item), leaf, index, item
    )


def _extend(recorder: Recorder, cell: Cell, other: Cell) -> None:
    if isinstance(other.content, list):
        for item in other.content:
            _append(recorder, cell, item)
    elif isinstance(cell.content, list) and not cell.content:
        cell.content = other.content
    else:
        raise CaptureError(
            "a list is extended by one whose length depends on the inputs; append in the loop"
        )


def _add(recorder: Recorder, left: Any, right: Any) -> Any:
    if isinstance(left, (str, tuple)):
        return left + right
    result = Cell(left.copy_content(), left.element)
    _extend(recorder, result, right)
    return result


def _add_in_place(recorder: Recorder, cell: Cell, other: Cell) -> Cell:
    _extend(recorder, cell, other)
    return cell


def _known_list(cell: Cell, what: str) -> list[Any]:
    if not isinstance(cell.content, list):
        raise CaptureError(f"{what} of a list whose length depends on the inputs")
    return cell.content


def _list_constants(cell: Cell, what: str) -> list[Any]:
    items = _known_list(cell, what)
    if not is_known(items):
        raise CaptureError(f"{what} of a list whose elements depend on the inputs")
    return items


def _all_of(function: Callable[..., Any], start: bool) -> Callable[..., Any]:
    def run(recorder: Recorder, cell: Cell) -> Any:
        result: Any = start
        for item in _known_list(cell, "any() or all()"):
            result = _compare_with(function)(recorder, result, to_bool(recorder, item))
        return result

    return run


def _slice(
    recorder: Recorder, cell: Any, start: Any = None, stop: Any = None, step: Any = 1
) -> Any:
    if isinstance(cell, (str, tuple)):
        return cell[start:stop:step]
    if isinstance(cell.content, Leaf) and not isinstance(cell.content.val, SequenceVal):
        sliced = recorder.call(aten.slice.Tensor, cell.content, 0, start, stop, step)
        return Cell(sliced, cell.element)
    if not is_known((start, stop, step)):
        raise CaptureError("the bounds of a slice of a list depend on the inputs")
    return Cell(_known_list(cell, "a slice")[start:stop:step], cell.element)


def _contains(recorder: Recorder, cell: Any, item: Any) -> Any:
    content = cell.content if isinstance(cell, Cell) else cell
    if isinstance(content, Leaf):
        raise CaptureError("`in` of a list whose length depends on the inputs")
    if is_known(item) and all(map(is_known, content)):
        return item in content
    result: Any = False
    for other in content:
        result = _compare_with(operator.or_)(
            recorder, result, _compare_equal(recorder, item, other)
        )
    return result


def _get(recorder: Recorder, cell: Cell, key: Any, default: Any = None) -> Any:
    return cell.content.get(key, default)


def _reverse(recorder: Recorder, cell: Cell) -> None:
    cell.content = _known_list(cell, "reverse")[::-1]


def _clear(recorder: Recorder, cell: Cell) -> None:
    cell.content = {} if isinstance(cell.content, dict) else []


def _repeat_list(recorder: Recorder, cell: Any, count: Any) -> Any:
    if isinstance(cell, int):
        cell, count = count, cell
    if isinstance(cell, str):
        return cell * count
    items = _known_list(cell, "a multiple")
    if not isinstance(count, Leaf):
        return Cell(items * count, cell.element)
    if cell.element not in _DTYPES:
        raise CaptureError("a list of tensors times a number that depends on the inputs")
    one = as_tensor(cell, _DTYPES[cell.element], recorder)
    return Cell(recorder.call(aten.repeat.default, one, [count]), cell.element)


def _sum(recorder: Recorder, cell: Cell) -> Any:
    if isinstance(cell.content, Leaf):
        total = recorder.call(aten.sum.default, cell.content)
        return recorder.item(total)
    result: Any = 0.0 if cell.element == "float" else 0
    for item in cell.content:
        result = recorder.call(operator.add, result, item)
    return result


def _sort(recorder: Recorder, cell: Cell, reverse: bool = False) -> None:
    cell.content = sorted(_list_constants(cell, "sort()"), reverse=reverse)


def _items(recorder: Recorder, cell: Cell) -> Cell:
    return Cell(list(cell.content.items()), "tuple")


def _copy(recorder: Recorder, cell: Cell) -> Cell:
    return Cell(cell.copy_content(), cell.element)


def _format(recorder: Recorder, text: str, *values: Any) -> str:
    return text.format(*("?" if isinstance(v, (Leaf, Maybe)) else v for v in values))


def _of_text(name: str) -> Callable[..., Any]:
    return lambda recorder, text, *args: getattr(text, name)(*args)


LISTS: dict[str, Callable[..., Any]] = {
    "Delete": _delete,
    "__contains__": _contains,
    "__getitem__": _get_item,
    "_set_item": _set_item,
    "add": _add,
    "add_": _add_in_place,
    "all": _all_of(operator.and_, True),
    "any": _all_of(operator.or_, False),
    "append": _append,
    "clear": _clear,
    "copy": _copy,
    "dict": _copy,
    "eq": _compare_equal,
    "extend": _extend,
    "get": _get,
    "index": lambda recorder, cell, item: _list_constants(cell, "index()").index(item),
    "insert": _insert,
    "items": _items,
    "keys": lambda recorder, cell: Cell(list(cell.content), "str"),
    "len": _length,
    "list": lambda recorder, cell: (
        Cell(list(cell), "str") if isinstance(cell, str) else _copy(recorder, cell)
    ),
    "max": NUMBERS["max"],
    "min": NUMBERS["min"],
    "mul": _repeat_list,
    "ne": lambda recorder, left, right: _not(recorder, _compare_equal(recorder, left, right)),
    "pop": _pop,
    "reverse": _reverse,
    "slice": _slice,
    "sort": _sort,
    "sorted": lambda recorder, cell: Cell(sorted(_list_constants(cell, "sorted()")), cell.element),
    "sum": _sum,
    "values": lambda recorder, cell: Cell(list(cell.content.values())),
    "format": _format,
    **{name: _of_text(name) for name in ("startswith", "endswith", "split", "lower", "upper")},
    **{name: _of_text(name) for name in ("strip", "replace", "find", "join", "count")},
}
"""Operators whose first operand is a list, a tuple, a dict or a string."""
