"""Lets buffers of keys and values hold the window of a layer instead of the whole text."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_aot.generation.shared_caches import attention_nodes
from onnx_aot.graph.names import Names, names_in

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["has_window_in_buffer", "keep_windows", "layers_with_windows"]

SINCE = (1, 32)
"""First release of ONNX Runtime whose operator takes ``query_seqlens``."""

FLAG = "sliding_window_cache"
PAST, PRESENT = slice(3, 5), slice(1, 3)
LAST, NEW = 5, 16
"""Indices of the operator's inputs ``seqlens_k`` and ``query_seqlens``."""

LENGTHS = ("past_window_length", "total_window_length")


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Values of which the rule ``shared_cache`` computes the lengths of rows.

    Attributes:
        count: The tokens of each row so far, without padding behind them.
        rows: The number of new tokens, padding included.
        one: The number 1.
    """

    count: ir.Value
    rows: ir.Value
    one: ir.Value


def keep_windows(program: ONNXProgram) -> None:
    """Lets attention with a sliding window evict what later tokens do not attend to.

    Before::

        last = Cast(Sub(Max(count, rows), 1))
        a, keys, values = GroupQueryAttention(q, k, v, past_keys, past_values, last, ...)

    After::

        last, new = Cast(Sub(count, 1)), Cast(Min(count, rows))
        a, keys, values = GroupQueryAttention(
            q, k, v, past_keys, past_values, last, ..., query_seqlens=new, sliding_window_cache=1
        )

    The buffers of such a layer have any length from that of the window on. Padding behind the
    tokens of a row, which ``count`` leaves out, must not take the place of tokens in them; so the
    operator is told how many of the new tokens there are.

    Nothing changes if no layer has a window, if layers have several, which genai cannot be told, or
    if the program's target has no such buffers.

    Args:
        program: A decoder whose cache is written in place; changed in place.
    """
    nodes = [node for node in attention_nodes(program) if _window_of(node) > 0]
    lengths = [_match_lengths(node) for node in nodes]
    if len({_window_of(node) for node in nodes}) != 1 or None in lengths or not _fits(program):
        return
    names = Names(names_in(program.model))
    made: dict[_Lengths, tuple[ir.Value, ir.Value]] = {}
    for node, found in zip(nodes, lengths, strict=True):
        assert found is not None
        if found not in made:  # the first of the nodes that read it
            made[found] = _emit_lengths(node, found, names)
        last, new = made[found]
        node.replace_input_with(LAST, last)
        node.resize_inputs(NEW + 1)
        node.replace_input_with(NEW, new)
        node.attributes[FLAG] = ir.AttrInt64(FLAG, 1)
        for values, length in zip((node.inputs[PAST], node.outputs[PRESENT]), LENGTHS, strict=True):
            for value in values:
                assert value is not None
                assert value.shape is not None
                value.shape = ir.Shape([*value.shape[:2], length, value.shape[3]])
    program.optimize({"remove_unused"})


def layers_with_windows(program: ONNXProgram) -> tuple[int, list[int]]:
    """Returns the window of buffers that hold a window, and the numbers of their layers."""
    nodes = list(filter(has_window_in_buffer, attention_nodes(program)))
    names = [str(value.name) for node in nodes for value in node.inputs[PAST] if value is not None]
    layers = {int(name.split(".")[1]) for name in names}
    return (_window_of(nodes[0]) if nodes else 0), sorted(layers)


def has_window_in_buffer(node: ir.Node) -> bool:
    """True for attention whose buffers hold the window only, after ``keep_windows``."""
    return bool(node.attributes.get_int(FLAG, 0))


def _window_of(node: ir.Node) -> int:
    return node.attributes.get_int("local_window_size", -1)


def _fits(program: ONNXProgram) -> bool:
    """True if the runtime that a program was exported for has buffers of a window."""
    from onnx_aot.targets import RUNTIME, find_kernels, order

    target = None if program._origin is None else program._origin.target
    kernels = None if target is None else find_kernels(target)
    return kernels is not None and kernels.runtime == RUNTIME and order(kernels.release) >= SINCE


def _match_lengths(node: ir.Node) -> _Lengths | None:
    cast = _producer(node.inputs[LAST], "Cast")
    subtract = None if cast is None else _producer(cast.inputs[0], "Sub")
    larger = None if subtract is None else _producer(subtract.inputs[0], "Max")
    if subtract is None or larger is None:
        return None
    (count, rows), one = larger.inputs, subtract.inputs[1]
    return None if count is None or rows is None or one is None else _Lengths(count, rows, one)


def _producer(value: ir.Value | None, operator: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == operator and not node.domain else None


def _emit_lengths(node: ir.Node, found: _Lengths, names: Names) -> tuple[ir.Value, ir.Value]:
    """Emits the index of the last token of each row, and the number of new tokens."""
    emitted = []
    for operator, operand in (("Sub", found.one), ("Min", found.rows)):
        wide = ir.node(operator, [found.count, operand])
        narrow = ir.node("Cast", wide.outputs, {"to": ir.DataType.INT32})
        for made, kind in ((wide, found.count.type), (narrow, ir.TensorType(ir.DataType.INT32))):
            (value,) = made.outputs
            value.type, value.shape = kind, found.count.shape
            value.name = names.unique(f"{found.count.name}.{made.op_type}")
        assert node.graph is not None
        node.graph.insert_before(node, [wide, narrow])
        emitted.append(narrow.outputs[0])
    return emitted[0], emitted[1]
