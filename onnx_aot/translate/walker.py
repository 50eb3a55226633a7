"""Walks the FX graph once and emits ONNX: one table look-up per node."""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot.builder.builder import Builder
from onnx_aot.dimensions.symbols import Dimensions
from onnx_aot.errors import (
    ConversionError,
    OnnxExporterError,
    OpsetError,
    TranslationError,
    UnsupportedOperator,
    UnsupportedOperatorError,
)
from onnx_aot.fx_passes.custom_writes import FUNCTIONALIZED, original_call
from onnx_aot.fx_passes.nested_graphs import body_of
from onnx_aot.graph.names import Names
from onnx_aot.graph.traversal import subgraphs
from onnx_aot.metadata.keys import FX_NODE, PIECE
from onnx_aot.metadata.provenance import location, place, target_name
from onnx_aot.metadata.stamp import Metadata
from onnx_aot.ops.complex.pairs import Complex, join, make_recorded_part, split
from onnx_aot.ops.registry import (
    NOT_TRANSLATED,
    Argument,
    Translation,
    find_candidates,
)
from onnx_aot.ops.user.placeholder_nodes import emit_unsupported
from onnx_aot.torch_compat import (
    HigherOrderOperator,
    OpOverload,
    higher_order,
    is_taken_for_data,
    schema_of,
)
from onnx_aot.torch_ops.rolled_loops import rolled
from onnx_aot.translate.candidates import NoCandidateError, Plan, plan_of, try_candidates
from onnx_aot.translate.check_results import refuse_other_results
from onnx_aot.translate.complex_nodes import (
    call_complex,
    complex_translation,
    is_complex,
    join_complex,
    split_complex,
)
from onnx_aot.translate.decompose import Decomposer, Pieces
from onnx_aot.translate.opset_errors import MissingForms, list_locations
from onnx_aot.translate.promote import promote
from onnx_aot.translate.stubs import parameters, write_stub
from onnx_aot.translate.subgraph_bodies import Bodies, nodes_and_bodies

__all__ = ["Statistics", "Walker"]

Table = Mapping[Any, tuple[Translation, ...]]

# run_decompositions replaces a custom operator that writes by this; its arguments include views.
FUNCTIONALIZED_BY_TORCH = higher_order.auto_functionalized_v2


