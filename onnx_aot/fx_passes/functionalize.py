"""Replaces in-place writes, also those through views, by functional operators."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from onnx_aot import torch_compat
from onnx_aot.errors import FunctionalizationError
from onnx_aot.fx_passes.aliased_placeholders import merge_aliased_placeholders
from onnx_aot.fx_passes.custom_writes import (
    FUNCTIONALIZED,
    is_custom_write,
    named_arguments,
    written_names,
)
from onnx_aot.fx_passes.functional_twins import (
    CHANGES_SHAPE_ONLY,
    STATISTICS,
    fill_diagonal,
    functional_twin,
    instance_norm_statistics,
    returned_argument,
    written_nodes,
)
from onnx_aot.fx_passes.output_specs import rename_outputs
from onnx_aot.fx_passes.undecided_copies import check_copies
from onnx_aot.fx_passes.view_scatter import OF_A_LIST, is_identity, write_back
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import HigherOrderOperator, OpOverload, aten, schema_of, storage_key

__all__ = ["functionalize", "functionalize_graph", "functionalize_with_state"]

Node = torch.fx.Node

# Keys of a node's metadata that say where it comes from.
PROVENANCE = ("nn_module_stack", "stack_trace", "torch_fn")


def functionalize(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Rewrites every in-place operator as its functional twin; later readers see the new value.

    The capture records which values alias: their fake tensors share one storage, also for operators
    that may or may not copy (``reshape``, ``to``, ``contiguous``). A write through a view rebuilds
    the tensors that it is a view of; other views are recomputed when they are read next. Mutated
    buffers and inputs become outputs, recorded in the graph signature.

    Before::

        row = select(x, 0, 1)
        mul_ = mul_(row, 2)
        y = relu(x)

    After::

        row = select(x, 0, 1)
        mul_ = mul(row, 2)
        select_scatter = select_scatter(x, mul_, 0, 1)
        y = relu(select_scatter)

    Raises:
        FunctionalizationError: An operator writes in a way that has no functional form here.
    """
    captured = program.graph_module.graph
    writes = _find_writes(captured)
    if not writes:
        return program
    if merge_aliased_placeholders(captured, _written_storages(writes)):
        writes = _find_writes(captured)
    rewriter = _Rewriter(captured, writes)
    state, returned = rewriter.run()
    _set_outputs(program, rewriter.graph, state, returned)
    return program


