"""At the end of every export: what was asked, compared with what came out."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_aot.metadata_keys import OUTPUT_KIND, STATE
from onnx_aot.options import Options
from onnx_aot.recording import note

if TYPE_CHECKING:
    from onnx_aot.capture.dynamic_shapes import DynamicShapes
    from onnx_aot.inspection.record import ExportRecord
    from onnx_aot.program.program import ONNXProgram

__all__ = ["check_delivered", "note_dropped", "note_lossy"]


def check_delivered(
    program: ONNXProgram, requested: DynamicShapes, options: Options, record: ExportRecord
) -> None:
    """Compares what was asked with what came out.

    Raises:
        DynamicShapeError: A dimension is static, or bound to the example's size.
    """
    from onnx_aot.capture.delivered import bound_dimensions, refuse_static, renamed

    captured = program.exported_program
    assert captured is not None
    refuse_static(captured, requested)
    bound = bound_dimensions(captured, requested, record.conditions)
    if bound:
        note(
            record,
            "the model chooses between sizes, and was captured as it is around the example's; it "
            f"may answer wrongly outside of {'; '.join(bound)}. The report lists the conditions",
        )
    others = renamed(captured, requested)
    if others:
        note(record, f"dimensions have other names than were asked for: {'; '.join(others)}")
    unused = [str(t) for t in options.custom_translation_table or () if str(t) not in record.direct]
    if unused:
        record.notes.append(
            "custom_translation_table has operators that the rewritten graph does not: "
            + ", ".join(unused)
        )
    delivered = program.model.opset_imports.get("")
    assert delivered == options.opset, f"opset {delivered} instead of {options.opset}"
    _note_state(program, options, record)
    _note_weights(program, options, record)


def _note_state(program: ONNXProgram, options: Options, record: ExportRecord) -> None:
    """Says which outputs are new values of what the model writes to."""
    state = [
        str(value.name)
        for value in program.model.graph.outputs
        if value.metadata_props.get(OUTPUT_KIND) not in (None, "USER_OUTPUT")
    ]
    if not state:
        return
    if options.state == "io":  # as it was asked for
        pairs = [
            f"{value.metadata_props[STATE]} -> {value.name}"
            for value in program.model.graph.outputs
            if STATE in value.metadata_props
        ]
        record.notes.append(f"state is input and output: {', '.join(pairs)}")
        return
    note(
        record,
        "the model writes to buffers or inputs; their new values are extra outputs of the "
        f'ONNX model: {", ".join(state)}. state="io" makes such buffers inputs too, for a caller '
        'that loops; state="drop" leaves the outputs out',
    )


def _note_weights(program: ONNXProgram, options: Options, record: ExportRecord) -> None:
    """Says which names for weights as inputs gave none, as the graph does not use the weight."""
    if isinstance(options.weights_as_inputs, bool):
        return
    from onnx_aot.program.weights import weights_by_target

    held = {*program.weights, *program.state}
    targets = weights_by_target(program.model.graph, program.exported_program, held)
    inputs = [name for name, value in targets.items() if value.name in held]
    without = [p for p in options.weights_as_inputs if not fnmatch.filter(inputs, p)]
    if without:
        note(
            record,
            f"weights_as_inputs has {', '.join(map(repr, without))}, of which the graph uses "
            "nothing; there is no input for it",
        )


def note_dropped(record: ExportRecord, dropped: Sequence[str]) -> None:
    """Lists what ``state="drop"`` left out."""
    if dropped:
        record.notes.append(
            f"the model writes to {', '.join(dropped)}; the new values were left out, as asked "
            'with state="drop"'
        )


def note_lossy(record: ExportRecord, target: str) -> None:
    """Says which types the target has only a less precise kernel for."""
    lossy = [
        f"{a.op_type} of {a.dtype} as {a.surrogate} ({a.count}x)"
        for a in record.adaptations
        if a.lossy
    ]
    if lossy:
        note(
            record,
            f"{target} has no kernel for the type of some nodes, which run in another and may be "
            f"less precise: {', '.join(lossy)}. target=None leaves them as they are",
        )
