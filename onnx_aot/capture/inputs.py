"""Normalizes what the caller passed: arguments, keyword arguments, and a module to trace."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.pytrees.containers import INPUTS, register_containers, wrap_constants
from onnx_aot.torch_compat import is_initialized, pytree

__all__ = [
    "Arguments",
    "Inputs",
    "as_module",
    "bind_arguments",
    "name_collected_inputs",
    "named_inputs",
    "normalize_inputs",
    "positional_inputs",
    "repeats_elements",
]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Example inputs as ``torch.export`` takes them.

    Values that it does not take, such as a dtype or an enum, are wrapped in a ``Constant``.

    Attributes:
        args: Positional inputs.
        kwargs: Keyword inputs.
        separated: Paths of inputs that were copied because they shared elements with an earlier
            one, or showed one element at several places, as the result of ``expand`` does.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    separated: tuple[str, ...] = ()


def normalize_inputs(
    model: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    input_names: Sequence[str] = (),
) -> Inputs:
    """Wraps a single tensor in a tuple and moves a trailing dict of keyword arguments to kwargs.

    As in ``torch.onnx.export``, a dict at the end of ``args`` holds keyword arguments, unless its
    keys are not names of parameters of ``forward``; then it is the last positional argument.
    With ``input_names``, keyword arguments come in the order of the parameters, or in that of the
    names if these are names of parameters.

    Container classes that torch does not know are registered.

    Raises:
        InvalidOptionError: The inputs do not fit ``forward``, or one is of an unsupported class, a
            NumPy array or a sparse tensor.
    """
    positional = positional_inputs(args)
    named = named_inputs(kwargs)
    ends_with_dict = bool(positional) and isinstance(positional[-1], dict)
    if ends_with_dict and not named and _names_parameters(model, positional):
        named = dict(positional[-1])
        positional = positional[:-1]
    signature = _signature(model)
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        problem = _describe_misfit(signature, positional, named) or error
        raise InvalidOptionError(
            f"the example inputs do not fit forward{signature}: {problem}. {_GIVE_INPUTS}",
            code="OA003",
        ) from None
    for name, value in bound.arguments.items():
        collects = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        for path, given in value.items() if collects else [(name, value)]:
            register_containers(given, path, INPUTS)
    named = _order_named(signature, named, input_names)
    distinct, separated = _separate_memory((positional, named))
    positional, named = wrap_constants(distinct)
    return Inputs(positional, named, separated)


def _order_named(
    signature: inspect.Signature, named: Mapping[str, Any], input_names: Sequence[str]
) -> dict[str, Any]:
    """Sorts keyword inputs, so that names in ``input_names`` go to the parameters that they name.

    The order of a dict says nothing about the order of the inputs: a tokenizer returns
    ``token_type_ids`` before ``attention_mask``, and ``forward`` takes it after.
    """
    if not input_names:
        return dict(named)
    listed = [name for name in input_names if name in named]
    by_name = len(listed) in (len(named), len(input_names))
    order = [*(listed if by_name else ()), *signature.parameters]
    rank = {name: index for index, name in reversed([*enumerate(order)])}
    return {name: named[name] for name in sorted(named, key=lambda n: rank.get(n, len(order)))}


_GIVE_INPUTS = 'Give them as export(model, (x, y), kwargs={"mask": mask})'


def _describe_misfit(
    signature: inspect.Signature, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> str | None:
    """Describes what is wrong with the inputs, where Python does not say the cause."""
    parameters = signature.parameters.values()
    unknown = next((name for name in named if name not in signature.parameters), None)
    collects = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    if unknown is not None and not collects:
        near = difflib.get_close_matches(unknown, signature.parameters, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        return f"it has no parameter {unknown!r}{meant}"
    most = sum(map(_is_positional, parameters))
    takes_all = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    if len(positional) > most and not takes_all:
        by_name = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        last = f"; {', '.join(by_name)} can only be given in kwargs" if by_name else ""
        return f"args has {len(positional)} inputs, and forward takes {most} by position{last}"
    return None


def named_inputs(kwargs: Any) -> dict[str, Any]:
    """The keyword inputs as a dict.

    Raises:
        InvalidOptionError: They are not a mapping.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidOptionError(
            f"kwargs is {type(kwargs).__name__}; expected a dict of example inputs by the name of "
            "their parameter; inputs by position are in args",
            code="OA003",
        )
    return dict(kwargs or {})


def positional_inputs(args: Any) -> tuple[Any, ...]:
    """The positional inputs as a tuple.

    Raises:
        InvalidOptionError: They are neither a tuple nor a tensor.
    """
    if isinstance(args, torch.Tensor):
        return (args,)
    if not isinstance(args, (tuple, list)):
        raise InvalidOptionError(
            f"args is {type(args).__name__}; expected a tuple of example inputs, or one tensor"
            + (". Pass inputs by name in kwargs" if isinstance(args, dict) else ""),
            code="OA003",
        )
    return tuple(args)


