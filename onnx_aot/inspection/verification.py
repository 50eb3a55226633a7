"""Result of comparing an exported model with PyTorch, as an object, text and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from onnx_aot.errors import SourceLocation, VerificationError
from onnx_aot.inspection.differences import OutputDifference, SizeResult

__all__ = [
    "Blame",
    "OtherWeights",
    "Verification",
    "as_json",
    "describe_sizes",
    "format_differences",
    "format_results",
    "make_error",
]

SCHEMA = 1
"""Version of the format that ``to_json`` writes."""

NAMES = {"onnxruntime": "ONNX Runtime", "reference": "ONNX's reference implementation"}

ROUNDED = "exceed the tolerance by rounding, PyTorch's own as much as the ONNX model's"

COMPARE = "export without verify=True, and program.compare() shows the first value that differs"
WIDEN = (
    "if no value is wrong by itself, export model.double() with float64 inputs and verify that: it "
    "is right if rounding alone makes the difference"
)
SOME_ROUNDING = 0.1
"""Error of PyTorch's own result, in multiples of the tolerance, from which rounding may matter."""

NARROW = (
    "if the model is not meant for a size that failed, leave it out with "
    "torch.export.Dim(name, min=..., max=...)"
)


NAMES_OF_WEIGHTS = 5
"""Number of weights that a message names."""


@dataclasses.dataclass(frozen=True)
class OtherWeights:
    """Weights in which the two models differ, so that their outputs cannot be compared.

    Attributes:
        names: Parameters and buffers of the module whose values are other than in the ONNX model.
        compared: Number of weights that both models have with the same type and shape.
    """

    names: tuple[str, ...]
    compared: int

    def __str__(self) -> str:
        shown = ", ".join(self.names[:NAMES_OF_WEIGHTS])
        more = ", ..." if len(self.names) > NAMES_OF_WEIGHTS else ""
        return (
            f"{len(self.names)} of {self.compared} weights have other values than in the PyTorch "
            f"model, so the outputs differ too: {shown}{more}\n"
            "fix: build the PyTorch model with the weights that were exported. Call "
            "torch.manual_seed(0) where it is made, before its layers are, and export it again; or "
            "load a checkpoint there, model.load_state_dict(...)"
        )


@dataclasses.dataclass(frozen=True)
class Verification:
    """A model compared with PyTorch at one or several sizes.

    Its text has a line per set of sizes and a line per output beyond its tolerance, with the
    largest difference, its position and the number of elements; the first that is wrong has a
    histogram. An output beyond its tolerance is right if PyTorch's own result is about as far from
    PyTorch's result in float64 as the ONNX model's is. If outputs differ since the models have
    other weights, the text names the weights instead.

    Attributes:
        results: One per set of sizes, the example's first.
        runtime: The runtime that ran the model: ``"onnxruntime"`` or ``"reference"``.
        other_weights: The weights in which the models differ, if outputs do; None if in none.
    """

    results: tuple[SizeResult, ...]
    runtime: str = "onnxruntime"
    other_weights: OtherWeights | None = None

    @property
    def ok(self) -> bool:
        """True if every output agrees at every size that PyTorch accepts.

        A runtime that refuses empty inputs is not a failure.
        """
        return not any(result.failed for result in self.results)

    def __str__(self) -> str:
        verdict = "agrees with" if self.ok else "differs from"
        head = f"the ONNX model {verdict} PyTorch (in {NAMES[self.runtime]})"
        found = self.other_weights
        shown = format_results(self.results, self.runtime) if found is None else str(found)
        return f"{head}:\n{_indent(shown)}"

    def to_json(self) -> str:
        """Returns JSON with ``ok``, ``runtime`` and all fields of weights and results.

        ``schema`` is the version of the format. Numbers that are not finite are the strings
        ``"inf"`` and ``"nan"``.
        """
        head = {"schema": SCHEMA, "ok": self.ok, "runtime": self.runtime}
        weights = as_json(self.other_weights)
        found = {**head, "other_weights": weights, "results": as_json(self.results)}
        return json.dumps(found, indent=2)


