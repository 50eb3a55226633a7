"""Lets buffers of keys and values hold the window of a layer instead of the whole text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_aot.generation.shared_caches import attention_nodes

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["keep_windows", "layers_with_windows"]

SINCE = (1, 32)
"""First release of ONNX Runtime whose operator takes ``query_seqlens``."""

FLAG = "sliding_window_cache"
PAST, PRESENT = slice(3, 5), slice(1, 3)
LAST, NEW = 5, 16
"""Indices of the operator's inputs ``seqlens_k`` and ``query_seqlens``."""

LENGTHS = ("past_window_length", "total_window_length")


def keep_windows(program: ONNXProgram, target: str | None) -> bool:
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

    Args:
        program: A decoder whose cache is written in place; changed in place.
        target: The runtime that it is for, as in ``onnx_aot.export``.

    Returns:
        False if nothing changes: no layer has a window, layers have several, which genai cannot be
        told, or the runtime has no such buffers.
    """
    nodes = [node for node in attention_nodes(program) if _window_of(node) > 0]
    counts = [_count_of(node) for node in nodes]
    if len({_window_of(node) for node in nodes}) != 1 or None in counts or not _knows(target):
        return False
    made: dict[tuple[ir.Value, ir.Value], tuple[ir.Value, ir.Value]] = {}
    for node, found in zip(nodes, counts, strict=True):
        assert found is not None
        if found not in made:
            made[found] = _emit_lengths(node, *found)
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
    return True


def layers_with_windows(program: ONNXProgram) -> tuple[int, list[int]]:
    """Returns the window of buffers that hold a window, and the numbers of their layers."""
    nodes = [node for node in attention_nodes(program) if node.attributes.get_int(FLAG, 0)]
    names = [str(value.name) for node in nodes for value in node.inputs[PAST] if value is not None]
    layers = {int(name.split(".")[1]) for name in names}
    return (_window_of(nodes[0]) if nodes else 0), sorted(layers)


def _window_of(node: ir.Node) -> int:
    return node.attributes.get_int("local_window_size", -1)


def _knows(target: str | None) -> bool:
    from onnx_aot.targets import RUNTIME, find_kernels, order

    kernels = None if target is None else find_kernels(target)
    return kernels is not None and kernels.runtime == RUNTIME and order(kernels.release) >= SINCE


def _count_of(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """The numbers of tokens in each row, without padding behind them, and of new tokens."""
    value = node.inputs[LAST]
    for expected in ("Cast", "Sub", "Max"):
        producer = None if value is None else value.producer()
        if producer is None or producer.op_type != expected:
            return None
        value = producer.inputs[0]
        count, rows = value, producer.inputs[-1]
    return None if count is None or rows is None else (count, rows)


def _emit_lengths(node: ir.Node, count: ir.Value, rows: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Index of the last token of each row, and the number of new tokens, before a node."""
    last = node.inputs[LAST]
    assert last is not None
    cast = last.producer()
    subtract = None if cast is None else cast.inputs[0].producer() if cast.inputs[0] else None
    assert subtract is not None
    one = subtract.inputs[1]
    found = []
    for name, operator, given in (("last", "Sub", [count, one]), ("new", "Min", [count, rows])):
        wide = ir.node(operator, given)
        narrow = ir.node("Cast", wide.outputs, {"to": ir.DataType.INT32})
        for made, kind in ((wide, count.dtype), (narrow, ir.DataType.INT32)):
            made.outputs[0].type = None if kind is None else ir.TensorType(kind)
            made.outputs[0].shape = count.shape
            made.outputs[0].name = f"{last.name}.{name}.{made.op_type}"
        assert node.graph is not None
        node.graph.insert_before(node, [wide, narrow])
        found.append(narrow.outputs[0])
    return found[0], found[1]
