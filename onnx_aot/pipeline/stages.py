"""The stages of an export; each returns what it made, with notes to the user.

In order: ``capture_model``, ``rewrite_graph``, ``translate_graph``, ``optimize_model``,
``fit_to_target``, ``verify_program``. ``onnx_aot.export`` calls them.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot import torch_compat
from onnx_aot.errors import FunctionalizationError, OnnxExporterError
from onnx_aot.options import Options
from onnx_aot.pipeline import notes as describe
from onnx_aot.pipeline import operator_notes
from onnx_aot.pipeline.recording import Note

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_aot.capture.sizes.dynamic_shapes import DynamicShapes
    from onnx_aot.capture.sizes.guards import Decision
    from onnx_aot.capture.sizes.known_values import Reading
    from onnx_aot.inspection.differences import SizeResult
    from onnx_aot.ir_passes import Outcome
    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.targets import Adaptation
    from onnx_aot.translate import Translated

__all__ = [
    "CapturedModel",
    "Reference",
    "capture_model",
    "check_verification",
    "explain_untranslated",
    "fit_to_target",
    "is_fitted",
    "optimize_model",
    "rewrite_graph",
    "translate_graph",
    "verify_program",
]

# Code of a stage is imported where it is used: onnx_ir and onnxscript take longer to import than
# everything else, and `import onnx_aot` must not pay for them.

Notes = list[Note]


@dataclasses.dataclass(frozen=True)
class Reference:
    """The model and the inputs that the exported program is compared with.

    Attributes:
        model: The module, or the ExportedProgram that the user gave.
        args: Example inputs.
        kwargs: Example keyword inputs.
        separated: Example inputs that shared memory with another one.
    """

    model: torch.nn.Module | torch.export.ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    separated: tuple[str, ...]

    @property
    def forward(self) -> inspect.Signature | None:
        """The signature of the module, or None for an ExportedProgram."""
        if isinstance(self.model, torch.export.ExportedProgram):
            return None
        return inspect.signature(self.model.forward)


@dataclasses.dataclass(frozen=True)
class CapturedModel:
    """The result of a capture.

    Attributes:
        program: The captured program.
        requested: The requested dynamic shapes, less what the model does not deliver.
        reference: The model and the inputs to compare with.
        strategy: How the program was captured.
        conditions: Conditions on input sizes under which it was captured.
        autocast: Whether the export runs in an autocast region, which the capture does not record.
        readings: Numbers that the capture took from the model's state.
        decisions: Decisions of the capture about sizes, with the user's lines.
    """

    program: torch.export.ExportedProgram
    requested: DynamicShapes
    reference: Reference
    strategy: str
    conditions: list[str]
    autocast: bool
    readings: tuple[Reading, ...] = ()
    decisions: tuple[Decision, ...] = ()


def capture_model(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, options: Options
) -> tuple[CapturedModel, Notes]:
    """Captures the model, or takes over the user's ``ExportedProgram``."""
    from onnx_aot.capture.fake_weights import refuse_real_tensors
    from onnx_aot.capture.inputs import as_module, bind_arguments, normalize_inputs
    from onnx_aot.capture.plans import capture
    from onnx_aot.capture.program_inputs import arguments_of_program, inputs_of_program
    from onnx_aot.capture.sizes.dynamic_shapes import resolve_dynamic_shapes
    from onnx_aot.capture.strategies import DEFAULT, check_strategies
    from onnx_aot.capture.training import training_operators
    from onnx_aot.pytrees.containers import unwrap_constants

    given = options.strategies
    strategies = DEFAULT if given is None else check_strategies(given)
    is_program = isinstance(model, torch.export.ExportedProgram)
    readings: tuple[Reading, ...] = ()
    decisions: tuple[Decision, ...] = ()
    if is_program:
        inputs = inputs_of_program(model, args, kwargs)
        arguments = arguments_of_program(model)
    else:
        model = as_module(model)
        refuse_real_tensors(model, args, kwargs)
        inputs = normalize_inputs(model, args, kwargs, options.input_names)
        arguments = bind_arguments(model, inputs)
    requested = asked = resolve_dynamic_shapes(
        arguments,
        options.dynamic_shapes,
        options.dynamic_axes,
        options.input_names,
        options.output_names,
    )
    if is_program:
        program, strategy = torch_compat.copy_program(model), "ExportedProgram"
        notes = describe.check_dimensions(program, requested, options, is_given=True)
        notes += describe.describe_dimensions(program, requested, options)
    else:
        captured = capture(
            model,
            inputs,
            requested,
            arguments.collected,
            options.on_specialized,
            strategies,
            _find_replaceable(model, options.weights_as_inputs),
            options.state == "io",
            is_limited=given is None,
            reuse=options.reuse,
        )
        program, requested, strategy = captured.program, captured.requested, captured.strategy
        readings, decisions = captured.readings, captured.decisions
        notes = describe.describe_capture(captured, options)
        notes += describe.describe_dimensions(program, requested, options, captured)
        notes += describe.describe_left_to_model(asked, captured)
    if not torch_compat.is_tested():
        notes.append(Note(torch_compat.describe_untested(), "OA016", quiet=True))
    notes += describe.describe_training(training_operators(program.graph_module))
    given_args, given_kwargs = unwrap_constants((inputs.args, inputs.kwargs))
    reference = Reference(model, given_args, given_kwargs, inputs.separated)
    conditions = torch_compat.size_conditions(program)
    autocast = not is_program and any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    made = CapturedModel(
        program, requested, reference, strategy, conditions, autocast, readings, decisions
    )
    return made, notes


