"""Options of the translation stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from onnx_aot.metadata.stamp import MetadataLevel
from onnx_aot.ops.registry import Translation

__all__ = ["Request"]


@dataclasses.dataclass(frozen=True)
class Request:
    """Options of one translation.

    Attributes:
        opset: Operator set version of the model.
        table: Translations by operator.
        custom_opsets: Domain versions by name, for nodes that do not specify one.
        unsupported: How to handle operators without a translation: an error, nodes, or calls of
            local functions without a meaning.
        decompose: Whether torch's decompositions expand them first.
        input_names: Names for the first inputs, in order; the others keep the capture's. Names
            beyond the user's inputs are for weights: state and others that are inputs, then
            parameters and buffers that the graph uses.
        output_names: Names for the first outputs; names beyond them are for new values of state.
        state: How to handle written buffers and parameters: with ``"io"`` they are inputs.
        weights_as_inputs: Names of parameters and buffers that are inputs, with ``*``, or True.
        dimension_names: The user's names by the capture's symbols.
        runtime_checks: Whether nodes check the sizes of inputs and the model's assertions.
        metadata: How much metadata nodes get.
        relative_to: Folder that stack traces are made relative to, or None.
        producer_version: Version of this package, recorded in the model.
        seed: Number that the seeds of random nodes are derived from; with None they have no seed.
    """

    opset: int
    table: Mapping[Any, tuple[Translation, ...]]
    custom_opsets: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unsupported: Literal["error", "emit", "function"] = "error"
    decompose: bool = True
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    state: Literal["outputs", "drop", "io"] = "outputs"
    weights_as_inputs: bool | Sequence[str] = False
    dimension_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    runtime_checks: bool = False
    metadata: MetadataLevel = "full"
    relative_to: str | None = None
    producer_version: str = ""
    seed: int | None = None
