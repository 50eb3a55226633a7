"""Creates inputs, weights, state and outputs of the main graph from the program's signature."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument

from onnx_aot import dtypes
from onnx_aot.dimensions.symbols import Dimensions
from onnx_aot.errors import ConversionError, InvalidOptionError, OpsetError
from onnx_aot.graph.names import Names
from onnx_aot.graph.onnx_schemas import onnx_operator, refuse_type
from onnx_aot.metadata.keys import INPUT_KIND, NAMED, ORIGINAL_NAME
from onnx_aot.metadata.provenance import location
from onnx_aot.metadata.stamp import Metadata
from onnx_aot.ops.complex.pairs import Complex
from onnx_aot.pytrees.outputs import name_outputs
from onnx_aot.translate.initializers import (
    find_mutated_targets,
    memory_of,
    select_weights,
    tensor_of,
)
from onnx_aot.translate.opset_errors import add_node
from onnx_aot.translate.request import Request
from onnx_aot.translate.walker import Walker

__all__ = ["Interface"]

NAMES_SHOWN = 12

TENSOR_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Interface:
    """Inputs, weights, state and outputs of the main graph.

    Call ``enter`` before the nodes are translated and ``finish`` after.

    Attributes:
        inputs: The user's inputs, then state, then weights that are inputs.
        outputs: Values that the model returns, then new values of mutated state.
        weights: Parameters, buffers and constants that are initializers.
        state: With ``state="io"`` the current values of mutated parameters and buffers, by input
            name.
        weight_inputs: Values of other parameters and buffers that are inputs, also by input name.
    """

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
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        self.weights: list[ir.Value] = []
        self.state: dict[str, torch.Tensor] = {}
        self.weight_inputs: dict[str, torch.Tensor] = {}
        self._user_inputs: list[ir.Value] = []
        self._state: dict[ir.Value, torch.Tensor] = {}
        self._fed: dict[ir.Value, torch.Tensor] = {}
        self._entered: dict[Any, tuple[torch.fx.Node, ir.Value]] = {}
        self._by_target: dict[tuple[bool, str], ir.Value] = {}
        self._state_names: list[str] = []
        self._returned_names: list[str | None] = []
        _refuse_repeated(request.input_names, request.output_names)

    def enter(self) -> None:
        """Gives every placeholder its value."""
        placeholders = [n for n in self.program.graph_module.graph.nodes if n.op == "placeholder"]
        signature = self.program.graph_signature
        pairs = list(zip(placeholders, signature.input_specs, strict=True))
        for node, spec in pairs:
            if spec.kind != InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, ConstantArgument):
                self.walker.values[node] = spec.arg.value
                continue
            self._user_inputs.append(self._enter_user_input(node, spec))
        looped = find_mutated_targets(self.program) if self.request.state == "io" else set()
        asked = select_weights(self.program, self.request.weights_as_inputs) - looped
        for node, spec in pairs:
            if spec.kind != InputKind.USER_INPUT and (node.users or spec.target in looped):
                self._enter_weight(node, spec, looped, asked)
        for spec in signature.output_specs:
            if spec.kind != OutputKind.USER_OUTPUT:
                of_user = self._by_target.get((True, spec.target))
                written = spec.target if _is_weight(spec) or of_user is None else of_user.name
                self._state_names.append(self.names.unique(f"{written}_out"))
        given = len(self.request.output_names)
        for position, name in enumerate(name_outputs(self.program)):
            unnamed = name is None or position < given
            self._returned_names.append(None if unnamed else self.names.unique(str(name)))

    def _enter_user_input(self, node: torch.fx.Node, spec: Any) -> ir.Value:
        asked, index = self.request.input_names, len(self._user_inputs)
        name = asked[index] if index < len(asked) else self.names.unique(node.name)
        value = ir.Value(name=name)
        recorded = node.meta["val"]
        if isinstance(recorded, torch.Tensor):
            _refuse_unknown_kind(f"input {node.name}", recorded)
        complex_input = isinstance(recorded, torch.Tensor) and recorded.dtype.is_complex
        self.dimensions.describe(
            value, _make_real_stand_in(recorded) if complex_input else recorded
        )
        if isinstance(spec.arg, SymIntArgument):
            size = self.dimensions.name(recorded)
            if size is not None:
                self.walker.op.state.sizes.remember(size, value)
        elif isinstance(recorded, torch.Tensor):
            for axis, length in enumerate(recorded.shape):
                dimension = self.dimensions.name(length)
                if dimension is not None:
                    self.walker.op.state.sizes.sources.setdefault(dimension, (value, axis))
        self.metadata.describe_input(value, spec.kind, spec.persistent)
        self.metadata.record_original_name(value, node.name)
        self.walker.values[node] = value
        self._by_target[True, node.name] = value
        if complex_input:
            self.metadata.describe_complex(value, recorded.dtype)
            self.walker.enter_complex(node, value)
        return value

    def _enter_weight(
        self, node: torch.fx.Node, spec: Any, looped: set[str], asked: set[str]
    ) -> None:
        """Makes a weight an input if its name is in one of the sets, else an initializer."""
        if spec.kind not in TENSOR_KINDS:
            _refuse_generator(self.program, spec.target, node)
            raise ConversionError(
                f"the model uses {spec.target!r}, a {spec.kind.name}, which ONNX cannot "
                "represent; tensors, parameters and buffers can be used"
            )
        tensor = tensor_of(self.program, spec.target)
        _refuse_unknown_kind(f"weight {spec.target}", tensor)
        memory = memory_of(tensor)
        if memory in self._entered:  # a tied weight is one value
            first, value = self._entered[memory]
            self.walker.values[node] = self.walker.values[first]
            self._by_target[False, spec.target] = value
            return
        held = tensor
        if tensor.is_complex():
            held = torch.view_as_real(tensor.resolve_conj()).contiguous()
        data = tensor_adapters.TorchTensor(held)
        value = ir.Value(
            name=self.names.unique(spec.target),
            type=ir.TensorType(data.dtype),
            shape=ir.Shape(data.shape),
        )
        is_input = spec.target in looped or spec.target in asked
        if is_input:
            (self._state if spec.target in looped else self._fed)[value] = tensor
        else:
            value.const_value = data
            data.name = value.name
            self.weights.append(value)
        self._entered[memory] = (node, value)
        self._by_target[False, spec.target] = value
        self.metadata.describe_input(value, spec.kind, spec.persistent)
        self.metadata.record_original_name(value, node.name)
        self.walker.values[node] = value
        if tensor.is_complex():
            if is_input:
                self.metadata.describe_complex(value, tensor.dtype)
            self.walker.enter_complex(node, value)

    # --- outputs, and names that are known only now ----------------------------------------------

    def finish(self) -> None:
        """Collects outputs, and assigns names given beyond the user's inputs and outputs.

        Raises:
            InvalidOptionError: There are more names than values to name.
            ConversionError: The model returns neither a tensor nor a number.
        """
        results = next(iter(reversed(self.program.graph_module.graph.nodes))).args[0]
        pairs = list(zip(results, self.program.graph_signature.output_specs, strict=True))
        returned = [pair for pair in pairs if _is_user(pair[1])]
        user = [
            (*pair, name)
            for pair, name in zip(returned, self._returned_names, strict=True)
            if self._is_output(pair[0])
        ]
        state = [pair for pair in pairs if not _is_user(pair[1])]
        asked = self.request.output_names
        for index, (argument, spec, name) in enumerate(user):
            self._add_output(argument, spec, asked[index] if index < len(asked) else name)
        if len(asked) > len(user) + len(state):
            raise InvalidOptionError(self._surplus_outputs(), code="OA007")
        for index, (argument, spec) in enumerate(state):
            at = len(user) + index
            name = asked[at] if at < len(asked) else self._state_names[index]
            self._add_output(argument, spec, name)
        if not self.outputs:
            raise ConversionError(
                "the model returns no tensor and no number; an ONNX model needs at least one "
                "output",
                code="OA303",
            )
        self._finish_inputs()
        for (_, spec), output in zip(state, self.outputs[len(user) :], strict=True):
            self._pair_with_input(spec, output)

    def _is_output(self, returned: Any) -> bool:
        """True if a returned value becomes an output; None and strings stay in Python."""
        if isinstance(returned, torch.fx.Node):
            returned = self.walker.values[returned]
        return returned is not None and not isinstance(returned, str)

    def _finish_inputs(self) -> None:
        """Drops weights that nothing reads, and names the others as far as names were given."""
        state = list(self._state)
        fed = [value for value in self._fed if value.uses()]
        self.weights = [value for value in self.weights if value.uses()]
        rest = [*state, *fed, *(value for value in self.weights if _is_named(value))]
        given = self.request.input_names[len(self._user_inputs) :]
        if len(given) > len(rest):
            raise InvalidOptionError(self._surplus_inputs(rest), code="OA007")
        for value, name in zip(rest, given, strict=False):
            original = value.metadata_props.get(ORIGINAL_NAME, str(value.name))
            value.name = name
            value.meta[NAMED] = True
            if value.const_value is not None:
                value.const_value.name = name
            self.metadata.record_original_name(value, original)
        self.inputs = [*self._user_inputs, *state, *fed]
        self.state = {str(value.name): self._state[value] for value in state}
        self.weight_inputs = {str(value.name): self._fed[value] for value in fed}

    def _pair_with_input(self, spec: Any, output: ir.Value) -> None:
        """Records the input that a state output is the new value of, if there is one."""
        source = self._by_target.get((not _is_weight(spec), spec.target))
        if source is None or source not in self.inputs:
            return
        if source.name in self.request.input_names and output.name in self._state_names:
            wanted = f"{source.name}_out"
            output.name = output.name if output.name == wanted else self.names.unique(wanted)
        self.metadata.describe_state(output, str(source.name))

    def _surplus_inputs(self, rest: Sequence[ir.Value]) -> str:
        message = (
            f"input_names has {len(self.request.input_names)} names, the model has "
            f"{len(self._user_inputs)} inputs: {_join_names(self._user_inputs)}"
        )
        if not rest:
            return f"{message}. Its graph uses no weights that further names could be for"
        names = _join_names(rest)
        return f"{message}. Further names are for its {len(rest)} weights, in order: {names}"

    def _surplus_outputs(self) -> str:
        message = (
            f"output_names has {len(self.request.output_names)} names, the model returns "
            f"{len(self.outputs)} values: {_join_names(self.outputs)}"
        )
        if not self._state_names:
            return message
        return (
            f"{message}. Further names are for new values of state: {', '.join(self._state_names)}"
        )

    def _add_output(self, argument: Any, spec: Any, name: str | None) -> None:
        """Adds an output under the reserved ``name``, or for None under the capture's name."""
        node = argument if isinstance(argument, torch.fx.Node) else None
        value = self.walker.values[node] if node is not None else argument
        if isinstance(value, Complex):
            assert node is not None
            self.outputs.append(self._complex_output(node, value, spec, name))
            return
        if not isinstance(value, (ir.Value, int, float)):
            raise ConversionError(
                f"the model returns {value!r}; outputs of an ONNX model are tensors and numbers",
                code="OA303",
            )
        if not isinstance(value, ir.Value):
            value = self.walker.op.constant(value)
        original = node.name if node is not None else None
        if value.producer() is None or value in self.outputs:
            value = self._hand_on(value, name or self.names.unique(original or "output"), node)
        elif name is not None:
            value.name = name
        if original is not None:
            self.metadata.record_original_name(value, original)
        self.metadata.describe_output(value, spec.kind)
        self.outputs.append(value)

    def _complex_output(
        self, node: torch.fx.Node, value: Complex, spec: Any, name: str | None
    ) -> ir.Value:
        joined = self.walker.leave_complex(node, value)
        recorded = node.meta["val"]
        name = name or self.names.unique(node.name)
        if joined.producer() is None:
            joined = self._hand_on(joined, name, node)
        else:
            joined.name = name
        self.dimensions.describe(joined, _make_real_stand_in(recorded))
        self.metadata.describe_complex(joined, recorded.dtype)
        self.metadata.record_original_name(joined, node.name)
        self.metadata.describe_output(joined, spec.kind)
        return joined

    def _hand_on(self, source: ir.Value, name: str, node: torch.fx.Node | None) -> ir.Value:
        """Adds an Identity for an output that is an input, a constant or another output."""
        output = ir.Value(name=name)
        output.type = source.type
        output.shape = None if source.shape is None else source.shape.copy()
        if source.dtype is not None:
            try:
                refuse_type(onnx_operator("Identity", self.request.opset), 0, source.dtype)
            except OpsetError as error:
                raise add_node(error, node) from None
        identity = ir.Node("", "Identity", [source], outputs=[output], name=f"node_{output.name}")
        self.walker.op.nodes.append(identity)
        if node is not None:
            self.metadata.stamp([identity], node)
        return output


