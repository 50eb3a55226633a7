"""The operator table: the ONNX form of each ATen, Python or custom operator.

Every entry is checked when it is registered: duplicates, packets (``aten.add`` instead of
``aten.add.Tensor``) and functions whose parameters differ from the operator's schema are rejected.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from onnx_aot.graph.opset_range import MIN_OPSET
from onnx_aot.ops.families import import_all_families, import_families, import_family_of
from onnx_aot.torch_compat import (
    HigherOrderOperator,
    Missing,
    OpOverload,
    OpOverloadPacket,
    is_tested,
    schema_of,
)

__all__ = [
    "FLOATING",
    "LIMITS",
    "NOT_TRANSLATED",
    "REPORTED",
    "TRANSLATIONS",
    "OperatorTable",
    "Translation",
    "check_target",
    "find_candidates",
    "find_translation",
    "import_late_families",
    "make_translation",
    "overloads",
    "register",
    "register_names",
    "translations",
]

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)

# Arguments about where and how a tensor lies in memory. They have no meaning in ONNX, are never
# passed to a translation, and need not be among its parameters.
MEMORY_ARGUMENTS = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "generator"}
)

# Names that releases of torch gave to arguments later on, with the names of the translations.
RENAMED = {("aten::_cdist_backward", "grad_output"): "grad"}  # torch 2.15

NOT_TRANSLATED: dict[Any, str] = {}
"""Operators known to have no ONNX form, with the reason that an error gives."""

LIMITS: dict[Any, str] = {}
"""Differences between a translated operator and PyTorch: types, values, sizes."""

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

REPORTED: dict[Any, tuple[torch.dtype, ...]] = {}
"""Operators in ``LIMITS`` whose values ONNX Runtime computes differently, and the element types of
their first tensor for which it does. The report of an export names those that the model uses."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a translation: its name and the schema's default."""

    name: str
    position: int | None
    default: Any = None
    required: bool = False


@dataclasses.dataclass(frozen=True)
class Translation:
    """One way to turn one operator into ONNX.

    Attributes:
        target: The operator.
        function: ``function(op, *arguments)`` emits nodes through ``op`` and returns the value(s).
        since: Lowest opset in which it can be used.
        arguments: Arguments in the order of the function's parameters; None for targets without a
            schema, whose arguments are passed by position.
        may_decline: Whether the function may leave a call to the next entry of the table.
    """

    target: Any
    function: Function
    since: int = MIN_OPSET
    arguments: tuple[Argument, ...] | None = None
    may_decline: bool = False


TRANSLATIONS: dict[Any, tuple[Translation, ...]] = {}
"""Translations by target; if there are several, the one with the highest ``since`` is first."""


def register(*targets: Any, since: int = MIN_OPSET) -> Callable[[_F], _F]:
    """Returns a decorator that enters a translation for each target.

    Args:
        targets: Operator overloads (``aten.roll.default``), Python functions that FX records for
            symbolic sizes (``operator.add``), or higher-order operators. Operators that this
            release of torch lacks are skipped, and on releases that are not tested, those with
            other arguments, which join ``NOT_TRANSLATED``.
        since: Lowest opset in which the translation can be used.

    Raises:
        TypeError: A target is a packet, or the parameters differ from the schema's arguments.
        ValueError: The target already has a translation for this opset.
    """

    def enter(function: _F) -> _F:
        for target in targets:
            if isinstance(target, Missing):
                continue
            try:
                translation = make_translation(target, function, since)
            except TypeError as error:
                if is_tested():
                    raise
                NOT_TRANSLATED[target] = f"has other arguments in this release of torch: {error}"
                continue
            _enter(translation)
        return function

    return enter


def register_names(rows: Mapping[Any, str]) -> None:
    """Enters operators that map to one ONNX node with the same tensors in the same order.

    >>> register_names({aten.neg.default: "Neg"})
    """
    for target, name in rows.items():
        if isinstance(target, Missing):
            continue
        _enter(make_translation(target, _one_to_one(target, name), MIN_OPSET))


def _one_to_one(target: OpOverload, name: str) -> Function:
    tensors = [
        argument.name
        for argument in schema_of(target).arguments
        if argument.name not in MEMORY_ARGUMENTS
    ]

    def translation(op: Any, *values: Any) -> Any:
        return getattr(op, name)(*values)

    translation.__name__ = f"aten_{target.overloadpacket.__name__}_as_{name}"
    translation.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("op", *tensors)]
    )
    return translation


