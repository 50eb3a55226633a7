"""Saves nodes around attention on a cache: what its operator does itself, or need not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from onnx_aot.generation.shared_caches import attention_nodes
from onnx_aot.generation.sliding_windows import has_window_in_buffer
from onnx_aot.graph.names import Names, names_in
from onnx_aot.ir_passes.evaluate import EXACT, ROUNDED
from onnx_aot.ir_passes.lazy_tensor import FoldedTensor, contents_of
from onnx_aot.metadata.keys import INPUT_KIND

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["keep_padding", "rotate_inside", "take_joined"]

COS, SIN = 7, 8
"""Indices of the operator's inputs for tables of cosines and sines, one row per position."""

WIDTHS = 16
"""The operator rotates heads of a multiple of so many elements."""

OF_POSITIONS = frozenset({"Cast", "Cos", "Mul", "Sin", "Unsqueeze"})
"""Operators of which angles are computed, each element from those of one position."""

Compute = Callable[[torch.Tensor, Mapping[ir.Value, torch.Tensor]], torch.Tensor]
"""Function of positions ``[1, length]``, and of the contents of weights."""


# --- rows of padding -----------------------------------------------------------------------------


def keep_padding(program: ONNXProgram) -> int:
    """Leaves what attention returns for padding as it is, instead of zeros.

    Before::

        y = Where(mask, GroupQueryAttention(q, k, v, ...), 0)

    After::

        y = GroupQueryAttention(q, k, v, ...)

    Other tokens do not attend to padding, so their results stay the same. But in buffers of a
    window, results for padding are what was in memory, perhaps NaN, and attention without a window
    multiplies values of padding by 0. So with layers of both kinds, the former keep their zeros.

    Args:
        program: The program, changed in place.

    Returns:
        The number of attentions with such zeros.
    """
    count = 0
    nodes = attention_nodes(program)
    some_have_none = not all(map(has_window_in_buffer, nodes))
    for node in nodes:
        if some_have_none and has_window_in_buffer(node):
            continue
        attended = node.outputs[0]
        for user in attended.consumers():
            if user.op_type != "Where" or user.domain or user.inputs[1] is not attended:
                continue
            zero, result = user.inputs[2], user.outputs[0]
            if zero is None or zero.const_value is None or contents_of(zero).any():
                continue
            for reader, index in list(result.uses()):
                reader.replace_input_with(index, attended)
            count += 1
    if count:
        program.optimize({"remove_unused"})
    return count


# --- rotations -----------------------------------------------------------------------------------


def rotate_inside(program: ONNXProgram, length: int) -> int:
    """Lets attention rotate queries and keys itself, by tables for all positions.

    Before::

        angles = Mul(Cast(Unsqueeze(position_ids, [2])), frequencies)
        q, k = (RotaryEmbedding(x, Cos(angles), Sin(angles)) for x in (xq, xk))
        a, keys, values = GroupQueryAttention(q, k, v, past_keys, past_values, last, total)

    After::

        a, keys, values = GroupQueryAttention(
            xq, xk, v, past_keys, past_values, last, total, cosines, sines, do_rotary=1
        )

    The position of a token is then its place in the cache, and ``position_ids`` is not read. What
    attention computes depends on differences of positions alone, so it stays the same; keys in the
    cache of a row with padding in front are rotated further.

    Args:
        program: The program, changed in place.
        length: The number of positions in the tables.

    Returns:
        The number of attentions that rotate.
    """
    graph = program.model.graph
    positions = next((value for value in graph.inputs if value.name == "position_ids"), None)
    if positions is None:
        return 0
    names = Names(names_in(program.model))
    tables: dict[ir.Value, ir.Value | None] = {}
    count = 0
    for node in attention_nodes(program):
        rotations = [_match_rotation(node.inputs[index]) for index in (0, 1)]
        query, key = rotations
        if query is None or key is None or query.inputs[1:] != key.inputs[1:]:
            continue
        angles = [value for value in query.inputs[1:] if value is not None]
        for value in angles:
            if value not in tables:
                tables[value] = _make_table(value, positions, length, graph, names)
        cosines, sines = (tables[value] for value in angles)
        if cosines is None or sines is None:
            continue
        for index, rotation in enumerate((query, key)):
            node.replace_input_with(index, rotation.inputs[0])
        node.replace_input_with(COS, cosines)
        node.replace_input_with(SIN, sines)
        node.attributes["do_rotary"] = ir.AttrInt64("do_rotary", 1)
        count += 1
    if count:
        program.optimize({"remove_unused"})
    return count


