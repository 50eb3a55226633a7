"""Exports a program and compares it with eager PyTorch at every size that both support."""

from __future__ import annotations

import collections
import dataclasses
import re
import warnings
from typing import Any

import onnx_ir as ir
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors
from torch.export.graph_signature import OutputKind

import onnx_aot
from conformance.judging import reports_nan
from onnx_aot.capture.inputs import repeats_elements
from onnx_aot.dimensions.conditions import fulfils_condition
from onnx_aot.errors import OnnxExporterError
from onnx_aot.inspection.differences import add_rounding, compare_outputs
from onnx_aot.inspection.rounding import run_in_double
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_compat import pytree, size_conditions
from tests.properties.captured import Eager, captured_differs
from tests.properties.programs import Program, Sizes
from tests.properties.reduce import reduced

__all__ = ["Checked", "MissingLineError", "check", "reduce_failure"]

EMPTY_REFUSED = {
    *("Einsum", "GRU", "GlobalAveragePool", "GroupNormalization", "InstanceNormalization", "LSTM"),
    *("LayerNormalization", "ReduceMean"),
}
"""ONNX Runtime on empty tensors: rejects norms over the last dimensions, returns 0 for means, and
crashes in the others."""

RUNTIME_ERRORS = (
    runtime_errors.Fail,
    runtime_errors.InvalidArgument,
    runtime_errors.NotImplemented,
    runtime_errors.RuntimeException,
)


class MissingLineError(Exception):
    """A refusal does not name a line of the program."""


@dataclasses.dataclass
class Checked:
    """Outcome of a program.

    Attributes:
        sizes: Number of sizes by outcome.
        refused: Message of the error with which the export refused the program, or "".
    """

    sizes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    refused: str = ""


def check(program: Program) -> Checked:
    """Exports a program and compares it with eager PyTorch.

    Raises:
        AssertionError: A result differs.
        MissingLineError: The export refuses the program without naming a line of it.
        Exception: The export, or ONNX Runtime, fails in another way.
    """
    try:
        exported, warned = _export(program)
    except OnnxExporterError as error:
        if f"{program.file}:" not in str(error):
            raise MissingLineError(f"no line in {type(error).__name__}: {error}") from error
        return Checked(refused=_shorten(error))
    checked = Checked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager's own, such as that of kl_div
        expected = _run_eager(program, exported, program.example)
        try:
            if expected is not None:
                _compare_structure(program, exported)
        except RUNTIME_ERRORS:
            if expected is None or not _has_empty_results(expected):
                raise
        for sizes in program.every_size():
            checked.sizes[_outcome(program, exported, warned, sizes)] += 1
    return checked


def _shorten(error: OnnxExporterError) -> str:
    """The cause of an error, without names and numbers."""
    text = (error.cause or str(error)).partition("\n")[0]
    text = re.sub(r"\d+(, \d+)*|(?<= )'[^']*'|\b\w+ ?\('\w+'\)", "_", text)
    text = re.sub(r", at /\S+", "", text)
    text = re.sub(r"\bdynamic: .*?, axis .*?\) (is \w+ \w+).*", r"dynamic: an axis \1 ...", text)
    return f"{type(error).__name__}: {text[:120]}"


def _outcome(program: Program, exported: Any, warned: list[str], sizes: Sizes) -> str:
    expected = _run_eager(program, exported, sizes)
    if 0 in sizes.values() and _has_refused(exported):
        return "sizes that ONNX Runtime has no kernels for"
    if expected is None:
        return "sizes that eager refuses"
    if 0 in sizes.values() and any("for empty inputs" in text for text in warned):
        return "empty sizes that the export warns of"
    if not _is_inside(program, exported, sizes):
        return "sizes that the capture is not for"
    try:
        return _compare(program, exported, sizes, expected)
    except RUNTIME_ERRORS:  # as verify does: the error comes when it happens
        if 0 in sizes.values() or _has_empty_results(expected):
            return "empty sizes at which ONNX Runtime raises an error"
        raise
    except Exception:
        inputs = pytree.tree_leaves(program.example_inputs(sizes))
        if any("example inputs share memory" in text for text in warned):
            return "sizes of inputs that share memory"
        if any(map(repeats_elements, inputs)) and not any(
            map(repeats_elements, pytree.tree_leaves(program.example_inputs(program.example)))
        ):
            return "sizes of inputs that share memory"
        if _is_reported(exported, program.example_inputs(sizes)):
            return "sizes at which an operator gets NaN"
        if not captured_differs(program, program.example_inputs(sizes), expected):
            raise
    return "sizes at which torch.export's own program differs"


