"""Defines the three measured ways, for one model with the same dynamic dimensions.

* ``plain``: ``torch.export.export`` of the model, as PyTorch ships it;
* ``ours``: ``onnx_aot.export`` with saving;
* ``peer``: ``torch.onnx.export(dynamo=True)`` with saving.

Two more, ``static_plain`` and ``static_ours``, have every dimension as in the example.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import warnings
from collections.abc import Callable
from typing import Any

__all__ = [
    "LABELS",
    "REFUSED",
    "STATIC_LABELS",
    "Subject",
    "as_hints",
    "export_both",
    "make_subject",
    "make_subject_again",
    "remove_dimensions",
]

LABELS = {"plain": "plain capture", "ours": "onnx_aot", "peer": "torch.onnx"}
STATIC_LABELS = {"static_plain": "static plain capture", "static_ours": "static onnx_aot"}

# Dimensions that may have to be fixed for a plain capture, in the order of the attempts.
FIXED = (
    ((), ""),
    (("seq",), "time fixed"),
    (("height", "width"), "height and width fixed"),
)
REFUSED = "plain torch.export refuses the model"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, its example inputs, and dynamic dimensions that all ways can keep.

    Attributes:
        model: The module.
        args: Example positional inputs.
        kwargs: Example keyword inputs.
        dynamic_shapes: As the user of ``onnx_aot`` writes them.
        hints: The same for ``torch.export`` and ``torch.onnx``; False if neither takes the
            model.
        remark: Dimensions that had to be fixed, for all ways.
        options: Further options of ``onnx_aot.export``.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any
    hints: Any
    remark: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def plain(self) -> Any:
        """Captures the model and returns the program."""
        import torch

        return torch.export.export(
            self.model, self.args, self.kwargs, dynamic_shapes=self.hints, strict=False
        )

    def plain_static(self) -> Any:
        """Captures the model with every dimension as in the example, and returns the program."""
        import torch

        return torch.export.export(self.model, self.args, self.kwargs, strict=False)

    def ours(self, path: str) -> Any:
        """Exports the model to ``path`` and returns the program."""
        import onnx_aot

        return onnx_aot.export(
            self.model,
            self.args,
            path,
            kwargs=self.kwargs,
            dynamic_shapes=self.dynamic_shapes,
            **self.options,
        )

    def ours_static(self, path: str) -> Any:
        """Exports the model to ``path`` with every dimension as in the example."""
        return dataclasses.replace(self, dynamic_shapes=None).ours(path)

    def peer(self, path: str) -> Any:
        """Exports the model to ``path`` with torch.onnx and returns the program."""
        with contextlib.redirect_stdout(io.StringIO()):
            return self.peer_aloud(path)

    def peer_aloud(self, path: str) -> Any:
        """Exports like ``peer``, and lets torch.onnx print what it prints."""
        import torch

        return torch.onnx.export(
            self.model,
            self.args,
            path,
            kwargs=self.kwargs,
            dynamic_shapes=self.hints,
            dynamo=True,
        )

    def ways(self, folder: str) -> dict[str, Callable[[], Any]]:
        """Returns the ways that are possible with the model, by name; files go to ``folder``."""
        ours, peer = (os.path.join(folder, f"{way}.onnx") for way in ("ours", "peer"))
        if self.hints is False:
            return {"ours": lambda: self.ours(ours)}
        return {
            "plain": self.plain,
            "ours": lambda: self.ours(ours),
            "peer": lambda: self.peer(peer),
        }


def make_subject(case: Any, search: bool = True) -> Subject:
    """Makes the model of a row and finds the dynamic dimensions that a plain capture keeps.

    ``search=False`` takes those of the row without trying them.
    """
    warnings.simplefilter("ignore")
    model = case.make()
    args, kwargs = case.example()
    for fixed, remark in FIXED:
        shapes = remove_dimensions(case.dynamic_shapes, fixed)
        found = Subject(model, args, kwargs, shapes, as_hints(shapes), remark)
        if not search:
            return found
        try:
            found.plain()
        except Exception:  # any refusal
            continue
        return found
    return Subject(model, args, kwargs, case.dynamic_shapes, False, REFUSED)


def make_subject_again(case: Any, remark: str) -> Subject:
    """Makes the model of a row with the dimensions that ``make_subject`` found, by its remark."""
    fixed = {text: names for names, text in FIXED}.get(remark, ())
    shapes = remove_dimensions(case.dynamic_shapes, fixed)
    hints = False if remark == REFUSED else as_hints(shapes)
    args, kwargs = case.example()
    return Subject(case.make(), args, kwargs, shapes, hints, remark)


def export_both(case: Any, folder: str) -> tuple[Subject | None, dict[str, str]]:
    """Exports a model with both exporters, unless ``folder`` already has our file.

    Returns:
        The subject if it was made, else None, and ``{way: path}``; a way that cannot export the
        model has no entry.
    """
    paths = {way: os.path.join(folder, f"{way}.onnx") for way in ("ours", "peer")}
    made = None
    if not os.path.exists(paths["ours"]):
        made = make_subject(case)
        for way, run in made.ways(folder).items():
            if way != "plain":
                with contextlib.suppress(Exception):  # export_time reports it
                    run()
    return made, {way: path for way, path in paths.items() if os.path.exists(path)}


def remove_dimensions(spec: Any, fixed: tuple[str, ...]) -> Any:
    """Removes the dimensions of these names from dynamic shapes."""
    if isinstance(spec, dict):
        return {
            key: remove_dimensions(value, fixed)
            for key, value in spec.items()
            if value not in fixed
        }
    if isinstance(spec, (list, tuple)):
        return type(spec)(remove_dimensions(value, fixed) for value in spec)
    return spec


def as_hints(spec: Any) -> Any:
    """Replaces the names of dynamic dimensions by ``Dim.DYNAMIC``, for torch.export."""
    import torch

    if isinstance(spec, str):
        return torch.export.Dim.DYNAMIC
    if isinstance(spec, dict):
        return {key: as_hints(value) for key, value in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(as_hints(value) for value in spec)
    return spec