def functionalize_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Functionalizes a graph alone, which must not write to its placeholders.

    Raises:
        FunctionalizationError: It does, or writes in a way that has no functional form here.
    """
    rewritten, state = functionalize_with_state(graph)
    if state:
        given = [node for node in graph.nodes if node.op == "placeholder"]
        name = given[next(iter(state))]
        raise FunctionalizationError(f"the graph writes to {name}, which is given to it")
    return rewritten


def functionalize_with_state(graph: torch.fx.Graph) -> tuple[torch.fx.Graph, dict[int, Node]]:
    """Functionalizes a graph that may write to its placeholders.

    Returns:
        The graph, and the final values of the placeholders that are written, by position.

    Raises:
        FunctionalizationError: It writes in a way that has no functional form here.
    """
    writes = _find_writes(graph)
    if not writes:
        return graph, {}
    rewriter = _Rewriter(graph, writes)
    state, returned = rewriter.run()
    rewriter.graph.output(returned)
    given = [node for node in graph.nodes if node.op == "placeholder"]
    return rewriter.graph, {given.index(node): value for node, value in state}


def _find_writes(graph: torch.fx.Graph) -> dict[Node, list[Node]]:
    return {node: written for node in graph.nodes if (written := written_nodes(node))}


def _written_storages(writes: dict[Node, list[Node]]) -> set[int]:
    written = {node for nodes in writes.values() for node in nodes}
    values = (node.meta.get("val") for node in written if not _is_literal(node))
    return {
        storage_key(value)
        for value in values
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    }


class _View(NamedTuple):
    """A captured node as a view of ``parent``: the result of ``via``, or one ``item`` of it."""

    parent: Node
    via: Node
    item: Any


class _Rewriter:
    """Copies the captured graph into ``graph``, replacing writes.

    For a captured node whose storage is written anywhere, ``_current`` holds the new node with its
    elements, and the version of the storage (the number of writes) for which they are valid.
    """

    def __init__(self, captured: torch.fx.Graph, writes: dict[Node, list[Node]]) -> None:
        self.graph = torch.fx.Graph()
        self._captured = captured
        self._writes = writes
        self._copies: dict[Node, Node] = {}
        self._storages: dict[Node, int | None] = {}
        self._same_storage: dict[int, int] = {}  # of results that are an argument
        for node in captured.nodes:
            returned = returned_argument(node)
            if returned is not None and (key := self._storage(returned)) is not None:
                self._same_storage[storage_key(node.meta["val"])] = key
        self._mutated = {self._storage(node) for written in writes.values() for node in written}
        self._mutated.discard(None)
        check_copies(captured, writes)
        self._versions: dict[int | None, int] = {}
        self._current: dict[Node, tuple[int, Node]] = {}
        self._made_at: dict[Node, tuple[int, ...]] = {}
        self._origin: Node | None = None

    def run(self) -> tuple[list[tuple[Node, Node]], Any]:
        """Returns the mutated placeholders with their final values, and the user's results."""
        returned: Any = None
        for node in self._captured.nodes:
            self._origin = node
            if node.op == "output":
                returned = torch.fx.map_arg(node.args[0], self.read)
            elif node in self._writes and node.target not in CHANGES_SHAPE_ONLY:
                try:
                    self._rewrite(node)
                except FunctionalizationError as error:
                    raise error.with_line(location(node)) from None
            elif (view := self._view(node)) is not None:
                self._current[node] = (self._version(node), self._copy_view(view, node))
            else:
                self._keep(node, self._copy(node, self.read))
        state = [
            (node, self.read(node))
            for node in self._captured.nodes
            if node.op == "placeholder" and self._version(node) > 0
        ]
        return state, returned

    def _keep(self, node: Node, copied: Node) -> None:
        self._copies[node] = copied
        self._current[node] = (self._version(node), copied)
        for user in node.users:
            if user.target is operator.getitem:
                self._made_at[node] = self._versions_read(node)
                break

    def _copy(self, node: Node, mapping: Any) -> Node:
        copied = torch_compat.copy_node(self.graph, node, mapping)
        if node.target in CHANGES_SHAPE_ONLY:
            copied.target = functional_twin(node.target)
        return copied

    # --- what aliases what -----------------------------------------------------------------------

    def _storage(self, node: Node) -> int | None:
        if node not in self._storages:
            value = node.meta.get("val")
            if _is_literal(node):
                self._storages[node] = None
            elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
                key = storage_key(value)
                self._storages[node] = self._same_storage.get(key, key)
            else:
                self._storages[node] = None
        return self._storages[node]

    def _version(self, node: Node) -> int:
        return self._versions.get(self._storage(node), 0)

    def _versions_read(self, node: Node) -> tuple[int, ...]:
        """Versions of all inputs of a call; ``broadcast_tensors`` returns views of several."""
        return tuple(map(self._version, node.all_input_nodes))

    def _view(self, node: Node) -> _View | None:
        """Describes a node as a view, or returns None if it is not one or is never written."""
        storage = self._storage(node)
        if storage not in self._mutated or node.op != "call_function":
            return None
        via: Any = node
        item: Any = None
        if node.target is operator.getitem:
            via, item = node.args
        sources = [via.args[0][item]] if via.target in OF_A_LIST else via.all_input_nodes
        for source in sources:
            if self._storage(source) == storage:
                return _View(source, via, item)
        return None

    # --- reading ---------------------------------------------------------------------------------

    def read(self, node: Node) -> Node:
        """Returns the new node that holds the current elements of a captured node."""
        held_at, held = self._current[node]
        version = self._version(node)
        if held_at == version:
            return held
        view = self._view(node)
        assert view is not None, f"{node} owns its storage and is up to date after every write"
        held = self._copy_view(view, node)
        self._current[node] = (version, held)
        return held

    def _copy_view(self, view: _View, node: Node) -> Node:
        parent = self.read(view.parent)
        if node in self._writes and node.target not in CHANGES_SHAPE_ONLY:
            return parent  # an in-place operator returns the tensor that it wrote
        if view.item is None:
            return self._copy(view.via, lambda n: parent if n is view.parent else self.read(n))
        if self._made_at.get(view.via) == self._versions_read(view.via):
            pieces = self._copies[view.via]
        else:
            pieces = self._copy(view.via, lambda n: parent if n is view.parent else self.read(n))
            self._copies[view.via] = pieces
            self._made_at[view.via] = self._versions_read(view.via)
        return self._call(operator.getitem, (pieces, view.item), {}, node)

    # --- writing ---------------------------------------------------------------------------------

    def _rewrite(self, node: Node) -> None:
        """Adds the functional twin of an in-place operator and writes its results."""
        written = self._writes[node]
        if node.target in STATISTICS:
            self._rewrite_statistics(node, written)
            return
        if node.target == aten.fill_diagonal_.default:
            args: Any = torch.fx.map_arg(node.args, self.read)
            self._write(written[0], fill_diagonal(self._call, written[0], *args))
            self._current[node] = (self._version(node), self.read(written[0]))
            return
        called: Any = node.target
        if isinstance(called, HigherOrderOperator):
            self._rewrite_call(node, written)
            return
        if is_custom_write(called):
            self._rewrite_custom(node, called)
            return
        if called in _RESIZES:
            self._refuse_views(node, written[0])
        twin = functional_twin(called)
        count = len(schema_of(twin).arguments)
        names = {argument.name for argument in schema_of(twin).arguments}
        args = torch.fx.map_arg(node.args[:count], self.read)
        kwargs = {k: v for k, v in node.kwargs.items() if k in names}
        result = self._call(twin, args, torch.fx.map_arg(kwargs, self.read), node)
        results = (
            [result]
            if len(written) == 1
            else [
                self._call(operator.getitem, (result, i), {}, target)
                for i, target in enumerate(written)
            ]
        )
        for target, value in zip(written, results, strict=True):
            self._write(target, self._in_type_of(target, value, node))
        if isinstance(node.meta.get("val"), torch.Tensor):
            self._current[node] = (self._version(node), self.read(written[0]))

    def _refuse_views(self, node: Node, resized: Node) -> None:
        """Checks that resizing affects no view, because views keep their own size.

        Raises:
            FunctionalizationError: The tensor is a view, or a view made before is read afterwards.
        """
        storage = self._storage(resized)
        before = set(itertools.takewhile(lambda other: other is not node, self._captured.nodes))
        for other in self._captured.nodes:
            if other is node:
                break
            view = self._view(other) if self._storage(other) == storage else None
            if view is None or other in self._writes or is_identity(other, view.parent):
                continue
            if other is resized or other.users.keys() - before - {node}:
                raise FunctionalizationError(
                    f"{node.target} changes the size of a tensor that shares its storage with a "
                    f"view ({other.name}); make a new tensor with reshape or slicing instead"
                )

    def _rewrite_custom(self, node: Node, target: OpOverload) -> None:
        """Replaces a custom operator without a twin by torch's functional form of it."""
        given = named_arguments(node)
        arguments = torch.fx.map_arg(given, self.read)
        call = self._call(FUNCTIONALIZED, (target,), arguments, None, name=node.name)
        recorded: Any = node.meta.get("val")
        several = isinstance(recorded, (list, tuple))
        values = list(recorded) if several else [recorded]
        for name in written_names(target):
            argument, index = given[name], len(values)
            values.append(torch.fx.map_arg(argument, lambda n: n.meta["val"]))
            if isinstance(argument, Node):
                self._write(argument, self._call(operator.getitem, (call, index), {}, argument))
            elif argument is not None:
                pieces = self._call(operator.getitem, (call, index), {}, None)
                pieces.meta["val"] = values[-1]
                for number, item in enumerate(argument):
                    self._write(item, self._call(operator.getitem, (pieces, number), {}, item))
        call.meta["val"] = tuple(values)
        if several:
            self._current[node] = (self._version(node), call)
        elif schema_of(target).returns:
            first = self._writes[node][0]
            same = schema_of(target).returns[0].alias_info is not None
            result = self.read(first) if same else self._call(operator.getitem, (call, 0), {}, node)
            self._current[node] = (self._version(node), result)

    def _rewrite_call(self, node: Node, written: Sequence[Node]) -> None:
        """Rewrites a call whose bodies write; its last results are the new values."""
        call = self._copy(node, self.read)
        self._keep(node, call)
        first = len(node.meta["val"]) - len(written)
        for index, target in enumerate(written, start=first):
            self._write(target, self._call(operator.getitem, (call, index), {}, target))

    def _rewrite_statistics(self, node: Node, written: Sequence[Node]) -> None:
        """Rewrites ``batch_norm`` or ``instance_norm`` in training, with running statistics."""
        if node.target == aten.instance_norm.default:
            args = torch.fx.map_arg(node.args, self.read)
            normalized = (*args[:3], None, None, *args[5:])
            result = self._call(node.target, normalized, {}, node, name=node.name)
            self._current[node] = (self._version(node), result)
            updated = instance_norm_statistics(self._call, node, args)
            for target, value in zip(written, updated, strict=True):
                self._write(target, value)
            return
        twin = functional_twin(node.target)
        args = torch.fx.map_arg(node.args[: len(schema_of(twin).arguments)], self.read)
        first = written[0].meta["val"]
        results = self._call(twin, args, {}, node)
        results.meta["val"] = (node.meta["val"], first, first, first, first)
        output = self._call(operator.getitem, (results, 0), {}, node, name=node.name)
        for index, target in enumerate(written, start=3):
            self._write(target, self._call(operator.getitem, (results, index), {}, target))
        self._current[node] = (self._version(node), output)

    def _write(self, node: Node, value: Node) -> None:
        """Makes ``value`` the elements of a captured node, and updates the tensors it views."""
        updates = [(node, value)]
        while (view := self._view(node)) is not None:
            parent_now = self.read(view.parent)
            value = self._write_back(view, node, parent_now, value)
            node = view.parent
            updates.append((node, value))
        storage = self._storage(node)
        version = self._versions.get(storage, 0) + 1
        self._versions[storage] = version
        for updated, elements in updates:
            self._current[updated] = (version, elements)

    def _write_back(self, view: _View, node: Node, parent_now: Node, value: Node) -> Node:
        returns_written = node in self._writes and node.target not in CHANGES_SHAPE_ONLY
        is_same = returned_argument(node) is not None or is_identity(node, view.parent)
        if returns_written or is_same:
            return value
        return write_back(
            self._call, view.via, view.item, view.parent, parent_now, value, self.read
        )

    def _in_type_of(self, target: Node, value: Node, node: Node) -> Node:
        """Casts to the target's type; in-place operators compute in the promoted type."""
        wanted = target.meta["val"].dtype
        computed = _compute_result_dtype(node, wanted)
        if computed == wanted:
            return value
        value.meta["val"] = value.meta["val"].to(computed)
        return self._call(aten._to_copy.default, (value,), {"dtype": wanted}, target)

    def _call(
        self, target: Any, args: Any, kwargs: Any, like: Node | None, name: str | None = None
    ) -> Node:
        """Adds a node with the recorded value of ``like`` and the current node's provenance."""
        assert self._origin is not None
        made = self.graph.create_node("call_function", target, tuple(args), kwargs, name)
        made.meta = {k: v for k, v in self._origin.meta.items() if k in PROVENANCE}
        if like is not None:
            made.meta["val"] = like.meta["val"]
        return made


