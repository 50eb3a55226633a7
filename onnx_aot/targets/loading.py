"""Tells which releases of a runtime load a model, and what stops the others."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from onnx_aot.errors import ConversionError
from onnx_aot.targets.kernels import FILES, list_releases
from onnx_aot.targets.legalize import unsupported_nodes
from onnx_aot.targets.releases import find_kernels

__all__ = ["Obstacles", "check_ir_version", "describe_nodes", "find_obstacles"]


@dataclasses.dataclass(frozen=True)
class Obstacles:
    """Reasons why a release of a runtime does not load a model; none if it does.

    Attributes:
        target: The release, such as ``"onnxruntime==1.18"`` or ``"openvino==2026.4"``.
        reasons: The reasons, in a few words each.
    """

    target: str
    reasons: tuple[str, ...]


def find_obstacles(model: ir.Model) -> list[Obstacles]:
    """Compares a model with each release that the tables have: by runtime, the oldest first.

    The opset, the IR version and the nodes of the standard are compared; nodes of other domains are
    not. Shape inference and fusions, which may also fail, are not in the tables.
    """
    return [
        Obstacles(target, tuple(_find_reasons(model, target)))
        for runtime in FILES
        for target in (f"{runtime}=={release}" for release in list_releases(runtime))
    ]


def _find_reasons(model: ir.Model, target: str) -> Iterator[str]:
    kernels = find_kernels(target)
    if model.ir_version > kernels.ir_version:
        yield f"IR version {model.ir_version}; it loads up to {kernels.ir_version}"
    opset = model.opset_imports.get("", 0)
    if opset > kernels.opset:
        yield f"opset {opset}; it loads up to {kernels.opset}"
    elif opset < kernels.least_opset:
        yield f"opset {opset}; its operators are known from opset {kernels.least_opset} on"
    else:
        for node in describe_nodes(unsupported_nodes(model, target)):
            yield f"no kernel for {node}"


def describe_nodes(nodes: Iterable[ir.Node]) -> list[str]:
    """Nodes by operator and type, with their number and the name of the first."""
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for node in nodes:
        typed = next((value for value in node.inputs if value is not None), node.outputs[0])
        kinds[f"{node.op_type} of {typed.dtype}"].append(node.name or "")
    return [f"{kind} ({len(names)}x, first {names[0]})" for kind, names in kinds.items()]


def check_ir_version(model: ir.Model, target: str) -> None:
    """Checks that a target loads the IR version of a model.

    Raises:
        ConversionError: It does not.
    """
    kernels = find_kernels(target)
    if model.ir_version > kernels.ir_version:
        held = [*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()]
        types = sorted({str(value.dtype) for value in held})
        raise ConversionError(
            f"the model needs IR version {model.ir_version}, for opset {model.opset_imports['']} "
            f"and values of {', '.join(types)}; {kernels.name} loads IR versions up to "
            f"{kernels.ir_version}",
            fix=f"pass as target a newer release, '{kernels.runtime}==x.y', or None",
            code="OA405",
        )
