"""Compares an exported program with its source model, at the example's sizes and others."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import OutputKind

from onnx_aot.errors import InferenceError, InvalidOptionError, VerificationError
from onnx_aot.inspection.choices import accept_choices
from onnx_aot.inspection.differences import (
    OutputDifference,
    SizeResult,
    add_rounding,
    compare_outputs,
    compare_types,
)
from onnx_aot.inspection.random_outputs import random_outputs
from onnx_aot.inspection.rounding import run_in_double
from onnx_aot.inspection.size_checks import Sample, flat_inputs, other_sizes, sizes_of
from onnx_aot.inspection.subprocess_run import run_in_subprocess
from onnx_aot.inspection.verification import Verification
from onnx_aot.metadata.keys import DROPPED_STATE
from onnx_aot.pytrees.containers import wrap_constants
from onnx_aot.torch_compat import pytree

__all__ = [
    "REFERENCE",
    "RUNTIMES",
    "verify_against",
    "verify_program",
    "verify_sizes",
]

ONNXRUNTIME, REFERENCE = "onnxruntime", "reference"
RUNTIMES = (ONNXRUNTIME, REFERENCE)

STANDARD = ("", "ai.onnx", "ai.onnx.ml")
"""Domains whose operators ONNX's reference implementation supports."""

TRIAL_LIMIT = 100 * 10**6
"""Models with more bytes of weights are not tried on empty inputs."""

_Expected = tuple[torch.Tensor | None, bool]
"""Result of PyTorch for an output, and True if it is random."""

RANDOM = "random: type and shape compared"


def verify_sizes(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    isolated: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    *,
    sizes: bool = True,
    runtime: str = ONNXRUNTIME,
) -> list[SizeResult]:
    """Compares the program with the model on the example inputs and at other sizes.

    ``size_checks.other_sizes`` chooses the other sizes. Nothing is compared at sizes that PyTorch
    refuses. Empty inputs run in a subprocess first; large models are not tried on them. If an
    element exceeds its tolerance, PyTorch also runs in float64, and ``OutputDifference.rounding``
    has the distances of both results from that.

    Args:
        program: An ``ONNXProgram``.
        model: The model that it was exported from.
        args: Example positional inputs.
        kwargs: Example keyword inputs.
        isolated: Returns a context manager around one run of the model that restores its state
            afterwards. Buffers are restored in any case.
        sizes: Whether sizes other than the example's are tried.
        runtime: One of ``RUNTIMES``.

    Returns:
        One entry per set of sizes, the example's first.

    Raises:
        InferenceError: The inputs do not fit the model.
        VerificationError: The ONNX model has fewer outputs than the model returns values.
        Exception: Whatever PyTorch raises on the example inputs.
    """
    reference = _Reference(program, model, isolated)
    expected = reference.run(args, kwargs)
    example = Sample(sizes_of(program, args, kwargs), tuple(args), dict(kwargs))
    results = [_at_size(reference, example, expected, runtime, is_example=True)]
    for sample in other_sizes(program, args, kwargs) if sizes else ():
        if 0 in sample.sizes.values() and _is_large(program):
            continue
        try:
            expected = reference.run(sample.args, sample.kwargs)
        except Exception as error:
            results.append(SizeResult(sample.sizes, False, torch_refuses=_first_line(error)))
            continue
        results.append(_at_size(reference, sample, expected, runtime))
    return results


def verify_program(
    program: Any,
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    sizes: bool = True,
    runtime: str = ONNXRUNTIME,
) -> Verification:
    """Implements ``onnx_aot.verify`` for an ``ONNXProgram``.

    Raises:
        InvalidOptionError: The runtime is unknown or lacks operators of the model, the inputs
            do not fit ``forward``, or the program has weights without values.
        InferenceError: The inputs do not fit the ONNX model.
        Exception: Whatever PyTorch raises on the inputs.
    """
    _check_runtime(program, runtime)
    if not program.has_values:
        raise InvalidOptionError(
            "the program was exported without the values of its weights; call "
            "apply_weights(state_dict or path) before verify",
            code="OA502",
        )
    given = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    named = dict(kwargs or {})
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    elif program.exported_program is None:  # inputs are identified by their order alone
        given, named = _in_order(model, given, named)
    results = verify_sizes(program, model, given, named, sizes=sizes, runtime=runtime)
    return Verification(tuple(results), runtime)


def _check_runtime(program: Any, runtime: str) -> None:
    if runtime not in RUNTIMES:
        raise InvalidOptionError(f"runtime is {runtime!r}; expected one of {', '.join(RUNTIMES)}")
    if runtime != REFERENCE:
        return
    foreign = {
        f"{node.domain}::{node.op_type}"
        for node in program.model.graph.all_nodes()
        if node.domain not in STANDARD and node.op_identifier() not in program.model.functions
    }
    if foreign:
        raise InvalidOptionError(
            f"ONNX's reference implementation does not have {', '.join(sorted(foreign))}; it has "
            'only the operators of the standard. Verify with runtime="onnxruntime", or export '
            "without contrib_ops",
            code="OA604",
        )


