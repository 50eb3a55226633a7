"""Removes checks that torch.export recorded, and nodes that only they need."""

from __future__ import annotations

import operator

import torch

from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import ASSERTIONS, OpOverload, aten

__all__ = ["drop_assertions", "drop_offset_assertions"]


SIZES = frozenset(
    {
        aten.sym_numel.default,
        aten.sym_size.int,
        aten.sym_storage_offset.default,
        aten.sym_stride.int,
    }
)


def drop_offset_assertions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Erases checks of the storage offset of slices, which ONNX values do not have.

    Before::

        u0 = sym_storage_offset(slice_1)
        ge = u0 >= 0
        _assert_scalar(ge, "u0 >= 0")

    After: nothing.
    """
    for module in (*every_body(program.graph_module), program.graph_module):
        for node in list(module.graph.nodes):
            if node.target is aten.sym_storage_offset.default:
                _drop_assertions_of(node)
    return program


def _drop_assertions_of(node: torch.fx.Node) -> None:
    """Erases a node with the computations and checks that depend on it, unless others read it."""
    for user in list(node.users):
        is_there = user in node.users  # it may have been erased with another one
        if is_there and (user.target in ASSERTIONS or _is_pure_python(user)):
            _drop_assertions_of(user)
    if not node.users:
        node.graph.erase_node(node)


def drop_assertions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Erases recorded checks; the conditions they state stay in the range constraints.

    Before::

        _assert_tensor_metadata(x, dtype=float32)
        ge = s0 >= 0
        _assert_scalar(ge, "s0 >= 0")
        y = relu(x)

    After::

        y = relu(x)
    """
    for body in every_body(program.graph_module):
        _drop_assertions_in(body.graph)
    _drop_assertions_in(program.graph_module.graph)
    return program


def _drop_assertions_in(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.users:
            continue
        if node.target in ASSERTIONS or _is_pure_python(node):
            graph.erase_node(node)


def _is_pure_python(node: torch.fx.Node) -> bool:
    """True for size arithmetic and size look-ups, which are dead once the checks are gone."""
    if isinstance(node.target, OpOverload):
        return node.target in SIZES
    return node.target is not operator.getitem and isinstance(
        node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    )