def _make_real_stand_in(recorded: torch.Tensor) -> torch.Tensor:
    """Stand-in for ``torch.view_as_real`` of a recorded complex tensor."""
    return recorded.new_empty((*recorded.shape, 2), dtype=recorded.dtype.to_real())


def _refuse_generator(
    program: torch.export.ExportedProgram, target: str, node: torch.fx.Node
) -> None:
    if isinstance(program.constants.get(target), torch.Generator):
        where = next(filter(None, map(location, node.users)), None)
        raise ConversionError(
            "the model draws random numbers with a torch.Generator, which a graph cannot "
            "represent"
            + ("" if where is None else f": {where.with_code}")
            + ". Leave generator= out, and pass seed=... to export for the same numbers in each "
            "session, or draw outside and pass the tensor to forward",
            code="OA119",
        )


def _refuse_unknown_kind(what: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise ConversionError(
            f"{what} has the layout {tensor.layout}; ONNX has dense tensors: pass it through "
            "to_dense()",
            code="OA006",
        )
    try:
        dtypes.to_onnx(tensor.dtype)
    except TypeError:
        raise ConversionError(
            f"{what} is {tensor.dtype}, a type that ONNX does not have", code="OA006"
        ) from None


def _refuse_repeated(input_names: Sequence[str], output_names: Sequence[str]) -> None:
    for option, given in (("input_names", input_names), ("output_names", output_names)):
        repeated = [name for name, count in collections.Counter(given).items() if count > 1]
        if repeated:
            raise InvalidOptionError(
                f"{option} give a name twice: {', '.join(repeated)}. In an ONNX graph every value "
                "has a name of its own",
                cause=f"{option} give a name twice: {', '.join(repeated)}",
                fix="give every value of the ONNX graph a name of its own",
                code="OA007",
            )
    both = [name for name in input_names if name in output_names]
    if both:
        raise InvalidOptionError(
            f"input_names and output_names both give {', '.join(both)}. In an ONNX graph every "
            f"value has a name of its own: call the output {both[0]}_out, for example",
            cause=f"input_names and output_names both give {', '.join(both)}",
            fix=f"in an ONNX graph every value has a name of its own: call the output "
            f"{both[0]}_out, for example",
            code="OA007",
        )


def _is_user(spec: Any) -> bool:
    return bool(spec.kind == OutputKind.USER_OUTPUT)


def _is_weight(spec: Any) -> bool:
    return bool(spec.kind != OutputKind.USER_INPUT_MUTATION)


def _is_named(value: ir.Value) -> bool:
    """True if the user may name an initializer: a parameter or buffer, which the module names."""
    kinds = (InputKind.PARAMETER.name, InputKind.BUFFER.name)
    return value.metadata_props[INPUT_KIND] in kinds


def _join_names(values: Sequence[ir.Value]) -> str:
    shown = [str(value.name) for value in values[:NAMES_SHOWN]]
    return ", ".join(shown) + (", ..." if len(values) > NAMES_SHOWN else "")