def _is_literal(node: Node) -> bool:
    """True if a constant stems from ``torch.tensor([1, 2])`` in ``forward``, copied in every call.

    The recorded copy shares the constant's storage, but writes to it are lost after the call.
    """
    copied = aten.lift_fresh_copy.default
    return node.op == "placeholder" and any(user.target == copied for user in node.users)


def _compute_result_dtype(node: Node, stored: torch.dtype) -> torch.dtype:
    """Result type of the functional twin of an in-place pointwise operator."""
    target: Any = node.target
    twin = functional_twin(target)
    if torch.Tag.pointwise not in twin.tags:
        return stored
    values = [a.meta["val"] for a in node.all_input_nodes if "val" in a.meta]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if twin in _GIVES_BOOLEANS:
        return torch.bool
    if all(t.dtype == stored for t in tensors) or target in _KEEPS_TYPE:
        return stored
    dtype = stored
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype) if tensor.dim() else dtype
    return dtype


_GIVES_BOOLEANS = frozenset(
    getattr(getattr(aten, name), overload)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for overload in ("Tensor", "Scalar")
) | frozenset(
    {
        aten.logical_and.default,
        aten.logical_or.default,
        aten.logical_xor.default,
        aten.logical_not.default,
    }
)

_RESIZES = frozenset({aten.resize_.default, aten.resize_as_.default})

