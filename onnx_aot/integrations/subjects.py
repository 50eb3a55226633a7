"""The model and example inputs that a text names, as on a command line or in a plan."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from onnx_aot.errors import InvalidOptionError

__all__ = [
    "FORM",
    "InputSpec",
    "Subject",
    "build_model",
    "build_subject",
    "example_inputs",
    "look_up",
    "parse_input",
]

FORM = (
    "package.module:name of a module, or of a function that returns a module, (module, args) or "
    "(module, args, kwargs)."
)

_INPUT = re.compile(
    r"(?P<name>\w+):(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](=(?P<low>-?\d+)\.\.(?P<high>-?\d+))?"
)

EXAMPLE_SIZES = (2, 3, 5, 7, 11, 13, 17, 19)
"""Example sizes of the named dimensions, in the order in which they appear."""


class InputSpec(NamedTuple):
    """One input, as ``NAME:DTYPE[SIZES]``.

    Attributes:
        name: A parameter of ``forward``.
        dtype: A torch type such as ``float32``.
        sizes: Numbers, and names of dimensions that are dynamic.
        low: Smallest integer of the example values.
        high: Largest integer of the example values.
    """

    name: str
    dtype: str
    sizes: tuple[int | str, ...]
    low: int
    high: int

    @property
    def dynamic(self) -> dict[int, str]:
        """The dynamic dimensions by axis."""
        return {axis: size for axis, size in enumerate(self.sizes) if isinstance(size, str)}


class Subject(NamedTuple):
    """A model with example inputs.

    Attributes:
        model: The module.
        args: Positional example inputs.
        kwargs: Keyword example inputs.
        dynamic_shapes: Dynamic dimensions that the inputs name, or None.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: dict[str, Any] | None


def build_subject(reference: str, inputs: Sequence[str] | None) -> Subject:
    """Returns the model that a reference names, with its inputs or those of the factory.

    Raises:
        InvalidOptionError: The model does not exist, or an input has another form.
    """
    specs = [parse_input(text) for text in inputs or ()]
    model, args, kwargs = build_model(reference)
    if not specs:
        return Subject(model, args, kwargs, None)
    shapes = {spec.name: spec.dynamic for spec in specs if spec.dynamic}
    return Subject(model, (), example_inputs(specs), shapes or None)


def parse_input(text: str) -> InputSpec:
    """Reads ``"ids:int64[batch,seq]"``.

    Integer example values are 0 and 1, or those of an appended range: ``"ids:int64[n]=0..99"``.

    Raises:
        InvalidOptionError: It has another form.
    """
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise InvalidOptionError(
            f"input {text!r} is not understood; expected NAME:DTYPE[SIZES], such as "
            '"ids:int64[batch,seq]" or "image:float32[batch,3,224,224]"',
            code="OA018",
        )
    low, high = int(match["low"] or 0), int(match["high"] or 1)
    if low > high:
        raise InvalidOptionError(f"input {text!r}: the range {low}..{high} is empty", code="OA018")
    sizes = [size.strip() for size in match["sizes"].split(",") if size.strip()]
    return InputSpec(
        name=match["name"],
        dtype=match["dtype"],
        sizes=tuple(int(size) if size.isdigit() else size for size in sizes),
        low=low,
        high=high,
    )


def example_inputs(specs: Sequence[InputSpec]) -> dict[str, Any]:
    """Returns a tensor per specification, by name; equal dimension names have equal sizes.

    Raises:
        InvalidOptionError: torch has no such type, or cannot make a tensor of such a size.
    """
    import torch

    names = dict.fromkeys(size for spec in specs for size in spec.dynamic.values())
    sizes = {name: EXAMPLE_SIZES[i % len(EXAMPLE_SIZES)] for i, name in enumerate(names)}
    tensors = {}
    for spec in specs:
        dtype = getattr(torch, spec.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise InvalidOptionError(
                f"input {spec.name}: torch has no type {spec.dtype!r}", code="OA018"
            )
        shape = [sizes[size] if isinstance(size, str) else size for size in spec.sizes]
        try:
            if dtype.is_floating_point or dtype.is_complex:
                tensors[spec.name] = torch.randn(shape).to(dtype)
            else:
                tensors[spec.name] = torch.randint(spec.low, spec.high + 1, shape).to(dtype)
        except (RuntimeError, TypeError, MemoryError) as error:  # too large, or beyond 64 bits
            reason = str(error).partition("\n")[0]
            raise InvalidOptionError(
                f"input {spec.name}: no tensor of {shape}: {reason}", code="OA018"
            ) from error
    return tensors


def build_model(reference: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns a module, with the example inputs of its factory if it has any.

    Args:
        reference: ``package.module:name``. The name is a module, or a function without arguments
            that returns a module, ``(module, args)`` or ``(module, args, kwargs)``. The working
            directory is searched first.

    Raises:
        InvalidOptionError: The name does not exist, or its value is something else.
        Exception: Whatever the code of a factory raises.
    """
    import torch

    found = look_up(reference)
    if callable(found) and not isinstance(found, torch.nn.Module):
        found = _call_factory(found, reference)
    if isinstance(found, torch.nn.Module):
        return found, (), {}
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[0], torch.nn.Module):
        args = found[1] if isinstance(found[1], tuple) else (found[1],)
        return found[0], args, dict(found[2]) if len(found) == 3 else {}
    raise InvalidOptionError(
        f"{reference} returns {type(found).__name__}; expected a module, (module, args) or "
        "(module, args, kwargs)",
        code="OA018",
    )


def _call_factory(factory: Callable[[], Any], reference: str) -> Any:
    """Calls a factory; an error in its own code is shown as Python shows it."""
    try:
        return factory()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # it has begun to run
        raise InvalidOptionError(
            f"{reference} cannot be called without arguments: {error}. A factory is a function "
            "without arguments that returns a module, (module, args) or (module, args, kwargs)",
            code="OA018",
        ) from None


def look_up(reference: str) -> Any:
    """Imports what ``package.module:name`` names; the working directory is searched first.

    Raises:
        InvalidOptionError: There is no such module or name.
    """
    module_name, _, attribute = reference.partition(":")
    if not attribute or not all(module_name.split(".")):
        raise InvalidOptionError(
            f"{reference!r} is not of the form package.module:factory", code="OA018"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the user's module imports something that is missing
        raise InvalidOptionError(f"there is no module {error.name!r}", code="OA018") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidOptionError(f"{module_name} has no {attribute!r}", code="OA018")
        found = getattr(found, part)
    return found
