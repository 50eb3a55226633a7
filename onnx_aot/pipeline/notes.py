"""Compares what was asked for with what was delivered; each difference is a note to the user."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from torch.export.graph_signature import OutputKind

from onnx_aot.errors import DynamicShapeError
from onnx_aot.metadata.keys import OUTPUT_KIND, STATE
from onnx_aot.options import Options
from onnx_aot.pipeline.recording import Note

if TYPE_CHECKING:
    import torch

    from onnx_aot.capture.attempts import Captured
    from onnx_aot.capture.sizes.dynamic_shapes import DynamicShapes
    from onnx_aot.capture.sizes.guards import Decision
    from onnx_aot.capture.sizes.known_values import Reading
    from onnx_aot.inspection.differences import SizeResult
    from onnx_aot.ir_passes import Outcome
    from onnx_aot.program.program import ONNXProgram

__all__ = [
    "check_delivered",
    "check_dimensions",
    "describe_capture",
    "describe_dimensions",
    "describe_dropped_state",
    "describe_inline_calls",
    "describe_left_to_model",
    "describe_not_verified",
    "describe_rounding",
    "describe_shared_inputs",
    "describe_training",
    "describe_undone_passes",
]


def describe_capture(captured: Captured, options: Options) -> list[Note]:
    """Notes about how a model was captured."""
    from onnx_aot.capture.reuse import describe_reuse
    from onnx_aot.capture.sizes.validating_branches import describe_validations

    left_out = describe_validations(captured.validations, kept=options.runtime_checks)
    notes = [Note(text, code) for code, text in captured.warnings.items()]
    if captured.retried is not None:
        notes.append(Note(captured.retried, "OA407"))
    if left_out is not None:
        # For data that the model takes, the answers are the same; checks that were asked for and
        # are missing are another matter.
        missing = any(v.raises and not v.asserted for v in captured.validations)
        notes.append(Note(left_out, "OA102", quiet=not (options.runtime_checks and missing)))
    notes += [
        Note(f"switched off with this release of torch: {off}", "OA016", quiet=True)
        for off in captured.off
    ]
    if captured.resized:
        notes.append(
            Note(
                "the sizes of the example would have fixed dimensions, and the model was captured "
                f"with others: {'; '.join(captured.resized)}. The result was checked at the sizes "
                "of the example",
                "OA201",
                quiet=True,
            )
        )
    if captured.joined:
        notes.append(
            Note(
                "the model branches on sizes, and the ONNX model has a capture for each branch, in "
                f"If nodes: {'; '.join(captured.joined)}. They share the weights",
                "OA205",
                quiet=True,
            )
        )
    if captured.above_zero:
        notes.append(
            Note(
                "the model asks for the larger of two sizes, or whether one is 0, and was captured "
                "for sizes above 0; for empty inputs it may differ from PyTorch. Exclude "
                "0 with torch.export.Dim(name, min=1)",
                "OA206",
            )
        )
    if captured.readings:
        notes.append(Note(_describe_readings(captured.readings), "OA105", quiet=True))
    if captured.reused:
        notes.append(Note(describe_reuse(captured.reused), "OA126", quiet=True))
    branches = dict.fromkeys(
        f"{decision.location}: {decision.location.text}"
        for decision in captured.decisions
        if decision.kind == "both" and decision.location is not None
    )
    if branches:
        notes.append(
            Note(
                "the model branches on its data, and the ONNX model has both sides, as If nodes: "
                f"{'; '.join(branches)}",
                "OA101",
                quiet=True,
            )
        )
    if captured.rolled:
        notes.append(
            Note(
                "Python loops over a dynamic size became one loop of the ONNX model, and were "
                f"compared with the model at several sizes: {'; '.join(captured.rolled)}",
                "OA103",
                quiet=True,
            )
        )
    if captured.drawn:
        notes.append(
            Note(
                f"the model draws random numbers with {' and '.join(captured.drawn)}; the numbers "
                "drawn during the capture are constants of the ONNX model. Draw with torch.rand "
                "and similar functions, or pass them to forward",
                "OA124",
            )
        )
    if captured.seeded:
        notes.append(
            Note(
                "forward sets the seed of torch's random numbers, and draws after it: "
                f"{'; '.join(line.cited for line in captured.seeded)}. PyTorch draws the same "
                "numbers at each call, and the ONNX model other ones. Draw them once, outside of "
                "forward: keep them in a buffer, or pass them as an input",
                "OA127",
            )
        )
    return notes


def _describe_readings(readings: Sequence[Reading]) -> str:
    shown = [str(reading) for reading in readings[:READINGS_SHOWN]]
    more = len(readings) - len(shown)
    return (
        "the model's code reads numbers from its weights and attributes, which the ONNX model has "
        f"as they were at the export: {'; '.join(shown)}" + (f"; and {more} more" if more else "")
    )


READINGS_SHOWN = 20


def describe_training(operators: Sequence[str]) -> list[Note]:
    """Notes operators that behave differently in training mode, if there are any."""
    if not operators:
        return []
    return [
        Note(
            f"the model was captured in training mode: {', '.join(operators)} behave as they do in "
            "training. Call model.eval() first for inference",
            "OA123",
        )
    ]


def describe_dimensions(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    options: Options,
    captured: Captured | None = None,
) -> list[Note]:
    """Notes dimensions that differ from what was asked for, right after the capture.

    Args:
        program: The captured program.
        requested: Dimensions that were asked for, less those that were given up.
        options: The other options.
        captured: Result of the capture, with the user's lines; None if the user did the capture.
    """
    from onnx_aot.capture.sizes.captured_dimensions import dimension_names
    from onnx_aot.capture.sizes.size_branches import describe_branches
    from onnx_aot.capture.sizes.specialization import describe_limits, describe_relations
    from onnx_aot.capture.sizes.squeezes import dynamic_squeezes
    from onnx_aot.capture.sizes.unrolled_loops import UNROLLED

    decisions = () if captured is None else captured.decisions
    given_up = () if captured is None else captured.given_up
    notes = _describe_given_up(given_up, options)
    near = describe_limits(program, requested, decisions)
    if captured is not None:
        near = [sentence.replace(UNROLLED, captured.unrolled) for sentence in near]
    if near:
        notes.append(
            Note(
                "the model behaves differently for different sizes, and was captured as it behaves "
                f"near the example's; it may be wrong outside of {'; '.join(near)}. The report "
                "lists the conditions",
                "OA205",
            )
        )
    chosen = describe_branches(program, requested, decisions, "; ".join([*near, *given_up]))
    chosen += () if captured is None else captured.small_branches
    if chosen and not options.runtime_checks:
        notes.append(
            Note(
                "the model's code branches on sizes, and the export has the branch of the example: "
                f"{'; '.join(chosen)}. Where another branch is taken, results may be wrong: "
                "exclude such sizes with the range of a torch.export.Dim, such as min=2, or let "
                "the ONNX model reject them with runtime_checks=True",
                "OA205",
            )
        )
    others = describe_relations(program, requested, decisions)
    if others:
        notes.append(
            Note(
                "dimensions have names other than those requested: "
                f"{'; '.join(others)}. Give dimensions that are always equal the same name",
                "OA204",
            )
        )
    names = dimension_names(program, requested)
    squeezed = dynamic_squeezes(program, names, requested, decisions)
    if squeezed:
        notes.append(
            Note(
                "squeeze removes dimensions of size 1, as do torch.cov and torch.corrcoef for one "
                "variable, and the ONNX model keeps dynamic ones at every size: "
                f"{'; '.join(squeezed)}. Squeeze only dimensions that are always 1, or exclude 1 "
                "with torch.export.Dim(name, min=2)",
                "OA207",
            )
        )
    return notes


def describe_left_to_model(asked: DynamicShapes, captured: Captured) -> list[Note]:
    """Notes dimensions that ``Dim.AUTO`` leaves to the model, and that the model fixes.

    Only for a Python loop, which can be written in another way, is it a warning.

    Args:
        asked: Dimensions that were asked for.
        captured: Result of the capture.
    """
    from onnx_aot.capture.sizes.left_to_model import describe_fixed

    by_loops, by_others = describe_fixed(captured.program, asked, captured.decisions)
    head = "Dim.AUTO leaves dimensions to the model, which fixes"
    notes = []
    if by_loops:
        notes.append(Note(f"{head} {'; '.join(by_loops)}: {captured.unrolled}", "OA201"))
    if by_others:
        notes.append(Note(f"{head} {'; '.join(by_others)}", "OA201", quiet=True))
    return notes


def check_dimensions(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    options: Options,
    decisions: Sequence[Decision] = (),
    is_given: bool = False,
) -> list[Note]:
    """Compares the dimensions of a program with what was asked for.

    Args:
        program: The program.
        requested: The requested dynamic shapes.
        options: The other options.
        decisions: Those of the capture, for the user's lines.
        is_given: Whether the user captured the program.

    Raises:
        DynamicShapeError: A dimension is static, or bound to the example's size, and
            ``on_specialized`` is ``"error"``.
    """
    from onnx_aot.capture.sizes.deciding_lines import lines_on
    from onnx_aot.capture.sizes.specialization import find_undelivered, make_refusal

    found = [
        dataclasses.replace(f, lines=f.lines or lines_on(f.dim, requested, decisions))
        for f in find_undelivered(program, requested, ())
    ]
    if is_given:
        found = [dataclasses.replace(f, fix=f.fix or _FIXED_BY_USER) for f in found]
    if found and options.on_specialized == "error":
        raise make_refusal(found)
    return _describe_given_up([str(finding) for finding in found], options)


_FIXED_BY_USER = (
    "an ExportedProgram keeps the dimensions of its capture, and dynamic_shapes here only names "
    "them; capture with torch.export.export(model, args, dynamic_shapes=...), or give the module "
    "itself to onnx_aot.export, with these dynamic_shapes"
)


def _describe_given_up(sentences: Sequence[str], options: Options) -> list[Note]:
    if not sentences:
        return []
    text = "requested dynamic dimensions are exported as the model needs them: " + "; ".join(
        sentences
    )
    return [Note(text, "OA201", quiet=options.on_specialized == "allow")]


def _check_output_axes(program: ONNXProgram, options: Options) -> None:
    """Checks the entries of ``dynamic_axes`` for outputs, which have no other effect."""
    from onnx_aot.capture.sizes.dynamic_shapes import axes_of_dynamic_axes

    shapes = {value.name: value.shape for value in program.model.graph.outputs}
    for name, given in (options.dynamic_axes or {}).items():
        shape = shapes.get(name)
        if shape is None or name not in options.output_names:
            continue
        for axis in axes_of_dynamic_axes(name, given):
            if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
                raise DynamicShapeError(
                    f"dynamic_axes names axis {axis!r} of the output {name!r}, whose shape is "
                    f"{[d if isinstance(d, int) else d.value for d in shape]}. Outputs need no "
                    "entries: their dimensions follow from the inputs'",
                    code="OA202",
                )


def check_delivered(
    program: ONNXProgram,
    requested: DynamicShapes,
    options: Options,
    custom: Collection[str],
    decisions: Sequence[Decision],
) -> list[Note]:
    """Compares what was asked for with what was delivered.

    Args:
        program: The finished program.
        requested: The requested dynamic shapes.
        options: The other options.
        custom: Operators that functions of the user translated.
        decisions: Those of the capture, for the user's lines.

    Raises:
        DynamicShapeError: A dimension became static after the capture, or ``dynamic_axes`` names
            an axis that an output does not have.
    """
    captured = program.exported_program
    assert captured is not None
    notes = check_dimensions(captured, requested, options, decisions)
    _check_output_axes(program, options)
    unused = [str(t) for t in options.custom_translation_table or () if str(t) not in custom]
    if unused:
        notes.append(
            Note(
                "custom_translation_table has operators that the rewritten graph does not: "
                + ", ".join(unused),
                "OA010",
                quiet=True,
            )
        )
    delivered = program.model.opset_imports.get("")
    assert delivered == options.opset, f"opset {delivered} instead of {options.opset}"
    return notes + _describe_state(program, options) + _describe_unused_weights(program, options)


def _describe_state(program: ONNXProgram, options: Options) -> list[Note]:
    """Notes which outputs are new values of state that the model writes to."""
    state = [
        str(value.name)
        for value in program.model.graph.outputs
        if value.metadata_props.get(OUTPUT_KIND) not in (None, "USER_OUTPUT")
    ]
    if not state:
        return []
    if options.state == "io":  # as it was asked for
        pairs = [
            f"{value.metadata_props[STATE]} -> {value.name}"
            for value in program.model.graph.outputs
            if STATE in value.metadata_props
        ]
        return [Note(f"state is input and output: {', '.join(pairs)}", "OA106", quiet=True)]
    return [
        Note(
            "the model writes to buffers or inputs; their new values are extra outputs of the "
            f'ONNX model: {", ".join(state)}. state="io" makes such buffers inputs too, for a '
            'caller that loops; state="drop" leaves the outputs out',
            "OA106",
        )
    ]


def _describe_unused_weights(program: ONNXProgram, options: Options) -> list[Note]:
    """Notes entries of ``weights_as_inputs`` whose weights the graph does not use."""
    if isinstance(options.weights_as_inputs, bool):
        return []
    from onnx_aot.serialization.weights import weights_by_target

    held = {*program.weights, *program.state}
    targets = weights_by_target(program.model.graph, program.exported_program, held)
    inputs = [name for name, value in targets.items() if value.name in held]
    without = [p for p in options.weights_as_inputs if not fnmatch.filter(inputs, p)]
    if not without:
        return []
    return [
        Note(
            f"weights_as_inputs has {', '.join(map(repr, without))}, of which the graph uses "
            "nothing; there is no input for it",
            "OA011",
        )
    ]


def describe_dropped_state(dropped: Sequence[str]) -> list[Note]:
    """Notes the outputs that ``state="drop"`` left out."""
    if not dropped:
        return []
    text = (
        f"the model writes to {', '.join(dropped)}; the new values were left out, as asked with "
        'state="drop"'
    )
    return [Note(text, "OA106", quiet=True)]


def describe_shared_inputs(
    captured: torch.export.ExportedProgram, separated: Sequence[str]
) -> list[Note]:
    """Notes that a write to an input is not seen where the example has the same memory."""
    written = [
        str(spec.target)
        for spec in captured.graph_signature.output_specs
        if spec.kind == OutputKind.USER_INPUT_MUTATION
    ]
    if not written or not separated:
        return []
    return [
        Note(
            f"the model writes to {', '.join(written)}, and example inputs share memory "
            f"({', '.join(separated)}, with one before or, after expand, within themselves); "
            "elements of ONNX inputs do not, so that a write to one is not seen in another",
            "OA302",
        )
    ]


def describe_undone_passes(outcome: Outcome) -> list[Note]:
    """Notes passes and rules that failed."""
    return [
        Note(
            f"the optimization {name} failed and was undone: {reason}. The model is right without "
            "it",
            "OA407",
        )
        for name, reason in outcome.undone.items()
    ]


def describe_not_verified(program: ONNXProgram) -> list[Note]:
    """Notes that a model lacks weight values, or ONNX Runtime an operator; else nothing."""
    from onnx_aot.program.custom_op_domains import foreign_operators

    if not program.has_values:
        return [
            Note(
                "the model was not verified: it was exported without the values of its weights. "
                "Compare it after apply_weights",
                "OA502",
            )
        ]
    foreign = foreign_operators(program.model)
    if not foreign:
        return []
    return [
        Note(
            "the model was not verified: ONNX Runtime needs a library of custom operators for "
            f"{', '.join(foreign)}",
            "OA604",
        )
    ]


def describe_rounding(results: Sequence[SizeResult]) -> list[Note]:
    """Notes about outputs that exceed their tolerance, in PyTorch as much as in the ONNX model."""
    from onnx_aot.inspection.verification import describe_sizes

    notes: list[Note] = []
    for result in results:
        for difference in result.differences:
            if difference.within or not difference.right:
                continue
            if difference.choice and any(not note.quiet for note in notes):
                continue  # a choice is warned of once, not for every output and size
            text = (
                f"output {difference.name} counts as right at {describe_sizes(result)}, although "
                f"{difference.remark}: PyTorch's own rounding is as large ({difference.rounding})"
            )
            if difference.choice:
                text += (
                    f". {difference.choice[0].upper()}{difference.choice[1:]}. Example inputs on "
                    "which the choice is clear, such as real data, give results that can be "
                    "compared"
                )
            notes.append(Note(text, "OA606", quiet=not difference.choice))
    return notes


def describe_inline_calls(calls: Sequence[str]) -> list[Note]:
    """Notes calls of modules that were to become functions but stay inline."""
    if not calls:
        return []
    return [
        Note(
            f"the nodes of {', '.join(calls)} stay in the graph: something outside of the module "
            "reads one of its values and gives the module another",
            "OA012",
        )
    ]