@dataclasses.dataclass
class Statistics:
    """Ways in which operators of the captured graph were translated, counted by target."""

    direct: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    custom: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    decomposed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unsupported: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Walker:
    """Translates the nodes of a graph into nodes of a ``Builder``.

    ``values`` maps FX nodes to their results: an ``ir.Value``, a list of them, or a Python
    constant. The caller enters the placeholders' values before ``translate_nodes``.
    """

    def __init__(
        self,
        *,
        op: Builder,
        table: Table,
        dimensions: Dimensions,
        names: Names,
        metadata: Metadata,
        unsupported: Literal["error", "emit", "function"] = "error",
        decompose: bool = True,
    ) -> None:
        self.op = op
        self.values: dict[torch.fx.Node, Any] = {}
        self.statistics = Statistics()
        self.dimensions = dimensions
        self.metadata = metadata
        self.current: torch.fx.Node | None = None
        self._table = table
        self._names = names
        self._bodies = Bodies(self)
        self._missing = MissingForms(op)
        self._stamped = 0
        self._decomposer = Decomposer(custom=unsupported == "error")
        self._plans: dict[Any, tuple[Plan, ...]] = {}
        self._complex: dict[torch.fx.Node, bool] = {}
        self._unsupported = unsupported
        self._decompose = decompose
        self._kept: set[torch.fx.Node] = set()  # nodes of operators without a translation

    # --- what can be translated ------------------------------------------------------------------

    def check_supported(self, graph: torch.fx.Graph) -> None:
        """Finds every operator that can be neither translated nor decomposed.

        Raises:
            UnsupportedOperatorError: There is one; the error lists all of them.
        """
        missing: dict[Any, list[torch.fx.Node]] = {}
        for node in nodes_and_bodies(graph):
            try:
                targets = self._missing_targets(node, set())
            except Exception as error:
                raise _add_location(error, node) from error
            if targets and self._is_emitted_as_node(node):
                self._kept.add(node)
                continue
            for target in targets:
                missing.setdefault(target, []).append(node)
        if missing:
            entries = [_describe_unsupported(target, nodes) for target, nodes in missing.items()]
            entries.sort(key=lambda entry: -entry.count)
            raise UnsupportedOperatorError(tuple(entries))

    def _missing_targets(self, node: torch.fx.Node, above: set[Any]) -> list[Any]:
        if node.op != "call_function" or node.target is operator.getitem:
            return []
        if isinstance(node.target, type):
            return []
        if node.target == FUNCTIONALIZED:
            target = original_call(node).target
            return [] if self._plans_of(target) else [target]
        if self._plans_for(node, self._is_complex(node)):
            return []
        if node.target == FUNCTIONALIZED_BY_TORCH:
            return [node.args[0]]
        pieces = self._decomposer.expand(node) if self._decompose else None
        if pieces is None or node.target in above:
            return [node.target]
        found = []
        for piece in pieces.graph.nodes:
            found += self._missing_targets(piece, above | {node.target})
        # A rule that needs an unsupported operator does not help: report the user's operator.
        return [node.target] if found else []

    def _is_emitted_as_node(self, node: torch.fx.Node) -> bool:
        """True if a node without a translation becomes a node with the operator's own name."""
        wanted = self._unsupported != "error" or not self._decompose
        return wanted and (node.target == FUNCTIONALIZED or isinstance(node.target, OpOverload))

    def _plans_of(self, target: Any) -> tuple[Plan, ...]:
        """Translations of an operator, in the order in which they are tried."""
        plans = self._plans.get(target)
        if plans is None:
            candidates = find_candidates(self._table, target, self.op.opset)
            plans = self._plans[target] = tuple(map(plan_of, candidates))
        return plans

    def _is_complex(self, node: torch.fx.Node) -> bool:
        """True if a node needs a translation for complex numbers; calls with bodies do not."""
        if not is_complex(node, self._complex):
            return False
        return not isinstance(node.target, HigherOrderOperator) and node.target is not rolled

    def _plans_for(self, node: torch.fx.Node, complex_: bool) -> tuple[Plan, ...]:
        """The table's entries for a node, or those for complex numbers."""
        plans = self._plans_of(node.target)
        if not complex_:
            return plans
        custom = [plan for plan in plans if plan.translation.may_decline]
        real = plans[-1].translation if len(custom) < len(plans) else None
        entry = complex_translation(node.target, real)
        return (*custom, *([] if entry is None else [plan_of(entry)]))

    # --- translation -----------------------------------------------------------------------------

    def translate_nodes(self, graph: torch.fx.Graph) -> None:
        """Translates every ``call_function`` node in order.

        Raises:
            OpsetError: The opset lacks operators that nodes need; the error lists all of them.
            TranslationError: A translation failed on a node.
        """
        self._missing = MissingForms(self.op)
        for node in graph.nodes:
            self.visit(node)
        self._missing.check()

    def visit(self, node: torch.fx.Node) -> None:
        """Translates one node of a graph or body, and names and stamps the ONNX nodes."""
        if node.op == "get_attr" and node.users:
            self.values[node] = self._translate_attribute(node)
        if node.op != "call_function":
            return
        start = len(self.op.nodes)
        try:
            self._translate_node(node)
        except OpsetError as error:
            self._missing.collect(error, node, self._translate_node)
            return
        except Exception as error:
            self._missing.check()
            raise _add_location(error, node) from error
        self._name(node, start)
        self.metadata.stamp(self.op.nodes[start:], node)
        if len(self.op.functions) != self._stamped:
            for function in self.op.functions.values():
                self.metadata.stamp(function, node)
            self._stamped = len(self.op.functions)

    def _translate_attribute(self, node: torch.fx.Node) -> Any:
        """Returns a function that emits the body, or a constant for a tensor."""
        body = body_of(node)
        if body is not None:
            return self._bodies.make_function(body)
        owner = node.graph.owning_module
        return self._emit_constant(operator.attrgetter(str(node.target))(owner))

    def _translate_node(self, node: torch.fx.Node) -> None:
        self.current = node
        self.values[node] = self._translate(node)
        self._record(node)

    def enter_complex(self, node: torch.fx.Node, joined: ir.Value) -> None:
        """Splits a complex input or weight, given in the form of ``torch.view_as_real``."""
        start = len(self.op.nodes)
        self.values[node] = split(self.op, joined)
        self._name(node, start)
        self.metadata.stamp(self.op.nodes[start:], node)

    def leave_complex(self, node: torch.fx.Node, value: Complex) -> ir.Value:
        """Joins the parts of an output; the inverse of ``enter_complex``."""
        start = len(self.op.nodes)
        joined = join(self.op, value)
        for onnx_node in self.op.nodes[start:-1]:
            self._name_inner(onnx_node, node.name)
        self.metadata.stamp(self.op.nodes[start:], node)
        return joined

    def _translate(self, node: torch.fx.Node) -> Any:
        recorded = node.meta.get("val")
        if node.target is operator.getitem:
            return self.argument(node.args[0])[node.args[1]]
        if isinstance(node.target, type):  # a named tuple of results, made by a decomposition
            return self.argument(node.args)
        if isinstance(recorded, (int, float, bool)):
            return recorded
        # A number of the data is computed from it, though torch may take it to be equal to a size.
        size_name = None if is_taken_for_data(recorded) else self.dimensions.name(recorded)
        if size_name is not None:
            known = self.op.known_size(size_name)
            if known is not None:
                return known
        result = self._emit(node)
        refuse_other_results(result, recorded, node.target, node)
        if size_name is not None and isinstance(result, ir.Value):
            self.op.state.sizes.remember(size_name, result)
        if isinstance(node.target, HigherOrderOperator) and isinstance(result, list):
            self._remember_sizes(result, recorded)
        return result

    def _remember_sizes(self, results: Sequence[Any], recorded: Any) -> None:
        """Records numbers among the results of a call with bodies, which may be sizes of others."""
        for result, example in zip(results, recorded, strict=True):
            name = self.dimensions.name(example)
            if name is not None and isinstance(result, ir.Value):
                self.op.state.sizes.remember(name, result)

    def _emit(self, node: torch.fx.Node) -> Any:
        if node.target == FUNCTIONALIZED:
            return self._emit_custom_write(node)
        if node in self._kept:
            return self._emit_untranslated(node.target, node.args, node.kwargs, node.meta["val"])
        complex_ = self._is_complex(node)
        plans = self._plans_for(node, complex_)
        refused: NoCandidateError | None = None
        if plans:
            self.op.result = node.meta.get("val")
            self.op.recorded = tuple(map(_recorded_value, node.args))
            call = self._call_complex if complex_ else self._call
            try:
                result, plan = try_candidates(
                    self.op, plans, lambda plan: call(plan, node, node.args, node.kwargs)
                )
            except NoCandidateError as error:
                refused = error
            else:
                self._count(plan, target_name(node.target))
                return result
        pieces = self._decomposer.expand(node)
        if pieces is None and refused is not None:
            raise refused
        assert pieces is not None, f"check_supported let {node.target} pass"
        self.statistics.decomposed[target_name(node.target)] += 1
        return self._emit_pieces(node, pieces)

    def _count(self, plan: Plan, target: str) -> None:
        statistics = self.statistics
        counter = statistics.custom if plan.translation.may_decline else statistics.direct
        counter[target] += 1

    def _emit_custom_write(self, node: torch.fx.Node) -> list[Any]:
        """Emits a custom operator that writes; its translation returns the new values."""
        call = original_call(node)
        plans = self._plans_of(call.target)
        recorded = node.meta["val"]
        wanted = [recorded[index] for index in call.results]
        self.op.result = wanted[0] if len(wanted) == 1 else wanted
        if node in self._kept:
            returned = self._emit_untranslated(call.target, call.args, call.kwargs, self.op.result)
        else:
            returned, plan = try_candidates(
                self.op, plans, lambda plan: self._call(plan, node, call.args, call.kwargs)
            )
            self._count(plan, str(call.target))
        refuse_other_results(returned, self.op.result, call.target)
        given = [returned] if len(wanted) == 1 else returned
        results: list[Any] = [None] * len(recorded)
        for index, value in zip(call.results, given, strict=True):
            results[index] = value
        return results

    def _emit_untranslated(self, target: Any, args: Any, kwargs: Any, recorded: Any) -> Any:
        """Emits an operator without a translation as a node with the operator's own name."""
        self.statistics.unsupported[target_name(target)] += 1
        given = {}
        for position, argument in enumerate(schema_of(target).arguments):
            default = argument.default_value if argument.has_default_value() else None
            value = args[position] if position < len(args) else kwargs.get(argument.name, default)
            given[argument.name] = self.argument(value)
        as_function = self._unsupported == "function"
        returned = emit_unsupported(self.op, target, given, recorded, as_function)
        return split_complex(self.op, returned, recorded, self.dimensions.describe)

    def _call(self, plan: Plan, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if plan.translation.arguments is None:
            values = self.argument(args)
            named = {name: self.argument(value) for name, value in kwargs.items()}
            result = plan.translation.function(self.op, *values, **named)
        else:
            arguments = self._bind(args, kwargs, plan.translation.arguments)
            if plan.promotes:
                promote(node, plan.names, arguments, self.op.cast)
            result = plan.translation.function(self.op, *arguments)
        return list(result) if isinstance(result, tuple) else result

    def _call_complex(self, plan: Plan, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        bound = plan.translation.arguments
        if bound is not None:
            return call_complex(self.op, node, plan.translation, self._bind(args, kwargs, bound))
        values = [join_complex(self.op, value) for value in self.argument(args)]
        named = {
            name: join_complex(self.op, self.argument(value)) for name, value in kwargs.items()
        }
        returned = plan.translation.function(self.op, *values, **named)
        return split_complex(self.op, returned, node.meta.get("val"), self.dimensions.describe)

    def _emit_pieces(self, node: torch.fx.Node, pieces: Pieces) -> Any:
        """Translates a decomposition in the node's place; the pieces' values have no names."""
        arguments = iter(pieces.arguments(node))
        for piece in pieces.graph.nodes:
            if piece.op == "placeholder":
                self.values[piece] = self.argument(next(arguments))
            elif piece.op == "call_function":
                start = len(self.op.nodes)
                self.values[piece] = self._translate(piece)
                self._record(piece)
                if pieces.separate:
                    for onnx_node in self.op.nodes[start:]:
                        onnx_node.meta.setdefault(PIECE, piece.name)
            elif piece.op == "get_attr":
                constant = operator.attrgetter(piece.target)(pieces.owner)
                self.values[piece] = self._emit_constant(constant)
            elif piece.op == "output":
                return self.argument(piece.args[0])
        raise AssertionError("a graph ends with its output")

    def _emit_constant(self, tensor: torch.Tensor) -> ir.Value | Complex:
        if tensor.is_complex():
            return Complex(self.op.constant(tensor.real), self.op.constant(tensor.imag))
        return self.op.constant(tensor)

    def _bind(self, args: Any, kwargs: Any, arguments: Sequence[Argument]) -> list[Any]:
        """The translation's arguments in order, with the schema's defaults filled in."""
        given = len(args)
        bound = []
        for argument in arguments:
            position = argument.position
            if position is not None and position < given:
                value = args[position]
            else:
                value = kwargs.get(argument.name, argument.default)
            bound.append(self.argument(value))
        return bound

    def argument(self, argument: Any) -> Any:
        """An FX argument with its nodes replaced by their results."""
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self.argument(item) for item in argument]
        return argument

    # --- after a node has been translated --------------------------------------------------------

    def _record(self, node: torch.fx.Node) -> None:
        """Sets recorded types and shapes on a node's values; a different type is our bug."""
        result, recorded = self.values[node], node.meta.get("val")
        if isinstance(result, (ir.Value, Complex)):
            self._describe(result, recorded, node)
        elif isinstance(result, list) and isinstance(recorded, (list, tuple)):
            for value, item in zip(result, recorded, strict=False):
                if isinstance(value, (ir.Value, Complex)):
                    self._describe(value, item, node)

    def _describe(self, value: ir.Value | Complex, recorded: Any, node: torch.fx.Node) -> None:
        if isinstance(value, Complex):
            for part in (value.real, value.imag):
                self._describe(part, make_recorded_part(recorded), node)
            return
        if value.producer() is None or (value.shape is not None and value.name):
            return  # an input, a constant, or another FX node's value handed on
        before = value.dtype
        made = value.shape
        self.dimensions.describe(value, recorded)
        if before is not None and value.dtype != before:
            raise TranslationError(
                f"the translation of {node.target} gives {before}, the capture recorded "
                f"{value.dtype}"
            )
        if made is None or value.shape is None:
            return
        if len(made) != len(value.shape):
            raise TranslationError(
                f"the translation of {node.target} gives rank {len(made)}, the capture recorded "
                f"{len(value.shape)}"
            )
        self.op.state.sizes.learn(made, value.shape)

    def _name(self, node: torch.fx.Node, start: int) -> None:
        """Names results after their FX node, and inner values after it and their operator."""
        result = self.values[node]
        if isinstance(result, list):
            for index, value in enumerate(result):
                self._name_result(value, _item_name(node, index))
        else:
            self._name_result(result, node.name)
        for onnx_node in self.op.nodes[start:]:
            self._name_inner(onnx_node, node.name)

    def _name_result(self, result: Any, name: str) -> None:
        if isinstance(result, Complex):
            self._name_result(result.real, f"{name}.real")
            self._name_result(result.imag, f"{name}.imag")
        elif isinstance(result, ir.Value) and result.name is None:
            result.name = self._names.unique(name)
            self.metadata.record_original_name(result, name)

    def _name_inner(self, onnx_node: ir.Node, prefix: str) -> None:
        if FX_NODE in onnx_node.meta:
            return
        for value in onnx_node.outputs:
            if value.name is None:
                value.name = self._names.unique(f"{prefix}.{onnx_node.op_type}")
        if onnx_node.name is None:
            onnx_node.name = f"node_{onnx_node.outputs[0].name}"
        for graph in subgraphs(onnx_node):
            self._name_body(graph, prefix)

    def _name_body(self, graph: ir.Graph, prefix: str) -> None:
        """Renames everything in a subgraph, because onnx_ir's names are unique only within it."""
        for value in graph.inputs:
            value.name = self._names.unique(f"{prefix}.{graph.name}.input")
        for onnx_node in graph:
            if FX_NODE in onnx_node.meta:  # from a body, which has been walked
                continue
            for value in onnx_node.outputs:
                value.name = self._names.unique(f"{prefix}.{onnx_node.op_type}")
            onnx_node.name = f"node_{onnx_node.outputs[0].name}"
            for inner in subgraphs(onnx_node):
                self._name_body(inner, prefix)


def _recorded_value(argument: Any) -> Any:
    """Recorded value of an argument; a list of nodes stays as it is."""
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


def _item_name(node: torch.fx.Node, index: int) -> str:
    """Returns ``split__0``, unless the graph has a name of its own for the item."""
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == index:
            if not user.name.startswith("getitem"):
                return user.name
            break
    return f"{node.name}__{index}"


def _describe_unsupported(target: Any, nodes: Sequence[torch.fx.Node]) -> UnsupportedOperator:
    is_operator = isinstance(target, OpOverload)
    return UnsupportedOperator(
        target=target_name(target),
        schema=str(schema_of(target)) if is_operator else "",
        count=len(nodes),
        locations=list_locations(nodes),
        reason=_explain_unsupported(target, nodes[0]),
        parameters=parameters(target) if is_operator else (),
        stub=write_stub(target) if is_operator else "",
        places=tuple(found for node in nodes if (found := place(node)) is not None),
    )


def _explain_unsupported(target: Any, node: torch.fx.Node) -> str:
    """Known reason why an operator is not translated, and a workaround."""
    if node.target == FUNCTIONALIZED_BY_TORCH:
        return (
            "writes in place, and run_decompositions wrapped the call in a way that cannot be "
            "translated; export the program as torch.export returns it"
        )
    if isinstance(target, HigherOrderOperator):
        return (
            "is a higher-order operator, which calls functions. A function for it in "
            "custom_translation_table, def f(op, *arguments), gets these as Python functions: "
            "called with values they emit their nodes and return their results as a list"
        )
    return NOT_TRANSLATED.get(target, "")


def _add_location(error: Exception, node: torch.fx.Node) -> OnnxExporterError:
    """Returns an error of ours with the FX node, the module and the user's line, added once."""
    if not isinstance(error, OnnxExporterError):
        reason = f"{type(error).__name__}: {error}"
        error = TranslationError(f"the translation of {node.target} failed: {reason}")
    if getattr(error, "node", None) is not None:
        return error
    where = location(node)
    modules = [scope for scope, _ in (node.meta.get("nn_module_stack") or {}).values() if scope]
    lines = [error.message, f"  node    {node.format_node()}"]
    if modules:
        lines.append(f"  module  {modules[-1]}")
    if where is not None:
        lines.append(f"  at      {where.with_code}")
    wrapped = type(error)("\n".join(lines)) if isinstance(error, ConversionError) else error
    if wrapped is not error:
        found = place(node)
        wrapped.cause, wrapped.places = error.message, () if found is None else (found,)
        wrapped.code = error.code
        wrapped.__cause__ = error.__cause__
    wrapped.node = node  # type: ignore[attr-defined]
    return wrapped
