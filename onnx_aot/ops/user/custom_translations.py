"""Turns functions that users provide into entries of the operator table, in the order to try.

A function whose first parameter is ``op`` has our form. Any other function is assumed to be written
for torch.onnx (``ops/user/onnxscript_functions.py``).
"""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, cast

from onnx_aot.errors import InvalidOptionError
from onnx_aot.graph.opset_range import MIN_OPSET
from onnx_aot.ops.registry import Translation, check_target, make_translation, overloads
from onnx_aot.torch_compat import OpOverloadPacket, overload_of

__all__ = ["custom_translations", "translations_of", "with_custom"]

Table = Mapping[Any, tuple[Translation, ...]]


def with_custom(table: Table, custom: Table) -> Table:
    """Returns a table in which custom translations are tried before the existing ones."""
    before = {target: (*entries, *table.get(target, ())) for target, entries in custom.items()}
    return collections.ChainMap(before, cast("MutableMapping[Any, Any]", table))  # only read


def custom_translations(table: Mapping[Any, Any]) -> dict[Any, tuple[Translation, ...]]:
    """Returns the entries of the operator table for a ``custom_translation_table``.

    Args:
        table: Maps an operator to a function, or to a list of them in the order to try. A packet
            (``torch.ops.ns.op``) stands for those of its overloads that have no entry.

    Raises:
        InvalidOptionError: A key is not an operator, or a value is not a Python function.
    """
    if not isinstance(table, Mapping):
        raise InvalidOptionError(
            f"custom_translation_table is a {type(table).__name__}; expected a dict of functions "
            "by operator",
            code="OA010",
        )
    entries: dict[Any, tuple[Translation, ...]] = {}
    packets: dict[Any, tuple[Translation, ...]] = {}
    for key, given in table.items():
        found = packets if isinstance(key, OpOverloadPacket) else entries
        functions = given if isinstance(given, (list, tuple)) else [given]
        for function in functions:
            for translation in translations_of(key, function, "custom_translation_table"):
                target = translation.target
                found[target] = (*found.get(target, ()), translation)
    return {**packets, **entries}


def translations_of(
    key: Any, function: Any, option: str, since: int = MIN_OPSET
) -> list[Translation]:
    """Returns the entries for one function: one, or one per overload of a packet that it fits.

    Args:
        key: An operator, a packet, an operator of ``torch.library.custom_op``, a Python function
            that FX records for symbolic numbers, or a higher-order operator.
        function: In our form or in torch.onnx's.
        option: Option or function that the user passed it to, for messages.
        since: Lowest opset in which it can be used.

    Raises:
        InvalidOptionError: The key is not an operator, or the function does not fit it.
    """
    if not callable(function):
        raise InvalidOptionError(
            f"{option} maps {key} to {function!r}; expected operators mapped to functions, or to "
            "lists of functions",
            code="OA010",
        )
    key = overload_of(key)
    targets = overloads(key) if isinstance(key, OpOverloadPacket) else [key]
    found, refused = [], []
    for target in targets:
        try:
            found.append(_make_entry(target, function, since))
        except (TypeError, ValueError) as error:  # ValueError: a builtin without a signature
            refused.append(str(error))
    if not found:
        raise InvalidOptionError(f"{option}: " + "\n".join(refused), code="OA010")
    return found


def _make_entry(target: Any, function: Callable[..., Any], since: int) -> Translation:
    from onnx_aot.ops.user.onnxscript_functions import SCRIPTS, adapt_function

    if not isinstance(function, SCRIPTS) and _is_ours(function):
        made = make_translation(target, function, since)
        return Translation(target, function, since, made.arguments, may_decline=True)
    check_target(target)
    return Translation(target, adapt_function(target, function), since, may_decline=True)


def _is_ours(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters)
    return bool(parameters) and parameters[0] == "op"
