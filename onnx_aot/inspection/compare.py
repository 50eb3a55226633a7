"""Runs the captured graph and the ONNX model on the same inputs and compares every value."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterError, message_of
from onnx_aot.inspection.compared_values import ComparedValue, Origin, Source
from onnx_aot.inspection.comparison import Comparison
from onnx_aot.inspection.differences import OutputDifference, compare_outputs
from onnx_aot.inspection.exact_values import explain_by_rounding
from onnx_aot.inspection.fx_run import run_captured, weight_of
from onnx_aot.inspection.pair_difference import compare_pair, with_remark
from onnx_aot.inspection.precision import least_precise, precision_inside
from onnx_aot.inspection.quantized_values import NEIGHBOURS, rounded_to_neighbours
from onnx_aot.inspection.random_outputs import random_nodes
from onnx_aot.inspection.value_mapping import Pair, Slice, Slices, extract_slice, takes_apart
from onnx_aot.metadata.keys import ORIGINAL_NAME
from onnx_aot.metadata.provenance import location, target_name

__all__ = ["compare_values"]

HELD = 128 * 2**20
"""Bytes of PyTorch's values that may wait until ONNX Runtime computes them too."""

FUSED = "without an ONNX value of their own: fused, folded, merged, or passed through"
IN_BODIES = "inside of branches, loops and regions"
TAKEN = "that PyTorch cannot run node by node; the ONNX model's values were used instead"
OTHERWISE = "captured differently from when the model was exported"
OUTPUTS = "of the model's outputs"


def compare_values(
    program: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    other: Collection[str] = (),
) -> Comparison:
    """Compares every value of an ``ONNXProgram`` with its exported program.

    Args:
        program: The program; its state is not changed.
        args: Positional inputs.
        kwargs: Keyword inputs.
        other: Names that stand for different values in the captured graph and the ONNX model.

    Returns:
        A comparison with a row per value that both have.

    Raises:
        InvalidOptionError: The program has no exported program, or weights without values.
        InferenceError: The arguments do not fit the model, or ONNX Runtime cannot run it.
    """
    if program.exported_program is None:
        raise InvalidOptionError(
            "the program has no exported_program to compare with, for instance because it was "
            "loaded from a file; pass its module: onnx_aot.compare(program, module, args)",
            code="OA607",
        )
    program.release()  # the model may have been edited since it was run
    inputs = {name: tensor.clone() for name, tensor in program._bind_inputs(args, kwargs).items()}
    source = Source(program, inputs, other)
    comparer = _Comparer(source)
    failed = run_captured(program, inputs, source.pairs(), comparer.see)
    comparer.compare_held()
    return Comparison(tuple(comparer.rows), comparer.left_out(failed), source)


