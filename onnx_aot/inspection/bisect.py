"""Finds the optimization passes and rules that make a value wrong, by leaving some out."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import torch.fx

from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning
from onnx_aot.inspection.compared_values import ComparedValue, Source
from onnx_aot.inspection.fx_run import run_captured
from onnx_aot.inspection.pair_difference import compare_pair
from onnx_aot.inspection.precision import least_precise
from onnx_aot.inspection.value_mapping import Pair, paired_values

__all__ = ["Bisection", "find_guilty"]


@dataclasses.dataclass(frozen=True)
class Bisection:
    """Result of searching for the passes and rules that make a value wrong.

    Attributes:
        guilty: Names of optimization passes and rules without which the value is right; empty
            if they are not the cause.
        optimize: Argument for ``export(..., optimize=...)`` that makes the model right: the names
            of those that changed the model, without the guilty ones. None if that is not a fix.
        translations: How often the captured program was translated to find this.
        reason: The finding, and what to do, in a sentence or two.
    """

    guilty: tuple[str, ...]
    optimize: frozenset[str] | None
    translations: int
    reason: str

    def __str__(self) -> str:
        return self.reason


def find_guilty(source: Source, row: ComparedValue) -> Bisection:
    """Translates the captured program repeatedly, with fewer passes and rules.

    Args:
        source: The program and inputs that were compared.
        row: A value that is not within its tolerance.

    Raises:
        InvalidOptionError: The program was not exported in this process.
    """
    if source.program._origin is None:
        raise InvalidOptionError(
            "the model was loaded from a file, so its translation cannot be repeated; export "
            "the module again, and call compare().bisect() of the new program",
            code="OA607",
        )
    return _Search(source, row).run()


class _Search:
    def __init__(self, source: Source, row: ComparedValue) -> None:
        program, inputs = source.program, source.inputs
        self._program = program
        self._inputs = inputs
        self._row = row
        self._count = 0
        self._expected: dict[str, Any] = {}
        self._results = {node.name for node in _output_nodes(program)}
        self._precision = least_precise(program.exported_program.graph)
        makers = {p.node.name for p in source.pairs() if p.onnx_name == row.onnx_value}
        wanted = self._results | makers

        def keep(node: torch.fx.Node, result: Any, by_torch: bool) -> None:
            if by_torch and node.name in wanted:
                self._expected[node.name] = result

        run_captured(program, inputs, source.pairs(), keep)

    def run(self) -> Bisection:
        """Searches for names of passes and rules without which the value is right."""
        names = [name for name, times in self._program._origin.passes.items() if times]
        value = self._row.fx_node
        if self._is_right(optimize=frozenset(names)):
            return self._make_bisection(
                f"{value} is right after a new translation and optimization: the model was "
                "changed after its export, or its results vary."
            )
        if not names:
            return self._not_optimization("No optimization pass or rule has changed the model.")
        if not self._is_right(optimize=()):
            return self._not_optimization(f"{value} is also wrong without optimization.")
        guilty: list[str] = []
        left = names
        while not guilty or not self._is_right(optimize=frozenset(left)):
            guilty.append(self._first_that_breaks(left))
            left = [name for name in left if name != guilty[-1]]
        return self._make_bisection(self._fix_for(guilty, left), tuple(guilty), frozenset(left))

    def _first_that_breaks(self, names: Sequence[str]) -> str:
        """Finds the first name that makes the value wrong when added to those before it."""
        right, wrong = 0, len(names)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self._is_right(optimize=frozenset(names[:middle])):
                right = middle
            else:
                wrong = middle
        return names[right]

    def _is_right(self, **changed: Any) -> bool:
        """True if the value, or the outputs if it is gone, is right in another translation."""
        self._count += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxExporterWarning)  # the export gave them already
            other = self._program._origin.translate(**changed)
        pairs = paired_values(other.model.graph, other.exported_program)
        wanted = [pair for pair in pairs if pair.name == self._row.fx_node] or [
            pair for pair in pairs if pair.node.name in self._results
        ]
        return all(
            self._is_within_tolerance(other, pair)
            for pair in wanted
            if pair.node.name in self._expected
        )

    def _is_within_tolerance(self, program: Any, pair: Pair) -> bool:
        names = [str(value.name) for value in pair.values]
        outputs = [str(value.name) for value in program.model.graph.outputs]
        if names[0] in outputs:  # compare what callers get
            parts = [program._run(self._inputs)[outputs.index(names[0])]]
        else:
            parts = program._inner_values(names, self._inputs)
        expected = pair.select_from(self._expected[pair.node.name])
        precision = self._precision.get(pair.node)
        return compare_pair(pair, expected, pair.join_parts(parts), precision=precision).within

    # --- what to say -----------------------------------------------------------------------------

    def _make_bisection(
        self,
        reason: str,
        guilty: tuple[str, ...] = (),
        optimize: frozenset[str] | None = None,
    ) -> Bisection:
        return Bisection(guilty, optimize, self._count, reason)

    def _fix_for(self, guilty: Sequence[str], left: Sequence[str]) -> str:
        optimize = f"{{{', '.join(map(repr, left))}}}" if left else "False"
        return (
            f"{self._row.fx_node} is wrong with {' and '.join(guilty)}, and right without: export "
            f"with optimize={optimize}. A rule that changes values is a bug; please report it."
        )

    def _not_optimization(self, what: str) -> Bisection:
        """Reports a value that is wrong without optimization: by translation, kernel or target."""
        if self._row.origin == "inherited":
            return self._make_bisection(
                f"{what} No value is wrong by itself: rounding adds up. Compare in double "
                "precision, model.double() with inputs of float64, to be sure."
            )
        target = self._program._origin.target
        advice = (
            f"The translation of {self._row.operator} is wrong, or ONNX Runtime's kernel: "
            "isolate() writes the nodes with inputs and a script"
        )
        if target is not None:
            try:
                is_right = self._is_right(optimize=(), target=None)
            except Exception:  # ONNX Runtime refuses to load a model that was not made for it
                is_right = False
            if is_right:
                advice = f"It is right with target=None: an adaptation to {target} makes it wrong"
        return self._make_bisection(f"{what} {advice}.")


def _output_nodes(program: Any) -> list[Any]:
    (output,) = program.exported_program.graph.find_nodes(op="output")
    return [node for node in output.all_input_nodes if node.op != "placeholder"]
