"""``export``: the pipeline, read from top to bottom."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from onnx_aot.errors import (
    FunctionalizationError,
    InvalidOptionError,
    OnnxExporterWarning,
    VerificationError,
)
from onnx_aot.metadata_keys import OUTPUT_KIND
from onnx_aot.options import check_choice, check_retired

if TYPE_CHECKING:
    from onnx_aot.capture.dynamic_shapes import DynamicShapes
    from onnx_aot.inspection.record import ExportRecord
    from onnx_aot.program.program import ONNXProgram

__all__ = ["export"]

# Stages are imported where they are used: onnx_ir and onnxscript take longer to import than
# everything else, and `import onnx_aot` must not pay for them.

logger = logging.getLogger(__name__)

DEFAULT_OPSET = 20


def export(
    model: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    f: str | os.PathLike[str] | Any | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool | Literal["auto"] | None = "auto",
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | str | None = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    report: bool = False,
    optimize: bool = True,
    target: Literal["onnxruntime"] | None = "onnxruntime",
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str]] | Mapping[str, Sequence[int]] | None = None,
    metadata: Literal["full", "light", "none"] = "full",
    stack_trace_root: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    **retired: Any,
) -> ONNXProgram:
    """Exports a model to ONNX. Takes what ``torch.onnx.export(..., dynamo=True)`` takes.

    The model's training flag, attributes and buffers are the same afterwards, also after an error.

    Args:
        model: A module, a function, or an ``ExportedProgram``, which is used as it is.
        args: Example positional inputs, or one tensor. A dict at the end holds keyword inputs when
            its keys are parameter names of ``forward``.
        f: Where to save the model: a path or a binary file object. None: only return it.
        kwargs: Example keyword inputs.
        verbose: True prints a line per stage to stderr.
        input_names: Names for the graph's inputs, in order; there may be fewer than inputs.
        output_names: Names for the graph's outputs, in order; there may be fewer than outputs.
        opset_version: ONNX operator set, 17 to 25; 20 by default.
        dynamo: Accepted for compatibility; False warns, because there is one exporter.
        external_data: ``"auto"``: weights go to ``<f>.data`` when they exceed 1.5 GB; True: always;
            False: never.
        dynamic_shapes: Which dimensions vary: per argument ``{axis: dimension}``, nested as the
            inputs are, keyed by parameter name or name in ``input_names``, or in order. A dimension
            is a string, which names it, a ``torch.export.Dim``, ``Dim.AUTO`` or ``Dim.DYNAMIC``.
            What is not mentioned is static.
        custom_translation_table: Functions by operator, which take precedence over the table.
        report: True writes a markdown report to ``artifacts_dir``, also when the export fails.
        optimize: False leaves the translated graph as it is.
        target: ``"onnxruntime"``: what ONNX Runtime's CPU provider has no kernel for, such as most
            of bfloat16, is written so that it runs there: with casts to a wider type around a node,
            or with other operators. None: the graph as the ONNX standard allows it.
        verify: True compares the model in ONNX Runtime with the module on the example inputs.
        profile: True adds a call profile to the report.
        dump_exported_program: True saves the captured program to ``artifacts_dir``.
        artifacts_dir: Folder for the report and the captured program.
        export_params: False leaves parameters and buffers out of the saved file.
        keep_initializers_as_inputs: True lists parameters and buffers as inputs in the saved file.
        dynamic_axes: Older form of ``dynamic_shapes``: ``{name: {axis: dimension}}`` or
            ``{name: [axes]}`` with names from ``input_names``; names of outputs are ignored.
        metadata: ``"full"``; ``"light"`` without FX nodes and stack traces; ``"none"``: nothing on
            nodes and the graph.
        stack_trace_root: Folder that stack traces name files relative to; None: absolute paths.
        seed: Gives every random node a seed of its own derived from this one, so that each new
            session draws the same numbers. None: the runtime chooses.
        **retired: Options of earlier exporters: accepted with a warning where they change nothing.

    Returns:
        The program: ``save``, call, inspect ``.model``.

    Raises:
        InvalidOptionError: An option or an example input is not accepted.
        CaptureError: ``torch.export`` could not capture the model.
        DynamicShapeError: A dimension that was asked to be dynamic came out static.
        UnsupportedOperatorError: Operators without a translation, all of them in one error.
        TranslationError: A translation failed on a node.
        SaveError: The file could not be written; what was there before is untouched.
        VerificationError: With ``verify=True``, an output differs by more than the tolerance.
    """
    options = _Options(
        input_names=_names("input_names", input_names),
        output_names=_names("output_names", output_names),
        opset=DEFAULT_OPSET if opset_version is None else opset_version,
        custom_translation_table=custom_translation_table,
        optimize=optimize,
        target=target,
        metadata=metadata,
        stack_trace_root=None if stack_trace_root is None else os.fspath(stack_trace_root),
        seed=seed,
    )
    _check_options(options, dynamo, external_data, dynamic_shapes, dynamic_axes, retired)
    if f is not None:
        from onnx_aot.program.atomic import check_destination

        check_destination(f)
    record = _new_record(model, options, dynamic_shapes, dynamic_axes)
    program: ONNXProgram | None = None
    try:
        with _progress(verbose), _profiled(profile, record), _collection_paused():
            program, reference = _build(
                model, args, kwargs, options, dynamic_shapes, dynamic_axes, record
            )
            if dump_exported_program:
                _dump(program, artifacts_dir, record)
            if verify:  # before saving: a wrong model does not replace a right one
                with _stage(record, "verify"):
                    _verify(program, reference, record)
            if f is not None:
                with _stage(record, "save"):
                    program.save(
                        f,
                        include_initializers=export_params,
                        keep_initializers_as_inputs=keep_initializers_as_inputs,
                        external_data=external_data,
                    )
    except BaseException as error:
        record.error = error
        record.traceback = traceback.format_exc()
        raise
    finally:
        if report:
            _write_report(record, program, artifacts_dir)
    return program


@dataclasses.dataclass(frozen=True)
class _Options:
    """What goes down the pipeline."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    opset: int
    custom_translation_table: Mapping[Any, Any] | None
    optimize: bool
    target: str | None
    metadata: Literal["full", "light", "none"]
    stack_trace_root: str | None
    seed: int | None


