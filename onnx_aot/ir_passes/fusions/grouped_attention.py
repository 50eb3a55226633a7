"""Rewrites attention whose query heads share keys and values, in opsets without ``Attention``."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.fusions.attention_pattern import (
    HEADS_LAST,
    Grouped,
    Masked,
    has_attention,
    match_masked_attention,
    match_repeated_heads,
    match_split_heads,
)
from onnx_aot.ir_passes.fusions.matching import dimensions, emit_extent, permutation
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["GROUPED_ATTENTION"]

LIFTED = ("Mul", "Add", "Concat", "Split", "Neg", "Sub")


def grouped_attention(node: ir.Node, rewriter: Rewriter) -> bool:
    """Lets the products broadcast keys and values instead of repeating them before.

    Before::

        q = Transpose(Reshape(xq, [0, 0, groups * times, width]))
        k, v = Transpose(Reshape(xk, [0, 0, groups, width])), ...
        k, v = Reshape(Expand(Unsqueeze(k, [2]), ...), [b, groups * times, rows, width]), ...
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), bias)), v)
        y = Transpose(a, perm=[0, 2, 1, 3])

    After, in five dimensions::

        q = Transpose(Reshape(xq, [0, 0, groups, times, width]))
        k, v = Transpose(Reshape(xk, [0, 0, groups, 1, width])), ...
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), Unsqueeze(bias, [1]))), v)
        y = Reshape(Transpose(a, perm=[0, 3, 1, 2, 4]), [0, 0, groups * times, width])

    Nodes in between, such as a rotation or a mask that zeroes rows without keys, get a dimension
    too.
    """
    if permutation(node) != HEADS_LAST:
        return False
    masked = match_masked_attention(rewriter, node.inputs[0])
    if masked is None or masked.attention.rows_first or has_attention(rewriter):
        return False
    found = masked.attention
    keys, values = (
        match_repeated_heads(rewriter, found.key),
        match_repeated_heads(rewriter, found.value),
    )
    if keys is None or values is None:
        return False
    if (keys.groups, keys.times) != (values.groups, values.times):
        return False
    lift = _Lift(rewriter, keys, found.first)
    new = _emit_attention(rewriter, masked, keys, values, lift)
    sizes = dimensions(node.outputs[0])
    if new is None or sizes is None:
        return False
    flat = rewriter.initializer(torch.tensor([0, 0, *sizes[2:]], dtype=torch.int64))
    rewriter.replace(node.outputs[0], rewriter.emit("Reshape", [new, flat], like=found.first))
    return True


def _emit_attention(
    rewriter: Rewriter,
    masked: Masked,
    keys: Grouped,
    values: Grouped,
    lift: _Lift,
) -> ir.Value | None:
    found, kept = masked.attention, masked.rows
    like = found.first
    query = lift.lift_queries(found.query)
    key = lift.lift_keys_or_values(keys.value)
    value = lift.lift_keys_or_values(values.value)
    others = [None if v is None else lift.lift_shared(v) for v in (found.bias, kept)]
    if query is None or key is None or value is None:
        return None
    if (found.bias is not None and others[0] is None) or (kept is not None and others[1] is None):
        return None
    if found.scale != 1.0:
        scale = torch.tensor(found.scale, dtype=torch.float32)
        query = rewriter.emit(
            "Mul", [query, lift.constant_like(scale, query)], like=like, shape=query.shape
        )
    turned = rewriter.emit("Transpose", [key], {"perm": [0, 1, 2, 4, 3]}, like=like)
    assert query.shape is not None
    assert key.shape is not None
    assert value.shape is not None
    turned.shape = ir.Shape([*key.shape[:3], key.shape[4], key.shape[3]])
    sizes = ir.Shape([*query.shape[:4], key.shape[3]])
    scores = rewriter.emit("MatMul", [query, turned], like=like, shape=sizes)
    if others[0] is not None:
        scores = rewriter.emit("Add", [scores, others[0]], like=like, shape=sizes)
    weights = rewriter.emit("Softmax", [scores], {"axis": -1}, like=like, shape=sizes)
    result = ir.Shape([*query.shape[:4], value.shape[4]])
    attended = rewriter.emit("MatMul", [weights, value], like=like, shape=result)
    if others[1] is not None:
        attended = masked.emit_masking(rewriter, attended, others[1], result)
    moved = ir.Shape([result[axis] for axis in (0, 3, 1, 2, 4)])
    perm = {"perm": [0, 3, 1, 2, 4]}
    return rewriter.emit("Transpose", [attended], perm, like=like, shape=moved)


class _Lift:
    """Turns values ``[batch, heads, ...]`` into ``[batch, groups, times, ...]``.

    Args:
        rewriter: Emits the nodes.
        keys: Provides the number of groups and of heads per group.
        like: The node whose metadata new nodes get.
    """

    def __init__(self, rewriter: Rewriter, keys: Grouped, like: ir.Node) -> None:
        self._rewriter = rewriter
        self._groups = keys.groups
        self._times = keys.times
        self._like = like
        self._done: dict[ir.Value, ir.Value] = {}

    def constant_like(self, tensor: torch.Tensor, like: ir.Value) -> ir.Value:
        return self._rewriter.initializer(tensor.to(dtypes.to_torch(like.dtype)))

    def lift_queries(self, value: ir.Value) -> ir.Value | None:
        """Lifts queries: splits the heads into groups."""
        return self._lift_value(value, self._groups, self._times)

    def lift_keys_or_values(self, value: ir.Value) -> ir.Value | None:
        """Lifts keys and values: each group has one head."""
        return self._lift_value(value, self._groups, 1)

    def lift_shared(self, value: ir.Value) -> ir.Value | None:
        """Lifts a value that is the same for all heads; None if it is not."""
        sizes = dimensions(value)
        if sizes is None:
            return None
        if len(sizes) < 3:
            return value
        if sizes[-3] != 1:
            return None
        axes = self._rewriter.initializer(torch.tensor([len(sizes) - 3], dtype=torch.int64))
        assert value.shape is not None
        shape = ir.Shape([*value.shape[:-3], 1, *value.shape[-3:]])
        return self._rewriter.emit("Unsqueeze", [value, axes], like=self._like, shape=shape)

    def _lift_value(self, value: ir.Value, groups: int, times: int) -> ir.Value | None:
        sizes = dimensions(value)
        if sizes is None or len(sizes) != 4 or sizes[1] != groups * times:
            return None
        if self._read_elsewhere(value, groups * times):
            assert value.shape is not None
            shape = ir.Shape([value.shape[0], groups, times, *value.shape[2:]])
            return self._lift_by_reshape(value, groups, times, shape)
        return self._lift_once(value, groups, times)

    def _read_elsewhere(self, root: ir.Value, heads: int) -> bool:
        """Returns True if a node that would be emitted again is needed as it is, too."""
        nodes: dict[ir.Node, None] = {}
        values: dict[ir.Value, None] = {}
        pending = [root]
        while pending:
            value = pending.pop()
            node = value.producer()
            values[value] = None
            if (
                node is None
                or node in nodes
                or match_split_heads(self._rewriter, value) is not None
            ):
                continue
            if node.op_type in LIFTED and not node.domain:
                nodes[node] = None
                pending += [v for v in node.inputs if v is not None and _has_heads(v, heads)]
        return any(
            value.is_graph_output()
            or sum(reader not in nodes for reader in value.consumers()) > (value is root)
            for value in values
        )

    def _lift_once(self, value: ir.Value, groups: int, times: int) -> ir.Value | None:
        if value not in self._done:
            new = self._lift_producer(value, groups, times)
            if new is None:
                return None
            self._done[value] = new
        return self._done[value]

    def _lift_producer(self, value: ir.Value, groups: int, times: int) -> ir.Value | None:
        rewriter, node, sizes = self._rewriter, value.producer(), dimensions(value)
        assert sizes is not None
        assert value.shape is not None
        shape = ir.Shape([value.shape[0], groups, times, *value.shape[2:]])
        split = match_split_heads(rewriter, value)
        if split is not None:
            assert node is not None
            into = torch.tensor([0, 0, groups, times, split.width], dtype=torch.int64)
            inputs = [split.source, rewriter.initializer(into)]
            rows_first = ir.Shape([shape[axis] for axis in (0, 3, 1, 2, 4)])
            apart = rewriter.emit("Reshape", inputs, like=self._like, shape=rows_first)
            perm = {"perm": [0, 2, 3, 1, 4]}
            return rewriter.emit("Transpose", [apart], perm, like=node, shape=shape)
        if node is not None and not node.domain and node.op_type in LIFTED:
            outputs = self._repeat_node(node, groups, times)
            if outputs is not None:
                return outputs[node.outputs.index(value)]
        return self._lift_by_reshape(value, groups, times, shape)

    def _lift_by_reshape(
        self, value: ir.Value, groups: int, times: int, shape: ir.Shape
    ) -> ir.Value | None:
        """Lifts a value with an extra node; infers no size, which fails for an empty tensor."""
        rewriter, like = self._rewriter, self._like
        if times == 1:
            axes = rewriter.initializer(torch.tensor([2], dtype=torch.int64))
            return rewriter.emit("Unsqueeze", [value, axes], like=like, shape=shape)
        middle = rewriter.initializer(torch.tensor([groups, times], dtype=torch.int64))
        batch, rows, width = (emit_extent(rewriter, value, axis, like) for axis in (0, 2, 3))
        into = rewriter.emit(
            "Concat", [batch, middle, rows, width], {"axis": 0}, like=like, shape=[5]
        )
        inputs = [value, into]
        return rewriter.emit("Reshape", inputs, {"allowzero": 1}, like=like, shape=shape)

    def _repeat_node(self, node: ir.Node, groups: int, times: int) -> tuple[ir.Value, ...] | None:
        """Emits the same node with one dimension more; None if its axis is not the last."""
        inputs: list[ir.Value | None] = []
        for index, operand in enumerate(node.inputs):
            sizes = dimensions(operand)
            if operand is None or sizes is None:
                return None
            if node.op_type == "Split" and index == 1:
                inputs.append(operand)  # the lengths
            elif _has_heads(operand, groups * times):
                inputs.append(self._lift_once(operand, groups, times))
            else:
                inputs.append(self.lift_shared(operand))
        attributes = {name: node.attributes[name] for name in node.attributes if name != "axis"}
        if node.op_type in ("Concat", "Split"):
            if node.attributes.get_int("axis", 0) not in (-1, 3):
                return None
            attributes["axis"] = ir.AttrInt64("axis", -1)
        if any(value is None for value in inputs):
            return None
        outputs = self._rewriter.emit_many(
            node.op_type, inputs, attributes, like=node, dtypes=[v.dtype for v in node.outputs]
        )
        for old, new in zip(node.outputs, outputs, strict=True):
            assert old.shape is not None
            new.shape = ir.Shape([old.shape[0], groups, times, *old.shape[2:]])
            self._done[old] = new
        return outputs


def _has_heads(value: ir.Value, heads: int) -> bool:
    sizes = dimensions(value)
    return sizes is not None and len(sizes) == 4 and sizes[1] == heads


GROUPED_ATTENTION = Rule("grouped_attention", ("Transpose",), grouped_attention, exact=False)
