"""Emits nodes with their types, constants and sizes; the base class of ``op``.

The builder takes element types from cached operator schemas and shapes from the capture, turns
Python numbers into constants of the type of their neighbours, and leaves out nodes that have no
effect (``peephole.py``).

It subclasses onnxscript's public ``BuilderBase`` and replaces ``call_op``, whose schema conversion
and ONNX shape inference cost 235 to 700 us per node.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import BuilderBase

from onnx_aot import dtypes
from onnx_aot.builder.constant_pool import ConstantPool
from onnx_aot.builder.domains import ONNX_DOMAINS, Domains
from onnx_aot.builder.peephole import SIMPLIFICATIONS
from onnx_aot.builder.shape_inference import output_shapes
from onnx_aot.builder.size_table import Dimension, SizeTable
from onnx_aot.builder.state import BuilderState
from onnx_aot.graph.attributes import Attributes
from onnx_aot.graph.onnx_schemas import (
    OnnxOperator,
    built_operator,
    make_attribute_error,
    make_inputs_error,
    make_type_error,
)

__all__ = ["GraphBuilder", "Size"]

Size = int | ir.Value
"""A dimension: an int if known during export, else a 0-d INT64 value of the graph."""

Input = ir.Value | torch.Tensor | int | float | bool | str | Sequence[int] | Sequence[float] | None

# Wider types that hold every value of a type, for operators that an opset lacks for that type.
# Casting back wraps integers around as torch does, and makes any nonzero number true.
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64, *_FLOATS)
WIDER: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    ir.DataType.BFLOAT16: _FLOATS,
    ir.DataType.FLOAT16: _FLOATS,
    ir.DataType.BOOL: (ir.DataType.UINT8, *_INTEGERS),
    ir.DataType.UINT8: _INTEGERS,
    ir.DataType.INT8: _INTEGERS,
    ir.DataType.INT16: _INTEGERS,
    ir.DataType.UINT16: _INTEGERS,
    ir.DataType.UINT32: (ir.DataType.INT64, ir.DataType.DOUBLE),
}

# Python types that become constants. Tested first because a failing ``isinstance(x, ir.Value)``
# costs 1 us.
_LITERALS = frozenset({int, float, bool, list, tuple, torch.Tensor})


class GraphBuilder(BuilderBase):
    """Emits nodes and constants, and knows types and sizes of values.

    Attributes:
        opset: The opset of the model that is being built. Before opset 17, nodes have the forms of
            opset 17 until the model is legalized.
        result: Result that the capture recorded for the node being translated: a FakeTensor, a
            number or symbolic number, or a list or tuple of these.
        recorded: Recorded results of the node's positional arguments; an argument that is not an
            FX node is kept as it is.
        attributes: Makes attributes of nodes.
        state: Everything that emission has changed so far.
    """

    def __init__(
        self, opset: int, seed: int | None = None, custom_opsets: Mapping[str, int] | None = None
    ) -> None:
        super().__init__()
        self.opset = opset
        self.result: Any = None
        self.recorded: tuple[Any, ...] = ()
        self.attributes = Attributes()
        self._constants = ConstantPool()
        self._seeds = None if seed is None else random.Random(f"onnx_aot {seed}")
        self._given_seeds: set[int] = set()
        self.state = BuilderState(SizeTable(self.literal), Domains(custom_opsets))

    @property
    def nodes(self) -> list[ir.Node]:
        """Nodes emitted so far, in order."""
        return self.state.nodes

    @property
    def functions(self) -> dict[ir.OperatorIdentifier, ir.Function]:
        """Local functions of the model."""
        return self.state.functions

    # --- emission --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if not name[:1].isupper():
            raise AttributeError(f"op has no {name!r}; ONNX operators are op.CamelCase")

        def emit(
            *inputs: Input,
            _outputs: int = 1,
            _domain: str = "",
            _version: int | None = None,
            **attributes: Any,
        ) -> Any:
            return self.call_op(
                name, inputs, attributes, domain=_domain, version=_version, outputs=_outputs
            )

        self.__dict__[name] = emit  # next time it is found without __getattr__
        return emit

    def call_op(
        self,
        op_type: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        /,
        domain: str = "",
        version: int | None = None,
        outputs: int | Sequence[str | ir.Value] = 1,
        name: str | None = None,
    ) -> Any:
        """Emits one node.

        Args:
            op_type: The operator.
            args: Inputs: values, Python numbers or lists, torch tensors, None for an absent one.
            kwargs: Attributes; those that are None are left out.
            domain: The operator's domain; ONNX's own when empty.
            version: The domain's version, recorded in the model's imports; by default the one in
                ``custom_opsets``, else the one that another node asked for, else 1.
            outputs: Number of outputs.
            name: Name of the node, otherwise derived from its output.

        Returns:
            The output value, or a tuple of them if there are several. No node is emitted if the
            operator has no effect on its input.

        Raises:
            OpsetError: The opset does not have the operator, or not for the type of an input.
            TranslationError: The operator does not take the type of an input in any opset.
            TypeError: Two inputs that must have the same element type differ.
        """
        domain = "" if domain in ONNX_DOMAINS else domain
        asked = (version or self.state.domains.version_of(domain)) if domain else self.opset
        operator = built_operator(op_type, asked, domain)
        inputs, refused = self._convert_inputs(op_type, operator, args)
        if refused and operator is not None:
            replaced = self._accepted_types(operator, inputs)
            if not replaced:
                raise make_type_error(operator, *refused)
            rest = (kwargs, outputs, name, domain, version)
            return self._emit_between_casts(replaced, operator, inputs, *rest)
        count = outputs if isinstance(outputs, int) else len(outputs)
        if count == 1 and not domain:
            simplification = SIMPLIFICATIONS.get(op_type)
            if simplification is not None:
                simpler = simplification(self, inputs, kwargs)
                if simpler is not None:
                    return simpler
        shapes: Sequence[ir.Shape | None] = ()
        if not domain:
            shapes = output_shapes(self, op_type, inputs, kwargs, count)
        values = []
        for index in range(count):
            dtype = self._output_dtype(operator, index, inputs, kwargs) if operator else None
            type_ = None if dtype is None else ir.TensorType(dtype)
            shape = shapes[index] if index < len(shapes) else None
            values.append(ir.Value(type=type_, shape=shape))
            self.state.sizes.carry(values[-1])
        node = ir.Node(
            domain,
            op_type,
            inputs,
            attributes=self._convert_attributes(operator, kwargs),
            outputs=values,
            name=name,
        )
        self.add_node(node)
        self._record_opset(domain, version)
        return values[0] if count == 1 else tuple(values)

    def _accepted_types(
        self, operator: OnnxOperator, inputs: list[Any]
    ) -> dict[str, tuple[ir.DataType, ir.DataType]] | None:
        """Maps each type variable of a type that is not accepted to that type and a wider one."""
        replaced: dict[str, tuple[ir.DataType, ir.DataType]] | None = None
        last = len(operator.input_types) - 1
        for index, value in enumerate(inputs):
            if not isinstance(value, ir.Value) or value.dtype is None:
                continue
            position = min(index, last)
            accepted = operator.accepted[position] if position >= 0 else None
            variable = operator.input_types[position] if position >= 0 else None
            if accepted is None or variable is None or value.dtype in accepted:
                continue
            for wider in WIDER.get(value.dtype, ()):
                if wider in accepted:
                    replaced = replaced or {}
                    replaced.setdefault(variable, (value.dtype, wider))
                    break
        return replaced

    def _emit_between_casts(
        self,
        replaced: dict[str, tuple[ir.DataType, ir.DataType]],
        operator: OnnxOperator,
        inputs: list[Any],
        attributes: dict[str, Any],
        outputs: int | Sequence[str | ir.Value],
        name: str | None,
        domain: str,
        version: int | None,
    ) -> Any:
        """Emits a node between casts to a type that the operator accepts and back."""
        last = len(operator.input_types) - 1
        wide = [
            self.cast(value, replaced[variable][1])
            if isinstance(value, ir.Value)
            and (variable := operator.input_types[min(index, last)]) in replaced
            else value
            for index, value in enumerate(inputs)
        ]
        returned = self.call_op(
            operator.name, wide, attributes, domain, version, outputs=outputs, name=name
        )
        values = list(returned) if isinstance(returned, tuple) else [returned]
        for index, value in enumerate(values):
            rule = operator.outputs[min(index, len(operator.outputs) - 1)]
            variable = None if rule.input_index is None else operator.input_types[rule.input_index]
            if variable in replaced:
                values[index] = self.cast(value, replaced[variable][0])
        return tuple(values) if isinstance(returned, tuple) else values[0]

    def add_node(self, node: ir.Node) -> None:
        """Appends a node that was made elsewhere, unchanged."""
        self.state.nodes.append(node)

    def _add_node(self, node: ir.Node) -> None:  # called by ``BuilderBase``
        self.add_node(node)

    def _add_initializer(self, value: ir.Value) -> None:  # noqa: ARG002
        raise TypeError("a translation has no initializers; use op.constant")

    def _record_opset(self, domain: str, version: int | None) -> None:
        self.state.domains.use(domain, version)

    def _convert_inputs(
        self, op_type: str, operator: OnnxOperator | None, args: Sequence[Any]
    ) -> tuple[list[Any], tuple[int, ir.DataType] | None]:
        """Converts numbers to constants of the type of the values with the same type variable.

        Returns:
            The inputs, and the position and type of an input that the operator does not take, or
            None. If there is such an input, numbers are not converted.
        """
        inputs = list(args)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if operator is None:
            return [v if _is_given(v) else self.constant(v) for v in inputs], None
        variables = operator.input_types
        last = len(variables) - 1
        if not operator.takes_inputs(len(inputs)):
            raise make_inputs_error(operator, len(inputs))
        bound: dict[str, ir.DataType] = {}
        pending = []
        for index, value in enumerate(inputs):
            if value is None:
                continue
            if type(value) in _LITERALS or not isinstance(value, ir.Value):
                pending.append(index)
                continue
            position = index if index < last else last
            dtype = value.dtype
            if dtype is None:
                continue
            accepted = operator.accepted[position]
            if accepted is not None and dtype not in accepted:
                return inputs, (position, dtype)
            variable = variables[position]
            if variable is not None:
                other = bound.setdefault(variable, dtype)
                if other is not dtype:
                    raise TypeError(f"{op_type} takes one type {variable}: {other} and {dtype}")
        for index in pending:
            position = index if index < last else last
            dtype = operator.input_dtypes[position] or bound.get(variables[position] or "")
            constant = inputs[index] = self.constant(inputs[index], dtype)
            accepted = operator.accepted[position]
            if accepted is not None and constant.dtype not in accepted:
                assert constant.dtype is not None
                raise make_type_error(operator, position, constant.dtype)
        return inputs, None

    def _convert_attributes(
        self, operator: OnnxOperator | None, attributes: dict[str, Any]
    ) -> list[ir.Attr]:
        if not attributes:
            return []
        converted = []
        for name, value in attributes.items():
            if value is None:
                continue
            kind = None
            if operator is not None and not isinstance(value, ir.Attr):
                kind = operator.attributes.get(name)
                if kind is None:
                    raise make_attribute_error(operator, name)
            converted.append(self.attributes.make(name, value, kind))
        return converted

    def _output_dtype(
        self,
        operator: OnnxOperator,
        index: int,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any],
    ) -> ir.DataType | None:
        if operator.name in ("ConstantOfShape", "Constant"):
            value = attributes.get("value")
            return dtypes.to_onnx(value.dtype) if isinstance(value, torch.Tensor) else None
        if not operator.outputs:
            return None
        if operator.name == "DequantizeLinear" and not attributes.get("output_dtype"):
            scale = inputs[1]  # since opset 23 the output has its own type variable
            return None if scale is None else scale.dtype
        rule = operator.outputs[min(index, len(operator.outputs) - 1)]
        if rule.fixed is not None:
            return rule.fixed
        if rule.attribute is not None and attributes.get(rule.attribute) is not None:
            return ir.DataType(attributes[rule.attribute])
        if rule.input_index is not None and rule.input_index < len(inputs):
            source = inputs[rule.input_index]
            return source.dtype if source is not None else None
        return None

    # --- constants -------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """Returns a constant of the graph; equal constants share one value.

        Args:
            value: A number, a nested list of numbers, or a torch tensor.
            dtype: Element type; by default INT64, FLOAT or BOOL, depending on the numbers, or the
                type of the tensor.
        """
        return self._constants.constant(value, dtype)

    def literal(self, value: Any) -> torch.Tensor | None:
        """Returns the contents of a constant that a translation made, or None for other values."""
        return self._constants.contents(value) if isinstance(value, ir.Value) else None

    def number(self, value: Size) -> int | None:
        """Returns the size as an int if it is known during export, else None."""
        if isinstance(value, int):
            return value
        tensor = self.literal(value)
        return int(tensor) if tensor is not None and tensor.numel() == 1 else None

    @property
    def constants(self) -> list[ir.Value]:
        """Every constant made so far, used or not, in the order of creation."""
        return self._constants.values()

    # --- random numbers --------------------------------------------------------------------------

    def random_seed(self) -> int | None:
        """Returns the ``seed`` attribute of the next random node, a different one each time.

        It is None, which leaves the attribute out, if the export was given no seed. Seeds are
        spread out because runtimes with a congruential generator (ONNX Runtime) start close seeds
        with close numbers. They fit the mantissa of a float, the attribute's type.
        """
        if self._seeds is None:
            return None
        while True:
            seed = 1 + int(self._seeds.random() * ((1 << 24) - 1))
            if seed not in self._given_seeds:
                self._given_seeds.add(seed)
                return seed

    # --- types and sizes -------------------------------------------------------------------------

    @property
    def result_dtype(self) -> ir.DataType:
        """Element type of the recorded result (of its first tensor if there are several)."""
        first = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return dtypes.to_onnx(first.dtype)

    def cast(self, value: Any, dtype: ir.DataType | None) -> ir.Value:
        """Casts a value to an element type, unless it has it; a number becomes a constant.

        With None the value or number keeps its own type.
        """
        if not isinstance(value, ir.Value):
            return self.constant(value, dtype)
        return value if dtype is None or value.dtype == dtype else self.Cast(value, to=dtype)

    def rank(self, value: ir.Value) -> int:
        """Returns the rank, which the capture always knows for an operator's arguments."""
        assert value.shape is not None, f"the rank of {value} is not known here"
        return len(value.shape)

    def axis(self, value: ir.Value, axis: int) -> int:
        """Returns a possibly negative axis as a non-negative one; 0 for a 0-d value."""
        return axis % max(self.rank(value), 1)

    def size(self, value: ir.Value, axis: int) -> Size:
        """Returns one dimension: an int if the capture knows it, else a 0-d INT64 value."""
        assert value.shape is not None, f"the shape of {value} is not known here"
        dimension = value.shape[axis]
        if isinstance(dimension, int):
            return dimension
        name = dimension.value
        if name is not None:
            known = self.known_size(name)
            if known is not None:
                return known
        emitted = self._emit_size(value, axis % len(value.shape))
        if name is not None:
            self.state.sizes.values[name] = emitted
        return emitted

    def sizes(self, sizes: Sequence[Size]) -> ir.Value:
        """Returns a 1-D INT64 tensor of sizes, a constant if all of them are known."""
        parts: list[Any] = []
        run: list[int] = []
        for size in sizes:
            number = self.number(size)
            if number is not None:
                run.append(number)
                continue
            if run:
                parts.append(self.constant(run))
                run = []
            parts.append(self.Unsqueeze(size, [0]))
        if run or not parts:
            parts.append(self.constant(run))
        return self.Concat(*parts, axis=0)

    def all_sizes(self, value: ir.Value) -> list[Size]:
        """Returns every dimension of a value, in the form that ``size`` returns."""
        return [self.size(value, axis) for axis in range(self.rank(value))]

    def known_size(self, name: str) -> ir.Value | None:
        """Returns the value of a dimension, emitted from a graph input if necessary, or None."""
        table = self.state.sizes
        value = table.values.get(name)
        if value is None and name in table.sources:
            value = table.values[name] = self._emit_size(*table.sources[name])
        return value

    def contents(self, value: ir.Value | None) -> list[Dimension] | None:
        """Returns the elements of a 0-d or 1-d integer value as sizes, or None for other values."""
        return self.state.sizes.contents(value)

    def fresh(self) -> ir.SymbolicDim:
        """Returns a new unknown size."""
        return self.state.sizes.fresh()

    def combine(self, function: str, left: Dimension, right: Dimension) -> Dimension:
        """Computes a size from two others: ``add``, ``sub``, ``mul``, ``max``, ``floordiv``, ..."""
        return self.state.sizes.combine(function, left, right)

    def at_least(self, size: Dimension, number: int) -> bool:
        """True if a size is known never to be smaller than a number."""
        return self.state.sizes.at_least(size, number)

    def _emit_size(self, value: ir.Value, axis: int) -> ir.Value:
        one = self.Shape(value, start=axis, end=axis + 1)
        one.shape = ir.Shape([1])
        size: ir.Value = self.Squeeze(one, [0])
        size.shape = ir.Shape([])
        return size

    # --- operators whose form depends on the opset -----------------------------------------------

    def reduce(
        self, name: str, value: ir.Value, axes: Sequence[int] | None, keepdims: bool
    ) -> ir.Value:
        """Emits Reduce* over axes (None: all), which are an attribute before opset 18."""
        # ONNX Runtime leaves negative axes of an empty tensor unreduced
        axes = None if not axes else [self.axis(value, axis) for axis in axes]
        as_input = name == "ReduceSum" or self.opset >= 18
        if axes is None:
            return self.call_op(name, [value], {"keepdims": int(keepdims)})
        if as_input:
            return self.call_op(name, [value, list(axes)], {"keepdims": int(keepdims)})
        return self.call_op(name, [value], {"axes": axes, "keepdims": int(keepdims)})

    def split(self, value: ir.Value, sizes: Sequence[Size], axis: int) -> list[ir.Value]:
        """Splits a value into consecutive pieces of the given sizes along an axis."""
        if len(sizes) == 1:
            return [value]
        pieces = self.Split(value, self.sizes(sizes), axis=axis, _outputs=len(sizes))
        return list(pieces)


def _is_given(value: Any) -> bool:
    return value is None or (type(value) not in _LITERALS and isinstance(value, ir.Value))
