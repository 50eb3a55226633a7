"""Models that say themselves what they are exported with: ``torch.onnx.ExportableModule``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Declared", "declared_arguments"]


class Declared(NamedTuple):
    """What such a model says of its export; the fields are options of ``export``."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None


def declared_arguments(model: Any) -> Declared | None:
    """What the model says, or None for models of other classes.

    Where nobody has imported ``torch.onnx`` no model is of its class, and it is not imported.
    """
    torch_onnx = sys.modules.get("torch.onnx")
    if torch_onnx is None or not isinstance(model, torch_onnx.ExportableModule):
        return None
    args, kwargs = model.example_arguments()
    return Declared(args, kwargs, model.dynamic_shapes(), model.input_names(), model.output_names())
