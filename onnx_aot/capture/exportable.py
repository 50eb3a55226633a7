"""Reads export options that a model declares itself, as a ``torch.onnx.ExportableModule``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Declared", "declared_arguments"]


class Declared(NamedTuple):
    """Options that such a model declares; the fields are options of ``export``."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None


def declared_arguments(model: Any) -> Declared | None:
    """The options that the model declares, or None for models of other classes.

    Does not import ``torch.onnx``: if nobody has imported it, no model can be of its class.
    """
    torch_onnx = sys.modules.get("torch.onnx")
    if torch_onnx is None or not isinstance(model, torch_onnx.ExportableModule):
        return None
    args, kwargs = model.example_arguments()
    return Declared(args, kwargs, model.dynamic_shapes(), model.input_names(), model.output_names())
