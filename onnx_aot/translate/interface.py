"""Inputs, weights and outputs of the main graph, from the program's signature."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument

from onnx_aot import dtypes
from onnx_aot.errors import ConversionError, InvalidOptionError
from onnx_aot.ops.complex_values import Complex
from onnx_aot.translate.dimensions import Dimensions
from onnx_aot.translate.metadata import Metadata
from onnx_aot.translate.names import Names
from onnx_aot.translate.request import Request
from onnx_aot.translate.walker import Walker

__all__ = ["Interface"]


class Interface:
    """Inputs, weights and outputs of the main graph, from the program's signature."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        request: Request,
        walker: Walker,
        names: Names,
        metadata: Metadata,
        dimensions: Dimensions,
    ) -> None:
        self.program = program
        self.request = request
        self.walker = walker
        self.names = names
        self.metadata = metadata
        self.dimensions = dimensions
        self.weights: list[ir.Value] = []
        _refuse_repeated(request.input_names, request.output_names)

    def enter_inputs(self) -> list[ir.Value]:
        """Gives every placeholder its value; returns the graph inputs."""
        placeholders = [n for n in self.program.graph_module.graph.nodes if n.op == "placeholder"]
        specs = self.program.graph_signature.input_specs
        pairs = list(zip(placeholders, specs, strict=True))
        inputs: list[ir.Value] = []
        for node, spec in pairs:
            if spec.kind != InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, ConstantArgument):
                self.walker.values[node] = spec.arg.value
                continue
            inputs.append(self._enter_user_input(node, spec, len(inputs)))
        if len(self.request.input_names) > len(inputs):
            raise InvalidOptionError(
                f"input_names has {len(self.request.input_names)} names, the model has "
                f"{len(inputs)} inputs: {', '.join(str(i.name) for i in inputs)}"
            )
        for node, spec in pairs:
            if spec.kind != InputKind.USER_INPUT:
                self._enter_weight(node, spec)
        return inputs

    def _enter_user_input(self, node: torch.fx.Node, spec: Any, index: int) -> ir.Value:
        asked = self.request.input_names
        name = asked[index] if index < len(asked) else self.names.unique(node.name)
        value = ir.Value(name=name)
        recorded = node.meta["val"]
        if isinstance(recorded, torch.Tensor):
            _refuse_unknown_kind(f"input {node.name}", recorded)
        complex_input = isinstance(recorded, torch.Tensor) and recorded.dtype.is_complex
        self.dimensions.describe(value, _joined(recorded) if complex_input else recorded)
        if isinstance(spec.arg, SymIntArgument):
            size = self.dimensions.name(recorded)
            if size is not None:
                self.walker.op.remember_size(size, value)
        elif isinstance(recorded, torch.Tensor):
            for axis, length in enumerate(recorded.shape):
                dimension = self.dimensions.name(length)
                if dimension is not None:
                    self.walker.op.bind_size(dimension, value, axis)
        self.metadata.describe_input(value, spec.kind, spec.persistent)
        self.metadata.describe_renamed(value, node.name)
        self.walker.values[node] = value
        if complex_input:
            self.metadata.describe_complex(value, recorded.dtype)
            self.walker.enter_complex(node, value)
        return value

    def _enter_weight(self, node: torch.fx.Node, spec: Any) -> None:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            if node.users:
                raise ConversionError(
                    f"the model uses {spec.target!r}, a {spec.kind.name}, which ONNX cannot hold; "
                    "tensors, parameters and buffers can be used"
                )
            return
        if not node.users:
            return
        program = self.program
        held = program.state_dict.get(spec.target)
        tensor = program.constants[spec.target] if held is None else held
        _refuse_unknown_kind(f"weight {spec.target}", tensor)
        tensor = tensor.detach()
        complex_weight = tensor.is_complex()
        if complex_weight:
            tensor = torch.view_as_real(tensor.resolve_conj()).contiguous()
        data = tensor_adapters.TorchTensor(tensor)
        value = ir.Value(
            name=self.names.unique(spec.target),
            type=ir.TensorType(data.dtype),
            shape=ir.Shape(data.shape),
            const_value=data,
        )
        data.name = value.name
        self.metadata.describe_input(value, spec.kind, spec.persistent)
        self.metadata.describe_renamed(value, node.name)
        self.walker.values[node] = value
        if complex_weight:
            self.walker.enter_complex(node, value)
        self.weights.append(value)

    def collect_outputs(self) -> list[ir.Value]:
        """User outputs in order, then mutated state; each a value of its own with its name."""
        graph = self.program.graph_module.graph
        returned = next(iter(reversed(graph.nodes))).args[0]
        specs = self.program.graph_signature.output_specs
        pairs = list(zip(returned, specs, strict=True))
        user = [pair for pair in pairs if pair[1].kind == OutputKind.USER_OUTPUT]
        state = [pair for pair in pairs if pair[1].kind != OutputKind.USER_OUTPUT]
        outputs: list[ir.Value] = []
        for argument, spec in user:
            if argument is None:
                continue
            asked = self.request.output_names
            name = asked[len(outputs)] if len(outputs) < len(asked) else None
            outputs.append(self._output(argument, spec, name, outputs))
        if len(self.request.output_names) > len(outputs):
            raise InvalidOptionError(
                f"output_names has {len(self.request.output_names)} names, the model returns "
                f"{len(outputs)} values: {', '.join(str(o.name) for o in outputs)}"
            )
        for argument, spec in state:
            name = self.names.unique(f"{spec.target}_out")
            outputs.append(self._output(argument, spec, name, outputs))
        return outputs

    def _output(
        self, argument: Any, spec: Any, name: str | None, before: list[ir.Value]
    ) -> ir.Value:
        node = argument if isinstance(argument, torch.fx.Node) else None
        value = self.walker.values[node] if node is not None else argument
        if isinstance(value, Complex):
            assert node is not None
            return self._complex_output(node, value, spec, name)
        if not isinstance(value, (ir.Value, int, float)):
            raise ConversionError(
                f"the model returns {value!r}; outputs of an ONNX model are tensors and numbers"
            )
        if not isinstance(value, ir.Value):
            value = self.walker.op.constant(value)
        original = node.name if node is not None else None
        shared = value.producer() is None or value in before
        if shared:
            value = self._hand_on(value, name or original or "output", node)
        elif name is not None:
            value.name = name
        if original is not None:
            self.metadata.describe_renamed(value, original)
        self.metadata.describe_output(value, spec.kind)
        return value

    def _complex_output(
        self, node: torch.fx.Node, value: Complex, spec: Any, name: str | None
    ) -> ir.Value:
        joined = self.walker.leave_complex(node, value)
        recorded = node.meta["val"]
        if joined.producer() is None:
            joined = self._hand_on(joined, name or node.name, node)
        else:
            joined.name = name or self.names.unique(node.name)
        self.dimensions.describe(joined, _joined(recorded))
        self.metadata.describe_complex(joined, recorded.dtype)
        self.metadata.describe_renamed(joined, node.name)
        self.metadata.describe_output(joined, spec.kind)
        return joined

    def _hand_on(self, source: ir.Value, name: str, node: torch.fx.Node | None) -> ir.Value:
        """An output that is an input, a constant or another output needs a node of its own."""
        reserved = name in self.request.output_names
        output = ir.Value(name=name if reserved else self.names.unique(name))
        output.type = source.type
        output.shape = None if source.shape is None else source.shape.copy()
        identity = ir.Node("", "Identity", [source], outputs=[output], name=f"node_{output.name}")
        self.walker.op.nodes.append(identity)
        if node is not None:
            self.metadata.stamp([identity], node)
        return output


def _joined(recorded: torch.Tensor) -> torch.Tensor:
    """Stands for what ``torch.view_as_real`` gives of a recorded complex tensor."""
    return recorded.new_empty((*recorded.shape, 2), dtype=recorded.dtype.to_real())


def _refuse_unknown_kind(what: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise ConversionError(
            f"{what} has the layout {tensor.layout}; ONNX has dense tensors: pass it through "
            "to_dense()"
        )
    try:
        dtypes.to_onnx(tensor.dtype)
    except TypeError:
        raise ConversionError(f"{what} is {tensor.dtype}, a type that ONNX does not have") from None


def _refuse_repeated(input_names: Sequence[str], output_names: Sequence[str]) -> None:
    counts = collections.Counter((*input_names, *output_names))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise InvalidOptionError(
            f"input_names and output_names give a name twice: {', '.join(repeated)}. In an ONNX "
            "graph every value has a name of its own"
        )