def _find_replaceable(model: torch.nn.Module, asked: bool | Sequence[str]) -> Callable[[str], bool]:
    """Tells the names of weights that are inputs of the exported model, so can be replaced."""
    if asked is True:
        return model.state_dict(keep_vars=True).__contains__
    patterns = () if asked is False else tuple(asked)
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def rewrite_graph(
    captured: CapturedModel, options: Options
) -> tuple[torch.export.ExportedProgram, Notes]:
    """Makes the captured graph functional and free of what ONNX has no words for.

    Raises:
        FunctionalizationError: The model has an in-place write without a functional form.
        CaptureError: With ``state="io"``, the model assigns another shape to a buffer.
    """
    from onnx_aot.fx_passes.drop_state import drop_state
    from onnx_aot.fx_passes.state_shapes import check_state_shapes

    program, notes = _run_fx_passes(captured, options)
    notes += describe.describe_shared_inputs(program, captured.reference.separated)
    if options.state == "drop":
        notes += describe.describe_dropped_state(drop_state(program))
    elif options.state == "io":
        check_state_shapes(program)
    return program, notes


def _run_fx_passes(
    captured: CapturedModel, options: Options
) -> tuple[torch.export.ExportedProgram, Notes]:
    from onnx_aot.capture.patches import capture_conditions
    from onnx_aot.capture.sizes.captured_dimensions import keeps_dimensions
    from onnx_aot.fx_passes import select_passes

    fx_passes = select_passes(keep_assertions=options.runtime_checks, autocast=captured.autocast)
    original = program = captured.program
    try:
        for fx_pass in fx_passes:
            program = fx_pass(program)
        return program, []
    except FunctionalizationError as error:
        if not error.torch_has_one:
            raise
        refused = error
    try:
        with capture_conditions():
            program = torch_compat.functionalized_by_torch(original)
    except Exception as error:
        raise FunctionalizationError(
            f"{refused.message}, and torch's run_decompositions failed too: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
            code=refused.code,
        ) from error
    if not keeps_dimensions(original, program):
        raise FunctionalizationError(
            f"{refused.message}, and torch's run_decompositions makes dynamic dimensions static. "
            "Write it without the in-place operator, or make its dimensions static",
            code=refused.code,
        )
    for fx_pass in fx_passes:
        program = fx_pass(program)
    note = (
        f"{refused.message}. The whole program was functionalized by torch's run_decompositions "
        "instead, which takes longer and breaks composite operators apart"
    )
    return program, [Note(note, refused.code, quiet=True)]


def translate_graph(
    program: torch.export.ExportedProgram, requested: DynamicShapes, options: Options
) -> tuple[Translated, Notes]:
    """Translates a rewritten program, node by node."""
    from onnx_aot.capture.sizes.captured_dimensions import dimension_names
    from onnx_aot.translate import Request, translate
    from onnx_aot.version import __version__

    failed: dict[str, None] = {}
    translated = translate(
        program,
        Request(
            opset=options.opset,
            table=_collect_translations(program, options, failed),
            custom_opsets=options.custom_opsets or {},
            unsupported=options.unsupported,
            decompose=options.decompose,
            input_names=options.input_names,
            output_names=options.output_names,
            dimension_names=dimension_names(program, requested, options.input_names),
            metadata=options.metadata,
            relative_to=options.stack_trace_root,
            producer_version=__version__,
            seed=options.seed,
            runtime_checks=options.runtime_checks,
            state=options.state,
            weights_as_inputs=options.weights_as_inputs,
        ),
    )
    notes = operator_notes.describe_unsupported(
        translated.statistics.unsupported, translated.model, options
    )
    notes += operator_notes.describe_wide_integers(program, options)
    notes += [Note(problem, "OA010", quiet=True) for problem in failed]
    return translated, notes + operator_notes.describe_limits(program)


def explain_untranslated(reference: Reference) -> OnnxExporterError | None:
    """The error to raise if a node could not be translated because the model fails by itself.

    None if types of its tensors that do not fit are not the reason.
    """
    from onnx_aot.capture.failing_models import explain_types
    from onnx_aot.capture.inputs import Inputs

    if isinstance(reference.model, torch.export.ExportedProgram):
        return None
    return explain_types(reference.model, Inputs(reference.args, reference.kwargs))


