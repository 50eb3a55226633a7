"""Replaces ``torch.onnx.export`` by this package's ``export``, for libraries that call it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.errors import OnnxExporterError, warn
from onnx_aot.export import export
from onnx_aot.metadata.keys import DROPPED_STATE
from onnx_aot.pytrees.containers import forget_caches, recall_caches

__all__ = ["install", "installed", "uninstall"]

MARK = "__onnx_aot_original__"
"""Attribute of the function that replaces torch's: the original function."""


def install() -> None:
    """Makes ``torch.onnx.export`` export with this package, until ``uninstall``.

    Options, their defaults and names of errors are torch's: ``external_data`` is True if ``f`` is
    a path, and an error is also a ``torch.onnx.OnnxExporterError``. Outputs are those of the model:
    ``state`` is ``"drop"``, with a warning that names the state that the model writes to. The
    result is an ``onnx_aot.ONNXProgram``, which has the methods and attributes of torch's.
    ``ExportableModule.to_onnx`` calls it too. ``dynamo=False`` runs torch's TorchScript exporter.

    Code that did ``from torch.onnx import export`` before still holds torch's function. Calling
    ``install`` twice is the same as once. This package's registrations of key-value caches are
    withdrawn meanwhile, because transformers' exporter takes caches apart in its own way.
    """
    import torch.onnx as torch_onnx

    forget_caches()
    if not hasattr(torch_onnx.export, MARK):
        torch_onnx.export = _in_place_of(torch_onnx.export)


def uninstall() -> None:
    """Restores ``torch.onnx.export``; does nothing without an ``install`` before it."""
    import torch.onnx as torch_onnx

    if hasattr(torch_onnx.export, MARK):
        torch_onnx.export = getattr(torch_onnx.export, MARK)
        recall_caches()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Context in which ``torch.onnx.export`` is this package's; it is restored afterwards."""
    import torch.onnx as torch_onnx

    before = torch_onnx.export
    install()
    try:
        yield
    finally:
        if not hasattr(before, MARK):
            uninstall()
        torch_onnx.export = before


def _in_place_of(original: Callable[..., Any]) -> Callable[..., Any]:
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
        if not dynamo and not isinstance(model, captured):
            return original(model, args, f, dynamo=False, external_data=external_data, **options)
        if external_data is True and hasattr(f, "write"):
            external_data = False  # torch writes everything into a file object
        try:
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
    return export_instead


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
