"""Collects the constraints on input sizes, and emits nodes that fail if one is violated."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.builder.builder import Builder
from onnx_aot.builder.checks import guard
from onnx_aot.dimensions import conditions
from onnx_aot.dimensions.expressions import Texts
from onnx_aot.dimensions.symbols import Dimensions, range_of
from onnx_aot.errors import warn
from onnx_aot.graph.names import Names
from onnx_aot.metadata.keys import ORIGINAL_NAME
from onnx_aot.ops.control import symbolic_arithmetic
from onnx_aot.torch_compat import SIZE_TERM, size_conditions, symbolic_expression

__all__ = ["Constraints", "collect_constraints", "emit_checks"]

# Operators that only reshape; ONNX Runtime and others may merge them with a reshape before them.
RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Constraints on the sizes of a model's inputs.

    Terms are ``<input>.shape[<axis>]``, and names of inputs that are numbers.

    Attributes:
        terms: Every term whose value is not fixed.
        ranges: ``min`` and ``max`` of dimensions that have them, by dimension name.
        bounds: The ranges as ``(condition, name)``, on the first input that has the dimension.
        equal: ``(condition, name)`` of inputs that share a dimension.
        relations: How sizes depend on others, such as ``2*n``, and ranges of numbers.
        conditions: Other guards of the capture. Many do not matter to an ONNX model.
        unknown: Guards on something other than an input size, as torch writes them.
    """

    terms: tuple[str, ...]
    ranges: dict[str, dict[str, int]]
    bounds: tuple[tuple[str, str], ...]
    equal: tuple[tuple[str, str], ...]
    relations: tuple[str, ...]
    conditions: tuple[str, ...]
    unknown: tuple[str, ...]


def collect_constraints(
    program: torch.export.ExportedProgram, inputs: Sequence[ir.Value], dimensions: Dimensions
) -> Constraints:
    """Collects the constraints of a captured program.

    Args:
        program: The captured program.
        inputs: The graph's inputs.
        dimensions: Names of its dimensions.
    """
    return _Collector(program, inputs, dimensions).collect()


