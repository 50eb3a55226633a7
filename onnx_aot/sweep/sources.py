"""The models that a plan can name: factories, libraries, folders of configurations, checkpoints.

``expand`` finds the names behind a pattern while rows are planned, and imports no model.
``build`` makes one of them in the process of its row.
"""

from __future__ import annotations

import ast
import fnmatch
import glob
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError
from onnx_aot.integrations.subjects import Subject, build_model, example_inputs, parse_input

__all__ = ["KINDS", "build", "code_of", "expand", "files_of"]

PATTERN = frozenset("*?[")


# --- while rows are planned ----------------------------------------------------------------------


def expand(kind: str, pattern: str, folder: str) -> list[str]:
    """Returns the names that a pattern stands for, in order; a name without wildcards is itself.

    Args:
        kind: A key of ``KINDS``.
        pattern: A name with ``*``, ``?`` and ``[...]``.
        folder: Folder of the plan, which paths are relative to.

    Raises:
        InvalidOptionError: There is no such name.
    """
    if not PATTERN & set(pattern) and kind != "transformers":
        return [_absolute(pattern, folder)] if kind == "checkpoint" else [pattern]
    found = KINDS[kind](pattern, folder)
    if not found:
        raise InvalidOptionError(
            f"{kind} = {pattern!r} in the plan matches nothing. Correct the pattern; * stands for "
            "any text, and folders are relative to that of the plan",
            code="OA801",
        )
    return found


def _expand_factory(pattern: str, folder: str) -> list[str]:
    """Functions of a module that take no arguments, read from its source."""
    module, _, names = pattern.partition(":")
    if PATTERN & set(module) or not names:
        raise InvalidOptionError(
            f"factory = {pattern!r} is not of the form package.module:pattern; only the name after "
            "the colon may have wildcards",
            code="OA801",
        )
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise InvalidOptionError(
            f"factory = {pattern!r}: there is no source of a module {module!r}. Run the sweep in "
            "the folder that has it, or write the names out",
            code="OA801",
        )
    tree = ast.parse(Path(spec.origin).read_bytes())
    return [
        f"{module}:{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not _needs_arguments(node.args)
        and fnmatch.fnmatchcase(node.name, names)
    ]


def _needs_arguments(found: ast.arguments) -> bool:
    positional = len(found.posonlyargs) + len(found.args)
    return positional > len(found.defaults) or None in found.kw_defaults


def _expand_timm(pattern: str, folder: str) -> list[str]:
    timm = _library("timm")
    return sorted(timm.list_models(pattern))


def _expand_torchvision(pattern: str, folder: str) -> list[str]:
    models = _library("torchvision.models")
    return sorted(name for name in models.list_models() if fnmatch.fnmatchcase(name, pattern))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidOptionError(
            f"the plan names models of {name}, which cannot be imported: {error}. Install it",
            code="OA801",
        ) from error


def _expand_transformers(pattern: str, folder: str) -> list[str]:
    """Folders with a config.json, and configurations with other names."""
    found = []
    for path in sorted(glob.glob(_absolute(pattern, folder), recursive=True)):
        config = os.path.join(path, "config.json")
        if os.path.isdir(path) and os.path.isfile(config):
            found.append(config)
        elif os.path.isfile(path) and path.endswith(".json"):
            found.append(path)
    return found


def _expand_checkpoint(pattern: str, folder: str) -> list[str]:
    return sorted(filter(os.path.isfile, glob.glob(_absolute(pattern, folder), recursive=True)))