_KEEPS_TYPE = frozenset({aten.masked_fill_.Scalar, aten.masked_fill_.Tensor})


def _set_outputs(
    program: torch.export.ExportedProgram,
    graph: torch.fx.Graph,
    state: list[tuple[Node, Node]],
    returned: Any,
) -> None:
    """Sets the outputs, mutated state first, as torch.export's own passes do."""
    mutations = []
    inputs = list(program.graph_signature.input_specs)
    index_by_name = {
        spec.arg.name: index for index, spec in enumerate(inputs) if hasattr(spec.arg, "name")
    }
    for placeholder, value in state:
        index = index_by_name[placeholder.name]
        if inputs[index].kind == InputKind.CONSTANT_TENSOR:
            # a plain tensor attribute that is written is a buffer in all but name, and torch has
            # no kind of output for a constant
            inputs[index] = dataclasses.replace(
                inputs[index], kind=InputKind.BUFFER, persistent=False
            )
        spec = inputs[index]
        target = placeholder.name if spec.kind == InputKind.USER_INPUT else spec.target
        argument = TensorArgument(name=value.name)
        mutations.append(OutputSpec(_MUTATIONS[spec.kind], argument, target))
    outputs = [*mutations, *rename_outputs(program, returned)]
    output = graph.output((*(value for _, value in state), *returned))
    output.meta = dict(next(iter(reversed(program.graph_module.graph.nodes))).meta)
    torch_compat.set_graph(program, graph)
    torch_compat.set_graph_signature(program, ExportGraphSignature(inputs, outputs))


_MUTATIONS = {
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
}
