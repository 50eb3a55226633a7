"""Describes custom operators that write in place, and torch's functional form of them.

``auto_functionalized(op, **arguments)`` is ``op`` without the writes: it returns the results of
``op`` (None if it has none), then the new value of each argument that ``op`` writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.fx

from onnx_aot import torch_compat
from onnx_aot.errors import FunctionalizationError
from onnx_aot.fx_passes.functional_twins import functional_twin
from onnx_aot.torch_compat import Missing, OpOverload, higher_order, schema_of

__all__ = [
    "FUNCTIONALIZED",
    "OriginalCall",
    "is_custom_write",
    "named_arguments",
    "original_call",
    "written_names",
]

FUNCTIONALIZED = higher_order.auto_functionalized
"""Torch's functional form of custom operators that write in place.

On a release without it, programs with such operators go through ``run_decompositions``, and errors
about them name torch's own replacement.
"""


def is_custom_write(target: OpOverload) -> bool:
    """True if torch knows only the schema of an operator that writes.

    Torch's own operators, and those that it can decompose, are left to its functionalization.
    """
    if isinstance(FUNCTIONALIZED, Missing):
        return False
    if target.namespace == "aten" or torch_compat.decompositions(target):
        return False
    returned = schema_of(target).returns
    if len(returned) > 1 and any(result.alias_info is not None for result in returned):
        return False
    try:
        functional_twin(target)
    except FunctionalizationError:
        return True
    return False


def written_names(target: OpOverload) -> list[str]:
    """Names of the arguments that an operator writes, in the schema's order."""
    return [
        argument.name
        for argument in schema_of(target).arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def named_arguments(node: torch.fx.Node) -> dict[str, Any]:
    """A call's arguments by name, with None for written arguments that are not given."""
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in schema_of(node.target).arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return {**dict.fromkeys(written_names(node.target)), **given}


class OriginalCall(NamedTuple):
    """The call that an ``auto_functionalized`` node stands for.

    Attributes:
        target: The operator.
        args: Positional arguments of the operator's own call.
        kwargs: Keyword arguments of that call.
        results: Positions of the node's results that a translation of the operator returns: all
            but None and returned arguments, whose new values are among the results anyway.
    """

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]


def original_call(node: torch.fx.Node) -> OriginalCall:
    """Returns the call that an ``auto_functionalized`` node stands for."""
    target: Any = node.args[0]
    args: list[Any] = []
    kwargs = dict(node.kwargs)
    for argument in schema_of(target).arguments:
        if argument.kwarg_only or argument.name not in kwargs:
            break
        args.append(kwargs.pop(argument.name))
    aliased = [returned.alias_info is not None for returned in schema_of(target).returns]
    results = [
        index
        for index, value in enumerate(node.meta["val"])
        if value is not None and not (index < len(aliased) and aliased[index])
    ]
    return OriginalCall(target, tuple(args), kwargs, results)
