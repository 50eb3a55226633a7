"""Computes with dense tensors where the model computes with sparse ones of the same elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind

from onnx_aot.errors import ConversionError
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import replace_weights

__all__ = ["make_dense"]

aten = torch.ops.aten


def make_dense(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replaces sparse tensors by dense ones, and operators on them by those on dense ones.

    Sparse weights become dense weights.

    Before::

        %b_adjacency : placeholder                       sparse_coo
        %_sparse_mm = _sparse_mm(%b_adjacency, %x)

    After::

        %b_adjacency : placeholder                       strided
        %_sparse_mm = mm(%b_adjacency, %x)

    Raises:
        ConversionError: Sparse tensors are computed with in another way, or returned.
    """
    graph = program.graph_module.graph
    bodies = [each for body in every_body(program.graph_module) for each in body.graph.nodes]
    sparse = {node for node in graph.nodes if _is_sparse(node)}
    refused = [node for node in bodies if _is_sparse(node)]
    if not sparse and not refused:
        return program
    (output,) = graph.find_nodes(op="output")
    is_returned = bool(sparse & set(output.all_input_nodes))
    found = [node for node in graph.nodes if node in sparse or sparse & set(node.all_input_nodes)]
    for node in found:
        if node.op == "call_function":
            twin = _TWINS.get(node.target)
            if twin is None:
                refused.append(node)
            else:
                twin(node)
    if refused or is_returned:
        raise _refuse(refused, is_returned)
    for node in sparse:
        if node.users or node.op == "placeholder":
            node.meta["val"] = _dense_value(node.meta["val"])
    replace_weights(program, dict(_dense_weights(program)))
    return program


def _is_sparse(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout != torch.strided


def _dense_value(value: Any) -> torch.Tensor:
    with value.fake_mode:
        return torch.empty(value.shape, dtype=value.dtype, device=value.device)


def _dense_weights(program: torch.export.ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or spec.target is None:
            continue
        held = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if isinstance(held, torch.Tensor) and held.layout != torch.strided:
            size = held.numel() * held.element_size()
            if size > _LARGEST:
                raise ConversionError(
                    f"weight {spec.target} is sparse, and ONNX has dense tensors: it would take "
                    f"{size / 2**30:.1f} GB. Compute with its indices and values, as in "
                    "torch.zeros_like(x).index_add(0, rows, values[:, None] * x[columns])",
                    code="OA006",
                )
            dense = held.detach().to_dense()
            is_parameter = isinstance(held, torch.nn.Parameter)
            yield spec.target, torch.nn.Parameter(dense, False) if is_parameter else dense


_LARGEST = 2**31
"""Bytes of a dense weight."""

Twin = Callable[[torch.fx.Node], None]


def _use_operand(node: torch.fx.Node) -> None:
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
    node.graph.erase_node(node)


def _copy_operand(node: torch.fx.Node) -> None:
    """Keeps the copy that a change of the layout makes, which may be written to."""
    node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}


def _erase(node: torch.fx.Node) -> None:
    node.graph.erase_node(node)


def _put_values(node: torch.fx.Node) -> None:
    """Writes ``sparse_coo_tensor(indices, values, size)`` as additions to a tensor of zeros."""
    indices, values, size = node.args[:3]
    call = node.graph.call_function
    with node.graph.inserting_before(node):
        zeros = call(aten.new_zeros.default, (values, size))
        places = [
            call(aten.select.int, (indices, 0, row))
            for row in range(indices.meta["val"].shape[0])  # type: ignore[union-attr]
        ]
    for made in (zeros, *places):
        made.meta = {key: value for key, value in node.meta.items() if key != "val"}
    node.target, node.kwargs = aten.index_put.default, {}
    node.args = (zeros, places, values, True)


def _call(target: Any) -> Twin:
    def call(node: torch.fx.Node) -> None:
        node.target = target

    return call


_SAME = (
    *(aten.mm.default, aten.matmul.default, aten.mv.default, aten.addmm.default, aten.bmm.default),
    *(aten.t.default, aten.transpose.int, aten.numpy_T.default, aten.neg.default),
    *(aten.mul.Tensor, aten.mul.Scalar, aten.add.Tensor, aten.sub.Tensor),
    *(aten.detach.default, aten.clone.default, aten.alias.default),
    *(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten._to_copy.default),
)

_TWINS: dict[Any, Twin] = {
    **{target: _call(target) for target in _SAME},
    aten._sparse_mm.default: _call(aten.mm.default),
    aten._sparse_addmm.default: _call(aten.addmm.default),
    aten._assert_tensor_metadata.default: _erase,  # of a conversion such as float()
    aten.to_sparse.default: _copy_operand,
    aten.to_sparse_csr.default: _copy_operand,
    aten.to_sparse_csc.default: _copy_operand,
    aten.to_dense.default: _copy_operand,
    aten.coalesce.default: _use_operand,
    aten.sparse_coo_tensor.indices_size: _put_values,
}
"""Functions that change a call with sparse tensors to one with dense ones, by operator."""


def _refuse(nodes: list[torch.fx.Node], is_returned: bool) -> ConversionError:
    lines = dict.fromkeys(
        f"  {place.with_code if place else node.name} ({node.target})"
        for node in nodes
        for place in (location(node),)
    )
    returned = ["  a result of forward is sparse"] if is_returned else []
    fix = "compute with dense tensors there, and return to_dense() of a sparse result"
    return ConversionError(
        "the model computes with sparse tensors, which an ONNX model does not have, in a way "
        "without a dense form:\n" + "\n".join([*lines, *returned, f"fix: {fix}"]),
        cause="the model computes with sparse tensors in a way without a dense form",
        fix=fix,
        code="OA006",
    )