@dataclasses.dataclass(frozen=True)
class _Reference:
    """The model and the inputs that the exported program is compared with."""

    model: torch.nn.Module | torch.export.ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _build(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    options: _Options,
    dynamic_shapes: Any,
    dynamic_axes: Any,
    record: ExportRecord,
) -> tuple[ONNXProgram, _Reference]:
    """The stages, in order."""
    from onnx_aot.capture.delivered import dimension_names
    from onnx_aot.ir_passes import run_passes
    from onnx_aot.ops.registry import import_late_families, translations
    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.translate import Request, translate

    with _stage(record, "capture"):
        captured, requested, reference = _capture(
            model, args, kwargs, options, dynamic_shapes, dynamic_axes, record
        )
    with _stage(record, "fx_passes"):
        captured = _run_fx_passes(captured, record)
    with _stage(record, "translate"):
        table = translations()
        import_late_families(
            node.target
            for module in captured.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
        )
        if options.custom_translation_table:
            from onnx_aot.ops.custom import custom_translations

            table = {**table, **custom_translations(options.custom_translation_table)}
        translated = translate(
            captured,
            Request(
                opset=options.opset,
                table=table,
                input_names=options.input_names,
                output_names=options.output_names,
                dimension_names=dimension_names(captured, requested, options.input_names),
                metadata=options.metadata,
                relative_to=options.stack_trace_root,
                producer_version=_version(),
                seed=options.seed,
            ),
        )
        record.direct = translated.statistics.direct
        record.decomposed = translated.statistics.decomposed
    if options.optimize:
        with _stage(record, "ir_passes"):
            run_passes(translated.model)
    if options.target is not None:
        from onnx_aot.targets import legalize

        with _stage(record, "legalize"):
            record.adaptations = legalize(translated.model, options.target)
            _note_lossy(record, options.target)
    program = ONNXProgram(translated.model, captured)
    with _stage(record, "check"):
        _check_delivered(program, requested, options, record)
    return program, reference


def _capture(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    options: _Options,
    dynamic_shapes: Any,
    dynamic_axes: Any,
    record: ExportRecord,
) -> tuple[torch.export.ExportedProgram, DynamicShapes, _Reference]:
    from onnx_aot import torch_compat
    from onnx_aot.capture.dynamic_shapes import resolve_dynamic_shapes
    from onnx_aot.capture.inputs import (
        arguments_of_program,
        as_module,
        bind_arguments,
        inputs_of_program,
        normalize_inputs,
    )
    from onnx_aot.capture.strategies import capture
    from onnx_aot.capture.training import training_operators

    names = (options.input_names, options.output_names)
    if isinstance(model, torch.export.ExportedProgram):
        inputs = inputs_of_program(model, args, kwargs)
        arguments = arguments_of_program(model)
        requested = resolve_dynamic_shapes(arguments, dynamic_shapes, dynamic_axes, *names)
        program = torch_compat.copy_program(model)
        record.strategy = "ExportedProgram"
    else:
        model = as_module(model)
        inputs = normalize_inputs(model, args, kwargs)
        arguments = bind_arguments(model, inputs)
        requested = resolve_dynamic_shapes(arguments, dynamic_shapes, dynamic_axes, *names)
        captured = capture(model, inputs, requested.spec, arguments.collected)
        program = captured.program
        record.strategy = captured.strategy
    record.conditions = torch_compat.size_conditions(program)
    training = training_operators(program.graph)
    if training:
        _note(
            record,
            f"the model was captured in training mode: {', '.join(training)} behave as they do in "
            "training. Call model.eval() first for inference",
        )
    return program, requested, _Reference(model, inputs.args, inputs.kwargs)


