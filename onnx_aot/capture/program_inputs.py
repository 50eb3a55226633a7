"""Finds the inputs of a program that the user captured, and checks those that are passed along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.capture.inputs import Arguments, Inputs, named_inputs, positional_inputs
from onnx_aot.errors import InvalidOptionError
from onnx_aot.pytrees.structures import input_structure
from onnx_aot.torch_compat import known_number, pytree

__all__ = ["arguments_of_program", "inputs_of_program"]


def inputs_of_program(
    program: torch.export.ExportedProgram, args: Any, kwargs: Mapping[str, Any] | None
) -> Inputs:
    """The inputs passed along with a program, or those that it was captured with.

    Raises:
        InvalidOptionError: ``args`` is neither a tuple nor a tensor, or the inputs are not such as
            the program was captured with.
    """
    positional, named = positional_inputs(args), named_inputs(kwargs)
    if positional or named:
        _check(program, positional, named)
        return Inputs(positional, named)
    example_args, example_kwargs = program.example_inputs or ((), {})
    return Inputs(tuple(example_args), dict(example_kwargs))


def arguments_of_program(program: torch.export.ExportedProgram) -> Arguments:
    """The parameters of the captured ``forward`` with the fake values that the capture recorded."""
    args, kwargs = _recorded_inputs(program)
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())
    if len(names) < len(args):  # inputs taken by *args have no names
        names += [f"args_{index}" for index in range(len(names), len(args))]
    values = dict(zip(names, args, strict=False)) | kwargs
    return Arguments(values, tuple(values), ())


def _recorded_inputs(
    program: torch.export.ExportedProgram,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    recorded = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    leaves = [
        spec.arg.value if isinstance(spec.arg, ConstantArgument) else recorded[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    args, kwargs = pytree.tree_unflatten(leaves, input_structure(program))
    return tuple(args), dict(kwargs)


def _check(
    program: torch.export.ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Checks that inputs are such as a program was captured with.

    Raises:
        InvalidOptionError: They are not.
    """
    taken_args, taken_kwargs = _recorded_inputs(program)
    names = list(arguments_of_program(program).values)[: len(taken_args)]
    problem = None
    if len(args) != len(taken_args) or set(kwargs) != set(taken_kwargs):
        problem = f"{_shown_call(args, kwargs)} were given"
    else:
        pairs = [*zip(names, args, taken_args, strict=True)]
        pairs += [(name, kwargs[name], taken_kwargs[name]) for name in taken_kwargs]
        problem = next((found for pair in pairs for found in _differences(*pair)), None)
    if problem is not None:
        call = _shown_call(dict(zip(names, taken_args, strict=True)), taken_kwargs)
        raise InvalidOptionError(
            f"the example inputs do not fit the ExportedProgram: {problem}. It takes what it was "
            f"captured with, {call}. Leave args and kwargs out, since a program has its example "
            "inputs, or pass such inputs; sizes vary if the capture lets them, with "
            "torch.export.export(model, args, dynamic_shapes=...)",
            code="OA003",
        )


def _differences(name: str, given: Any, taken: Any) -> Iterator[str]:
    """Yields what a given input has other than the one that was captured."""
    ours, theirs = pytree.tree_leaves(given), pytree.tree_leaves(taken)
    is_nested = any(isinstance(each, (tuple, list, dict)) for each in (given, taken))
    if len(ours) != len(theirs) or (is_nested and type(given) is not type(taken)):
        yield f"{name} is {_shown(given)}, nested in another way than {_shown(taken)}"
        return
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor):
                yield f"{name} has {_shown(one)} in place of {_shown(other)}"
        elif one.dtype != other.dtype or not _fits(one.shape, other.shape):
            yield f"{name} is {_shown(one)}, not {_shown(other)}"


def _fits(given: torch.Size, taken: torch.Size) -> bool:
    if len(given) != len(taken):
        return False
    return all(known_number(t) in (None, g) for g, t in zip(given, taken, strict=True))


def _shown_call(args: Mapping[str, Any] | tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Arguments in a row, such as ``x: float32[4,8], scale=2.0``."""
    if isinstance(args, tuple):
        shown = [_shown(value) for value in args]
    else:
        shown = [f"{name}: {_shown(value)}" for name, value in args.items()]
    shown += [f"{name}={_shown(value)}" for name, value in kwargs.items()]
    return ", ".join(shown)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = ",".join(str(size) for size in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    leaves = pytree.tree_leaves(value)
    if len(leaves) == 1 and leaves[0] is value:
        return repr(value)
    return f"a {type(value).__name__} of {len(leaves)}"