def _in_order(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Binds the inputs to ``forward``, so that keyword inputs are in its order."""
    forward = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidOptionError(
            f"the inputs do not fit {forward!r}: {error}", code="OA003"
        ) from None
    return bound.args, bound.kwargs


def _is_large(program: Any) -> bool:
    """True if the weights are too large to be copied for a trial run."""
    values = [value.const_value for value in program.model.graph.initializers.values()]
    size: int = sum(tensor.nbytes for tensor in values if tensor is not None)
    return size > TRIAL_LIMIT


def _at_size(
    reference: _Reference,
    sample: Sample,
    expected: _Results,
    runtime: str,
    is_example: bool = False,
) -> SizeResult:
    """Runs the ONNX model at sizes that PyTorch accepts, and compares."""
    program = reference.program
    args, kwargs = sample.args, sample.kwargs
    try:
        if 0 in sample.sizes.values() and runtime == ONNXRUNTIME:
            # Kernels for CUDA may end the process.
            args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
            crashed = run_in_subprocess(program, program._bind_inputs(*_copy_inputs(args, kwargs)))
            if crashed:
                return SizeResult(sample.sizes, is_example, runtime_refuses=crashed)
        found = _run_program(reference, args, kwargs, expected, runtime)
    except VerificationError:
        raise
    except Exception as error:
        if is_example and isinstance(error, InferenceError):  # the inputs are wrong, not the model
            raise
        return SizeResult(sample.sizes, is_example, runtime_refuses=_first_line(error))
    return SizeResult(sample.sizes, is_example, tuple(found))


def verify_against(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[OutputDifference]:
    """Compares the program in ONNX Runtime with the model in eager mode on the same inputs.

    Buffers and inputs that the model writes are compared too. The model's buffers and the inputs
    are restored afterwards.

    Args:
        program: An ``ONNXProgram``.
        model: The model that it was exported from.
        args: Positional inputs.
        kwargs: Keyword inputs.

    Returns:
        One entry per output of the ONNX model. Only type and shape are compared for outputs that
        depend on a random operator. Entries beyond the tolerance have the distances of both results
        from PyTorch's in float64.

    Raises:
        VerificationError: The ONNX model has fewer outputs than the model returns values.
    """
    reference = _Reference(program, model, contextlib.nullcontext)
    return _run_program(reference, args, kwargs, reference.run(args, kwargs))


_Results = tuple[list[Any], dict[str, torch.Tensor]]
"""Leaves of a model's result, and the tensors that it wrote, by signature target."""


@dataclasses.dataclass(frozen=True)
class _Reference:
    """The model that a program is compared with.

    Attributes:
        program: The ``ONNXProgram``.
        model: The model.
        isolated: Returns a context manager around a run that restores the model's state.
    """

    program: Any
    model: Callable[..., Any]
    isolated: Callable[[], contextlib.AbstractContextManager[Any]]

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Results:
        return self._run(self.model, args, kwargs)

    def run_in_double(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Results | None:
        """Runs the model in float64; None if it does not run so."""
        return run_in_double(self._run, self.model, args, kwargs)

    def _run(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Results:
        captured = self.program.exported_program
        args, kwargs = _copy_inputs(args, kwargs)
        with self.isolated(), _tensors_kept(model, captured), _without_tf32(), torch.no_grad():
            returned = model(*args, **kwargs)
            written = _read_mutated_state(captured, model, args, kwargs)
            leaves = [
                leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
                for leaf in pytree.tree_leaves(wrap_constants(returned))
            ]
        return leaves, written


def _read_mutated_state(
    captured: torch.export.ExportedProgram | None,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, torch.Tensor]:
    """Current values of the buffers, parameters and inputs that the program mutates, by target."""
    if captured is None:
        return {}
    inputs = dict(flat_inputs(captured, args, kwargs) or ())
    tensors: dict[str, torch.Tensor] = {}
    if isinstance(model, torch.nn.Module):
        tensors.update(itertools.chain(model.named_buffers(), model.named_parameters()))
    found = {}
    for spec in captured.graph_signature.output_specs:
        held = inputs if spec.kind == OutputKind.USER_INPUT_MUTATION else tensors
        if spec.kind != OutputKind.USER_OUTPUT and spec.target in held:
            found[str(spec.target)] = held[spec.target].detach().clone()
    return found


def _run_program(
    reference: _Reference,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    expected: _Results,
    runtime: str = ONNXRUNTIME,
) -> list[OutputDifference]:
    """Runs the ONNX model and compares its outputs, then the state that it writes."""
    program = reference.program
    ours_args, ours_kwargs = _copy_inputs(args, kwargs)
    call = program.call_reference if runtime == REFERENCE else program
    with program.state_kept():
        actual = call(*ours_args, **ours_kwargs)
    names = [str(value.name) for value in program.model.graph.outputs]
    pairs = _list_expected(program, expected, len(actual))
    found = {}
    for index, (wanted, drawn) in enumerate(pairs):
        if wanted is None:
            continue
        if drawn:
            found[index] = compare_types(names[index], wanted, actual[index], RANDOM)
        else:
            (found[index],) = compare_outputs([names[index]], [wanted], [actual[index]])
    exact = None
    if any(difference.worst is not None for difference in found.values()):
        exact = reference.run_in_double(args, kwargs)
    for index, (tensor, _) in enumerate(
        _list_expected(program, exact, len(actual)) if exact else ()
    ):
        wanted = pairs[index][0]
        if wanted is not None:
            found[index] = add_rounding(found[index], wanted, actual[index], tensor)
    differences = list(found.values())
    if runtime != ONNXRUNTIME:
        return differences

    def is_captured_alike() -> bool:
        captured = dataclasses.replace(reference, model=program.exported_program.module())
        again = _list_expected(program, captured.run(args, kwargs), len(actual))
        tensors = [
            (wanted, tensor)
            for (wanted, drawn), (tensor, _) in zip(pairs, again, strict=True)
            if wanted is not None and tensor is not None and not drawn
        ]
        names = [""] * len(tensors)
        return all(d.within for d in compare_outputs(names, *zip(*tensors, strict=True)))

    return accept_choices(program, args, kwargs, differences, is_captured_alike)


def _list_expected(program: Any, results: _Results, count: int) -> list[_Expected]:
    """Tensors for the outputs of the ONNX model, in order; None where there is nothing to compare.

    Args:
        program: The program.
        results: Results of the model.
        count: Number of outputs of the ONNX model.

    Raises:
        VerificationError: The ONNX model has fewer outputs than the model returns values.
    """
    leaves, written = results
    random = _random_by_position(program.exported_program, len(leaves))
    found: list[_Expected] = [
        (leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf), drawn)
        for leaf, drawn in zip(leaves, random, strict=True)
        if isinstance(leaf, (torch.Tensor, int, float))  # None and strings are not outputs
    ]
    if count < len(found):
        raise VerificationError(f"the model returns {len(found)} values, the ONNX model {count}")
    state = _collect_state(program.exported_program, written)
    if count == len(found) + len(state):  # state follows the user's outputs
        found += state
    return found


def _collect_state(
    captured: torch.export.ExportedProgram | None, written: Mapping[str, torch.Tensor]
) -> list[tuple[torch.Tensor | None, bool]]:
    """Tensors that the model wrote, in the order of the ONNX outputs, each with a random flag."""
    if captured is None:
        return []
    return [
        (written.get(str(spec.target)), drawn)
        for spec, drawn in zip(
            captured.graph_signature.output_specs, random_outputs(captured), strict=True
        )
        if spec.kind != OutputKind.USER_OUTPUT
    ]


def _random_by_position(captured: torch.export.ExportedProgram | None, count: int) -> list[bool]:
    """Returns a flag per leaf that the model returns: True if it is random."""
    if captured is None:
        return [False] * count
    specs = captured.graph_signature.output_specs
    drawn = [
        flag
        for spec, flag in zip(specs, random_outputs(captured), strict=True)
        if spec.kind == OutputKind.USER_OUTPUT
    ]
    return drawn if len(drawn) == count else [any(drawn)] * count


def _copy_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    def duplicate(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf)

    return pytree.tree_map(duplicate, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    """Computes float32 on a CUDA device without rounding it to 19 bits, as the model is run too."""
    settings: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    with contextlib.ExitStack() as stack:
        for holder in settings if torch.cuda.is_available() else ():
            with contextlib.suppress(RuntimeError):  # it was set by torch's newer names
                allowed = holder.allow_tf32
                holder.allow_tf32 = False
                stack.callback(setattr, holder, "allow_tf32", allowed)
        yield


@contextlib.contextmanager
def _tensors_kept(model: Any, captured: torch.export.ExportedProgram | None) -> Iterator[None]:
    """Restores the buffers, and the parameters that the program writes, on exit."""
    if not isinstance(model, torch.nn.Module):
        yield
        return
    written: set[str] = set()
    if captured is not None:
        written.update(captured.graph_module.meta.get(DROPPED_STATE, ()))
        written.update(str(spec.target) for spec in captured.graph_signature.output_specs)
    parameters = [tensor for name, tensor in model.named_parameters() if name in written]
    saved = [(tensor, tensor.detach().clone()) for tensor in (*model.buffers(), *parameters)]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in saved:
                tensor.copy_(before)


def _first_line(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line}"[:300]