class _Collector:
    def __init__(
        self,
        program: torch.export.ExportedProgram,
        inputs: Sequence[ir.Value],
        dimensions: Dimensions,
    ) -> None:
        self.program = program
        self.dimensions = dimensions
        shown = {v.metadata_props.get(ORIGINAL_NAME, str(v.name)): str(v.name) for v in inputs}
        self.recorded = _user_inputs(program)
        self.names = {name: shown[name] for name in self.recorded if name in shown}
        self.terms: list[str] = []
        self.first: dict[str, str] = {}
        self.limits: dict[str, tuple[str, dict[str, int]]] = {}
        self.equal: list[tuple[str, str]] = []
        self.derived: list[tuple[str, Any]] = []

    def collect(self) -> Constraints:
        for name, recorded in self.recorded.items():
            if name not in self.names:
                continue
            if isinstance(recorded, torch.Tensor):
                for axis, size in enumerate(recorded.shape):
                    self._enter(f"{self.names[name]}.shape[{axis}]", size)
            else:
                self._enter(self.names[name], recorded)
        ranges = self._collect_ranges()
        bounds = []
        of_numbers = []
        for term, (name, limits) in self.limits.items():
            is_size = term.endswith("]")
            texts = [f"{term} >= {limits['min']}"] if "min" in limits else []
            texts = texts if not is_size or limits.get("min", 0) > 0 else []
            texts += [f"{term} <= {limits['max']}"] if "max" in limits else []
            if is_size:
                bounds += [(text, name) for text in texts]
            else:
                of_numbers += texts
        relations = (*of_numbers, *self._collect_relations())
        found, unknown = self._collect_conditions(relations)
        return Constraints(
            tuple(self.terms),
            ranges,
            tuple(bounds),
            tuple(self.equal),
            relations,
            found,
            unknown,
        )

    def _collect_ranges(self) -> dict[str, dict[str, int]]:
        """Ranges of dimensions by name; the range of each term is stored in ``limits``."""
        ranges = {}
        roots = {str(expression): term for term, expression in self.derived}
        for expression, interval in self.program.range_constraints.items():
            term = self.first.get(str(expression))
            if term is None and not {str(s) for s in expression.free_symbols} <= self.first.keys():
                term = roots.get(str(expression))  # n itself is not an input size, 2*n is
            if term is not None:
                name, limits = self.dimensions.text(expression), range_of(interval)
                self.limits[term] = name, limits
                if term.endswith("]"):
                    ranges[name] = limits
        return ranges

    def _enter(self, term: str, size: Any) -> None:
        if not isinstance(size, torch.SymInt):
            return
        expression = symbolic_expression(size)
        if getattr(expression, "is_number", False):
            return
        self.terms.append(term)
        if not getattr(expression, "is_Symbol", False):
            self.derived.append((term, expression))
            return
        first = self.first.setdefault(str(expression), term)
        if first != term:
            self.equal.append((f"{term} == {first}", self.dimensions.text(expression)))

    def _collect_relations(self) -> list[str]:
        """Relations for dimensions that the user derived from others."""
        relations = []
        texts = Texts(lambda symbol: self._placeholder(self.first[symbol]))
        for term, expression in self.derived:
            symbols = {str(symbol) for symbol in expression.free_symbols}
            if symbols <= self.first.keys():
                relation = f"{self._placeholder(term)} == {texts.text(expression)}"
                relations.append(self._write_condition(relation))
        return relations

    def _collect_conditions(
        self, relations: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Guards of the capture that nothing else implies, and those that cannot be expressed."""
        found: dict[str, None] = {}
        unknown = []
        for code in size_conditions(self.program):
            try:
                text = self._write_condition(SIZE_TERM.sub(self._replace_term, code))
                if (
                    text not in relations
                    and not self._is_implied(text)
                    and not self._is_shared_dimension(text)
                ):
                    found[text] = None
            except (KeyError, ValueError):
                unknown.append(code)
        return tuple(found), tuple(unknown)

    def _is_implied(self, text: str) -> bool:
        """True if a condition compares a size with a number and the size's range implies it."""
        match = re.fullmatch(r"(.+) (>=|>|!=|<=|<) (\d+)", text)
        if match is None or match[1] not in self.limits:
            return False
        number, (_, limits) = int(match[3]), self.limits[match[1]]
        least, most = limits.get("min", 0), limits.get("max", number + 1)
        implied = {">": least > number, ">=": least >= number, "!=": least > number}
        return implied.get(match[2], most < number or (match[2] == "<=" and most == number))

    def _is_shared_dimension(self, text: str) -> bool:
        """True if a condition says that two inputs share a dimension, as their shapes do."""
        left, _, right = text.partition(" == ")
        same = {condition for condition, _ in self.equal}
        return text in same or f"{right} == {left}" in same

    def _placeholder(self, term: str) -> str:
        return f"_{self.terms.index(term)}_"

    def _write_condition(self, text: str) -> str:
        return conditions.unparse(conditions.parse(text, []), self.terms)

    def _replace_term(self, match: re.Match[str]) -> str:
        """The term for ``L['x'][0].size()[1]``; torch joins the keys to form the input's name."""
        keys = "_".join(key for key in re.split(r"[\W]+", match[1] + match[2].lower()) if key)
        name = self.names[keys if keys in self.names else match[1]]
        term = name if match[3] is None else f"{name}.shape[{match[3]}]"
        if term not in self.terms:
            raise KeyError(term)
        return self._placeholder(term)


def _user_inputs(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """Recorded values of the inputs that are not constants, by the capture's names."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return {
        spec.arg.name: nodes[spec.arg.name].meta["val"]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)
    }


# --- nodes ---------------------------------------------------------------------------------------


def emit_checks(
    op: Builder,
    wanted: Constraints,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    names: Names,
) -> list[ir.Value]:
    """Emits nodes that make the model fail if an input constraint or an assertion is violated.

    Checks of inputs precede all other nodes, which get the inputs only after the checks passed.
    Outputs wait for the assertions inside the model (``op.check``).

    Args:
        op: Holds the nodes of the model.
        wanted: The constraints on the inputs.
        inputs: The graph's inputs.
        outputs: Its outputs; the returned list replaces those that have to wait for checks.
        names: Names of the graph's values.

    Before::

        y = Relu(x)

    After::

        d = Squeeze(Shape(x, start=0, end=1))
        c = Reshape([0], [1 + Cast(Not(d <= 512))])         named "check: x.shape[0] <= 512 (n)"
        y = Relu(Reshape(x, Expand(c, [rank])))             zeros: the shape that x has
    """
    by_name = {str(value.name): value for value in inputs}
    uses = {value: tuple(value.uses()) for value in inputs}
    for text in wanted.unknown:
        warn(f"runtime_checks cannot check a condition of the capture: {text}", "OA205")
    if op.state.has_checks:
        outputs = _guard_outputs(op, outputs, names)
        op.state.last_check = None
    translated, op.state.nodes = op.nodes, []
    op.result = None
    sizes = _Sizes(op, wanted.terms, by_name)
    others = [(text, "") for text in (*wanted.relations, *wanted.conditions)]
    for text, about in (*wanted.bounds, *wanted.equal, *others):
        try:
            value = sizes.emit(text)
        except ValueError as error:
            warn(f"runtime_checks cannot check {text}: it has {error}", "OA205")
            continue
        op.check(value, f"{text} ({about})" if about else text)
    waiting = set()
    if op.state.has_checks:
        for value, readers in uses.items():
            computing = [use for use in readers if use.node.op_type != "Shape"]
            dynamic = value.shape is not None and not value.shape.is_static()
            if computing and (dynamic or not len(value.shape or ())):
                reshaped = any(use.node.op_type in RESHAPING for use in computing)
                passed = guard(op, value, copied=reshaped)
                waiting.add(passed)
                for use in computing:
                    use.node.replace_input_with(use.idx, passed)
    _name(op.nodes, names)
    op.nodes.extend(translated)
    if not op.state.has_checks:
        return list(outputs)
    for node in translated:
        if not waiting.isdisjoint(node.inputs):
            waiting.update(node.outputs)
    return _guard_outputs(op, outputs, names, waiting)


def _guard_outputs(
    op: Builder, outputs: Sequence[ir.Value], names: Names, waiting: Collection[ir.Value] = ()
) -> list[ir.Value]:
    """Makes outputs wait until the checks have passed; those in ``waiting`` do so already."""
    start = len(op.nodes)
    guarded = []
    for output in outputs:
        if output in waiting:
            guarded.append(output)
            continue
        name, output.name = output.name, names.unique(f"{output.name}.unchecked")
        passed = guard(op, output, copied=True)
        passed.name = name
        op.nodes[-1].name = f"node_{name}.checked"
        passed.metadata_props.update(output.metadata_props)
        guarded.append(passed)
    _name(op.nodes[start:], names)
    return guarded


def _name(nodes: Sequence[ir.Node], names: Names) -> None:
    for node in nodes:
        for value in node.outputs:
            if value.name is None:
                value.name = names.unique(f"check.{node.op_type}")
        if node.name is None:
            node.name = f"node_{node.outputs[0].name}"


class _Sizes(conditions.Interpreter):
    """Emits conditions: terms are 0-d INT64 values, conditions BOOL ones."""

    def __init__(self, op: Builder, terms: Sequence[str], inputs: dict[str, ir.Value]) -> None:
        super().__init__(self._emit_size)
        self._op = op
        self._terms = list(terms)
        self._inputs = inputs
        self._known: dict[int, ir.Value] = {}

    def emit(self, text: str) -> Any:
        """Emits a condition and returns it, a 0-d BOOL value."""
        return self.evaluate(conditions.parse(text, self._terms))

    def _emit_size(self, index: int) -> ir.Value:
        known = self._known.get(index)
        if known is None:
            match = re.fullmatch(r"(.*)\.shape\[(\d+)\]", self._terms[index], re.DOTALL)
            if match is None:
                known = self._inputs[self._terms[index]]
            else:
                axis = int(match[2])
                one = self._op.Shape(self._inputs[match[1]], start=axis, end=axis + 1)
                known = self._op.Squeeze(one, [0])
            self._known[index] = known
        return known

    def apply(self, kind: type[ast.AST], *operands: Any) -> Any:
        if not any(isinstance(operand, ir.Value) for operand in operands):
            return super().apply(kind, *operands)
        emit = _APPLIED.get(kind)
        if emit is None:
            raise ValueError(kind.__name__)
        return emit(self._op, *operands)

    def call(self, name: str, operands: list[Any]) -> Any:
        if not any(isinstance(operand, ir.Value) for operand in operands):
            return super().call(name, operands)
        emit = _CALLED.get(name)
        if emit is None:
            raise ValueError(name)
        if name in ("max", "min"):
            result = operands[0]
            for operand in operands[1:]:
                result = emit(self._op, result, operand)
            return result
        return emit(self._op, *operands)

    def invert(self, operand: Any) -> Any:
        return self._op.Not(operand) if isinstance(operand, ir.Value) else not operand

    def join(self, every: bool, operands: list[Any]) -> Any:
        values = [operand for operand in operands if isinstance(operand, ir.Value)]
        known = [bool(operand) for operand in operands if not isinstance(operand, ir.Value)]
        if not values or (every and not all(known)) or (not every and any(known)):
            return super().join(every, known)
        result = values[0]
        for value in values[1:]:
            result = self._op.And(result, value) if every else self._op.Or(result, value)
        return result

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        if not isinstance(condition, ir.Value):
            return then if condition else otherwise
        return symbolic_arithmetic.sym_ite(self._op, condition, then, otherwise)


_APPLIED: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: symbolic_arithmetic.sym_add,
    ast.Sub: symbolic_arithmetic.sym_sub,
    ast.Mult: symbolic_arithmetic.sym_mul,
    ast.FloorDiv: symbolic_arithmetic.sym_floordiv,
    ast.Div: symbolic_arithmetic.sym_truediv,
    ast.Mod: symbolic_arithmetic.sym_mod,
    ast.Pow: symbolic_arithmetic.sym_pow,
    ast.USub: symbolic_arithmetic.sym_neg,
    ast.Eq: symbolic_arithmetic.sym_eq,
    ast.NotEq: symbolic_arithmetic.sym_ne,
    ast.Lt: symbolic_arithmetic.sym_lt,
    ast.LtE: symbolic_arithmetic.sym_le,
    ast.Gt: symbolic_arithmetic.sym_gt,
    ast.GtE: symbolic_arithmetic.sym_ge,
}
_CALLED: dict[str, Callable[..., Any]] = {
    "abs": symbolic_arithmetic.sym_abs,
    "ceil": symbolic_arithmetic.sym_ceil,
    "float": symbolic_arithmetic.sym_float,
    "floor": symbolic_arithmetic.sym_floor,
    "int": symbolic_arithmetic.sym_trunc,
    "log2": symbolic_arithmetic.sym_log2,
    "max": symbolic_arithmetic.sym_max,
    "min": symbolic_arithmetic.sym_min,
    "round": symbolic_arithmetic.sym_round,
    "sqrt": symbolic_arithmetic.sym_sqrt,
    "sym_float": symbolic_arithmetic.sym_float,
    "sym_max": symbolic_arithmetic.sym_max,
    "sym_min": symbolic_arithmetic.sym_min,
    "trunc": symbolic_arithmetic.sym_trunc,
}
assert _CALLED.keys() == conditions.CALLS.keys()
