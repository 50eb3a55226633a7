"""Which dimensions came out dynamic, and under which names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.capture.dynamic_shapes import DynamicShapes, RequestedDim
from onnx_aot.errors import DynamicShapeError
from onnx_aot.torch_compat import is_symbol, root_symbol

__all__ = ["dimension_names", "refuse_static"]

Size = int | torch.SymInt


def dimension_names(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    input_names: Sequence[str] = (),
) -> dict[str, str]:
    """Names for the capture's symbols: the user's, else ``<input>_dim_<axis>``.

    Args:
        program: The captured program.
        requested: What the user asked for.
        input_names: Names that the tensors among the inputs get, in order.
    """
    given: dict[str, str] = {}
    for dim, size in _sizes(program, requested):
        symbol = root_symbol(size)
        if symbol is not None and dim.name is not None and (dim.derived or _is_symbol(size)):
            given.setdefault(symbol, dim.name)
    derived: dict[str, str] = {}
    tensors = [leaf for leaf in _user_inputs(program) if leaf is not None]
    for index, (name, shape) in enumerate(tensors):
        shown = input_names[index] if index < len(input_names) else name
        for axis, size in enumerate(shape):
            symbol = root_symbol(size)
            if symbol is not None:
                derived.setdefault(symbol, f"{shown}_dim_{axis}")
    return derived | given


def refuse_static(program: torch.export.ExportedProgram, requested: DynamicShapes) -> None:
    """Compares the captured sizes with what was asked.

    Raises:
        DynamicShapeError: Dimensions that were asked to be dynamic are static.
    """
    static = [
        f"  {dim.path}, axis {dim.axis}"
        + (f" ({dim.name!r})" if dim.name else "")
        + f": fixed at {size}"
        for dim, size in _sizes(program, requested)
        if isinstance(size, int) and not dim.may_be_static
    ]
    if static:
        raise DynamicShapeError(
            "dimensions that were asked to be dynamic came out static, because the model computes "
            "with their example values, or was captured with them fixed:\n"
            + "\n".join(static)
            + "\nMake the model use x.shape there instead of Python numbers, or leave these "
            "dimensions out of dynamic_shapes, or give them as Dim.AUTO to accept either."
        )


def _sizes(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[tuple[RequestedDim, Size]]:
    """Each requested dimension with the size that the capture recorded."""
    leaves = list(_user_inputs(program))
    for dim in requested.requested:
        leaf = leaves[dim.leaf]
        if leaf is not None:
            yield dim, leaf[1][dim.axis]


def _user_inputs(
    program: torch.export.ExportedProgram,
) -> Iterator[tuple[str, Sequence[Size]] | None]:
    """Per leaf of the inputs its name and shape; numbers have no shape, constants are None."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            yield None
            continue
        value = nodes[spec.arg.name].meta["val"]
        yield spec.arg.name, tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _is_symbol(size: Size) -> bool:
    return isinstance(size, torch.SymInt) and is_symbol(size)
