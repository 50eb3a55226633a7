"""The ways in which torch can capture a model, and how one of them is run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from onnx_aot.capture.error_hints import RefusedError
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.io_hooks import Boundary
from onnx_aot.capture.module_state import preserved_state
from onnx_aot.capture.patches import capture_conditions
from onnx_aot.capture.patches.model_calls import ModelRows
from onnx_aot.capture.python_random import SeededDraws, draws_observed
from onnx_aot.capture.reuse import Reuse
from onnx_aot.capture.scalar_inputs import floats_as_tensors
from onnx_aot.capture.scripted.children import is_scripted
from onnx_aot.capture.sizes.data_dependent import describe_larger
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.guards import Decision, DecisionLog
from onnx_aot.capture.sizes.known_sources import Source
from onnx_aot.capture.sizes.known_values import KnownValues
from onnx_aot.capture.sizes.validating_branches import Validation, Validations
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import CaptureError, InvalidOptionError
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import (
    WHILE_LOOP,
    FakeTensor,
    OpOverload,
    Settings,
    aten,
    attributes_kept,
    can_record_paths,
    pytree,
    schema_of,
)

__all__ = ["DEFAULT", "STRATEGIES", "Model", "Run", "check_strategies", "run_strategy"]

STRATEGIES: dict[str, str] = {
    "non-strict": "torch.export.export(strict=False)",  # traces through Python, refuses least
    "strict": "torch.export.export(strict=True)",  # analyses bytecode, sees the branches themselves
    "draft": "torch.export.draft_export",  # follows the example where data decides
    "trace": "torch.jit.trace",  # records what is computed for the example
}

DEFAULT = ("non-strict", "strict")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model to capture, with everything that each attempt needs.

    Attributes:
        module: The model.
        inputs: Example inputs.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        strategies: Names from ``STRATEGIES``, in the order in which they are tried.
        sources: Buffers and attributes whose values may be known to the capture, by name.
        keeps_state: Whether plain tensor attributes are state of the exported model.
        reuse: Whether layers that repeat are copied, or only compared.
    """

    module: torch.nn.Module
    inputs: Inputs
    collected: tuple[str, ...] = ()
    strategies: tuple[str, ...] = DEFAULT
    sources: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    keeps_state: bool = False
    reuse: Literal["auto", "off", "check"] = "auto"


@dataclasses.dataclass
class Run:
    """One strategy at work on one model, and what it observed.

    Attributes:
        strategy: A name from ``STRATEGIES``.
        model: The model.
        requested: The requested dynamic shapes.
        settings: Settings of the patches.
        decisions: Decisions about sizes so far, with the user's lines.
        validations: Branches so far that only validate data, and were not taken.
        drawn: Generators of Python and numpy that the model drew from.
        warnings: Sentences about values that are right for a part of the data only, by the code of
            the page about them.
    """

    strategy: str
    model: Model
    requested: DynamicShapes
    settings: Settings
    decisions: list[Decision]
    validations: list[Validation]
    drawn: Sequence[str] = ()
    warnings: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def known(self) -> KnownValues:
        """The values of tensors that the capture knew."""
        known: KnownValues = self.settings.model_rows.known
        return known

    @property
    def copies_failed(self) -> bool:
        """True if the run is to be repeated without copies of layers that repeat."""
        reuse = self.settings.reuse
        return reuse is not None and bool(reuse.failed)

    @classmethod
    def prepare(
        cls,
        strategy: str,
        model: Model,
        requested: DynamicShapes,
        *,
        from_zero: bool = False,
        small_sizes: bool = True,
        plain: bool = False,
        conversions: frozenset[tuple[str, str]] = frozenset(),
        zero_ignored: Callable[[bool], None] | None = None,
        converted: Callable[[tuple[str, str]], None] | None = None,
        unknown: Collection[str] = (),
        limit: TimeLimit | None = None,
        both_ways: bool = False,
        rolls: bool = False,
        loops_in: frozenset[str] = frozenset(),
        both_sizes: bool = False,
        decides_slices: bool = False,
    ) -> Run:
        """Prepares a run; other keywords are those of ``Settings``.

        Args:
            strategy: A name from ``STRATEGIES``.
            model: The model.
            requested: The requested dynamic shapes.
            from_zero: Whether the capture has to hold for empty tensors too.
            small_sizes: Whether dimensions whose example size is 0 or 1 stay dynamic.
            plain: Whether optional rows are left out.
            conversions: Modules in which ``int`` or ``float`` keeps sizes symbolic.
            zero_ignored: Called if the capture uses an answer that holds above zero only.
            converted: Called if ``int`` or ``float`` made a number of a size.
            unknown: Sources whose values are not known, since the model writes to them.
            limit: Ends the run when the time for it is over.
            both_ways: Whether both ways of branches on data are captured, if torch allows it.
            rolls: Whether Python loops over dynamic sizes become one loop.
            loops_in: Files with such loops.
            both_sizes: Whether these include branches on sizes of data.
            decides_slices: Whether bounds of slices that sizes do not decide are the example's.
        """
        boundary = run_strategy.__code__
        validations = Validations(boundary)
        decisions = DecisionLog(boundary, lambda: validations.find() is not None, converted)
        strict = strategy == "strict"
        branches = None
        if both_ways and strategy == "non-strict" and can_record_paths():
            from onnx_aot.capture.branches.paths import FEWER, Branches

            measure = contextlib.nullcontext if limit is None else limit.measure_path
            branches = Branches(
                *(model.module, validations.is_asked_by_model, decisions.seen),
                *(validations, measure, FEWER if both_sizes else None),
            )
        known = KnownValues(model.sources, unknown, decisions.locate)
        reuse = None
        loops = None
        if rolls and strategy == "non-strict":
            from onnx_aot.capture.loops.steps import Loops

            loops = Loops(decisions.locate, known.forget_computed, loops_in)
        copies = branches is None and loops is None and not plain and model.reuse != "off"
        if strategy == "non-strict" and copies:
            reuse = Reuse(model.module, known, only_compares=model.reuse == "check")
        settings = Settings(
            module=model.module,
            inputs=(model.inputs.args, model.inputs.kwargs),
            boundary=boundary,
            strict=strict,
            lazy=not strict,  # strict capture reads the generated code
            dynamic=requested.spec is not None,
            small_sizes=small_sizes,
            from_zero=from_zero,
            zero_ignored=zero_ignored,
            decided=decisions.seen,
            larger_sizes=strategy == "non-strict",
            both_sizes=both_sizes,
            decides_slices=decides_slices,
            check_time=None if limit is None or limit.largest is None else limit.check,
            validations=validations if strategy == "non-strict" else None,
            branches=branches,
            loops=loops,
            reuse=reuse,
            keeps_log=strategy != "draft",
            plain=plain,
            conversions=conversions,
            model_rows=_model_rows(
                model,
                requested,
                strict,
                known,
                SeededDraws(decisions.locate),
            ),
        )
        return cls(strategy, model, requested, settings, decisions, validations)