def _separate_memory(inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[str, ...]]:
    """Copies tensors that share memory, with an earlier one or within themselves.

    Each input of a graph has its own dimensions and elements.

    Returns:
        The inputs, and the paths of copied tensors that shared elements, such as ``[0][1]`` for
        the second positional input.
    """
    seen: dict[int, list[range]] = {}
    shared: list[str] = []

    def separate(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        others = seen.setdefault(_storage(leaf), [])
        extent = _byte_range(leaf)
        others.append(extent)
        repeats = repeats_elements(leaf)
        if len(others) == 1 and not repeats:
            return leaf
        if repeats or any(
            max(extent.start, o.start) < min(extent.stop, o.stop) for o in others[:-1]
        ):
            shared.append(pytree.keystr(path[1:]))
        return leaf.detach().clone()

    return pytree.tree_map_with_path(separate, inputs), tuple(shared)


def repeats_elements(tensor: torch.Tensor) -> bool:
    """True if elements of a tensor share memory with each other, as those of ``expand`` do."""
    if tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return any(
        size > 1 and not step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _storage(tensor: torch.Tensor) -> int:
    """Key that tensors with the same memory share; fake tensors and subclasses have their own."""
    if tensor.is_meta or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return id(tensor)
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _byte_range(tensor: torch.Tensor) -> range:
    """Range of bytes in the storage from a tensor's first to its last element."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    return range(start, start + (last + 1) * size) if tensor.numel() else range(0)


def _names_parameters(model: torch.nn.Module, positional: tuple[Any, ...]) -> bool:
    parameters = list(_signature(model).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return len(positional) > sum(_is_positional(p) for p in parameters)
    later = {p.name for p in parameters[len(positional) - 1 :]}
    return all(key in later for key in positional[-1])


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )


def _signature(model: torch.nn.Module) -> inspect.Signature:
    return inspect.signature(model.forward)


def as_module(model: Any) -> torch.nn.Module:
    """Returns the model itself, or wraps a function in a module that has it as ``forward``.

    If the function is a method of a module, that module's parameters are kept.

    Raises:
        InvalidOptionError: The model is neither a module nor a function.
    """
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        from onnx_aot.capture.scripted.module import ScriptedModel

        return ScriptedModel(model)
    if isinstance(model, torch.nn.Module):
        if not is_initialized(model):
            raise InvalidOptionError(
                f"model is a {type(model).__name__} that was not made by torch.nn.Module: call "
                "super().__init__() first in its __init__",
                code="OA004",
            )
        return model
    if not callable(model) or (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        is_class = isinstance(model, type)
        found = f"the class {model.__name__}" if is_class else type(model).__name__
        raise InvalidOptionError(
            f"model is {found}; expected an nn.Module, a function or an ExportedProgram"
            f"{_advise(model)}",
            code="OA004",
        )
    return _FunctionModule(model)


def _advise(model: Any) -> str:
    """Advises what to do with an object that is not a model; an empty string if there is none."""
    if isinstance(model, type):
        return f". Make an object of the class, {model.__name__}(...)"
    if isinstance(model, (str, os.PathLike)):
        return (
            ". Load it first: torch.export.load for a .pt2 file, torch.jit.load for TorchScript, "
            "or torch.load for weights, which model.load_state_dict takes"
        )
    if isinstance(model, Mapping):
        return ". Make the module, and load these weights with model.load_state_dict"
    return ""


class _FunctionModule(torch.nn.Module):
    """Module that calls a function; if it is a method of a module, that becomes a submodule."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function_name = getattr(function, "__name__", "function")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            self.model = owner
        try:
            inspect.signature(function)
            self.forward = function
        except ValueError:  # functions that torch implements in C++ have no signature

            def forward(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            self.forward = forward

    def _get_name(self) -> str:
        return self._function_name


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The example inputs by the parameters of ``forward`` that take them.

    Attributes:
        values: Inputs by name, in the order in which ``torch.export`` flattens them: positional
            ones, then keywords as given. Inputs taken by ``*args`` are one tuple; those taken by
            ``**kwargs`` appear under their own keywords.
        signature_order: The names in the order of ``forward``.
        collected: Names of the inputs that ``**kwargs`` takes.
    """

    values: dict[str, Any]
    signature_order: tuple[str, ...]
    collected: tuple[str, ...]


def bind_arguments(model: torch.nn.Module, inputs: Inputs) -> Arguments:
    """Finds the parameter of ``forward`` for every input."""
    signature = _signature(model)
    values = dict(signature.bind_partial(*inputs.args).arguments) | inputs.kwargs
    bound = signature.bind(*inputs.args, **inputs.kwargs).arguments
    named = [name for name in bound if name in values]
    collected = tuple(name for name in inputs.kwargs if name not in bound)
    return Arguments(values, (*named, *collected), collected)


def name_collected_inputs(
    forward: Callable[..., Any], collected: tuple[str, ...]
) -> Callable[..., Any]:
    """Gives ``forward`` a parameter for each input that its ``**kwargs`` takes.

    ``torch.export`` accepts no dynamic shapes for inputs that ``**kwargs`` takes.

    Args:
        forward: The function, which is called with the same arguments.
        collected: Names of the inputs that ``**kwargs`` takes.
    """
    signature = inspect.signature(forward)
    kept = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in collected]

    @functools.wraps(forward)
    def with_names(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    with_names.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    return with_names