def _run_fx_passes(
    program: torch.export.ExportedProgram, record: ExportRecord
) -> torch.export.ExportedProgram:
    from onnx_aot import torch_compat
    from onnx_aot.capture.delivered import keeps_dimensions
    from onnx_aot.capture.strategies import capture_conditions
    from onnx_aot.fx_passes import FX_PASSES

    original = program
    try:
        for fx_pass in FX_PASSES:
            program = fx_pass(program)
        return program
    except FunctionalizationError as error:
        refused = error
        _note(
            record,
            f"{error}. The whole program was functionalized by torch's run_decompositions instead, "
            "which takes longer and breaks composite operators apart",
        )
    try:
        with capture_conditions():
            program = torch_compat.functionalized_by_torch(original)
    except Exception as error:
        raise FunctionalizationError(
            f"{refused}, and torch's run_decompositions failed too: {type(error).__name__}: {error}"
        ) from error
    if not keeps_dimensions(original, program):
        raise FunctionalizationError(
            f"{refused}, and torch's run_decompositions makes dynamic dimensions static. Write it "
            "without the in-place operator, or make its dimensions static"
        )
    for fx_pass in FX_PASSES:
        program = fx_pass(program)
    return program


def _check_delivered(
    program: ONNXProgram, requested: DynamicShapes, options: _Options, record: ExportRecord
) -> None:
    """Compares what was asked with what came out.

    Raises:
        DynamicShapeError: A dimension is static, or bound to the example's size.
    """
    from onnx_aot.capture.delivered import bound_dimensions, refuse_static, renamed

    assert program.exported_program is not None
    refuse_static(program.exported_program, requested)
    bound = bound_dimensions(program.exported_program, requested, record.conditions)
    if bound:
        _note(
            record,
            "the model chooses between sizes, and was captured as it is around the example's; it "
            f"may answer wrongly outside of {'; '.join(bound)}. The report lists the conditions",
        )
    others = renamed(program.exported_program, requested)
    if others:
        _note(record, f"dimensions have other names than were asked for: {'; '.join(others)}")
    unused = [str(t) for t in options.custom_translation_table or () if str(t) not in record.direct]
    if unused:
        record.notes.append(
            "custom_translation_table has operators that the rewritten graph does not: "
            + ", ".join(unused)
        )
    delivered = program.model.opset_imports.get("")
    assert delivered == options.opset, f"opset {delivered} instead of {options.opset}"
    state = [
        str(value.name)
        for value in program.model.graph.outputs
        if value.metadata_props.get(OUTPUT_KIND) not in (None, "USER_OUTPUT")
    ]
    if state:
        _note(
            record,
            "the model writes to buffers or inputs; their new values are extra outputs of the "
            f"ONNX model: {', '.join(state)}",
        )


def _note_lossy(record: ExportRecord, target: str) -> None:
    """Says which types the target has only a less precise kernel for."""
    lossy = [
        f"{a.op_type} of {a.dtype} as {a.surrogate} ({a.count}x)"
        for a in record.adaptations
        if a.lossy
    ]
    if lossy:
        _note(
            record,
            f"{target} has no kernel for the type of some nodes, which run in another and may be "
            f"less precise: {', '.join(lossy)}. target=None leaves them as they are",
        )


def _note(record: ExportRecord, note: str, depth: int = 5) -> None:
    """Something that the user should know: a warning, and a line in the report.

    ``depth`` is how many calls up the user's own line is.
    """
    record.notes.append(note)
    warnings.warn(note, OnnxExporterWarning, stacklevel=depth)


# --- around the stages ---------------------------------------------------------------------------