def _match_rotation(value: ir.Value | None) -> ir.Node | None:
    """The node that rotates whole heads, by angles of each token, for one reader alone."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "RotaryEmbedding" or node.domain or len(node.inputs) != 3:
        return None
    if node.attributes.keys() - {"num_heads"} or value is None or len(value.uses()) != 1:
        return None
    shape, angles = value.shape, node.inputs[1]
    heads = node.attributes.get_int("num_heads", 0)
    if shape is None or angles is None or angles.shape is None or not heads:
        return None
    width, half = shape[-1], angles.shape[-1]
    if not isinstance(width, int) or not isinstance(half, int) or width // heads != 2 * half:
        return None
    return node if 2 * half % WIDTHS == 0 else None


def _make_table(
    value: ir.Value, positions: ir.Value, length: int, graph: ir.Graph, names: Names
) -> ir.Value | None:
    """Stores cosines or sines ``[batch, rows, half]`` as ``[length, half]``, by position."""
    weights: dict[ir.Value, None] = {}
    compute = _compute_of(value, positions, weights)
    if compute is None or value.shape is None or value.dtype is None or not weights:
        return None
    half = value.shape[-1]
    if not isinstance(half, int):
        return None
    sources = tuple(weights)

    def make(*contents: torch.Tensor) -> torch.Tensor:
        given = dict(zip(sources, contents, strict=True))
        device = contents[0].device
        return compute(torch.arange(length, device=device)[None], given)[0]

    table = ir.Value(
        name=names.unique(f"{value.name}_by_position"),
        type=ir.TensorType(value.dtype),
        shape=ir.Shape([length, half]),
        const_value=FoldedTensor(make, sources, value.dtype, [length, half]),
    )
    kind = sources[0].metadata_props.get(INPUT_KIND)
    if kind is not None:
        table.metadata_props[INPUT_KIND] = kind
    graph.register_initializer(table)
    return table


def _compute_of(
    value: ir.Value | None, positions: ir.Value, weights: dict[ir.Value, None]
) -> Compute | None:
    """Returns a function for a value whose rows depend on one position each, and on weights."""
    if value is positions:
        return lambda at, given: at
    if value is None or value.shape is None or positions.shape is None:
        return None
    if value.is_initializer():
        if value.is_graph_input() or any(size != 1 for size in value.shape[:-1]):
            return None
        weights[value] = None
        return lambda at, given: given[value]
    node = value.producer()
    if node is None or node.domain or node.op_type not in OF_POSITIONS:
        return None
    if len(value.shape) != 3 or value.shape[:2] != positions.shape[:]:
        return None
    parts = [_compute_of(source, positions, weights) for source in node.inputs]
    evaluate = (EXACT if node.op_type in EXACT else ROUNDED)[node.op_type]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}

    def compute(at: torch.Tensor, given: Mapping[ir.Value, torch.Tensor]) -> torch.Tensor:
        return evaluate(attributes, [part(at, given) for part in parts if part is not None])

    return None if None in parts else compute


# --- queries, keys and values in one -------------------------------------------------------------


def take_joined(program: ONNXProgram) -> int:
    """Lets attention take queries, keys and values in one, if they are parts of one value.

    Before::

        q, k, v = Split(x, axis=-1)
        a, keys, values = GroupQueryAttention(q, k, v, past_keys, past_values, ...)

    After::

        a, keys, values = GroupQueryAttention(x, None, None, past_keys, past_values, ...)

    Args:
        program: The program, changed in place.

    Returns:
        The number of attentions that take one value.
    """
    count = 0
    for node in attention_nodes(program):
        parts = [_match_part(value) for value in node.inputs[:3]]
        found = [part for part in parts if part is not None]
        if len(found) < 3 or len({source for source, _, _ in found}) != 1:
            continue
        source = found[0][0]
        bounds = [0, *(stop for _, _, stop in found)]
        if source.shape is None or bounds[-1] != source.shape[-1]:
            continue
        if [start for _, start, _ in found] != bounds[:-1]:
            continue
        node.replace_input_with(0, source)
        node.replace_input_with(1, None)
        node.replace_input_with(2, None)
        count += 1
    if count:
        program.optimize({"remove_unused"})
    return count


def _match_part(value: ir.Value | None) -> tuple[ir.Value, int, int] | None:
    """Returns a source and the bounds on its last axis between which a value is a part of it."""
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type not in ("Slice", "Split"):
        return None
    source, width = node.inputs[0], _width_of(value)
    whole = _width_of(source)
    if source is None or source.shape is None or width is None or whole is None:
        return None
    last = len(source.shape) - 1
    if node.op_type == "Split":
        widths = [_width_of(output) for output in node.outputs]
        if node.attributes.get_int("axis", 0) not in (-1, last) or None in widths:
            return None
        start = sum(size or 0 for size in widths[: node.outputs.index(value)])
        return source, start, start + width
    numbers = [contents_of(v) for v in node.inputs[1:] if v is not None and v.is_initializer()]
    if len(numbers) != len(node.inputs) - 1 or any(tensor.numel() != 1 for tensor in numbers):
        return None
    start, stop, axis, step = [*(int(tensor.item()) for tensor in numbers), 1][:4]
    if axis not in (-1, last) or step != 1:
        return None
    start, stop, _ = slice(start, stop).indices(whole)
    return source, start, stop


def _width_of(value: ir.Value | None) -> int | None:
    size = None if value is None or value.shape is None else value.shape[-1]
    return size if isinstance(size, int) else None
