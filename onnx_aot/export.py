"""Exports a model: the whole pipeline, to be read from top to bottom."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from onnx_aot.errors import TranslationError, warn
from onnx_aot.options import (
    Options,
    check_choice,
    check_options,
    check_retired,
    choose_opset,
    choose_target,
    names_given,
)
from onnx_aot.pipeline.recording import (
    collection_paused,
    dump_program,
    new_record,
    profiled,
    progress,
    publish,
    stage,
    write_report,
)

if TYPE_CHECKING:
    import inspect

    from onnx_aot.capture.sizes.dynamic_shapes import DynamicShapes
    from onnx_aot.capture.sizes.known_values import Reading
    from onnx_aot.pipeline.stages import Reference
    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.reporting.record import ExportRecord

__all__ = ["export"]

# Stages are imported where they are used: onnx_ir and onnxscript take longer to import than
# everything else, and `import onnx_aot` must not pay for them.


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
    external_data: bool | Literal["auto", "safetensors"] | None = "auto",
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | str | None = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    unsupported: Literal["error", "emit", "function"] = "error",
    decompose: bool = True,
    report: bool = False,
    optimize: bool | Literal["safe"] | Collection[str] = True,
    target: str | None = "onnxruntime",
    contrib_ops: bool = False,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] | None = None,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str]] | Mapping[str, Sequence[int]] | None = None,
    metadata: Literal["full", "light", "none"] = "full",
    stack_trace_root: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    on_specialized: Literal["error", "warn", "allow"] = "error",
    runtime_checks: bool = False,
    state: Literal["outputs", "drop", "io"] = "outputs",
    weights_as_inputs: bool | Sequence[str] = False,
    export_modules_as_functions: bool | Collection[type[Any] | str] = False,
    strategies: Sequence[str] | None = None,
    reuse: Literal["auto", "off", "check"] = "auto",
    **retired: Any,
) -> ONNXProgram:
    """Exports a model to ONNX; takes the options of ``torch.onnx.export(..., dynamo=True)``.

    The model's training flag, attributes and buffers are unchanged afterwards, also after an error.

    Args:
        model: A module or a function, also one that ``torch.jit`` scripted or traced; or an
            ``ExportedProgram``, which is used as it is. A ``torch.onnx.ExportableModule`` supplies
            what is not given here: inputs, their dynamic dimensions and names.
        args: Example positional inputs, or one tensor. A dict at the end holds keyword inputs if
            its keys are parameter names of ``forward``. Tensors may be in containers, dataclasses
            and key-value caches; Python values become constants of the model.
        f: Destination to save the model to: a path or a binary file object. None: only return it.
        kwargs: Example keyword inputs.
        verbose: True prints a line per stage to stderr.
        input_names: Names for the graph's inputs, in order; there may be fewer than inputs. Names
            beyond the model's own inputs go to weights: those that are inputs, then the parameters
            and the buffers that the graph uses.
        output_names: Names for the graph's outputs, in order; there may be fewer than outputs.
            Names beyond the values that the model returns go to the new values of its state. By
            default, outputs have the names of the fields and keys that hold them in a dataclass,
            named tuple or dict, such as ``logits`` or ``hidden_states.0``, and those in a tuple
            the names of nodes.
        opset_version: ONNX operator set, 11 to 28; 20 by default.
        dynamo: Accepted for compatibility; False warns, because there is only one exporter.
        external_data: ``"auto"``: weights go to ``<f>.data`` if they exceed 1.5 GB; True: always;
            False: never; ``"safetensors"``: always, to ``model.safetensors`` for ``model.onnx``.
        dynamic_shapes: Dimensions that vary: per argument ``{axis: dimension}``, nested like the
            inputs, keyed by parameter name, name in ``input_names`` or flattened name, or in order.
            A dimension is a string, which names it, a ``torch.export.Dim``, ``Dim.AUTO`` or
            ``Dim.DYNAMIC``. An int or float with a string or hint becomes an input of the model.
            Other dimensions are static.
        custom_translation_table: Functions by operator, or lists of them in the order in which they
            are tried. They precede the built-in table and functions of ``onnx_aot.register``.
        custom_opsets: Versions of the domains whose operators custom translations emit.
        unsupported: Treatment of operators without a translation. ``"error"``: one error lists
            them. ``"emit"``: each becomes a node of the operator's own name, in a domain named
            after its namespace, for a runtime that implements it. ``"function"``: the same, and a
            local function without a body stands for the implementation.
        decompose: False keeps operators without a translation of their own as they were captured,
            as ``"emit"`` does, instead of expanding them with torch's rules; for inspection.
        report: True writes a Markdown report to ``artifacts_dir``, also if the export fails.
            ``ONNXProgram.report`` has the same as a dataclass, even without this option.
        optimize: True runs all passes and rules on the translated graph; ``"safe"`` only those that
            keep every value bit for bit; a set of names only these (the documentation lists
            them); False leaves the graph as it is.
        target: Runtime of the model. ``"onnxruntime"``: nodes without a kernel in the CPU provider
            of the installed ONNX Runtime, such as most of bfloat16, are rewritten to run there:
            with casts to a wider type around a node, or with other operators. If weights or inputs
            are on a CUDA device, it means ``"onnxruntime-gpu"``: float16 and bfloat16 are kept
            where the provider for CUDA has kernels, and a model without bfloat16 runs on the CPU,
            too. ``"onnxruntime==1.18"``: as the first for that release, 1.16 to 1.32, with an opset
            and an IR version that it loads; ``verify`` runs in the installed one.
            ``"onnxruntime-web"``, ``"openvino"`` and ``"opencv"``: the same for the newest release
            of that runtime whose kernels are known, or for a named one such as
            ``"openvino==2026.4"``, from opset 17 on for the latter two. None: the graph is only
            bound to the ONNX standard.
        contrib_ops: True uses operators of the domain ``com.microsoft``, which only ONNX Runtime
            has, where they are faster: for rotary embeddings and attention. It cannot be combined
            with ``target=None`` or the target of another runtime.
        verify: True compares the model in ONNX Runtime with the module: outputs and new values of
            buffers and inputs, on the example inputs and at up to five other sizes within the
            ranges of the dynamic dimensions: the minimum, 1, odd and larger ones.
        profile: True adds a call profile to the report.
        dump_exported_program: True saves the captured program to ``artifacts_dir``.
        artifacts_dir: Folder for the report and the captured program; the working directory by
            default. If it is given, the report of a failed export is always written, and the
            message of the error ends with its path.
        export_params: False leaves parameters and buffers out of the saved file.
        keep_initializers_as_inputs: True lists parameters and buffers as inputs in the saved file.
        dynamic_axes: Older form of ``dynamic_shapes``: ``{name: {axis: dimension}}`` or
            ``{name: [axes]}`` with names from ``input_names``; entries of outputs are only checked.
        metadata: ``"full"``; ``"light"``: without FX nodes and stack traces; ``"none"``: nothing on
            nodes and the graph.
        stack_trace_root: Folder to which the files in stack traces are relative; None: the folders
            that Python imports from, so that models are the same on every machine.
        seed: Seed from which every random node gets one of its own, so that each new session draws
            the same numbers. None: the runtime chooses.
        on_specialized: Treatment of a dimension that was asked to be dynamic and that the model
            makes static or restricts to fewer sizes than its ``Dim``. ``"error"``: a
            ``DynamicShapeError`` with the responsible line; ``"warn"``: it is exported as the model
            needs it, with a warning; ``"allow"``: with only a line in the report.
        runtime_checks: True adds nodes that make any runtime fail if the model was not captured for
            the sizes of the inputs, or if an assertion of the model does not hold. The name of the
            node that fails is the condition, such as ``check: x.shape[0] <= 512 (batch)``.
        state: Treatment of buffers and inputs that the model writes to. ``"outputs"``: their new
            values are extra outputs, ``<name>_out``. ``"drop"``: new values are left out. ``"io"``:
            each such buffer is also an input, and every such output names its input in its metadata
            (``pkg.onnx_aot.state``), so that a caller can loop, as the program itself does with
            the values in ``ONNXProgram.state``.
        weights_as_inputs: True makes every parameter and buffer that the graph uses an input, after
            the model's own; a list of names, which may contain ``*``, only these. The program feeds
            the values in ``ONNXProgram.weights`` by itself.
        export_modules_as_functions: Classes of modules, or their names: each call of such a module
            becomes a call of a local function of the model, with the module's weights as inputs;
            calls that consist of the same nodes share one. True selects blocks that repeat. By
            default there are no such functions; ``ONNXProgram.inline`` inlines them again.
        strategies: Names of ways to capture the model, tried in order. The default,
            ``("non-strict", "strict")``, has two modes of ``torch.export``. ``"draft"`` is draft
            export, ``"trace"`` is ``torch.jit.trace``: both fix values that depend on data to those
            of the example inputs, with a warning that lists them. Scripted models have their own.
            By default, a model is refused after three times the duration of the first capture and
            five seconds at most; strategies that are named are carried out to the end.
        reuse: Treatment of layers that repeat. ``"auto"``: two calls are traced, and what they have
            recorded is copied for the others, where nothing else can come of them; ``"off"``: all
            calls are traced; ``"check"``: all are traced, and a copy that would have differed is an
            error.
        **retired: Options of earlier exporters, accepted with a warning if they change nothing.

    Returns:
        An ``ONNXProgram``, to save, to call, and to inspect in ``model``.

    Raises:
        InvalidOptionError: An option or an example input is not accepted.
        CaptureError: ``torch.export`` could not capture the model.
        DynamicShapeError: A dimension that was asked to be dynamic is static, or the request for
            dynamic dimensions is malformed.
        UnsupportedOperatorError: Operators have no translation; the error lists all of them.
        FunctionalizationError: The model has an in-place write without a functional form.
        OpsetError: The opset lacks operators, or types or forms of them; the error lists all.
        TranslationError: A translation failed on a node.
        SaveError: The file could not be written; an existing file is untouched.
        VerificationError: With ``verify=True``, an output differs by more than the tolerance, or
            ONNX Runtime rejects sizes that PyTorch accepts (for empty inputs, only a warning).
    """
    from onnx_aot.capture.exportable import declared_arguments

    if isinstance(args, (tuple, list)) and not args and not kwargs:
        declared = declared_arguments(model)
        if declared is not None:
            args, kwargs = declared.args, declared.kwargs
            if dynamic_shapes is None and dynamic_axes is None:
                dynamic_shapes = declared.dynamic_shapes
            input_names = declared.input_names if input_names is None else input_names
            output_names = declared.output_names if output_names is None else output_names
    asked = _other_than_default(locals())  # all arguments, for the report
    target = choose_target(target, opset_version, model, (args, kwargs))
    options = Options(
        input_names=names_given("input_names", input_names),
        output_names=names_given("output_names", output_names),
        opset=choose_opset(target) if opset_version is None else opset_version,
        dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes,
        on_specialized=on_specialized,
        runtime_checks=runtime_checks,
        state=state,
        weights_as_inputs=weights_as_inputs,
        strategies=strategies,
        reuse=reuse,
        custom_translation_table=custom_translation_table,
        custom_opsets=custom_opsets,
        unsupported=unsupported,
        decompose=decompose,
        export_modules_as_functions=export_modules_as_functions,
        optimize=optimize,
        target=target,
        contrib_ops=contrib_ops,
        metadata=metadata,
        stack_trace_root=None if stack_trace_root is None else os.fspath(stack_trace_root),
        seed=seed,
    )
    from onnx_aot import torch_compat
    from onnx_aot.capture.fake_weights import parameters_kept

    record = new_record(model, args, kwargs, asked)
    folder = "." if artifacts_dir is None else artifacts_dir
    program: ONNXProgram | None = None

    def run() -> None:
        nonlocal program
        with progress(verbose), profiled(profile, record), collection_paused(), parameters_kept():
            program, reference = _build(model, args, kwargs, options, record)
            if dump_exported_program:
                publish(record, dump_program(program, folder, record))
            if verify:  # before saving, so that a wrong model does not replace a right one
                with stage(record, "verify"):
                    _verify(program, reference, options, record)
            if f is not None:
                with stage(record, "save"):
                    program.save(
                        f,
                        include_initializers=export_params,
                        keep_initializers_as_inputs=keep_initializers_as_inputs,
                        external_data=external_data,
                    )

    try:
        _check_arguments(options, retired, external_data, dynamo, f)
        torch_compat.run_exclusively(run)
    except BaseException as error:
        record.error = error
        record.traceback = traceback.format_exc()
        raise
    finally:
        if report or (record.error is not None and artifacts_dir is not None):
            write_report(record, program, folder)
    assert program is not None
    return program


def _build(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    options: Options,
    record: ExportRecord,
) -> tuple[ONNXProgram, Reference]:
    """Runs the stages up to the checked program, in order."""
    from onnx_aot.pipeline import stages
    from onnx_aot.pipeline.notes import check_delivered

    with stage(record, "capture"):
        captured, notes = stages.capture_model(model, args, kwargs, options)
        record.strategy, record.conditions = captured.strategy, captured.conditions
        publish(record, notes)
    with stage(record, "fx_passes"):
        rewritten, notes = stages.rewrite_graph(captured, options)
        publish(record, notes)
    requested, forward = captured.requested, captured.reference.forward
    try:
        program = _to_onnx(rewritten, requested, forward, options, record, captured.readings)
    except TranslationError as error:
        explained = stages.explain_untranslated(captured.reference)
        if explained is None:
            raise
        raise explained from error
    with stage(record, "check"):
        decided = captured.decisions
        publish(record, check_delivered(program, requested, options, record.custom, decided))
    return program, captured.reference


def _to_onnx(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    forward: inspect.Signature | None,
    options: Options,
    record: ExportRecord,
    readings: Sequence[Reading],
) -> ONNXProgram:
    """Runs the stages from a rewritten program to an ONNX program."""
    from onnx_aot.ir_passes.module_functions import keep_calls_apart, modules_as_functions
    from onnx_aot.metadata.module_calls import module_calls, wanted_classes
    from onnx_aot.pipeline import stages
    from onnx_aot.pipeline.notes import describe_inline_calls
    from onnx_aot.program.origin import Origin
    from onnx_aot.program.program import ONNXProgram

    def translate_again(**changed: Any) -> ONNXProgram:
        again = dataclasses.replace(options, **changed)
        quiet = new_record(program, (), None, {})
        return _to_onnx(program, requested, forward, again, quiet, readings)

    with stage(record, "translate"):
        translated, notes = stages.translate_graph(program, requested, options)
        counts = translated.statistics
        record.direct, record.custom = counts.direct, counts.custom
        record.decomposed, record.unsupported = counts.decomposed, counts.unsupported
        publish(record, notes)
    model = translated.model
    calls = module_calls(program.graph) if options.export_modules_as_functions else {}
    functions = wanted_classes(options.export_modules_as_functions, calls)
    if functions:
        keep_calls_apart(model, calls, functions)
    if options.optimize:
        with stage(record, "ir_passes"):
            outcome, notes = stages.optimize_model(model, options)
            record.optimizations = outcome.counts
            publish(record, notes)
    if stages.is_fitted(options):
        with stage(record, "legalize"):
            record.adaptations, notes = stages.fit_to_target(model, options, program)
            publish(record, notes)
    if functions:
        publish(record, describe_inline_calls(modules_as_functions(model, calls, functions)))
    return ONNXProgram(
        model,
        program,
        forward,
        state=translated.state,
        weights=translated.weights,
        origin=Origin(
            translate_again,
            options.target,
            record.optimizations.copy(),
            {one.name: one.elements for one in readings if one.elements is not None},
        ),
        record=record,
    )


def _verify(
    program: ONNXProgram, reference: Reference, options: Options, record: ExportRecord
) -> None:
    from onnx_aot.pipeline.stages import check_verification, verify_program

    record.verification, notes = verify_program(program, reference)
    check_verification(program, reference, record.verification, options)
    publish(record, notes)


def _other_than_default(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``export`` that are not the defaults."""
    defaults = export.__kwdefaults__ or {}
    return {
        name: given[name]
        for name, default in defaults.items()
        if name != "kwargs" and given[name] is not default and not _same(given[name], default)
    }


def _same(value: Any, default: Any) -> bool:
    """True if a value equals a default (a number or text); other values may not be comparable."""
    return isinstance(value, (bool, int, str)) and type(value) is type(default) and value == default


def _check_arguments(
    options: Options, retired: Mapping[str, Any], external_data: Any, dynamo: bool, f: Any
) -> None:
    """Checks what can be checked before anything is done."""
    check_retired(retired, list(export.__kwdefaults__ or ()))
    check_options(options)
    check_choice("external_data", external_data, ("auto", True, False, "safetensors", None))
    if not dynamo:
        warn(
            "dynamo=False has no effect: there is one exporter, which captures with torch.export",
            "OA002",
        )
    if f is not None:
        from onnx_aot.serialization.atomic import check_destination

        check_destination(f)