def _check_options(
    options: _Options,
    dynamo: bool,
    external_data: Any,
    dynamic_shapes: Any,
    dynamic_axes: Any,
    retired: Mapping[str, Any],
) -> None:
    from onnx_aot.ops.limits import MAX_OPSET, MIN_OPSET

    accepted = list(export.__kwdefaults__ or ())
    check_retired(retired, accepted)
    if dynamic_shapes is not None and dynamic_axes is not None:
        raise InvalidOptionError(
            "dynamic_shapes and dynamic_axes are two ways to say the same; give one of them"
        )
    if not dynamo:
        warnings.warn(
            "dynamo=False has no effect: there is one exporter, which captures with torch.export",
            OnnxExporterWarning,
            stacklevel=3,
        )
    check_choice("metadata", options.metadata, ("full", "light", "none"))
    check_choice("target", options.target, ("onnxruntime", None))
    check_choice("external_data", external_data, ("auto", True, False, None))
    if not isinstance(options.opset, int) or not MIN_OPSET <= options.opset <= MAX_OPSET:
        raise InvalidOptionError(
            f"opset_version is {options.opset!r}; opsets {MIN_OPSET} to {MAX_OPSET} are emitted"
        )
    if options.seed is not None and (
        not isinstance(options.seed, int) or isinstance(options.seed, bool)
    ):
        raise InvalidOptionError(f"seed is {options.seed!r}; it is an int or None")


def _names(option: str, given: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(given or ())
    if isinstance(given, str) or not all(isinstance(name, str) and name for name in names):
        raise InvalidOptionError(f"{option} is {given!r}; it is a list of names")
    return names


def _new_record(
    model: Any, options: _Options, dynamic_shapes: Any, dynamic_axes: Any
) -> ExportRecord:
    from onnx_aot.inspection.record import ExportRecord

    kind = type(model)
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    name = getattr(model, "__qualname__", None) if callable(model) else None
    record = ExportRecord(name or f"{kind.__module__}.{kind.__qualname__}", now)
    record.asked = {
        "opset_version": options.opset,
        "target": options.target,
        "dynamic_shapes": dynamic_shapes,
        "dynamic_axes": dynamic_axes,
        "input_names": list(options.input_names) or None,
        "output_names": list(options.output_names) or None,
    }
    return record


@contextlib.contextmanager
def _stage(record: ExportRecord, key: str) -> Iterator[None]:
    with record.stage(key):
        logger.info("%s ...", record.stages[key].name)
        yield
    logger.info("%s: %.3f s", record.stages[key].name, record.stages[key].seconds)


@contextlib.contextmanager
def _progress(verbose: bool | None) -> Iterator[None]:
    """With ``verbose=True``, what the package logs goes to stderr as plain lines."""
    if not verbose:
        yield
        return
    package = logging.getLogger("onnx_aot")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[onnx_aot] %(message)s"))
    level = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """The pipeline makes many objects that live to its end; collecting them finds nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def _profiled(profile: bool, record: ExportRecord) -> Iterator[None]:
    if not profile:
        yield
        return
    import cProfile
    import io
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(40)
        record.profile = text.getvalue()


def _verify(program: ONNXProgram, reference: _Reference, record: ExportRecord) -> None:
    from onnx_aot.capture.module_state import preserved_state
    from onnx_aot.inspection.verify import format_differences, verify_against

    model = reference.model
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    with preserved_state(model):
        record.verification = verify_against(program, model, reference.args, reference.kwargs)
    if not all(difference.within for difference in record.verification):
        raise VerificationError(
            "the ONNX model answers differently from PyTorch on the example inputs:\n"
            + format_differences(record.verification)
            + "\nNothing was saved. Export without verify=True and compare value by value with "
            "ONNXProgram.compute_values."
        )


def _dump(program: ONNXProgram, folder: str | os.PathLike[str], record: ExportRecord) -> None:
    assert program.exported_program is not None
    from onnx_aot.program.atomic import written_beside

    path = os.path.join(folder, f"onnx_export_{record.started}.pt2")
    try:
        os.makedirs(folder, exist_ok=True)
        with written_beside(path) as file:
            torch.export.save(program.exported_program, file)
    except Exception as error:  # the model itself is not concerned
        message = f"the captured program could not be saved: {type(error).__name__}: {error}"
        _note(record, message, depth=4)
    else:
        logger.info("the captured program is in %s", path)


def _write_report(
    record: ExportRecord, program: ONNXProgram | None, folder: str | os.PathLike[str]
) -> None:
    from onnx_aot.inspection.report import render_report

    path = os.path.join(folder, record.file_name)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(render_report(record, program))
    except OSError as error:  # the program, or the error that is being reported, matters more
        warnings.warn(f"could not write the report: {error}", OnnxExporterWarning, stacklevel=3)
    else:
        logger.info("the report is in %s", path)


def _version() -> str:
    from onnx_aot import __version__

    return __version__