def as_json(value: Any) -> Any:
    """Converts a result to JSON types: dicts, lists, strings, finite numbers, booleans, None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: as_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, float) and (value - value) != 0:
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def format_differences(differences: Sequence[OutputDifference]) -> str:
    """Formats a line per output."""
    return "\n".join(
        f"{'ok  ' if d.right else 'FAIL'} {d.name}: max abs {d.max_absolute:.3g}, "
        f"max rel {d.max_relative:.3g}, PyTorch {d.expected}, ONNX {d.actual}"
        + (f"; {d.details}" if d.details else "")
        for d in differences
    )


def format_results(results: Sequence[SizeResult], runtime: str = "onnxruntime") -> str:
    """Formats a line per set of sizes and per output beyond its tolerance.

    The first that is wrong has a histogram.
    """
    lines, shown = [], False
    for result in results:
        lines.append(f"{describe_sizes(result)}: {_describe_verdict(result, runtime)}")
        for difference in result.differences:
            if not difference.within:
                lines.append("  " + format_differences([difference]))
                if not shown and not difference.right:
                    lines += ["    " + line for line in difference.bars.splitlines()]
                    shown = True
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Blame:
    """Explains why a model's outputs differ.

    Attributes:
        cause: The cause, in a sentence.
        places: The user's lines that it concerns.
        fix: The fix.
    """

    cause: str
    places: tuple[SourceLocation, ...]
    fix: str


def make_error(results: Sequence[SizeResult], blame: Blame | None = None) -> VerificationError:
    """Returns the error to raise if the ONNX model failed at one of the sizes.

    Args:
        results: Results, of which at least one failed.
        blame: The cause, if it is known.
    """
    failed = next(result for result in results if result.failed)
    where = "on the example inputs" if failed.is_example else "at sizes other than the example's"
    what = f"the ONNX model answers differently from PyTorch {where}"
    fixes = [COMPARE if blame is None else blame.fix]
    rounded = [d.rounding for d in failed.differences if d.rounding and not d.right]
    if blame is None and any(rounding.torch_largest > SOME_ROUNDING for rounding in rounded):
        fixes.append(WIDEN)
    if not failed.is_example:
        fixes.append(NARROW)
    lines = [f"{what}:", _indent(format_results(results))]
    if blame is not None:
        lines.append(f"cause: {blame.cause}")
        lines += [f"  at {place}" for place in blame.places[:3]]
    lines.append(f"fix: {'; or '.join(fixes)}")
    return VerificationError(
        "\n".join([*lines, "Nothing was saved."]),
        cause=blame.cause if blame is not None else f"{what}: {_summarize_result(failed)}",
        places=() if blame is None else blame.places,
        fix="; or ".join(fixes),
    )


def _summarize_result(result: SizeResult) -> str:
    """Describes the first difference of a result in one line."""
    wrong = next((d for d in result.differences if not d.right), None)
    what = (
        _describe_verdict(result, "onnxruntime")
        if wrong is None
        else f"{wrong.name}: {wrong.remark}"
    )
    return f"{describe_sizes(result)}: {what}"


def describe_sizes(result: SizeResult) -> str:
    """Formats the sizes of a result, such as ``n=4, m=6 (example)``."""
    sizes = ", ".join(f"{name}={size}" for name, size in result.sizes.items())
    if not result.is_example:
        return sizes
    return f"{sizes} (example)" if sizes else "example"


def _describe_verdict(result: SizeResult, runtime: str) -> str:
    if result.torch_refuses:
        return f"PyTorch refuses: {result.torch_refuses}"
    if result.runtime_refuses:
        return f"{NAMES[runtime]} refuses, PyTorch does not: {result.runtime_refuses}"
    wrong = sum(not difference.right for difference in result.differences)
    if wrong:
        return f"{wrong} of {len(result.differences)} outputs differ"
    rounded = sum(not difference.within for difference in result.differences)
    return f"ok; {rounded} of {len(result.differences)} outputs {ROUNDED}" if rounded else "ok"


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