def _run_whole(program: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Runs the model, which may come from a file that ONNX Runtime refuses."""
    try:
        outputs: tuple[torch.Tensor, ...] = program._run(inputs)
    except OnnxExporterError:
        raise
    except Exception as error:
        raise InferenceError(
            f"ONNX Runtime cannot run the model: {message_of(error)}", code="OA608"
        ) from error
    return outputs


class _Comparer:
    """Collects PyTorch's values one by one, and compares them in batches of ``HELD`` bytes."""

    def __init__(self, source: Source) -> None:
        program, inputs = source.program, source.inputs
        captured = program.exported_program
        self.rows: list[ComparedValue] = []
        self._source = source
        self._program = program
        self._inputs = inputs
        self._other = source.other
        self._pairs = source.pairs()
        self._random = random_nodes(captured)
        self._precision = least_precise(captured.graph)
        self._slices = Slices(program.model.graph, self._pairs)
        self._pieces = {pair: self._slices.slice_before(pair) for pair in self._pairs}
        self._by_node: dict[torch.fx.Node, list[Pair]] = {}
        self._last_reader: dict[str, int] = {}
        for position, pair in enumerate(self._pairs):
            self._by_node.setdefault(pair.node, []).append(pair)
            for value in self._pieces[pair].inputs:
                self._last_reader[str(value.name)] = position
        self._seen = 0
        self._waiting: list[tuple[Pair, Any]] = []
        self._bytes = 0
        self._held: dict[str, torch.Tensor] = dict(inputs)  # by PyTorch
        self._computed: dict[str, torch.Tensor] = dict(inputs)  # by ONNX Runtime
        self._is_blamed = False
        names = [str(value.name) for value in program.model.graph.outputs]
        self._outputs = dict(zip(names, _run_whole(program, inputs), strict=True))

    def see(self, node: torch.fx.Node, result: Any, by_torch: bool) -> None:
        """Takes a node's result, computed by PyTorch or, if it could not, by the ONNX model."""
        for pair in self._by_node.get(node, ()):
            value = pair.select_from(result)
            if not isinstance(value, (torch.Tensor, bool, int, float)):
                continue
            if by_torch:
                self._waiting.append((pair, value))
            for held, tensor in zip(pair.values, pair.split_parts(value), strict=True):
                self._held[str(held.name)] = tensor
                self._bytes += tensor.nbytes
                if not by_torch:
                    self._computed[str(held.name)] = tensor
        self._seen += len(self._by_node.get(node, ()))
        if self._bytes > HELD:
            self.compare_held()

    def compare_held(self) -> None:
        """Computes the waiting values in ONNX Runtime, and compares them."""
        self._computed.update(self._from_onnx_runtime())
        for pair, expected in self._waiting:
            parts = [self._computed[str(value.name)] for value in pair.values]
            self.rows.append(self._make_row(pair, expected, pair.join_parts(parts)))
        self._waiting.clear()
        self._bytes = 0
        for held in (self._held, self._computed):
            for name in list(held):
                if self._last_reader.get(name, -1) < self._seen:
                    del held[name]

    def _from_onnx_runtime(self) -> dict[str, torch.Tensor]:
        """Computes the waiting values from those computed before, running only the nodes between.

        Every node thus runs once, in however many batches values are compared.
        """
        pairs = [pair for pair, _ in self._waiting]
        names = [str(value.name) for pair in pairs for value in pair.values]
        if not names:
            return {}
        piece = self._slices.slice_before(*pairs)
        given = {str(value.name): self._computed.get(str(value.name)) for value in piece.inputs}
        if any(tensor is None for tensor in given.values()):  # of a node that PyTorch could not run
            found = self._program._inner_values(names, self._inputs)
        else:
            found = _run_slice(self._program, piece, given)
        return dict(zip(names, found, strict=True))

    def left_out(self, failed: Mapping[str, str]) -> dict[str, int]:
        """Numbers of values of the captured graph without a row, by reason."""
        graph_module = self._program.exported_program.graph_module
        calls = [node for node in graph_module.graph.nodes if node.op == "call_function"]
        bodies = [m for m in graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
        inner = sum(n.op == "call_function" for m in bodies for n in m.graph.nodes) - len(calls)
        other = sum(node.name in self._other for node in calls)
        without = sum(
            not (node in self._by_node or node.name in self._other or takes_apart(node))
            for node in calls
        )
        had = {row.onnx_value for row in self.rows}
        outputs = [name for name in self._outputs if name not in had]
        found = {
            FUSED: without,
            IN_BODIES: inner,
            OTHERWISE: other,
            f"{TAKEN}{_first_reason(failed)}": len(self._pairs) - len(self.rows),
            f"{OUTPUTS} ({', '.join(outputs)})": len(outputs),
        }
        return {why: count for why, count in found.items() if count}

    # --- one value -------------------------------------------------------------------------------

    def _make_row(self, pair: Pair, expected: Any, actual: torch.Tensor) -> ComparedValue:
        is_random = pair.node in self._random
        precision = self._precision.get(pair.node)
        exposed = found = compare_pair(pair, expected, actual, is_random, precision)
        origin: Origin = ""
        if pair.onnx_name in self._outputs:  # compare what callers get
            delivered = self._outputs[pair.onnx_name]
            found = compare_pair(pair, expected, delivered, is_random, precision)
        if not found.within:
            origin, remark = self._find_origin(pair, expected, exposed.within)
            found = with_remark(found, remark)
        row = _make_compared_value(pair, found, origin, self._pieces[pair])
        is_output = pair.onnx_name in self._outputs
        return dataclasses.replace(row, random=is_random, output=is_output)

    def _find_origin(self, pair: Pair, expected: Any, is_right_exposed: bool) -> tuple[Origin, str]:
        """Returns the origin of a value that differs, and a remark."""
        if self._is_blamed:
            return "", ""
        if is_right_exposed:
            self._is_blamed = True
            return "runtime", (
                "right when inner values are outputs too, which keeps ONNX Runtime from fusing "
                "nodes around them"
            )
        piece = self._pieces[pair]
        inputs = {str(value.name): self._held.get(str(value.name)) for value in piece.inputs}
        if any(tensor is None for tensor in inputs.values()):
            return "", "its inputs in PyTorch could not be computed"
        try:
            parts = _run_slice(self._program, piece, inputs)
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "")
            return "", f"its nodes do not run alone: {type(error).__name__}: {line}"
        precision = precision_inside(piece)
        alone = compare_pair(pair, expected, pair.join_parts(parts), precision=precision)
        if alone.within:
            return "inherited", f"right from PyTorch's inputs (max abs {alone.max_absolute:.3g})"
        if rounded_to_neighbours(piece, expected, pair.join_parts(parts)):
            return "inherited", NEIGHBOURS
        rounded = explain_by_rounding(
            pair, expected, pair.join_parts(parts), self._source, self._held, inputs
        )
        if rounded:
            return "inherited", rounded
        self._is_blamed = True
        weights = _changed_weights(self._program, piece)
        return "own", "; ".join(weights) or "wrong from PyTorch's inputs too"


def _run_slice(program: Any, piece: Slice, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Runs a slice of a program's model in ONNX Runtime, on inputs by name."""
    alone = type(program)(extract_slice(program.model, piece), origin=program._origin)
    try:
        return tuple(alone._run(inputs))
    finally:
        alone.release()


def _first_reason(failed: Mapping[str, str]) -> str:
    return "".join(f" ({name}: {why})" for name, why in list(failed.items())[:1])


def _make_compared_value(
    pair: Pair, found: OutputDifference, origin: Origin, piece: Slice
) -> ComparedValue:
    entries = (pair.node.meta.get("nn_module_stack") or {}).values()
    stack = [path for path, kind in entries if path != kind]  # equal for entries that torch adds
    where = location(pair.node)
    return ComparedValue(
        fx_node=pair.name,
        operator=_operator_name(pair.node.target),
        onnx_value=pair.onnx_name,
        onnx_operators=tuple(node.op_type for node in piece.nodes),
        module=stack[-1] if stack else "",
        location="" if where is None else where.with_code,
        expected=found.expected,
        actual=found.actual,
        max_absolute=found.max_absolute,
        max_relative=found.max_relative,
        within=found.within,
        origin=origin,
        remark=found.remark,
    )


def _operator_name(target: Any) -> str:
    """Name of the operator that a node calls; Python's name for arithmetic on sizes."""
    is_python = isinstance(target, types.BuiltinFunctionType)
    return str(target.__name__) if is_python else target_name(target)


def _changed_weights(program: Any, piece: Slice) -> list[str]:
    """Describes the weights of a slice whose values differ from the captured program's."""
    captured: torch.export.ExportedProgram = program.exported_program
    targets = {
        spec.arg.name: str(spec.target)
        for spec in captured.graph_signature.input_specs
        if spec.target is not None
    }
    found = []
    for value in piece.initializers:
        target = targets.get(value.metadata_props.get(ORIGINAL_NAME, str(value.name)))
        if target is None or value.const_value is None:
            continue
        expected = weight_of(captured, target)
        if expected.is_complex():
            expected = torch.view_as_real(expected.resolve_conj())
        (stored,) = program._inner_values([str(value.name)], {})
        (differs,) = compare_outputs([target], [expected], [stored])
        if differs.max_absolute or not differs.within:
            found.append(f"its weight {target} is not PyTorch's: {differs.remark or 'rounded'}")
    return found
