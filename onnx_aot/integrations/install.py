"""Replaces ``torch.onnx.export`` by this package's ``export``, for libraries that call it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.errors import OnnxExporterError, warn
from onnx_aot.export import export
from onnx_aot.graph.opset_range import MIN_OPSET
from onnx_aot.metadata.keys import DROPPED_STATE
from onnx_aot.options import RETIRED, named_mode
from onnx_aot.pytrees.containers import forget_caches, recall_caches

__all__ = ["install", "installed", "uninstall"]

MARK = "__onnx_aot_original__"
"""Attribute of the function that replaces torch's: the original function."""

TORCHSCRIPT = "__onnx_aot_torchscript__"
"""Attribute of the same function: whether it also serves calls with ``dynamo=False``."""


def install(*, torchscript: bool = False) -> None:
    """Makes ``torch.onnx.export`` export with this package, until ``uninstall``.

    Options, their defaults and names of errors are torch's: ``external_data`` is True if ``f`` is
    a path, and an error is also a ``torch.onnx.OnnxExporterError``. Outputs are those of the model:
    ``state`` is ``"drop"``, with a warning that names the state that the model writes to. The
    result is an ``onnx_aot.ONNXProgram``, which has the methods and attributes of torch's.
    ``ExportableModule.to_onnx`` calls it too. An opset below 11 becomes 11, with a warning.

    Code that did ``from torch.onnx import export`` before still holds torch's function. Calling
    ``install`` twice is the same as once. This package's registrations of key-value caches are
    withdrawn meanwhile, because transformers' exporter takes caches apart in its own way.

    Args:
        torchscript: Whether calls with ``dynamo=False`` export with this package as well. By
            default they run torch's TorchScript exporter, as their authors asked. With True,
            such a call exports the model in evaluation mode unless its ``training`` says
            otherwise, and keeps weights in the file up to 1.5 GB, as that exporter does. What it
            would freeze to the example, without a word, is an error or a warning.
    """
    import torch.onnx as torch_onnx

    forget_caches()
    original = getattr(torch_onnx.export, MARK, torch_onnx.export)
    if getattr(torch_onnx.export, TORCHSCRIPT, None) is not torchscript:
        torch_onnx.export = _in_place_of(original, torchscript)


def uninstall() -> None:
    """Restores ``torch.onnx.export``; does nothing without an ``install`` before it."""
    import torch.onnx as torch_onnx

    if hasattr(torch_onnx.export, MARK):
        torch_onnx.export = getattr(torch_onnx.export, MARK)
        recall_caches()


@contextlib.contextmanager
def installed(*, torchscript: bool = False) -> Iterator[None]:
    """Context in which ``torch.onnx.export`` is this package's; it is restored afterwards.

    Args:
        torchscript: Whether calls with ``dynamo=False`` export with this package as well.
    """
    import torch.onnx as torch_onnx

    before = torch_onnx.export
    install(torchscript=torchscript)
    try:
        yield
    finally:
        if not hasattr(before, MARK):
            uninstall()
        torch_onnx.export = before


def _in_place_of(original: Callable[..., Any], torchscript: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def export_instead(
        model: Any,
        args: Any = (),
        f: Any = None,
        *,
        dynamo: bool = True,
        external_data: Any = True,
        **options: Any,
    ) -> Any:
        import torch.onnx as torch_onnx

        captured = (torch.export.ExportedProgram, torch_onnx.ExportableModule)
        older = not dynamo and not isinstance(model, captured)
        if older and not torchscript:
            return original(model, args, f, dynamo=False, external_data=external_data, **options)
        if external_data is True:
            if hasattr(f, "write"):
                external_data = False  # torch writes everything into a file object
            elif older:
                external_data = "auto"  # the option is not for that exporter
        mode = named_mode(options.get("training", "EVAL"))
        if mode == "PRESERVE" or older or (mode == "TRAINING") == getattr(model, "training", None):
            options.pop("training", None)
        options = _as_served(_without_defaults(options, original))
        try:
            with _in_mode(model, mode) if older else contextlib.nullcontext():
                program = export(
                    model, args, f, external_data=external_data, **{"state": "drop", **options}
                )
        except OnnxExporterError as error:
            error.__class__ = _as_torchs(type(error))
            raise
        if "state" not in options:
            _warn_of_dropped(program)
        return program

    setattr(export_instead, MARK, original)
    setattr(export_instead, TORCHSCRIPT, torchscript)
    return export_instead


def _without_defaults(options: dict[str, Any], original: Callable[..., Any]) -> dict[str, Any]:
    """Leaves out options of the older exporter that have torch's default: they ask for nothing."""
    parameters = inspect.signature(original).parameters
    return {
        name: value
        for name, value in options.items()
        if not (name in RETIRED and name in parameters and parameters[name].default == value)
    }


def _as_served(options: dict[str, Any]) -> dict[str, Any]:
    """Changes options that torch.onnx serves in part.

    It ignores ``dynamic_axes`` beside ``dynamic_shapes``, which libraries pass for both exporters.
    It takes opset 18 for one that is too low; this function takes the lowest.
    """
    if options.get("dynamic_shapes") is not None:
        options = {name: value for name, value in options.items() if name != "dynamic_axes"}
    opset = options.get("opset_version")
    if not isinstance(opset, int) or not 0 < opset < MIN_OPSET:
        return options
    warn(
        f"opset_version is {opset}, and the model has opset {MIN_OPSET}, the lowest one that "
        f"onnx_aot writes. Where it is to run, opset {MIN_OPSET} has to be supported; "
        f"opset_version={MIN_OPSET} says so",
        "OA008",
    )
    return {**options, "opset_version": MIN_OPSET}


@contextlib.contextmanager
def _in_mode(model: Any, mode: str) -> Iterator[None]:
    """Puts a model into a mode of the older exporter; each module gets back its own."""
    if mode == "PRESERVE" or not isinstance(model, torch.nn.Module):
        yield
        return
    from onnx_aot.capture.training import modes_kept  # imports what an export needs

    with modes_kept(model):
        model.train(mode == "TRAINING")
        yield


def _warn_of_dropped(program: Any) -> None:
    """Warns of dropped state, which torch.onnx drops silently and callers may not expect."""
    dropped = program.exported_program.graph_module.meta.get(DROPPED_STATE)
    if dropped:
        warn(
            f"the model writes to {', '.join(dropped)}; the new values are not outputs of the "
            'ONNX model, as with torch.onnx. state="outputs" adds them after the model\'s own '
            "outputs",
            "OA106",
        )


def _as_torchs(kind: type[OnnxExporterError]) -> type[OnnxExporterError]:
    """Returns a subclass of an error that ``except torch.onnx.OnnxExporterError`` also catches."""
    import torch.onnx as torch_onnx

    names = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (kind, torch_onnx.OnnxExporterError), names)