def _has_empty_results(expected: Eager) -> bool:
    return not all(result.numel() for result in expected[0])


def _export(program: Program) -> tuple[Any, list[str]]:
    """Returns the ONNX program and the warnings of the export."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported = onnx_aot.export(
            program.module(),
            program.example_inputs(program.example),
            dynamic_shapes=program.dynamic_shapes(),
            opset_version=program.opset,
        )
    return exported, [str(warning.message) for warning in caught]


def _is_reported(exported: Any, inputs: Any) -> bool:
    """True if the first wrong value is that of an operator whose NaN the report tells of."""
    first = exported.compare(inputs).first
    return first is not None and reports_nan(exported, first, inputs, {})


def _has_refused(exported: Any) -> bool:
    nodes = ir.traversal.RecursiveGraphIterator(exported.model.graph)
    return any(node.op_type in EMPTY_REFUSED for node in nodes)


def _is_inside(program: Program, exported: Any, sizes: Sizes) -> bool:
    """True if the capture supports inputs of these sizes; the report lists its conditions."""
    inputs = program.example_inputs(sizes)
    parameters = [program.inputs[0].name, "others"] if program.others else _names(program)
    arguments = {**dict(zip(parameters, inputs, strict=True))}
    arguments["flat_args"] = pytree.tree_leaves(inputs)  # torch uses either form
    conditions = size_conditions(exported.exported_program)
    return all(fulfils_condition(condition, arguments) is not False for condition in conditions)


def _names(program: Program) -> list[str]:
    return [given.name for given in program.inputs]


def _run_eager(program: Program, exported: Any, sizes: Sizes) -> Eager | None:
    """Returns the module's results, and inputs and buffers afterwards; None if it raises."""
    names = list(map(str, exported.exported_program.graph_signature.user_inputs))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _run(names, program.module(), *program.example_inputs(sizes))
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError, AssertionError, TypeError):
        return None


def _run(names: list[str], module: torch.nn.Module, *inputs: Any) -> Eager:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*inputs))
    results = [torch.as_tensor(leaf) for leaf in leaves if leaf is not None]
    state = dict(zip(names, pytree.tree_leaves(inputs), strict=True))
    return results, {**state, **module.state_dict()}


def _compare_structure(program: Program, exported: Any) -> None:
    """Raises an AssertionError if the program returns other containers than the module."""
    with torch.no_grad():
        expected = program.module()(*program.example_inputs(program.example))
    actual = exported(*program.example_inputs(program.example), structured=True)
    wanted, found = pytree.tree_structure(expected), pytree.tree_structure(actual)
    assert found == wanted, f"returns {found}, and the module {wanted}"


def _compare(program: Program, exported: Any, sizes: Sizes, expected: Eager) -> str:
    results, state = expected
    mutated = [
        str(spec.target)
        for spec in exported.exported_program.graph_signature.output_specs
        if spec.kind != OutputKind.USER_OUTPUT
    ]
    wanted = [*results, *(state[name] for name in mutated)]
    actual = exported(*program.example_inputs(sizes))
    names = [f"result {i}" for i in range(len(results))]
    names += [f"{name} afterwards" for name in mutated]
    differences = compare_outputs(names, wanted, actual)
    if all(difference.within for difference in differences):
        return "sizes compared"
    exact = run_in_double(
        lambda module, args, _: _run(list(state)[: len(program.inputs)], module, *args),
        program.module(),
        program.example_inputs(sizes),
        {},
    )
    if exact is not None:
        precise = [*exact[0], *(exact[1][name] for name in mutated)]
        judged = zip(differences, wanted, actual, precise, strict=True)
        differences = [add_rounding(*pair) for pair in judged]
    if all(difference.right for difference in differences):
        return "sizes at which rounding decides"
    raise AssertionError(
        f"at {dict(sizes)}, exported with {dict(program.example)}:\n"
        f"{format_differences(differences)}\n{exported.model}"
    )


def reduce_failure(program: Program, error: Exception) -> Program:
    """Removes from a program what is not needed for its failure."""
    return reduced(program, lambda smaller: _fails(smaller, type(error)))


def _fails(program: Program, error: type[Exception]) -> bool:
    """True if a program that eager accepts fails in the same way."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.module()(*program.example_inputs(program.example))
    except Exception:
        return False
    try:
        check(program)
    except error:
        return True
    except Exception:
        return False
    return False