def make_translation(target: Any, function: Function, since: int = MIN_OPSET) -> Translation:
    """Makes an entry of the table after checking the function against its target's schema.

    Raises:
        TypeError: The target is a packet or not callable, or the parameters differ from the schema.
    """
    check_target(target)
    if not isinstance(target, OpOverload):
        return Translation(target, function, since)
    return Translation(target, function, since, _bind_schema(target, function))


def check_target(target: Any) -> None:
    """Checks that a node can have this target.

    Raises:
        TypeError: It is a packet, or not callable.
    """
    if isinstance(target, OpOverloadPacket):
        names = ", ".join(map(str, overloads(target)))
        raise TypeError(f"{target} is a packet of overloads; register one of: {names}")
    if not callable(target) and not isinstance(target, HigherOrderOperator):
        raise TypeError(f"a target is an operator or a function, not {target!r}")


def overloads(packet: Any) -> list[Any]:
    """Returns the operators that a packet stands for."""
    return [getattr(packet, name) for name in packet.overloads()]


def _bind_schema(target: OpOverload, function: Function) -> tuple[Argument, ...]:
    schema = {
        RENAMED.get((schema_of(target).name, argument.name), argument.name): (position, argument)
        for position, argument in enumerate(schema_of(target).arguments)
        if argument.name not in MEMORY_ARGUMENTS
    }
    parameters = list(inspect.signature(function).parameters.values())[1:]
    arguments = []
    for parameter in parameters:
        name = parameter.name.removesuffix("_") if parameter.name != "_" else "_"
        if name not in schema:
            if parameter.default is parameter.empty:
                raise TypeError(
                    f"{function.__name__} takes {parameter.name!r}, which {target} does not have: "
                    f"{schema_of(target)}"
                )
            arguments.append(Argument(name, None, parameter.default))
            continue
        position, argument = schema.pop(name)
        required = not argument.has_default_value()
        default = None if required else argument.default_value
        where = None if argument.kwarg_only else position
        arguments.append(Argument(name, where, default, required))
    if schema:
        raise TypeError(
            f"{function.__name__} does not take {', '.join(map(repr, schema))} of {target}: "
            f"{schema_of(target)}"
        )
    return tuple(arguments)


def _enter(translation: Translation) -> None:
    entered = TRANSLATIONS.get(translation.target, ())
    if any(other.since == translation.since for other in entered):
        raise ValueError(
            f"{translation.target} already has a translation since opset {translation.since}"
        )
    both = sorted((*entered, translation), key=lambda t: t.since, reverse=True)
    TRANSLATIONS[translation.target] = tuple(both)


def find_translation(
    table: Mapping[Any, tuple[Translation, ...]], target: Any, opset: int
) -> Translation | None:
    """Returns the translation of an operator in an opset, or None if the table has none."""
    for translation in table.get(target, ()):
        if translation.since <= opset:
            return translation
    return None


def find_candidates(
    table: Mapping[Any, tuple[Translation, ...]], target: Any, opset: int
) -> list[Translation]:
    """Returns the translations to try in order: those that may decline, then one that does not."""
    found = []
    for translation in table.get(target, ()):
        if translation.since <= opset:
            found.append(translation)
            if not translation.may_decline:
                break
    return found


class OperatorTable(Mapping[Any, tuple[Translation, ...]]):
    """The whole table. Looking an operator up imports its family; iterating imports every family.

    Operators of other packages take part in an iteration once they have been looked up.
    """

    def __getitem__(self, target: Any) -> tuple[Translation, ...]:
        import_family_of(target)
        return TRANSLATIONS[target]

    def __iter__(self) -> Iterator[Any]:
        import_all_families()
        return iter(TRANSLATIONS)

    def __len__(self) -> int:
        import_all_families()
        return len(TRANSLATIONS)


def translations() -> OperatorTable:
    """Returns the whole table; imports the families that most models need the first time."""
    import_families()
    return OperatorTable()


def import_late_families(targets: Iterable[Any]) -> None:
    """Imports the families of operators that occur among the targets."""
    for target in set(targets):
        import_family_of(target)
