"""Runs an exported program beside the model that it came from, at the example's size and others."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import OutputKind

from onnx_aot.containers import constants_held
from onnx_aot.errors import VerificationError
from onnx_aot.inspection.differences import (
    OutputDifference,
    SizeResult,
    compare_outputs,
    compare_types,
)
from onnx_aot.inspection.randomness import random_outputs
from onnx_aot.inspection.sizes import Sample, flat_inputs, other_sizes, sizes_of
from onnx_aot.inspection.trial import crash
from onnx_aot.metadata_keys import DROPPED_STATE
from onnx_aot.torch_compat import pytree

__all__ = [
    "describe_sizes",
    "failure",
    "format_differences",
    "format_results",
    "verify_against",
    "verify_sizes",
]

TRIAL_LIMIT = 100 * 10**6
"""Models with more bytes of weights are not tried on empty inputs."""

RANDOM = "random: type and shape compared"
ADVICE = (
    "Nothing was saved. Export without verify=True; ONNXProgram.compare says which value goes "
    "wrong first."
)
NARROW = (
    " If the model is not meant for a size that failed, leave it out with "
    "torch.export.Dim(name, min=..., max=...)."
)


def verify_sizes(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    isolated: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> list[SizeResult]:
    """Compares the program with the model on the example inputs and at other sizes.

    ``inspection.sizes.other_sizes`` says which. Where PyTorch refuses a size, nothing is compared.
    Empty inputs run in a process of their own first, except with large models, which are not tried
    on them.

    Args:
        program: An ``ONNXProgram``.
        model: What it was exported from.
        args: Example positional inputs.
        kwargs: Example keyword inputs.
        isolated: Makes a context in which the model runs once and is as before afterwards;
            buffers are always.

    Returns:
        One entry per set of sizes, the example's first.

    Raises:
        Exception: Whatever PyTorch or ONNX Runtime raises on the example inputs.
    """
    first = _compared(program, model, args, kwargs, isolated)
    results = [SizeResult(sizes_of(program, args, kwargs), True, tuple(first))]
    for sample in other_sizes(program, args, kwargs):
        if 0 in sample.sizes.values() and _is_large(program):
            continue
        try:
            expected = _run_model(program, model, sample.args, sample.kwargs, isolated)
        except Exception as error:
            results.append(SizeResult(sample.sizes, False, torch_refuses=_first_line(error)))
            continue
        results.append(_at_size(program, sample, expected))
    return results


def _is_large(program: Any) -> bool:
    """Whether copying the weights for a trial would take longer than all that it is for."""
    values = [value.const_value for value in program.model.graph.initializers.values()]
    size: int = sum(tensor.nbytes for tensor in values if tensor is not None)
    return size > TRIAL_LIMIT


def _at_size(
    program: Any, sample: Sample, expected: tuple[list[Any], dict[str, torch.Tensor]]
) -> SizeResult:
    """Runs the ONNX model at a size that PyTorch takes."""
    try:
        if 0 in sample.sizes.values():
            crashed = crash(program, program._inputs(*_copied(sample.args, sample.kwargs)))
            if crashed:
                return SizeResult(sample.sizes, False, runtime_refuses=crashed)
        found = _run_program(program, sample.args, sample.kwargs, expected)
    except VerificationError:
        raise
    except Exception as error:
        return SizeResult(sample.sizes, False, runtime_refuses=_first_line(error))
    return SizeResult(sample.sizes, False, tuple(found))


def verify_against(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[OutputDifference]:
    """Compares the program in ONNX Runtime with the model in eager mode on the same inputs.

    What the model writes to buffers and inputs is compared too, with what eager mode leaves there.
    The model's buffers and the inputs are as before afterwards.

    Args:
        program: An ``ONNXProgram``.
        model: What it was exported from.
        args: Positional inputs.
        kwargs: Keyword inputs.

    Returns:
        One entry per output of the ONNX model. Of outputs in which a random operator has a part,
        only type and shape are compared.

    Raises:
        VerificationError: The numbers of outputs differ.
    """
    return _compared(program, model, args, kwargs, contextlib.nullcontext)


def format_differences(differences: Sequence[OutputDifference]) -> str:
    """A line per output."""
    return "\n".join(
        f"{'ok  ' if d.within else 'FAIL'} {d.name}: max abs {d.max_absolute:.3g}, "
        f"max rel {d.max_relative:.3g}, PyTorch {d.expected}, ONNX {d.actual}"
        + (f"; {d.remark}" if d.remark else "")
        for d in differences
    )


def format_results(results: Sequence[SizeResult]) -> str:
    """A line per set of sizes; below it a line per output that differs."""
    lines = []
    for result in results:
        lines.append(f"{describe_sizes(result)}: {_verdict(result)}")
        wrong = [difference for difference in result.differences if not difference.within]
        lines += ["  " + line for line in format_differences(wrong).splitlines()]
    return "\n".join(lines)


def failure(results: Sequence[SizeResult]) -> VerificationError | None:
    """What to raise where the ONNX model failed at one of the sizes, else None."""
    failed = [result for result in results if result.failed]
    if not failed:
        return None
    where = "on the example inputs" if failed[0].is_example else "at sizes other than the example's"
    return VerificationError(
        f"the ONNX model answers differently from PyTorch {where}:\n"
        + "\n".join("  " + line for line in format_results(results).splitlines())
        + f"\n{ADVICE}{'' if failed[0].is_example else NARROW}"
    )


def describe_sizes(result: SizeResult) -> str:
    """``n=4, m=6 (example)``."""
    sizes = ", ".join(f"{name}={size}" for name, size in result.sizes.items())
    if not result.is_example:
        return sizes
    return f"{sizes} (example)" if sizes else "example"


def _verdict(result: SizeResult) -> str:
    if result.torch_refuses:
        return f"PyTorch refuses: {result.torch_refuses}"
    if result.runtime_refuses:
        return f"ONNX Runtime refuses, PyTorch does not: {result.runtime_refuses}"
    wrong = sum(not difference.within for difference in result.differences)
    return f"{wrong} of {len(result.differences)} outputs differ" if wrong else "ok"


def _compared(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    isolated: Callable[[], contextlib.AbstractContextManager[Any]],
) -> list[OutputDifference]:
    expected = _run_model(program, model, args, kwargs, isolated)
    return _run_program(program, args, kwargs, expected)


def _run_model(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    isolated: Callable[[], contextlib.AbstractContextManager[Any]],
) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """The leaves that the model returns, and what it wrote, by target in the signature."""
    args, kwargs = _copied(args, kwargs)
    with isolated(), _tensors_kept(model, program.exported_program), torch.no_grad():
        returned = model(*args, **kwargs)
        written = _written(program.exported_program, model, args, kwargs)
        leaves = [
            leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
            for leaf in pytree.tree_leaves(constants_held(returned))
        ]
    return leaves, written


def _written(
    captured: torch.export.ExportedProgram | None,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, torch.Tensor]:
    """What the buffers and inputs hold now that the program says are written."""
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
    program: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    expected: tuple[list[Any], dict[str, torch.Tensor]],
) -> list[OutputDifference]:
    """Runs the ONNX model and compares what it returns, then what it writes."""
    ours_args, ours_kwargs = _copied(args, kwargs)
    with program.state_kept():
        actual = program(*ours_args, **ours_kwargs)
    names = [str(value.name) for value in program.model.graph.outputs]
    leaves, written = expected
    random = _random_by_position(program.exported_program, len(leaves))
    pairs: list[tuple[torch.Tensor | None, bool]] = [
        (leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf), drawn)
        for leaf, drawn in zip(leaves, random, strict=True)
        if isinstance(leaf, (torch.Tensor, int, float))  # None and strings are no outputs
    ]
    if len(actual) < len(pairs):
        raise VerificationError(
            f"the model returns {len(pairs)} values, the ONNX model {len(actual)}"
        )
    state = _state(program.exported_program, written)
    if len(actual) == len(pairs) + len(state):  # what comes after the user's outputs
        pairs += state
    found = []
    for index, (wanted, drawn) in enumerate(pairs):
        if wanted is None:
            continue
        name, given = names[index], actual[index]
        if drawn:
            found.append(compare_types(name, wanted, given, RANDOM))
        else:
            found += compare_outputs([name], [wanted], [given])
    return found


def _state(
    captured: torch.export.ExportedProgram | None, written: Mapping[str, torch.Tensor]
) -> list[tuple[torch.Tensor | None, bool]]:
    """What the model wrote, in the order of the ONNX model's outputs, and whether at random."""
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
    """Per leaf that the model returns, whether it is random."""
    if captured is None:
        return [False] * count
    specs = captured.graph_signature.output_specs
    drawn = [
        flag
        for spec, flag in zip(specs, random_outputs(captured), strict=True)
        if spec.kind == OutputKind.USER_OUTPUT
    ]
    return drawn if len(drawn) == count else [any(drawn)] * count


def _copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    def duplicate(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf)

    return pytree.tree_map(duplicate, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


@contextlib.contextmanager
def _tensors_kept(model: Any, captured: torch.export.ExportedProgram | None) -> Iterator[None]:
    """Buffers, and those parameters that the program says are written, are as before afterwards."""
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