def check_strategies(given: Sequence[str]) -> tuple[str, ...]:
    """The strategies as a tuple.

    Raises:
        InvalidOptionError: They are not a list of known names.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in names if name not in STRATEGIES]
    if isinstance(given, str) or unknown or not names:
        raise InvalidOptionError(
            f"strategies is {given!r}; expected a tuple of {', '.join(map(repr, STRATEGIES))}, "
            f"which are tried in this order, such as {(*DEFAULT, 'draft')!r}"
        )
    return names


def run_strategy(run: Run) -> torch.export.ExportedProgram:
    """Captures the model in the way of the run, and fills in what the run observed."""
    model, settings, spec = run.model, run.settings, run.requested.spec
    inputs = floats_as_tensors(model.inputs, run.requested.floats)
    if run.strategy in ("draft", "trace"):
        from onnx_aot.capture.draft_and_trace import describe_draft, trace_model
    if run.strategy == "trace":
        script, run.warnings["OA101"] = trace_model(model.module, inputs)
        model = dataclasses.replace(model, module=script, collected=(), sources={})
        settings.module = script
        settings.model_rows = _model_rows(
            *(model, run.requested, False, KnownValues({}), SeededDraws())
        )
    seeded = settings.model_rows.seeded
    with (
        seeded.observed(),
        attributes_kept(pytree.tree_leaves((inputs.args, inputs.kwargs))),
        _prepare_capture(model, settings),
        draws_observed() as drawn,
    ):
        run.drawn = drawn
        if run.strategy == "draft":
            program = torch.export.draft_export(
                model.module, inputs.args, inputs.kwargs, dynamic_shapes=spec
            )
            run.warnings["OA101"] = describe_draft(program, run.decisions)
        else:
            program = torch.export.export(
                model.module,
                inputs.args,
                inputs.kwargs,
                dynamic_shapes=spec,
                strict=settings.strict,
            )
            _check_numbers(program)
            if settings.strict:
                _check_constants(program, model)
                _check_shapes(program)
            else:
                _check_bodies(program, model)
            changed = settings.model_rows.boundary.changed
            of_state = _describe_left_out(model, settings) or _describe_changed(changed)
            if of_state is not None and run.strategy != "trace":
                run.warnings["OA106"] = of_state
    larger = describe_larger(run.decisions)
    if larger is not None:
        run.warnings["OA107"] = larger
    return program


def _describe_changed(changed: Sequence[str]) -> str | None:
    """The warning about Python numbers of the model that ``forward`` changes."""
    if not changed:
        return None
    return (
        f"forward changes numbers of the model, {', '.join(changed)}, and each call of the "
        "exported model computes what the first call does. If results depend on such a number, "
        'keep it as a tensor, self.register_buffer("calls", torch.tensor(0)), and export with '
        'state="io"'
    )


def _describe_left_out(model: Model, settings: Settings) -> str | None:
    """Returns the warning about attributes and buffers whose new values are not kept.

    Raises:
        RefusedError: They are state of the exported model.
    """
    modules = () if settings.module is None else settings.module.modules()
    scripted: list[Any] = [module for module in modules if is_scripted(module)]
    left_out = [text for module in scripted for text in module.observed.left_out]
    branches: Any = settings.branches
    made = [*settings.model_rows.assigned.made, *sorted(branches.filled if branches else ())]
    left_out += [f"{name} is None before the call, and a tensor after it" for name in made]
    if left_out and model.keeps_state:
        raise RefusedError(
            f"the state of an ONNX model keeps its shape: {'; '.join(left_out)}",
            "call the model once before the export, model(*args), so that it has its state",
            "OA106",
        )
    if not left_out:
        return None
    return (
        f"new values of attributes are not kept from call to call: {'; '.join(left_out)}. Call the "
        "model once before the export, model(*args), so that it has its state"
    )


def _check_constants(program: torch.export.ExportedProgram, model: Model) -> None:
    """Raises if torch kept no values of a constant, as strict captures do of NumPy arrays."""
    if _has_fake_weights(model.module):
        return
    if any(isinstance(constant, FakeTensor) for constant in program.constants.values()):
        raise RefusedError(
            "torch.export.export(strict=True) keeps no values of a NumPy array of the model",
            "keep the array as a tensor, self.register_buffer(name, torch.from_numpy(array))",
            "OA111",
        )


_RESHAPES = (
    aten.squeeze_.default,
    aten.squeeze_.dim,
    aten.squeeze_.dims,
    aten.swapaxes_.default,
    aten.swapdims_.default,
    aten.t_.default,
    aten.transpose_.default,
    aten.unsqueeze_.default,
)


def _check_shapes(program: torch.export.ExportedProgram) -> None:
    """Raises if the shape of a tensor is changed in place: strict captures read the old one."""
    for node in program.graph.nodes:
        if node.target in _RESHAPES:
            name = schema_of(node.target).name.removeprefix("aten::")
            place = location(node)
            raise RefusedError(
                f"torch.export.export(strict=True) reads the old shape of a tensor after {name}"
                f"{'' if place is None else f', at {place.with_code}'}",
                f"write y = x.{name.removesuffix('_')}(...) instead of x.{name}(...)",
                "OA199",
            )


def _check_numbers(program: torch.export.ExportedProgram) -> None:
    """Raises if an operator has a float for a size or bound: torch 2.15 drops ``int(n % 2.5)``."""
    for node in program.graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        for argument, given in zip(schema_of(node.target).arguments, node.args, strict=False):
            value = given.meta.get("val") if isinstance(given, torch.fx.Node) else None
            if isinstance(value, torch.SymFloat) and "int" in str(argument.real_type):
                where = location(node)
                cause = f"the number {value} is a float where {node.target} takes an integer"
                fix = "compute it with integers; int(n % 2.5) is (2 * n % 5) // 2"
                raise CaptureError(
                    f"the model could not be captured; {cause}"
                    f"{f', at {where}' if where else ''}: torch {torch.__version__} does not "
                    f"convert it\nfix: {fix}",
                    cause=cause,
                    places=() if where is None else (where,),
                    fix=fix,
                    code="OA104",
                )


def _check_bodies(program: torch.export.ExportedProgram, model: Model) -> None:
    """Raises if a body uses a tensor from outside that is not passed to it: it has no values."""
    if _has_fake_weights(model.module):
        return
    for body in program.graph_module.modules():
        for node in body.graph.nodes if isinstance(body, torch.fx.GraphModule) else ():
            if node.op == "get_attr" and isinstance(getattr(body, node.target, None), FakeTensor):
                place = location(node)
                raise RefusedError(
                    "a function given to an operator of torch.ops.higher_order uses a tensor from "
                    f"outside{'' if place is None else f', at {place.with_code}'}",
                    f"loop with {WHILE_LOOP}(condition, body, operands), whose functions may use "
                    "such tensors; or pass the tensor to the operator in additional_inputs",
                    "OA103",
                )


def _has_fake_weights(module: torch.nn.Module) -> bool:
    return any(isinstance(t, FakeTensor) for t in (*module.parameters(), *module.buffers()))


def _model_rows(
    model: Model,
    requested: DynamicShapes,
    strict: bool,
    known: KnownValues,
    seeded: SeededDraws,
) -> ModelRows:
    return ModelRows(
        model.inputs,
        requested,
        known,
        model.collected,
        Boundary(strict),
        keeps_state=model.keeps_state,
        seeded=seeded,
    )


@contextlib.contextmanager
def _prepare_capture(model: Model, settings: Settings) -> Iterator[None]:
    """Changes torch, packages and the model for a capture and restores everything afterwards."""
    with preserved_state(model.module), capture_conditions(settings):
        yield