def _absolute(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


KINDS: dict[str, Callable[[str, str], list[str]]] = {
    "factory": _expand_factory,
    "timm": _expand_timm,
    "torchvision": _expand_torchvision,
    "transformers": _expand_transformers,
    "checkpoint": _expand_checkpoint,
}
"""Sources of models, with the function that expands a pattern."""


def code_of(kind: str, name: str, factory: str) -> tuple[str, ...]:
    """Modules that the model depends on."""
    if kind == "factory":
        return (name.partition(":")[0],)
    if kind == "checkpoint":
        return (factory.partition(":")[0],)
    return (kind,)


def files_of(kind: str, name: str) -> tuple[str, ...]:
    """Files that the model depends on."""
    return (name,) if kind in ("transformers", "checkpoint") else ()


# --- in the process of a row ---------------------------------------------------------------------


def build(settings: Mapping[str, Any]) -> Subject:
    """Builds the model of a row, in eval mode and with weights that are the same every time.

    Raises:
        InvalidOptionError: There is no such model, or its inputs are not known.
        Exception: Whatever the code of the model raises.
    """
    import torch

    torch.manual_seed(0)
    described = settings["model"]
    makers = {"timm": _make_timm, "torchvision": _make_torchvision}
    makers |= {"transformers": _make_transformers, "checkpoint": _make_checkpoint}
    make = makers.get(described["kind"], _make_factory)
    model, args, kwargs, known = make(described)
    model = model.eval()
    specs = [parse_input(text) for text in settings.get("inputs") or ([] if args else known)]
    shapes = settings.get("dynamic_shapes")
    if specs:
        args, kwargs = (), example_inputs(specs)
        shapes = {spec.name: spec.dynamic for spec in specs if spec.dynamic}
    if not args and not kwargs:
        raise InvalidOptionError(
            f"the plan has no inputs for {described['name']}. Return (module, args) from the "
            'factory, or write inputs = ["NAME:DTYPE[SIZES]"] into the plan',
            code="OA801",
        )
    dynamic = settings.get("dynamic")
    if dynamic and not shapes:
        raise InvalidOptionError(
            f"dynamic is true for {described['name']}, but no dimension has a name. Write names "
            'for sizes, as inputs = ["x:float32[batch,3]"], or give dynamic_shapes',
            code="OA801",
        )
    if settings.get("dtype"):
        model, args, kwargs = _convert(settings["dtype"], model, args, kwargs)
    wanted = None if dynamic is False or not shapes else _with_axes(shapes)
    return Subject(model, args, kwargs, wanted)


def _convert(name: str, model: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Converts the weights and the inputs of floating-point types."""
    import torch

    from onnx_aot.torch_compat import pytree

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InvalidOptionError(
            f"dtype = {name!r} is not a floating-point type of torch", code="OA801"
        )

    def convert(value: Any) -> Any:
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floats else value

    return model.to(dtype), *pytree.tree_map(convert, (args, kwargs))


def _with_axes(shapes: Any) -> Any:
    """Dynamic shapes as ``export`` takes them: JSON and TOML write axes as texts."""
    if isinstance(shapes, Mapping):
        return {
            int(key) if key.lstrip("-").isdigit() else key: _with_axes(value)
            for key, value in ((str(key), value) for key, value in shapes.items())
        }
    if isinstance(shapes, (list, tuple)):
        return tuple(map(_with_axes, shapes))
    return shapes


Made = tuple[Any, tuple[Any, ...], dict[str, Any], list[str]]


def _make_factory(described: Mapping[str, Any]) -> Made:
    return (*build_model(described["name"]), [])


def _make_timm(described: Mapping[str, Any]) -> Made:
    options = {"pretrained": False, **described.get("options", {})}
    model = _library("timm").create_model(described["name"], **options)
    channels, height, width = model.pretrained_cfg.get("input_size", (3, 224, 224))
    return model, (), {}, [f"x:float32[batch,{channels},{height},{width}]"]


def _make_torchvision(described: Mapping[str, Any]) -> Made:
    options = {"weights": None, **described.get("options", {})}
    model = _library("torchvision.models").get_model(described["name"], **options)
    return model, (), {}, ["x:float32[batch,3,224,224]"]


def _make_transformers(described: Mapping[str, Any]) -> Made:
    """A model of a configuration, of the class that it names, unless the plan has another."""
    transformers = _library("transformers")
    path = described["name"]
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    config = transformers.AutoConfig.for_model(**content)
    named = described.get("class") or (content.get("architectures") or ["AutoModel"])[0]
    made = getattr(transformers, named)
    model = made.from_config(config) if named.startswith("Auto") else made(config)
    return model, (), {}, _transformers_inputs(model, config)


def _transformers_inputs(model: Any, config: Any) -> list[str]:
    main = getattr(model, "main_input_name", "")
    if main == "input_ids":
        return [f"input_ids:int64[batch,seq]=0..{min(config.vocab_size, 1000) - 1}"]
    side = getattr(config, "image_size", None)
    if main == "pixel_values" and isinstance(side, int):
        channels = getattr(config, "num_channels", 3)
        return [f"pixel_values:float32[batch,{channels},{side},{side}]"]
    return []


def _make_checkpoint(described: Mapping[str, Any]) -> Made:
    """The model of a factory with the weights of a file."""
    model, args, kwargs = build_model(described["factory"])
    path = described["name"]
    if path.endswith(".safetensors"):
        state = _library("safetensors.torch").load_file(path)
    else:
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state.get("state_dict", state))
    return model, args, kwargs, []
