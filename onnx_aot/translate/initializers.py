"""Selects the parameters and buffers that become inputs, and finds tied ones."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from onnx_aot.errors import InvalidOptionError
from onnx_aot.torch_compat import storage_key

__all__ = ["find_mutated_targets", "memory_of", "select_weights", "tensor_of"]

NAMES_SHOWN = 5

STATE_KINDS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


def tensor_of(program: torch.export.ExportedProgram, target: str) -> torch.Tensor:
    """Returns the parameter, buffer or constant with a name, without its gradient."""
    held = program.state_dict.get(target)
    tensor: torch.Tensor = program.constants[target] if held is None else held
    return tensor.detach()


def memory_of(tensor: torch.Tensor) -> Any:
    """Key that is equal for tensors with the same elements in the same memory (tied weights)."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return id(tensor)
    place = (storage_key(tensor), tensor.storage_offset())
    return (*place, tensor.dtype, tensor.is_conj(), tuple(tensor.shape), tensor.stride())


def find_mutated_targets(program: torch.export.ExportedProgram) -> set[str]:
    """Names of the parameters and buffers that the program writes to, and of those tied to them."""
    specs = program.graph_signature.output_specs
    return _add_tied_weights(program, {str(s.target) for s in specs if s.kind in STATE_KINDS})


def select_weights(
    program: torch.export.ExportedProgram, patterns: bool | Sequence[str]
) -> set[str]:
    """Names of the parameters and buffers that patterns select, and of those tied to them.

    Args:
        program: The captured program.
        patterns: Names as in the module, which may contain ``*``; True for all, False for none.

    Raises:
        InvalidOptionError: A pattern matches none of the program's parameters and buffers.
    """
    if patterns is False:
        return set()
    named = _weight_names(program)
    if patterns is True:
        return set(named)
    meant: set[str] = set()
    for pattern in patterns:
        found = fnmatch.filter(named, pattern)
        if not found:
            raise InvalidOptionError(_describe_unknown_pattern(pattern, named), code="OA011")
        meant.update(found)
    return _add_tied_weights(program, meant)


def _weight_names(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the parameters and buffers; non-persistent ones are in the signature only."""
    specs = program.graph_signature.input_specs
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    found = dict.fromkeys(str(spec.target) for spec in specs if spec.kind in kinds)
    return list(found | dict.fromkeys(program.state_dict))


def _add_tied_weights(program: torch.export.ExportedProgram, names: set[str]) -> set[str]:
    if not names:
        return set()
    memories = {memory_of(tensor_of(program, name)) for name in names}
    return {n for n in _weight_names(program) if memory_of(tensor_of(program, n)) in memories}


def _describe_unknown_pattern(pattern: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(pattern, names, n=NAMES_SHOWN, cutoff=0.5)
    ends = [name for name in names if name.rpartition(".")[2] == pattern.rpartition(".")[2]]
    near = list(dict.fromkeys([*close, *ends]))[:NAMES_SHOWN]
    if near:
        hint = f"did you mean {', '.join(near)}?"
    elif names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
        hint = f"it has {len(names)}: {shown}"
    else:
        hint = "it has none"
    return (
        f"weights_as_inputs has {pattern!r}, which matches no parameter or buffer of the model; "
        f"{hint}"
    )
