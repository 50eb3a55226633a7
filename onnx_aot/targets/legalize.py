"""Adapts a valid ONNX model to the kernels of a target."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.dtypes import HALVES
from onnx_aot.errors import MissingInOpset
from onnx_aot.graph.nodes import take_place
from onnx_aot.graph.opset_range import BUILT_OPSET
from onnx_aot.graph.traversal import WITH_GRAPHS
from onnx_aot.metadata.keys import FX_NODE, PIECE
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.expansions import EXPANSIONS, reduce_log_sum_exp
from onnx_aot.targets.fusion_workarounds import (
    KEPT_APART,
    KEPT_APART_BEFORE_1_19,
    KEPT_APART_IN_OPENCV,
)
from onnx_aot.targets.kernels import Kernels, signature, standard_types
from onnx_aot.targets.older_forms import (
    NoOlderFormError,
    check_form,
    older_forms,
    remove_unread_constants,
)
from onnx_aot.targets.older_forms.rows import Form
from onnx_aot.targets.releases import FAMILY, find_kernels, order
from onnx_aot.targets.type_fallbacks import PRESERVING, SURROGATES, is_lossy
from onnx_aot.targets.unsigned_activations import unsigned_activations

__all__ = ["Adaptation", "Fit", "legalize", "unsupported_nodes"]

_FOR_ONNX_RUNTIME = {
    **KEPT_APART,
    "QuantizeLinear": unsigned_activations,
    # Its kernel takes 0 for the largest number if the first is -inf: small sums become -inf (1.32).
    "ReduceLogSumExp": reduce_log_sum_exp,
}
WRITTEN_FOR_IT = {
    **dict.fromkeys(FAMILY, _FOR_ONNX_RUNTIME),
    "opencv": KEPT_APART_IN_OPENCV,
}
"""Functions, by runtime and operator, that adapt nodes that the target has a kernel for."""

# Operators that are defined by their types alone, or that separate types on purpose.
AS_THEY_ARE = frozenset(
    {
        "BitCast",
        "Cast",
        "Constant",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "If",
        "Loop",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "QuantizeLinear",
        "Scan",
        "SequenceMap",
    }
)

# Operators among these that are no kernels: runtimes replace them while they load a model.
REPLACED = frozenset({"Constant", "SequenceMap"})

# Operators among these that are expressed by others if the target has no kernel of their version.
QUANTIZING = frozenset({"DequantizeLinear", "QuantizeLinear"})

# Kernels that load, but refuse these types at run time with a reduction.
REFUSED_WHEN_REDUCING = {"ScatterElements": HALVES, "ScatterND": HALVES}


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """An adaptation of nodes of one operator and type.

    Attributes:
        op_type: The operator.
        dtype: The type that the target has no kernel for.
        surrogate: The type that replaces it; None if the operator was expressed by others.
        lossy: Whether values can differ because of it.
        count: Number of nodes that were adapted.
    """

    op_type: str
    dtype: ir.DataType
    surrogate: ir.DataType | None
    lossy: bool
    count: int


@dataclasses.dataclass(frozen=True)
class Fit:
    """Result of fitting a model to a target.

    Attributes:
        adaptations: The adaptations, most frequent first.
        left: Nodes without a kernel for which there is no adaptation.
        missing: What an opset before 17 lacks, with the nodes that need it.
    """

    adaptations: tuple[Adaptation, ...]
    left: tuple[ir.Node, ...]
    missing: dict[MissingInOpset, list[ir.Node]]


# A type variable, its type, and its new type.
_Change = tuple[str, ir.DataType, ir.DataType]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """New types for some variables of a node; without any, the node needs an expansion."""

    missing: ir.DataType
    changes: tuple[_Change, ...]


def legalize(model: ir.Model, target: str | None, opset: int | None = None) -> Fit:
    """Replaces, in place, the nodes that the target has no kernel for, or that the opset lacks.

    Before::

        y = Elu(x: DOUBLE)
        z = Add(a: BFLOAT16, b: BFLOAT16)

    After::

        y = Where(x < 0, Exp(x) - 1, x)
        z = Cast(Add(Cast(a, to=FLOAT), Cast(b, to=FLOAT)), to=BFLOAT16)

    An operator with an expansion is expressed by operators that the target has for the type.
    Others run in the first type of ``SURROGATES`` that they have a kernel for, between casts.
    Integers keep their own arithmetic: a narrow integer is cast back after every operator, which
    wraps around as the narrow operator does.

    If the next node needs the surrogate of a value that was cast back, it reads the value before
    the cast (unread casts are removed) in two cases: if nothing was rounded, because the operator
    only moves elements that came from the narrow type; and, for floating point, if both nodes come
    from one operator of the captured graph, whose kernel in torch rounds once, at its end. Between
    operators of the captured graph the rounding stays, as in torch. Integers are never read from
    before a cast that may wrap around.

    Small constants that are not weights are cast now; weights are cast by the model, so that the
    file does not grow.

    Every node is visited once, including those of subgraphs and functions; a value of an outer
    graph is cast in that graph, outside of loops.

    Args:
        model: Changed in place.
        target: A runtime, or a release of one; see ``find_kernels``. None: only the opset counts.
        opset: The opset of the result; by default that of the model. Before opset 17, nodes get
            the forms of that opset, and types that it accepts; see ``older_forms``.

    Raises:
        InvalidOptionError: There is no such target.
    """
    return _Legalizer(model, target, opset).run()


def unsupported_nodes(model: ir.Model, target: str) -> list[ir.Node]:
    """Nodes, including those of subgraphs and functions, that the target has no kernel for."""
    planner = _Planner(find_kernels(target))
    return [
        node
        for graph, opset in _graphs_with_opsets(model)
        for node in ir.traversal.RecursiveGraphIterator(graph)
        if planner.plan(node, opset) is not None
    ]


def _graphs_with_opsets(model: ir.Model) -> Iterator[tuple[ir.Graph | ir.Function, int]]:
    yield model.graph, model.opset_imports[""]
    for function in model.functions.values():
        yield function, function.opset_imports.get("", model.opset_imports[""])


class _Planner:
    """Plans the adaptation of nodes, once per operator, opset and types."""

    def __init__(self, table: Kernels) -> None:
        self._table = table
        self._plans: dict[object, _Plan | None] = {}

    def plan(self, node: ir.Node, opset: int) -> _Plan | None:
        """Returns the plan for a node, or None if the target runs it as it is."""
        if node.domain:
            return None
        inputs, op_type = node.inputs, node.op_type
        # comparing members of an enumeration by identity is faster than hashing them
        key: tuple[object, ...] = (
            op_type,
            opset,
            len(inputs),
            *[0 if value is None else id(value.dtype) for value in inputs],
            *[id(value.dtype) for value in node.outputs],
        )
        if op_type in REFUSED_WHEN_REDUCING and "reduction" in node.attributes:
            key = (node.attributes["reduction"].as_string(), *key)
        try:
            return self._plans[key]
        except KeyError:
            plan = self._plans[key] = self._make_plan(node, opset)
            return plan

    def _make_plan(self, node: ir.Node, opset: int) -> _Plan | None:
        types = signature(node.op_type, opset)
        if types is None:
            return None
        known = self._table.by_operator.get((node.op_type, types.version), ())
        if node.op_type in AS_THEY_ARE and (node.op_type in REPLACED or known):
            return None
        bound = _bind_type_variables(types.inputs, node.inputs)
        if node.op_type in AS_THEY_ARE:
            return _Plan(next(iter(bound.values()), ir.DataType.UNDEFINED), ())
        bound |= _bind_type_variables(types.outputs, node.outputs)
        if opset < BUILT_OPSET:
            known = tuple(_restrict_types(kernel, types.accepted) for kernel in known)
        reduction = node.attributes.get("reduction")
        if reduction is not None and reduction.as_string() != "none":
            refused = REFUSED_WHEN_REDUCING.get(node.op_type, frozenset())
            known = tuple(
                {variable: allowed - refused for variable, allowed in kernel.items()}
                for kernel in known
            )
        inlined = self._table.inlined.get((node.op_type, opset), frozenset())
        if not bound:
            return None
        first = next(iter(bound))
        if bound[first] in inlined:
            return None
        same = [variable for variable, dtype in bound.items() if dtype == bound[first]]
        candidates = [*known, *(dict.fromkeys(same, frozenset([dtype])) for dtype in inlined)]
        best: tuple[tuple[int, int, int], tuple[_Change, ...]] | None = None
        for kernel in candidates:
            changes = _find_type_changes(node.op_type, kernel, bound)
            if changes is not None and (best is None or changes < best):
                best = changes
        if best is not None and not best[1]:
            return None
        if best is None:
            missing = next(iter(bound.values()))
            return _Plan(missing, ())
        return _Plan(best[1][0][1], best[1])


def _restrict_types(
    kernel: dict[str, frozenset[ir.DataType]], accepted: dict[str, frozenset[ir.DataType]]
) -> dict[str, frozenset[ir.DataType]]:
    """Leaves out types that the standard does not accept, where a kernel is for later opsets."""
    restricted = {variable: types for variable, types in accepted.items() if types}
    for variable, types in kernel.items():
        restricted[variable] = types & restricted.get(variable, types)
    return restricted


def _bind_type_variables(
    variables: Sequence[str | None], values: Sequence[ir.Value | None]
) -> dict[str, ir.DataType]:
    bound: dict[str, ir.DataType] = {}
    for index, value in enumerate(values):
        if value is None or not variables:
            continue
        variable = variables[min(index, len(variables) - 1)]
        if variable is not None and isinstance(value.type, ir.TensorType):
            bound.setdefault(variable, value.type.dtype)
    return bound


def _find_type_changes(
    op_type: str, kernel: dict[str, frozenset[ir.DataType]], bound: dict[str, ir.DataType]
) -> tuple[tuple[int, int, int], tuple[_Change, ...]] | None:
    """The cost (losses, changes, rank) and the type changes for a kernel; None if impossible."""
    changes: list[_Change] = []
    losses = ranks = 0
    for variable, dtype in bound.items():
        types = kernel.get(variable)
        if types is None or dtype in types:
            continue
        surrogates = SURROGATES.get(dtype, ())
        found = next((i for i, other in enumerate(surrogates) if other in types), None)
        if found is None:
            return None
        changes.append((variable, dtype, surrogates[found]))
        losses += is_lossy(op_type, dtype, surrogates[found])
        ranks += found
    return (losses, len(changes), ranks), tuple(changes)


@dataclasses.dataclass
class _Wide:
    """The value before a cast back, and whether the cast changes nothing."""

    value: ir.Value
    exact: bool
    origin: tuple[Any, Any] | None


class _Legalizer:
    def __init__(self, model: ir.Model, target: str | None, opset: int | None) -> None:
        self.model = model
        self.opset = model.opset_imports[""] if opset is None else opset
        table = standard_types(self.opset) if target is None else find_kernels(target)
        self.planner = _Planner(table)
        self.workarounds = dict(WRITTEN_FOR_IT.get(table.runtime, {}))
        if table.runtime in FAMILY and order(table.release) < (1, 19):
            self.workarounds |= KEPT_APART_BEFORE_1_19
        self.emitter = Emitter(model)
        self.counts: collections.Counter[tuple[str, ir.DataType, ir.DataType | None, bool]] = (
            collections.Counter()
        )
        # (value, type): its cast, or the constant that was cast
        self.casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self.wide: dict[ir.Value, _Wide] = {}
        self.inserted: list[ir.Node] = []
        self.left: list[ir.Node] = []
        self.forms: Mapping[str, tuple[Form, ...]] = {}
        self.missing: dict[MissingInOpset, list[ir.Node]] = {}

    def run(self) -> Fit:
        for graph, built in list(_graphs_with_opsets(self.model)):
            is_older = built == BUILT_OPSET and self.opset < BUILT_OPSET
            opset = self.opset if is_older else built
            self.forms = older_forms(opset) if is_older else {}
            if is_older:
                graph.opset_imports[""] = opset
            self.emitter.enter(graph)
            self._visit(graph, opset, [])
        self._remove_unread()
        if self.opset < BUILT_OPSET:
            self._check_casts()
            remove_unread_constants(self.model)
        adaptations = (Adaptation(*what, count=n) for what, n in self.counts.most_common())
        return Fit(tuple(adaptations), tuple(self.left), self.missing)

    def _remove_unread(self) -> None:
        """Removes inserted nodes that are not read: casts back, outputs of expansions."""
        inserted, pending = set(self.inserted), list(self.inserted)
        while pending:
            node = pending.pop()
            if node.graph is None:
                continue
            if any(value.uses() or value.is_graph_output() for value in node.outputs):
                continue
            producers = [value.producer() for value in node.inputs if value is not None]
            node.graph.remove(node, safe=True)
            pending += [other for other in producers if other in inserted]

    def _check_casts(self) -> None:
        """Finds casts, among the inserted nodes, of a type that the opset's Cast does not know."""
        for node in self.inserted:
            if node.graph is None or node.op_type != "Cast":
                continue
            try:
                check_form(node, self.opset, types=True)
            except NoOlderFormError as error:
                source = node.inputs[0]
                before = None if source is None else source.producer()
                reader = next(iter(node.outputs[0].consumers()), before) or node
                self.missing.setdefault(error.missing, []).append(reader)

    def _visit(self, graph: ir.Graph | ir.Function, opset: int, around: list[ir.Node]) -> None:
        """Adapts all nodes of a graph; ``around`` are the enclosing nodes, outermost first."""
        for node in graph:
            self._adapt_node(node, opset, around)

    def _adapt_node(self, node: ir.Node, opset: int, around: list[ir.Node]) -> None:
        if node.op_type in WITH_GRAPHS:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    self._visit(attribute.as_graph(), opset, [*around, node])
        if self.forms and not node.domain and self._write_older_form(node, opset, around):
            return
        if node.op_type in self.workarounds and not node.domain:
            with self.emitter.insert_before(node, opset):
                results = self.workarounds[node.op_type](self.emitter, node)
            if results is not None:
                self._replace(node, results, opset, around)
                return
            self._adapt_made(self.emitter.take(), opset, around)
        plan = self.planner.plan(node, opset)
        if plan is None:
            return
        expansion = EXPANSIONS.get((node.op_type, plan.missing))
        if expansion is not None:
            with self.emitter.insert_before(node, opset):
                results = expansion(self.emitter, node)
            if results is not None:
                self._replace(node, results, opset, around)
                self.counts[node.op_type, plan.missing, None, False] += 1
                return
        if not plan.changes:
            self._leave(node, opset)
            return
        self._cast_around(node, plan, opset, around)
        for _, dtype, surrogate in plan.changes:
            lossy = is_lossy(node.op_type, dtype, surrogate)
            self.counts[node.op_type, dtype, surrogate, lossy] += 1

    def _write_older_form(self, node: ir.Node, opset: int, around: list[ir.Node]) -> bool:
        """Writes a node in the form of an opset before 17; True if others take its place."""
        try:
            for write in self.forms.get(node.op_type, ()):
                with self.emitter.insert_before(node, opset):
                    results = write(self.emitter, node)
                if results is not None:
                    self._replace(node, results, opset, around)
                    return True
            check_form(node, opset, types=node.op_type in AS_THEY_ARE)
        except NoOlderFormError as error:
            self.missing.setdefault(error.missing, []).append(node)
        return False

    def _leave(self, node: ir.Node, opset: int) -> None:
        """Records a node that nothing replaces: the opset lacks its type, or the target does."""
        try:
            if self.forms:
                check_form(node, opset, types=True)
            self.left.append(node)
        except NoOlderFormError as error:
            self.missing.setdefault(error.missing, []).append(node)

    def _replace(
        self, node: ir.Node, results: Sequence[ir.Value], opset: int, around: list[ir.Node]
    ) -> None:
        made = self.emitter.take()
        for old, new in zip(node.outputs, results, strict=False):
            take_place(old, new)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        self._adapt_made(made, opset, around)

    def _adapt_made(self, made: Sequence[ir.Node], opset: int, around: list[ir.Node]) -> None:
        """Adapts the nodes of an expansion, which may need casts themselves."""
        self.inserted += made
        for inner in made:
            self._adapt_node(inner, opset, around)

    # --- casts -----------------------------------------------------------------------------------

    def _cast_around(self, node: ir.Node, plan: _Plan, opset: int, around: list[ir.Node]) -> None:
        types = signature(node.op_type, opset)
        assert types is not None
        surrogates = {variable: surrogate for variable, _, surrogate in plan.changes}
        exact = node.op_type in PRESERVING
        for index, value in enumerate(node.inputs):
            variable = _type_variable_at(types.inputs, index)
            if value is None or variable not in surrogates:
                continue
            wanted = surrogates[variable]
            if value.dtype == wanted:
                continue
            cast, unchanged = self._cast(value, wanted, node, around)
            exact = exact and unchanged
            node.replace_input_with(index, cast)
        _change_attributes(node, plan)
        for index, output in enumerate(node.outputs):
            variable = _type_variable_at(types.outputs, index)
            if variable in surrogates and output.dtype is not None:
                if output.uses() or output.is_graph_output():
                    self._cast_back(node, output, surrogates[variable], exact)
                else:
                    output.type = ir.TensorType(surrogates[variable])

    def _cast(
        self, value: ir.Value, dtype: ir.DataType, node: ir.Node, around: list[ir.Node]
    ) -> tuple[ir.Value, bool]:
        """Returns a value in another type for a node, and whether its contents are unchanged."""
        wide = self.wide.get(value)
        if wide is not None and wide.value.dtype == dtype:
            floating = value.dtype is not None and value.dtype.is_floating_point()
            same_origin = floating and wide.origin is not None and wide.origin == _origin(node)
            if wide.exact or same_origin:
                return wide.value, wide.exact
        known = self.casts.get((value, dtype))
        if known is not None:
            return known, True
        constant = self.emitter.cast_constant(value, dtype)
        if constant is not None:
            self.casts[value, dtype] = constant
            return constant, True
        place = node
        for outer in reversed(around):
            if value.graph is place.graph:
                break
            place = outer
        with self.emitter.insert_before(place, 0):
            cast = self.emitter.op(
                "Cast", [value], {"to": dtype}, dtype=dtype, shape=value.shape, like=value
            )
            self.inserted += self.emitter.take()
        self.casts[value, dtype] = cast
        return cast, True

    def _cast_back(
        self, node: ir.Node, output: ir.Value, surrogate: ir.DataType, exact: bool
    ) -> None:
        narrow = output.dtype
        assert narrow is not None
        with self.emitter.insert_after(node):
            back = self.emitter.op("Cast", [output], {"to": narrow}, dtype=narrow)
            cast = back.producer()
            assert cast is not None
            self.emitter.take()
        output.replace_all_uses_with(back, replace_graph_outputs=True)
        cast.replace_input_with(0, output)
        self.emitter.hand_over_name(output, back, surrogate)
        output.type = ir.TensorType(surrogate)
        self.wide[back] = _Wide(output, exact, _origin(node))
        self.inserted.append(cast)


def _type_variable_at(variables: Sequence[str | None], index: int) -> str | None:
    return variables[min(index, len(variables) - 1)] if variables else None


def _origin(node: ir.Node) -> tuple[Any, Any] | None:
    """Names the kernel of torch that a node is part of, which rounds its result once.

    It is an operator of the captured graph, or of those that eager PyTorch runs it as.
    """
    operator = node.meta.get(FX_NODE)
    return None if operator is None else (operator, node.meta.get(PIECE))


def _change_attributes(node: ir.Node, plan: _Plan) -> None:
    """Changes the type in the attributes ``dtype`` and ``value``."""
    for _, dtype, surrogate in plan.changes:
        declared = node.attributes.get("dtype")
        if declared is not None and declared.as_int() == dtype.value:
            node.attributes["dtype"] = ir.AttrInt64("dtype", surrogate.value)
        value = node.attributes.get("value")
        if value is not None and value.type == ir.AttributeType.TENSOR:
            tensor = value.as_tensor()
            if tensor.dtype == dtype:
                array = tensor.numpy().astype(surrogate.numpy())
                node.attributes["value"] = ir.AttrTensor("value", ir.tensor(array))
