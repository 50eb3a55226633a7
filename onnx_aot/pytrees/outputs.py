"""Rebuilds the model's return value from the outputs of the graph, and names them by fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

from onnx_aot.errors import InvalidOptionError
from onnx_aot.pytrees.containers import Constant
from onnx_aot.pytrees.paths import children_of
from onnx_aot.pytrees.structures import output_structure
from onnx_aot.torch_compat import pytree

__all__ = ["name_outputs", "structure_outputs"]


def structure_outputs(program: torch.export.ExportedProgram, outputs: Sequence[Any]) -> Any:
    """Puts outputs into the containers in which the captured model returns them.

    Args:
        program: The captured program.
        outputs: The outputs of the graph, in order. New values of mutated state may follow those
            that the model returns, and are left out.

    Returns:
        The model's return value: None, strings and other constants in their places, numbers as
        Python numbers.

    Raises:
        InvalidOptionError: There are fewer or more outputs than the model has.
    """
    specs = program.graph_signature.output_specs
    returned = [spec.arg for spec in specs if spec.kind == OutputKind.USER_OUTPUT]
    expected = sum(map(_is_output, returned))
    state = len(specs) - len(returned)
    if not expected <= len(outputs) <= expected + state:
        also = f", up to {expected + state} with the state that it writes" if state else ""
        raise InvalidOptionError(
            f"the model returns {expected} values{also}; {len(outputs)} were given to unflatten"
        )
    remaining = iter(outputs)
    return _rebuild_container(
        output_structure(program), iter([_read_leaf(a, remaining) for a in returned])
    )


def _is_output(argument: Any) -> bool:
    """True if a returned value is an output of the graph; None and strings are not."""
    return not isinstance(argument, ConstantArgument) or isinstance(argument.value, (int, float))


def _read_leaf(argument: Any, outputs: Iterator[Any]) -> Any:
    output = next(outputs) if _is_output(argument) else None
    if isinstance(argument, ConstantArgument):
        return argument.value
    if isinstance(argument, TensorArgument):
        return output
    assert output is not None
    return output.item()  # a symbolic int, float or bool


def _rebuild_container(spec: Any, leaves: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(leaves)
    if spec.type is Constant:
        return spec.context
    children = [_rebuild_container(child, leaves) for child in spec.children()]
    if spec.type is torch.Size:
        return torch.Size(children)  # torch would make it a tuple
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


# --- names ---------------------------------------------------------------------------------------


def name_outputs(program: torch.export.ExportedProgram) -> list[str | None]:
    """Names what the model returns by the keys and fields of its containers.

    Args:
        program: The captured program.

    Returns:
        For each returned value a name such as ``logits`` or ``hidden_states.0``; None for those
        that only a position tells, as in a tuple, and for keys that are no names.
    """
    specs = program.graph_signature.output_specs
    count = sum(spec.kind == OutputKind.USER_OUTPUT for spec in specs)
    structure = output_structure(program)
    if structure is None:
        return [None] * count
    leaves = [torch.empty(0) for _ in range(count)]  # objects such as ModelOutput look at them
    try:
        names = dict(_name_leaves(_rebuild_container(structure, iter(leaves)), ()))
    except Exception:  # a class of the user that refuses them, or that is not there any more
        return [None] * count
    return [names.get(id(leaf)) for leaf in leaves]


def _name_leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[int, str]]:
    children = children_of(value)
    if children is None:
        name = ".".join(map(str, path))
        if path and isinstance(path[0], str) and re.fullmatch(r"[A-Za-z_][\w./-]*", name):
            yield id(value), name
        return
    for key, child in children:
        yield from _name_leaves(child, (*path, key))
