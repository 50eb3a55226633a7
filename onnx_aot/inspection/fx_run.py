"""Runs a captured graph node by node on the inputs of its ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, InputKind, SymIntArgument

from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection.value_mapping import Pair
from onnx_aot.metadata.keys import ORIGINAL_NAME, WRITTEN
from onnx_aot.torch_compat import has_elements

__all__ = ["placeholder_getters", "run_captured", "weight_of"]


NOT_RUN = object()
"""Result of a node that neither PyTorch nor ONNX could compute, and of all its readers."""


def run_captured(
    program: Any,
    inputs: Mapping[str, torch.Tensor],
    pairs: Iterable[Pair],
    seen: Callable[[torch.fx.Node, Any, bool], None],
) -> dict[str, str]:
    """Runs the captured graph of an ``ONNXProgram``; values are freed after their last reader.

    Results of nodes that PyTorch cannot run, such as the loops of scripted models, which were
    captured only for translation, are taken from the ONNX model.

    Args:
        program: An ``ONNXProgram`` with an exported program.
        inputs: Inputs of the ONNX model, by name.
        pairs: Captured values with the ONNX values that hold them.
        seen: Called with every node in order, its result, and True if PyTorch computed it.

    Returns:
        Nodes that PyTorch could not run, with the reason.

    Raises:
        InvalidOptionError: A weight has no values.
    """
    by_node: dict[torch.fx.Node, list[Pair]] = {}
    for pair in pairs:
        by_node.setdefault(pair.node, []).append(pair)

    def run_onnx(node: torch.fx.Node) -> Any:
        return _from_onnx(program, inputs, by_node.get(node, ()), node.meta.get("val"))

    run = _Run(program.exported_program, placeholder_getters(program, inputs), seen, run_onnx)
    with torch.no_grad():
        run.run(enable_io_processing=False)
    return run.failed


class _Run(torch.fx.Interpreter):
    def __init__(
        self,
        captured: torch.export.ExportedProgram,
        placeholders: Mapping[str, Callable[[], Any]],
        seen: Callable[[torch.fx.Node, Any, bool], None],
        instead: Callable[[torch.fx.Node], Any],
    ) -> None:
        super().__init__(captured.graph_module, garbage_collect_values=True)
        self.extra_traceback = False
        self.failed: dict[str, str] = {}
        self._placeholders = placeholders
        self._seen = seen
        self._instead = instead

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "output" or any(self.env[source] is NOT_RUN for source in n.all_input_nodes):
            return NOT_RUN
        try:
            result = self._placeholders[n.name]() if n.op == "placeholder" else super().run_node(n)
        except InvalidOptionError:
            raise
        except Exception as error:
            line = next(iter(str(error).strip().splitlines()), "")
            self.failed[n.name] = f"{type(error).__name__}: {line}"
            result = self._instead(n)
        self._seen(n, result, n.name not in self.failed)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        given = {name: value for name, value in kwargs.items() if name != WRITTEN}  # not torch's
        return super().call_function(target, args, given)


def _from_onnx(
    program: Any, inputs: Mapping[str, torch.Tensor], pairs: Sequence[Pair], recorded: Any
) -> Any:
    """Result of a captured node as computed by the ONNX model, in the node's own structure."""
    by_index = {pair.index: pair for pair in pairs}

    def compute_result(index: int | None, example: Any) -> Any:
        if index not in by_index:
            return NOT_RUN
        pair = by_index[index]
        names = [str(value.name) for value in pair.values]
        tensor = pair.join_parts(program._inner_values(names, inputs))
        return tensor if isinstance(example, torch.Tensor) else tensor.item()

    if not isinstance(recorded, (list, tuple)):
        return compute_result(None, recorded)
    return tuple(compute_result(index, example) for index, example in enumerate(recorded))


def placeholder_getters(
    program: Any, inputs: Mapping[str, torch.Tensor]
) -> dict[str, Callable[[], Any]]:
    """Functions that return each placeholder's value: an ONNX input, a constant or a weight."""
    captured: torch.export.ExportedProgram = program.exported_program
    held = {*program.state, *program.weights}
    declared = program.model.graph.inputs
    of_user = iter([inputs[value.name] for value in declared if value.name not in held])
    fed = {
        value.metadata_props.get(ORIGINAL_NAME, value.name): inputs[value.name]
        for value in declared
        if value.name in held
    }
    nodes = [node for node in captured.graph.nodes if node.op == "placeholder"]
    found: dict[str, Callable[[], Any]] = {}
    for node, spec in zip(nodes, captured.graph_signature.input_specs, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            found[node.name] = _constant_getter(spec.arg.value)
        elif spec.kind == InputKind.USER_INPUT:
            found[node.name] = _constant_getter(_as_captured(next(of_user), node, spec))
        elif node.name in fed or spec.target in fed:
            tensor = fed[node.name] if node.name in fed else fed[spec.target]
            found[node.name] = _constant_getter(_as_captured(tensor, node, spec))
        else:
            found[node.name] = _weight_getter(captured, str(spec.target))
    return found


def _constant_getter(value: Any) -> Callable[[], Any]:
    return lambda: value


def _as_captured(tensor: torch.Tensor, node: torch.fx.Node, spec: Any) -> Any:
    """Converts an ONNX input to the captured form: a number, or complex instead of its parts."""
    recorded = node.meta.get("val")
    if isinstance(spec.arg, SymIntArgument) or isinstance(recorded, (torch.SymInt, torch.SymFloat)):
        return tensor.item()
    if isinstance(recorded, torch.Tensor) and recorded.is_complex() and not tensor.is_complex():
        return torch.view_as_complex(tensor.contiguous())
    return tensor


def _weight_getter(captured: torch.export.ExportedProgram, target: str) -> Callable[[], Any]:
    def get_weight() -> Any:
        tensor = weight_of(captured, target)
        if isinstance(tensor, torch.Tensor) and not has_elements(tensor):
            raise InvalidOptionError(
                f"the captured program has no values for {target}: the model was exported from a "
                "module without them. Compare with one that has them: "
                "onnx_aot.compare(program, module, args)",
                code="OA502",
            )
        return tensor

    return get_weight


def weight_of(captured: torch.export.ExportedProgram, target: str) -> Any:
    """Returns the parameter, buffer or constant of a name."""
    held = captured.state_dict.get(target)
    return captured.constants[target] if held is None else held.detach()