def _collect_translations(
    program: torch.export.ExportedProgram, options: Options, failed: dict[str, None]
) -> Mapping[Any, Any]:
    """The table of translations, the user's included, with all that the program needs imported.

    ``failed`` gets a sentence per method ``symbolic`` that fails during the translation.
    """
    from onnx_aot.capture.patches.autograd_functions import kept_functions
    from onnx_aot.ops.registry import import_late_families, translations
    from onnx_aot.ops.user.custom_translations import custom_translations, with_custom
    from onnx_aot.ops.user.process_registrations import registered_translations
    from onnx_aot.ops.user.symbolic_methods import symbolic_translations

    table: Mapping[Any, Any] = translations()
    import_late_families(
        node.target
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )
    for custom in (
        symbolic_translations(kept_functions(), failed),
        registered_translations(),
        custom_translations(options.custom_translation_table or {}),
    ):
        table = with_custom(table, custom) if custom else table
    if options.runtime_checks:
        from onnx_aot.ops.control.assertions import assertions

        table = with_custom(table, assertions())
    return table


def optimize_model(model: ir.Model, options: Options) -> tuple[Outcome, Notes]:
    """Runs the passes and rules that the options select."""
    from onnx_aot.ir_passes import run_passes
    from onnx_aot.targets import has_kernel

    kernels = has_kernel(options.target)
    outcome = run_passes(model, options.optimize, options.contrib_ops, kernels)
    return outcome, describe.describe_undone_passes(outcome)


def _is_older(options: Options) -> bool:
    """True if the opset is written from the forms of a later one."""
    from onnx_aot.graph.opset_range import built_opset

    return options.opset != built_opset(options.opset)


def is_fitted(options: Options) -> bool:
    """True if an export needs ``fit_to_target``."""
    return options.target is not None or _is_older(options)


def fit_to_target(
    model: ir.Model, options: Options, captured: torch.export.ExportedProgram
) -> tuple[Sequence[Adaptation], Notes]:
    """Rewrites nodes that the target has no kernel for, or that an opset before 17 lacks.

    Raises:
        ConversionError: The model needs a later IR version than the target loads.
        OpsetError: The opset lacks operators, or types or forms of them; the error lists all.
    """
    from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
    from onnx_aot.targets import check_ir_version, legalize
    from onnx_aot.translate.ir_version import ir_version
    from onnx_aot.translate.opset_errors import make_opset_error

    target = options.target
    if target is not None:
        check_ir_version(model, target)
    fit = legalize(model, target, options.opset)
    if fit.missing:
        raise make_opset_error(fit.missing, captured.graph)
    if _is_older(options):
        model.ir_version = ir_version(model.graph, model.functions.values())
        if options.optimize is True or options.optimize == "safe":
            eliminate_common_subexpressions(model)  # such as the shape of one value
    name = f"opset {options.opset}" if target is None else target
    notes = operator_notes.describe_less_precise_types(fit.adaptations, name)
    if target is not None:
        notes += operator_notes.describe_missing_kernels(fit.left, target, captured)
    return fit.adaptations, notes


def verify_program(program: ONNXProgram, reference: Reference) -> tuple[list[SizeResult], Notes]:
    """Compares the program in ONNX Runtime with the model, at several sizes."""
    from contextlib import AbstractContextManager

    from onnx_aot.capture.module_state import preserved_state
    from onnx_aot.inspection.verification import describe_sizes
    from onnx_aot.inspection.verify import verify_sizes

    not_verified = describe.describe_not_verified(program)
    if not_verified:
        return [], not_verified
    model: Any = reference.model
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()

    def isolated() -> AbstractContextManager[Any]:
        return preserved_state(model)

    results = verify_sizes(program, model, reference.args, reference.kwargs, isolated)
    notes = describe.describe_rounding(results)
    refused = [describe_sizes(result) for result in results if result.runtime_refuses]
    if refused:
        note = (
            f"ONNX Runtime refuses empty inputs that PyTorch takes: {'; '.join(refused)}. The "
            "report says why"
        )
        notes.append(Note(note, "OA206"))
    return results, notes


def check_verification(
    program: ONNXProgram, reference: Reference, results: list[SizeResult], options: Options
) -> None:
    """Checks that no result of ``verify_program`` is a failure.

    Raises:
        VerificationError: One is; the error names what is to blame, if that can be found.
    """
    from onnx_aot.inspection.verification import Verification, make_error
    from onnx_aot.pipeline.blame import blame

    if not Verification(tuple(results)).ok:
        inputs = reference.args, reference.kwargs
        raise make_error(results, blame(program, inputs, results, options))
