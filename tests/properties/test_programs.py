"""Random programs, exported once, match eager PyTorch at every size."""

from __future__ import annotations

import collections
import random
import warnings
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.export.graph_signature import OutputKind

import onnx_aot
from onnx_aot.dimensions.conditions import fulfils_condition
from onnx_aot.errors import CaptureError, DynamicShapeError, FunctionalizationError
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_compat import size_conditions
from tests.properties.captured import Eager, captured_differs
from tests.properties.generate import generate
from tests.properties.programs import Program, Sizes
from tests.properties.reduce import reduced

REFUSALS = (CaptureError, DynamicShapeError, FunctionalizationError)
"""Expected errors: torch.export fixes a size, or the written view has no inverse (windows)."""

EMPTY_REFUSED = {"Einsum", "GlobalAveragePool", "LayerNormalization", "ReduceMean"}
"""ONNX Runtime on empty tensors: rejects norms, returns 0 for means, and crashes in Einsum."""

OUTCOMES: collections.Counter[str] = collections.Counter()
"""Outcomes of the programs, for the summary at the end of the run."""


@settings(
    phases=(Phase.explicit, Phase.generate),  # programs are reduced by leaving lines out
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.randoms(use_true_random=True))
def test_programs_equal_eager(random: random.Random) -> None:
    program = generate(random)
    try:
        outcomes = check(program)
    except Exception as error:
        OUTCOMES["failures"] = 1  # the reduced program runs again to be shown
        kind = type(error)
        check(reduced(program, lambda smaller: _fails(smaller, kind)))  # shows the reduced program
        raise
    OUTCOMES.update(programs=1, **outcomes)


def _fails(program: Program, error: type[Exception]) -> bool:
    """True if a program that eager accepts fails in the same way."""
    if _eager(program, program.example_inputs(program.example)) is None:
        return False
    try:
        check(program)
    except error:
        return True
    except Exception:
        return False
    return False


def check(program: Program) -> collections.Counter[str]:
    """Exports a program and compares it with eager at every size that both support.

    Returns:
        Numbers of comparisons, and of skipped ones by reason.
    """
    try:
        exported, warned = _exported(program)
    except REFUSALS as error:
        return collections.Counter({f"refused with {type(error).__name__}": 1})
    outcomes: collections.Counter[str] = collections.Counter()
    for sizes in program.every_size():
        inputs = program.example_inputs(sizes)
        expected = _eager(program, inputs)
        if 0 in sizes.values() and _has_refused(exported):
            outcomes["sizes that ONNX Runtime has no kernels for"] += 1
        elif expected is None:
            outcomes["sizes that eager refuses"] += 1
        elif 0 in sizes.values() and any("for empty inputs" in text for text in warned):
            outcomes["empty sizes that the export warns of"] += 1
        elif not _inside(program, exported, inputs):
            outcomes["sizes that the capture is not for"] += 1
        else:
            try:
                _compare(program, exported, sizes, inputs, expected)
            except Exception:
                if not captured_differs(program, inputs, expected):
                    raise
                outcomes["sizes at which torch.export's own program differs"] += 1
            else:
                outcomes["sizes compared"] += 1
    return outcomes


def _exported(program: Program) -> tuple[Any, list[str]]:
    """Returns the ONNX program and the warnings of the export.

    Raises:
        CaptureError, DynamicShapeError: torch.export cannot keep its dimensions dynamic.
        FunctionalizationError: The program writes through a view that has no inverse.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported = onnx_aot.export(
            program.module(),
            program.example_inputs(program.example),
            dynamic_shapes=program.dynamic_shapes(),
        )
    return exported, [str(warning.message) for warning in caught]


def _has_refused(exported: Any) -> bool:
    return any(node.op_type in EMPTY_REFUSED for node in exported.model.graph)


def _inside(program: Program, exported: Any, inputs: tuple[torch.Tensor, ...]) -> bool:
    """True if the capture supports inputs of these sizes; the report lists its conditions."""
    given = {i.name: tensor for i, tensor in zip(program.inputs, inputs, strict=True)}
    arguments = {**given, "flat_args": inputs}  # torch uses either form
    conditions = size_conditions(exported.exported_program)
    return all(fulfils_condition(condition, arguments) is not False for condition in conditions)


def _eager(program: Program, inputs: tuple[torch.Tensor, ...]) -> Eager | None:
    """Returns the module's results, and inputs and buffers afterwards; None if it raises."""
    module = program.module()
    copies = tuple(tensor.clone() for tensor in inputs)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = module(*copies)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        return None
    results = [leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in returned]
    state = {i.name: tensor for i, tensor in zip(program.inputs, copies, strict=True)}
    return results, {**state, **module.state_dict()}


def _compare(
    program: Program,
    exported: Any,
    sizes: Sizes,
    inputs: tuple[torch.Tensor, ...],
    expected: Eager,
) -> None:
    results, state = expected
    mutated = [
        spec.target
        for spec in exported.exported_program.graph_signature.output_specs
        if spec.kind != OutputKind.USER_OUTPUT
    ]
    wanted = [*results, *(state[str(name)] for name in mutated)]
    actual = exported(*inputs)
    names = [*program.returned, *(f"{name} afterwards" for name in mutated)]
    differences = compare_outputs(names, wanted, actual)
    if not all(difference.within for difference in differences):
        raise AssertionError(
            f"at {dict(sizes)}, exported with {dict(program.example)}:\n{program!r}\n"
            f"{program.source()}\n{format_differences(differences)}\n{exported.model}"
        )
