"""Defines rules, and the rewriter that applies all changes of one rule at once, or none."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.graph.attributes import Attributes
from onnx_aot.graph.constants import constant_value, place_constant
from onnx_aot.graph.names import Names, names_in
from onnx_aot.graph.nodes import node_like, take_place
from onnx_aot.ir_passes.lazy_tensor import FoldedTensor
from onnx_aot.ir_passes.tensors import SMALL, content_key, in_memory, is_weight
from onnx_aot.metadata.keys import APART, FUSED, INPUT_KIND, NAMED

__all__ = [
    "Change",
    "Emitted",
    "HasKernel",
    "RefusedError",
    "Rewriter",
    "Rule",
    "any_kernel",
    "dead_after",
]

_SIZE_ARITHMETIC = (
    "Add Cast Concat Constant Div Gather Identity Max Min Mod Mul Neg Shape Size Slice Squeeze Sub "
    "Unsqueeze"
)
SIZE_ARITHMETIC = frozenset(_SIZE_ARITHMETIC.split())
"""Operators that compute sizes."""

Shape = ir.Shape | Sequence[int | ir.SymbolicDim | None] | None

HasKernel = Callable[[str, int], bool]
"""Tells whether a runtime has a kernel for an operator of ONNX in an opset."""


def any_kernel(op_type: str, opset: int) -> bool:
    """Describes a runtime that has all kernels."""
    return True


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rewrite of a graph around one node.

    Attributes:
        name: Name for ``optimize={"name", ...}``; the report shows it with a count.
        roots: Operators of ONNX's own domain at whose nodes the rule is tried.
        apply: Tells the rewriter which values replace those of the node and returns True, or
            returns False. It changes nothing by itself. Its docstring shows before -> after.
        exact: Whether values stay equal, bit by bit or provably; ``optimize="safe"`` runs these.
        since: The lowest opset in which the rule applies.
        makes: The operator that nodes become, which is no gain where the runtime has no kernel for
            it and computes its definition. None: any runtime.
        behind: Operators, one of which must produce an input of the node; saves calls that cannot
            match. None: any producer.
    """

    name: str
    roots: tuple[str, ...]
    apply: Callable[[ir.Node, Rewriter], bool]
    exact: bool
    since: int = 1
    makes: str | None = None
    behind: frozenset[str] | None = None

    def fits(self, opset: int, has_kernel: HasKernel) -> bool:
        """Returns True if the rule applies in an opset, for a runtime with some kernels."""
        return self.since <= opset and (self.makes is None or has_kernel(self.makes, opset))


class RefusedError(Exception):
    """A rule requested a change that cannot be made; the graph is unchanged."""


@dataclasses.dataclass(frozen=True)
class Emitted:
    """A node that will be created."""

    op_type: str
    domain: str
    inputs: tuple[ir.Value | None, ...]
    attributes: tuple[ir.Attr, ...]
    outputs: tuple[ir.Value, ...]
    like: ir.Node


@dataclasses.dataclass
class Change:
    """The changes that one application of a rule requested."""

    emitted: list[Emitted] = dataclasses.field(default_factory=list)
    replaced: list[tuple[ir.Value, ir.Value]] = dataclasses.field(default_factory=list)
    initializers: list[ir.Value] = dataclasses.field(default_factory=list)
    contents: dict[Any, ir.Value] = dataclasses.field(default_factory=dict)
    domains: dict[str, int] = dataclasses.field(default_factory=dict)


