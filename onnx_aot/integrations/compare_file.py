"""Implements ``compare``, which compares an ONNX model or file with its module by value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_aot.inspection.comparison import Comparison
    from onnx_aot.program.program import ONNXProgram

__all__ = ["compare"]


def compare(
    program: ONNXProgram | str | os.PathLike[str],
    model: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any] | ONNXProgram,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compares an ONNX model, value by value, with a module that it may have been exported from.

    The module is captured again, with the dynamic dimensions that the ONNX model has. Values are
    paired by their names; a name that stood for something else at export, according to the
    metadata in the model, is left out and counted. ``ONNXProgram.compare`` needs no second
    capture.

    Args:
        program: The program, or the path of its file.
        model: The module, a captured program, or a program that was exported from it.
        args: Positional inputs, or one tensor.
        kwargs: Keyword inputs.

    Returns:
        A row per value, in execution order; it prints as a table.

    Raises:
        InvalidOptionError: There is no such file, or the inputs do not fit.
        CaptureError: The module cannot be captured.
    """
    from onnx_aot.inspection.compare import compare_values
    from onnx_aot.program.program import ONNXProgram

    given = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    if not isinstance(program, ONNXProgram):
        program = ONNXProgram.load(program)
    if not isinstance(model, ONNXProgram):
        model = _capture_as_exported(program, model, given, kwargs)
    paired = _with_capture(program, model)
    return compare_values(paired, given, kwargs or {}, _named_otherwise(program, model))


def _capture_as_exported(
    program: ONNXProgram, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> ONNXProgram:
    """Captures the module as it was exported, as far as the ONNX model tells."""
    from onnx_aot.export import export

    if isinstance(model, torch.export.ExportedProgram):
        return export(model, args, kwargs=kwargs, optimize=False)
    declared = [value for value in program.model.graph.inputs if _is_of_user(value)]
    axes = {str(value.name): _named_axes(value) for value in declared}
    return export(
        model,
        args,
        kwargs=kwargs,
        input_names=list(axes),
        dynamic_axes={name: named for name, named in axes.items() if named},
        on_specialized="allow",
        optimize=False,
    )


def _is_of_user(value: ir.Value) -> bool:
    from onnx_aot.metadata.keys import INPUT_KIND

    return value.metadata_props.get(INPUT_KIND, "USER_INPUT") == "USER_INPUT"


def _named_axes(value: ir.Value) -> dict[int, str]:
    """Axes whose dimension has a name of its own; computed dimensions follow from these."""
    names = [getattr(size, "value", None) for size in value.shape or ()]
    return {axis: name for axis, name in enumerate(names) if name and name.isidentifier()}


def _with_capture(program: ONNXProgram, captured: ONNXProgram) -> ONNXProgram:
    """Combines the model of one program with the captured program of the other."""
    from onnx_aot.inspection.fx_run import weight_of
    from onnx_aot.metadata.keys import ORIGINAL_NAME
    from onnx_aot.program.program import ONNXProgram

    assert captured.exported_program is not None
    specs = captured.exported_program.graph_signature.input_specs
    targets = {spec.arg.name: spec.target for spec in specs}
    held = {}
    for value in program.model.graph.inputs:
        target = targets.get(value.metadata_props.get(ORIGINAL_NAME, str(value.name)))
        if target is not None and not _is_of_user(value):
            held[str(value.name)] = weight_of(captured.exported_program, target)
    return ONNXProgram(program.model, captured.exported_program, captured._forward, weights=held)


def _named_otherwise(program: ONNXProgram, captured: ONNXProgram) -> set[str]:
    """Names of captured values that stood for something else when the model was exported."""
    then, now = _origins_by_node(program), _origins_by_node(captured)
    return {name for name, origin in then.items() if now.get(name, origin) != origin}


def _origins_by_node(program: ONNXProgram) -> dict[str, str]:
    """Origin of each captured node by name, from the metadata of the ONNX nodes."""
    from onnx_aot.metadata.keys import CAPTURED_NODE, CLASS_HIERARCHY, NAME_SCOPES

    found = {}
    for node in program.model.graph:
        scopes = node.metadata_props.get(NAME_SCOPES, "")
        name = re.search(r"'(\w+)'\]$", scopes)  # the last is the captured node
        if name is not None:
            origin = f"{scopes} {node.metadata_props.get(CLASS_HIERARCHY)}"
            found[name[1]] = node.metadata_props.get(CAPTURED_NODE, origin)
    return found
