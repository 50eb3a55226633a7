"""Checks the results of translations, before an invalid one breaks a later node."""

from __future__ import annotations

import operator
from typing import Any

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot.errors import TranslationError
from onnx_aot.ops.complex.pairs import Complex
from onnx_aot.ops.registry import LIMITS

__all__ = ["refuse_other_results"]

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)


def refuse_other_results(
    returned: Any, recorded: Any, target: Any, node: torch.fx.Node | None = None
) -> None:
    """Compares the structure of a translation's results with that of the recorded ones.

    Args:
        returned: A value, a number, None, or a list of these.
        recorded: A FakeTensor, a number or symbolic number, None, or a list or tuple of these.
        target: The operator that was translated.
        node: Its node; results that no other node reads may be None. Without a node, every result
            counts as read.

    Raises:
        TranslationError: They differ.
    """
    if not _fits_recorded(returned, recorded, node):
        raise TranslationError(
            f"the translation of {target} returned {_describe(returned)}; the operator returns "
            f"{_describe_recorded(recorded)}. Return a value for a tensor (op.constant makes one "
            "from numbers), and a list or tuple for several results, with None for an unused "
            f"one{_limit(target)}"
        )


def _limit(target: Any) -> str:
    limit = LIMITS.get(target)
    return "" if limit is None else f". Limits of the translation that comes with it: {limit}"


def _fits_recorded(returned: Any, recorded: Any, node: torch.fx.Node | None = None) -> bool:
    if isinstance(recorded, torch.Tensor):
        return isinstance(returned, Complex if recorded.dtype.is_complex else ir.Value)
    if isinstance(recorded, _NUMBERS):
        return isinstance(returned, (ir.Value, int, float))
    if isinstance(recorded, (list, tuple)):
        return (
            isinstance(returned, list)
            and len(returned) == len(recorded)
            and all(
                _fits_recorded(item, expected)
                or (item is None and node is not None and not _is_read(node, index))
                for index, (item, expected) in enumerate(zip(returned, recorded, strict=True))
            )
        )
    return True  # nothing was recorded, or a value that ONNX does not have


def _is_read(node: torch.fx.Node, index: int) -> bool:
    readers = (user for user in node.users if user.target is operator.getitem)
    return any(user.args[1] == index and user.users for user in readers)


def _describe(returned: Any) -> str:
    if isinstance(returned, ir.Value):
        return "one value"
    if isinstance(returned, Complex):
        return "one complex value"
    if isinstance(returned, list):
        kinds = ("a value" if isinstance(item, ir.Value) else repr(item) for item in returned)
        return f"a list of {len(returned)}: {', '.join(kinds)}"
    return repr(returned)


def _describe_recorded(recorded: Any) -> str:
    if isinstance(recorded, (list, tuple)):
        return f"{len(recorded)} results"
    if isinstance(recorded, torch.Tensor):
        return "one complex tensor" if recorded.dtype.is_complex else "one tensor"
    return "one number"
