"""Makes nodes from other nodes, and replaces values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["node_like", "take_place"]


def node_like(
    like: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr] = (),
    *,
    outputs: Sequence[ir.Value],
    domain: str = "",
    name: str | None = None,
) -> ir.Node:
    """Returns a node with the metadata of the node that it is made for."""
    node = ir.Node(domain, op_type, inputs, attributes, outputs=outputs, name=name)
    node.meta.data.update(like.meta.data)
    node.metadata_props.update(like.metadata_props)
    return node


def take_place(
    old: ir.Value, new: ir.Value, *, is_new: bool = True, frees_name: bool = True
) -> None:
    """Replaces all uses of one value by another, including graph outputs.

    Args:
        old: Value to replace.
        new: Value that replaces it.
        is_new: Whether ``new`` was made for this. If so, it gets the type, shape, name and metadata
            of ``old``; an existing value keeps its own, unless it becomes an output.
        frees_name: Whether ``old`` goes away, so that ``new`` may take its name.
    """
    was_output = old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if is_new or new.type is None:
        new.type = old.type
    if new.shape is None or (is_new and old.shape is not None):
        new.shape = old.shape
    if not (is_new or was_output):
        return
    if frees_name:
        name, old.name = old.name, None
        new.name = name
    new.metadata_props.update(old.metadata_props)