class Rewriter:
    """Answers queries of rules on a graph, and collects the changes that they request.

    Nothing changes before a rule returns True: neither uses nor producers of values. So a rule may
    emit first and give up later, and an exception in a rule leaves the model unchanged.

    Attributes:
        opset: Version of ONNX's own domain in the current graph.
        trials: Shapes and types of computations that ``fold`` was found to be able to make.
    """

    def __init__(self, model: ir.Model, has_kernel: HasKernel = any_kernel) -> None:
        self._model = model
        self._has_kernel = has_kernel
        self._names: Names | None = None
        self._attributes = Attributes()
        self._constants: dict[Any, ir.Value] | None = None
        self._function: ir.Graph | None = None
        self._stands_for: dict[ir.Node, list[str]] = {}  # FUSED of nodes made in this run
        self._function_constants: dict[Any, ir.Value] = {}
        self._change = Change()
        self._of_shapes: dict[ir.Value, bool] = {}
        self._folded: dict[Any, ir.Value] = {}
        self.opset = 0
        self.trials: dict[Hashable, tuple[list[int], torch.dtype]] = {}
        self.enter(model.graph, None)

    def enter(self, graph: ir.Graph, function: ir.Function | None) -> None:
        """Makes the main graph, or that of a function, with its subgraphs, the current one."""
        imports = graph.opset_imports
        self.opset = imports.get("", self._model.opset_imports.get("", 1))
        self._function = None if function is None else graph
        self._function_constants = {}

    def has_kernel(self, op_type: str) -> bool:
        """Returns True if the runtime has a kernel for an operator in the current opset."""
        return self._has_kernel(op_type, self.opset)

    # --- looking ---------------------------------------------------------------------------------

    def constant(self, value: ir.Value | None, limit: int | None = SMALL) -> torch.Tensor | None:
        """Contents of an initializer, or of a Constant, that is in memory; None for other values.

        Also None for parameters and buffers, which may be replaced after the export: a rule that
        depended on their contents would then be wrong. ``fold`` computes with them.

        Args:
            value: Any value, or None.
            limit: Largest number of elements; larger ones give None. None: no limit; the tensor
                is not copied if torch holds it.
        """
        if value is None:
            return None
        tensor = value.const_value
        if tensor is None:
            node = value.producer()
            if node is None or node.op_type != "Constant" or "value" not in node.attributes:
                return None
            tensor = node.attributes["value"].as_tensor()
        elif value.is_graph_input() or is_weight(value):
            return None
        return in_memory(tensor, limit)

    def is_foldable(self, value: ir.Value | None) -> bool:
        """Returns True if ``fold`` may compute with a value.

        True for initializers in memory, except weights to which the user gave names.
        """
        if value is None or not value.is_initializer() or value.is_graph_input():
            return False
        if NAMED in value.meta:
            return False
        tensor = value.const_value
        return isinstance(tensor, FoldedTensor) or in_memory(tensor) is not None

    def producer(self, value: ir.Value | None, op_type: str) -> ir.Node | None:
        """The node that produces a value, if it has that operator of ONNX's own domain."""
        node = None if value is None else value.producer()
        return node if node is not None and node.op_type == op_type and not node.domain else None

    def only_use(self, value: ir.Value) -> bool:
        """Returns True if a value is read once, in its own graph, and is not a graph output."""
        if value.is_graph_output():
            return False
        uses = value.uses()
        if len(uses) != 1:
            return False
        node = value.producer()
        (use,) = uses
        return node is None or use[0].graph is node.graph

    def of_shapes(self, value: ir.Value | None) -> bool:
        """Returns True if a value is computed from shapes and constants alone.

        A node that takes such a value as its shape exists for its result. Other shapes may exist in
        order to fail, as in runtime checks, which a rewrite based on recorded shapes would hide.
        """
        known, pending = self._of_shapes, [value]
        while pending:  # visits each value once, after its inputs
            found = pending[-1]
            if found is None or found in known or found.const_value is not None:
                pending.pop()
                continue
            node = found.producer()
            if node is None or node.op_type not in SIZE_ARITHMETIC or node.domain:
                known[found] = False
                continue
            inputs = () if node.op_type in ("Shape", "Size") else node.inputs
            given = [v for v in inputs if v is not None and v.const_value is None]
            missing = [v for v in given if v not in known]
            pending.extend(missing)
            if not missing:
                known[found] = all(known[v] for v in given)
        return value is None or known.get(value, True)

    # --- changing --------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        like: ir.Node,
        dtype: ir.DataType | None = None,
        shape: Shape = None,
        domain: str = "",
        version: int = 1,
    ) -> ir.Value:
        """Creates a node with one output, right before the node that the rule was called for.

        Args:
            op_type: The operator.
            inputs: Values that are available there; None for an omitted input.
            attributes: Python values, or ``ir.Attr`` of another node; None values are omitted.
            like: The first of the nodes that the new one stands for; provides the metadata.
            dtype: Element type of the result; by default that of the first input.
            shape: Shape of the result. A result that replaces a value gets that value's shape.
            domain: The operator's domain; empty for ONNX's own.
            version: Version of that domain.
        """
        (value,) = self.emit_many(
            op_type, inputs, attributes, like=like, dtypes=[dtype], domain=domain, version=version
        )
        if shape is not None:
            value.shape = shape.copy() if isinstance(shape, ir.Shape) else ir.Shape(shape)
        return value

    def emit_many(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        like: ir.Node,
        dtypes: Sequence[ir.DataType | None],
        domain: str = "",
        version: int = 1,
    ) -> tuple[ir.Value, ...]:
        """Like ``emit``, with one output per entry of ``dtypes``."""
        given = [value for value in inputs if value is not None]
        first = given[0].dtype if given else None
        outputs = []
        for dtype in dtypes:
            found = first if dtype is None else dtype
            outputs.append(ir.Value(type=None if found is None else ir.TensorType(found)))
        made = tuple(
            self._attributes.make(name, value)
            for name, value in (attributes or {}).items()
            if value is not None
        )
        entry = Emitted(op_type, domain, tuple(inputs), made, tuple(outputs), like)
        self._change.emitted.append(entry)
        if domain:
            self._change.domains[domain] = version
        return entry.outputs

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Replaces all uses of ``old`` by ``new``, including graph outputs.

        Nodes that produced ``old`` and that nothing reads any more are removed.

        Raises:
            RefusedError: ``old`` is an output of the graph, and ``new`` cannot be one.
        """
        if old.is_graph_output() and not self._may_be_output(old, new):
            raise RefusedError
        self._change.replaced.append((old, new))

    def _may_be_output(self, old: ir.Value, new: ir.Value) -> bool:
        if any(new in entry.outputs for entry in self._change.emitted):
            return True
        node, root = new.producer(), old.producer()
        if node is None or root is None or node.graph is not root.graph:
            return False
        return not new.is_graph_output() and old.type == new.type

    def initializer(self, tensor: torch.Tensor) -> ir.Value:
        """Returns a constant: an initializer of the main graph, or a node in a function.

        Args:
            tensor: The contents, which must not depend on weights. Equal small tensors share one
                value.
        """
        tensor = tensor.detach()
        key = content_key(tensor) if tensor.numel() <= SMALL else None
        if key is not None:
            known = self._change.contents.get(key)
            if known is not None:
                return known
            known = self._known_constants().get(key)
            if known is not None and _is_there(known):
                return known
        value = constant_value(tensor)
        self._change.initializers.append(value)
        if key is not None:
            self._change.contents[key] = value
        return value

    def fold(
        self,
        compute: Callable[..., torch.Tensor],
        sources: Sequence[ir.Value],
        *,
        dtype: ir.DataType,
        shape: Sequence[int],
        key: Hashable = None,
        suffix: str = "folded",
    ) -> ir.Value:
        """Returns an initializer that is computed from others, now or when it is written.

        Args:
            compute: Gets the sources as torch tensors, which it must not change. It is called
                later, and again after the weights have been replaced.
            sources: Values that are ``is_foldable``. The result is named after the first weight.
            dtype: Element type of the result.
            shape: Shape of the result.
            key: Identifies the computation; equal keys with equal sources share one value.
            suffix: What stands behind the weight's name in that of the result.
        """
        known = None if key is None else self._folded.get((key, tuple(sources)))
        if known is not None and known.is_initializer():
            return known
        weights = [v for v in sources if is_weight(v) or isinstance(v.const_value, FoldedTensor)]
        if not weights and max(math.prod(shape), *(_count_elements(v) for v in sources)) <= SMALL:
            tensors = [self.constant(value) for value in sources]
            assert all(tensor is not None for tensor in tensors)
            return self.initializer(compute(*tensors))
        near = (weights or sources)[0]
        value = ir.Value(
            name=f"{str(near.name).removesuffix('_folded')}_{suffix}",
            type=ir.TensorType(dtype),
            shape=ir.Shape(tuple(shape)),
            const_value=FoldedTensor(compute, sources, dtype, shape),
        )
        if INPUT_KIND in near.metadata_props:
            value.metadata_props[INPUT_KIND] = near.metadata_props[INPUT_KIND]
        if key is not None:
            self._folded[key, tuple(sources)] = value
        self._change.initializers.append(value)
        return value

    def _known_constants(self) -> dict[Any, ir.Value]:
        if self._function is not None:
            return self._function_constants
        if self._constants is None:
            self._constants = {}
            for value in self._model.graph.initializers.values():
                tensor = self.constant(value)
                if tensor is not None:
                    self._constants.setdefault(content_key(tensor), value)
        return self._constants

    # --- for the driver --------------------------------------------------------------------------

    def begin(self) -> None:
        """Discards the requested changes."""
        if self._change.emitted or self._change.replaced or self._change.initializers:
            self._change = Change()

    def commit(self, root: ir.Node) -> tuple[list[ir.Node], Iterable[ir.Node]]:
        """Applies the requested changes.

        Returns:
            The new nodes, and other nodes whose neighbors have changed, so that a rule may now
            apply to them.

        Raises:
            RefusedError: Nodes of different modules that will become functions would be merged.
        """
        change = self._change
        dead = dead_after(root, change)
        apart = root.meta.data.get(APART)
        if any(node.meta.data.get(APART) != apart and not _is_size(node) for node in dead):
            raise RefusedError
        graph, name = root.graph, str(root.outputs[0].name)
        assert isinstance(graph, ir.Graph)
        for value in change.initializers:
            self._register(value)
        if change.domains:
            self._model.opset_imports.update(change.domains)
            graph.opset_imports.update(change.domains)
        made = [self._make(entry) for entry in change.emitted]
        self._say_what_it_stands_for(change, dead)
        graph.insert_before(root, made)
        left = {value: None for node in dead for value in node.inputs if value is not None}
        for node in dead:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        around: dict[ir.Node, None] = {}
        for old, new in change.replaced:
            around.update(dict.fromkeys(old.consumers()))
            is_new = not new.name and not new.is_graph_input()
            take_place(old, new, is_new=is_new, frees_name=old.producer() in dead)
        graph.remove([node for node in dead if node.graph is graph])
        for node in dead:
            if node.graph is not None:  # in a graph that encloses the root's
                node.graph.remove(node)
        self._name(made, name)
        for value in left:
            if value.is_initializer() and not value.uses() and not _is_interface(value):
                del self._model.graph.initializers[str(value.name)]
            readers = value.consumers()
            around.update(dict.fromkeys(readers if len(readers) == 1 else ()))
            producer = value.producer()
            if producer is not None:
                around[producer] = None
        return made, around

    def _name(self, made: Sequence[ir.Node], name: str) -> None:
        """Names new values after ``name``, except those that have taken over a name; then nodes."""
        for node in made:
            for value in node.outputs:
                if not value.name:
                    value.name = self._make_unique_name(f"{name}.{node.op_type}")
            node.name = f"node_{node.outputs[0].name}"

    def _make(self, entry: Emitted) -> ir.Node:
        node = node_like(
            entry.like,
            entry.op_type,
            entry.inputs,
            entry.attributes,
            outputs=entry.outputs,
            domain=entry.domain,
        )
        node.metadata_props.pop(FUSED, None)
        for value in entry.outputs:
            value.name = ""  # prevents the graph from naming it
        node.name = ""
        return node

    def _say_what_it_stands_for(self, change: Change, dead: Mapping[ir.Node, None]) -> None:
        """Records the names of all removed nodes on the nodes whose results replace theirs."""
        fused: dict[str, None] = {}
        for other in reversed(list(dead)):
            fused.update(dict.fromkeys(self._stands_for.get(other) or _fused_before(other)))
        if len(fused) < 2:
            return
        for _, new in change.replaced:
            node = new.producer()
            if node is not None and not node.name and node.metadata_props:
                self._stands_for[node] = list(fused)
                node.metadata_props[FUSED] = repr(list(fused))

    def _register(self, value: ir.Value) -> None:
        value.name = self._make_unique_name(str(value.name))
        tensor = in_memory(value.const_value)
        place_constant(value, self._model, self._function)
        if tensor is not None and tensor.numel() <= SMALL:
            self._known_constants()[content_key(tensor)] = value

    def _make_unique_name(self, wanted: str) -> str:
        """Returns a name that is not used in the model."""
        if self._names is None:
            self._names = Names(names_in(self._model))
        return self._names.unique(wanted)


def _is_there(constant: ir.Value) -> bool:
    """Returns True if a known constant has not been removed in the meantime."""
    node = constant.producer()
    return constant.is_initializer() if node is None else node.graph is not None


def dead_after(root: ir.Node, change: Change) -> dict[ir.Node, None]:
    """Nodes that are unused after a change, from the root backward."""
    replaced = {old for old, _ in change.replaced}
    kept = {value for entry in change.emitted for value in entry.inputs}
    kept.update(new for _, new in change.replaced)
    dead: dict[ir.Node, None] = {}
    pending = [old.producer() for old, _ in change.replaced]
    while pending:
        node = pending.pop()
        if node is None or node in dead or not _becomes_unused(node, replaced, kept, dead):
            continue
        dead[node] = None
        pending.extend(value.producer() for value in node.inputs if value is not None)
    return dead


def _becomes_unused(
    node: ir.Node,
    replaced: set[ir.Value],
    kept: set[ir.Value | None],
    dead: Mapping[ir.Node, None],
) -> bool:
    if any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
        return False  # its subgraphs read values too, which are not released here
    for value in node.outputs:
        if value in kept:
            return False
        if value in replaced:
            continue
        if value.is_graph_output() or any(user not in dead for user in value.consumers()):
            return False
    return True


def _is_interface(value: ir.Value) -> bool:
    return value.is_graph_input() or value.is_graph_output()


def _is_size(node: ir.Node) -> bool:
    """True if a node computes a size, which module functions can take as an input if necessary."""
    return all(
        value.dtype == ir.DataType.INT64 and value.shape is not None and len(value.shape) <= 1
        for value in node.outputs
    )


def _count_elements(value: ir.Value) -> int:
    return 0 if value.const_value is None else value.const_value.size


def _fused_before(node: ir.Node) -> list[str]:
    """Names of the nodes that an earlier run recorded on the node, or else its own name."""
    earlier = node.metadata_props.get(FUSED)
    names: list[str] = [str(node.name)] if earlier is None else ast.literal_eval(earlier)
    return names
