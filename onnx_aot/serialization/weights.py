"""Matches tensors to the weights of a model, by their names in the PyTorch module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import InputKind

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.ir_passes.lazy_tensor import set_sources
from onnx_aot.metadata.keys import INPUT_KIND, INPUT_PERSISTENT, ORIGINAL_NAME
from onnx_aot.serialization.checkpoints import Given
from onnx_aot.serialization.mapped_tensor import CastTensor, StoredTensor
from onnx_aot.torch_compat import FakeTensor, storage_key

__all__ = [
    "absent_weights",
    "as_fed",
    "as_held",
    "check_read_weights",
    "fitting_weights",
    "is_absent",
    "real_parts",
    "weights_by_target",
]

LINES = 8
"""Number of weights of each kind that an error lists."""


def weights_by_target(
    graph: ir.Graph, program: torch.export.ExportedProgram | None, held: Collection[str]
) -> dict[str, ir.Value]:
    """Initializers and inputs by the names that their weights, also tied ones, have in the module.

    They include weights that were folded into others and are no longer in the graph.

    Args:
        graph: The main graph.
        program: The captured program; None takes the graph's own names.
        held: Names of the inputs that are weights or state.
    """
    values = set_sources(graph.initializers)
    values.update({str(v.name): v for v in graph.inputs if str(v.name) in held})
    if program is None:
        return values
    targets = {
        spec.arg.name: str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    }
    found: dict[str, ir.Value] = {}
    for name, value in values.items():
        target = targets.get(value.metadata_props.get(ORIGINAL_NAME, name))
        if target is not None:
            found[target] = value
    tensors = program.state_dict
    owners = {_memory_key(tensors[target]): found[target] for target in found if target in tensors}
    for target, tensor in tensors.items():
        if _memory_key(tensor) in owners:
            found.setdefault(target, owners[_memory_key(tensor)])
    return found


def fitting_weights(
    values: Mapping[str, ir.Value],
    given: Mapping[str, Given],
    needed: Mapping[str, ir.Value],
    unknown: list[str],
    *,
    cast: bool,
) -> list[tuple[ir.Value, Given]]:
    """Pairs weights of the model with the tensors that a checkpoint has for them.

    Args:
        values: Weights by their names in the module.
        given: Tensors by such names.
        needed: Those of ``values`` that have to be given.
        unknown: Names in ``given`` that the module does not have, for the message.
        cast: Whether other types are accepted.

    Raises:
        InvalidOptionError: Shapes or types differ, weights are missing, or tied ones get different
            values; one message lists all of it.
    """
    wrong: list[str] = []
    replaced: dict[str, tuple[ir.Value, str, Given]] = {}
    for name, stored in given.items():
        value = values.get(name)
        if value is None:
            continue
        problem = _describe_misfit(name, value, stored, cast)
        if problem is not None:
            wrong.append(problem)
        first = replaced.setdefault(str(value.name), (value, name, stored))
        if problem is None and first[2] is not stored and not _has_equal_values(first[2], stored):
            wrong.append(
                f"{name} and {first[1]} are one weight in the model, two different ones were given"
            )
    filled = {id(value) for value, _, _ in replaced.values()}
    missing = [name for name, value in needed.items() if id(value) not in filled]
    if wrong or missing:
        raise InvalidOptionError(_report(wrong, missing, unknown), code="OA506")
    return [(value, stored) for value, _, stored in replaced.values()]


def check_read_weights(read: Mapping[str, torch.Tensor], given: Mapping[str, Given]) -> None:
    """Checks that weights which decided what was captured keep their values.

    Args:
        read: Values that the model was captured for, by names in the module.
        given: Tensors by such names.

    Raises:
        InvalidOptionError: One has another value.
    """
    changed = [n for n in read if n in given and not _is_as_read(read[n], _as_torch(given[n]))]
    if changed:
        raise InvalidOptionError(
            f"the module's code reads numbers from {', '.join(changed)}, so the model is right for "
            "the values at the export only, and others were given. Load the new weights into the "
            "module and export it again; or leave out these weights",
            code="OA506",
        )


def _is_as_read(read: torch.Tensor, given: torch.Tensor) -> bool:
    return given.is_meta or (given.shape == read.shape and torch.equal(given.to(read), read))


def absent_weights(
    values: Mapping[str, ir.Value], fed: Mapping[str, torch.Tensor]
) -> dict[str, ir.Value]:
    """Weights that have to be given, by their names in the module, tied ones once.

    If any weight has no values, these are all parameters and persistent buffers, and whatever else
    has none: values that the others have are only those that the module was created with.

    Args:
        values: Weights by their names in the module.
        fed: Values held for weights that are inputs, by input name.
    """

    def lacks_values(value: ir.Value) -> bool:
        return is_absent(fed.get(str(value.name), value.const_value))

    if not any(map(lacks_values, values.values())):
        return {}
    found: dict[int, str] = {}
    for name, value in values.items():
        kind = value.metadata_props.get(INPUT_KIND)
        kept = kind == "BUFFER" and value.metadata_props.get(INPUT_PERSISTENT) == "True"
        if kind == "PARAMETER" or kept or lacks_values(value):
            found.setdefault(id(value), name)
    return {name: values[name] for name in found.values()}


def is_absent(tensor: Any) -> bool:
    """True if a tensor, of torch or of a model, has only a type and a shape and no elements."""
    raw = tensor if isinstance(tensor, torch.Tensor) else getattr(tensor, "raw", None)
    return isinstance(raw, torch.Tensor) and (raw.is_meta or isinstance(raw, FakeTensor))


def _describe_misfit(name: str, value: ir.Value, given: Given, cast: bool) -> str | None:
    tensor = real_parts(_as_torch(given))
    dtype, shape = dtypes.to_onnx(tensor.dtype), ir.Shape(tensor.shape)
    if (cast or value.dtype == dtype) and value.shape == shape:
        return None
    wrong_type = "" if value.dtype == dtype or value.shape != shape else "; cast=True casts it"
    return f"{name} is {_type_of(value)} in the model, {dtype.name}{shape} was given{wrong_type}"


def _report(wrong: list[str], missing: list[str], unknown: list[str]) -> str:
    message = "weights do not fit the model: " + "; ".join(wrong[:LINES])
    if not wrong:
        message = f"{len(missing)} weights of the model are missing: {_join_names(missing)}"
    elif len(wrong) > LINES:
        message += f"; and {len(wrong) - LINES} more"
    if wrong and missing:
        message += f". {len(missing)} are missing: {_join_names(missing)}"
    if unknown:
        message += f". {len(unknown)} were given that it does not have: {_join_names(unknown)}"
    if missing:
        message += (
            ". partial=True applies those that are given. Buffers that checkpoints do not have are "
            "computed where the model is built in onnx_aot.enable_fake_mode()"
        )
    return f"{message}. Nothing was applied"


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:LINES]) + (", ..." if len(names) > LINES else "")


def as_held(value: ir.Value, given: Given) -> ir.TensorProtocol:
    """Converts a tensor given for an initializer to one that the model can hold."""
    name, dtype = str(value.name), value.dtype
    if isinstance(given, StoredTensor) and given.dtype == dtype:
        return given.with_name(name)
    tensor = real_parts(_as_torch(given)).detach()
    if dtype is not None and dtypes.to_onnx(tensor.dtype) != dtype:
        return CastTensor(tensor, dtype, name)
    return tensor_adapters.TorchTensor(tensor, name=name)


def as_fed(value: ir.Value, given: Given) -> torch.Tensor:
    """Converts a tensor given for an input to one that calls feed, in memory that is writable."""
    tensor = _as_torch(given).detach()
    if value.dtype is not None and dtypes.to_onnx(real_parts(tensor).dtype) != value.dtype:
        return tensor.to(dtypes.to_torch(value.dtype))
    return tensor.clone() if isinstance(given, StoredTensor) else tensor


def _as_torch(given: Given) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given
    assert isinstance(given.raw, torch.Tensor)
    return given.raw


def real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as the model holds it: the parts of complex numbers, else unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _type_of(value: ir.Value) -> str:
    return f"{value.dtype.name if value.dtype is not None else '?'}{value.shape}"


def _memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    empty = tensor.is_meta or isinstance(tensor, FakeTensor)  # these have a storage at most
    place = storage_key(tensor) if empty else tensor.data_ptr()
    return (place, tensor.shape, tensor.stride())


def _has_equal_values(left: Given, right: Given) -> bool:
    first, second = _as_torch(left), _as_torch(right)
    return not first.is_meta and not second.is_meta and torch.equal(first, second)
