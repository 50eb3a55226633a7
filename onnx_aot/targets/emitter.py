"""Emits nodes into a graph next to the node that they adapt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes
from onnx_aot.graph.attributes import Attributes
from onnx_aot.graph.constants import constant_name, constant_value, place_constant
from onnx_aot.graph.names import Names, names_in
from onnx_aot.graph.nodes import node_like
from onnx_aot.metadata.keys import INPUT_KIND

__all__ = ["Emitter"]

SMALL = 4096
"""Largest number of elements of a constant that is cast during the export."""


_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64
_RESULTS = {
    **dict.fromkeys(("Equal", "Greater", "Less", "IsNaN", "IsInf"), _BOOL),
    **dict.fromkeys(("Shape", "NonZero"), _INT64),
}
_POINTWISE = frozenset(
    {"Abs", "Add", "Cast", "Cos", "Div", "Equal", "Exp", "Greater", "Less", "Log", "Max", "Min"}
    | {"Mul", "Neg", "Reciprocal", "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "Where"}
)


class Emitter:
    """Emits nodes before or after a node, with its metadata and with unique names."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._names: Names | None = None
        self._attributes = Attributes()
        self._node: ir.Node | None = None
        self._after = False
        self._made: list[ir.Node] = []
        self._constants: dict[Any, ir.Value] = {}
        self._function: ir.Function | None = None
        self._nodes: list[ir.Node] | None = None  # of the subgraph under construction
        self.opset = 0

    def enter(self, root: ir.Graph | ir.Function) -> None:
        """Starts emitting into this graph or function; a function has its own constants."""
        self._function = root if isinstance(root, ir.Function) else None
        self._constants = {}

    # --- where -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def insert_before(self, node: ir.Node, opset: int) -> Iterator[None]:
        """Places nodes that are emitted inside the context before this one."""
        self._node, self._after, self.opset, self._made = node, False, opset, []
        yield

    @contextlib.contextmanager
    def insert_after(self, node: ir.Node) -> Iterator[None]:
        """Places a node that is emitted inside the context after this one."""
        self._node, self._after, self._made = node, True, []
        yield

    @contextlib.contextmanager
    def collect_nodes(self) -> Iterator[list[ir.Node]]:
        """Collects the nodes that are emitted inside the context, for a subgraph."""
        outer, self._nodes = self._nodes, []
        try:
            yield self._nodes
        finally:
            self._nodes = outer

    def take(self) -> list[ir.Node]:
        """Returns the nodes that were emitted since the place was set or since the last call."""
        made, self._made = self._made, []
        return made

    # --- nodes -----------------------------------------------------------------------------------

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        dtype: ir.DataType | None = None,
        shape: ir.Shape | None = None,
        like: ir.Value | None = None,
        outputs: int = 1,
    ) -> Any:
        """Emits one node.

        Args:
            op_type: An operator of the default domain.
            inputs: Its inputs.
            attributes: Its attributes.
            dtype: Type of its outputs; that of the first input by default.
            shape: Shape of its first output, where known.
            like: A value that its output is named after; by default the first output of the node
                that is adapted.
            outputs: Number of outputs.

        Returns:
            Its output, or a list of them.
        """
        served = self._node
        assert served is not None
        assert served.graph is not None
        if dtype is None:
            dtype = next(value.dtype for value in inputs if value is not None)
        named = like if like is not None else served.outputs[0]
        values = [
            ir.Value(
                name=self.make_unique_name(f"{named.name}_{op_type.lower()}"),
                type=None if dtype is None else ir.TensorType(dtype),
                shape=None if shape is None else shape.copy(),
            )
            for _ in range(outputs)
        ]
        if shape is None:
            values[0].shape = _infer_shape(op_type, inputs, attributes or {})
        node = node_like(
            served,
            op_type,
            inputs,
            [self._attributes.make(*item) for item in (attributes or {}).items()],
            outputs=values,
            name=self.make_unique_name(f"node_{values[0].name}"),
        )
        if self._nodes is not None:
            self._nodes.append(node)
            return values[0] if outputs == 1 else values
        if self._after:
            served.append(node)
        else:
            served.prepend(node)
        self._made.append(node)
        return values[0] if outputs == 1 else values

    def __getattr__(self, name: str) -> Any:
        """Returns a function for ``e.CamelCase(...)``, which emits a node with one output.

        Numbers become constants of the type of the first value, lists become INT64. The syntax is
        that of translations.
        """
        if not name[:1].isupper():
            raise AttributeError(name)

        def emit(*inputs: Any, **attributes: Any) -> ir.Value:
            first = next(value for value in inputs if isinstance(value, ir.Value))
            assert first.dtype is not None
            values = [self._to_operand(value, first.dtype) for value in inputs]
            dtype: ir.DataType | None = _RESULTS.get(name, first.dtype)
            if name == "Where":
                dtype = values[1].dtype
            if "to" in attributes:
                dtype = attributes["to"]
            result: ir.Value = self.op(name, values, attributes, dtype=dtype)
            return result

        self.__dict__[name] = emit
        return emit

    def _to_operand(self, value: Any, dtype: ir.DataType) -> ir.Value:
        if isinstance(value, ir.Value):
            return value
        if isinstance(value, list):
            return self.ints(value)
        return self.constant(value, ir.DataType.DOUBLE if dtype == ir.DataType.BOOL else dtype)

    def ints(self, values: Sequence[int]) -> ir.Value:
        """Returns a list as an INT64 constant."""
        return self.constant(list(values), ir.DataType.INT64)

    def dimension(self, value: ir.Value | None, axis: int) -> ir.Value:
        """Returns one size as a vector with one element."""
        assert value is not None
        size = None if value.shape is None else value.shape[axis]
        if isinstance(size, int):
            return self.ints([size])
        found: ir.Value = self.Shape(value, start=axis, end=axis + 1)
        return found

    def reshape_to(self, value: ir.Value | None, sizes: Sequence[ir.Value]) -> ir.Value:
        """Reshapes a value to sizes that are given as vectors with one element."""
        assert value is not None
        shape = self.Concat(*sizes, axis=0)
        reshaped: ir.Value = self.Reshape(value, shape, allowzero=1)
        return reshaped

    def reduce_axes(self, op_type: str, value: ir.Value | None, axes: Sequence[int]) -> ir.Value:
        """Reduces along axes, which stay with size 1 and are an attribute before opset 18.

        ReduceSum has taken them as an input since opset 13.
        """
        if self.opset >= 18 or op_type == "ReduceSum":
            return self.op(op_type, [value, self.ints(axes)], {"keepdims": 1})
        return self.op(op_type, [value], {"axes": list(axes), "keepdims": 1})

    def with_sign(self, sign: ir.Value, size: ir.Value) -> ir.Value:
        """Gives a nonnegative number the sign of another."""
        signed: ir.Value = self.Where(self.Less(sign, 0.0), self.Neg(size), size)
        return signed

    def make_input(self, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        """Creates an input of a subgraph."""
        type_ = ir.TensorType(dtype)
        return ir.Value(
            name=self.make_unique_name(name),
            type=type_,
            shape=None if shape is None else shape.copy(),
        )

    def constant(self, value: Any, dtype: ir.DataType) -> ir.Value:
        """Returns a constant of the main graph or the function; equal constants share a value."""
        tensor = torch.tensor(value, dtype=dtypes.to_torch(dtype), device="cpu")
        key = (dtype, tuple(tensor.shape), tensor_adapters.TorchTensor(tensor).tobytes())
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self._place_initializer(constant_name(tensor), tensor)
        return known

    def cast_constant(self, value: ir.Value, dtype: ir.DataType) -> ir.Value | None:
        """Casts a small constant; None if the value is not one, or is a weight."""
        data = value.const_value
        if data is None or not value.is_initializer() or INPUT_KIND in value.metadata_props:
            return None
        if data.size > SMALL or value.graph is not self._model.graph:
            return None
        raw = getattr(data, "raw", None)
        if not isinstance(raw, torch.Tensor):
            raw = torch.from_numpy(data.numpy())
        name = f"{value.name}_{dtype.short_name()}"
        return self._place_initializer(name, raw.to(dtypes.to_torch(dtype)))

    def _place_initializer(self, name: str, tensor: torch.Tensor) -> ir.Value:
        value = constant_value(tensor, self.make_unique_name(name))
        place_constant(value, self._model, self._function)
        return value

    # --- names -----------------------------------------------------------------------------------

    def make_unique_name(self, name: str) -> str:
        """Returns a name that no value and no node of the model has."""
        if self._names is None:
            self._names = Names(names_in(self._model))
        return self._names.unique(name)

    def hand_over_name(self, old: ir.Value, new: ir.Value, dtype: ir.DataType) -> None:
        """Moves name, shape and metadata to a new value; names the old one after its new type."""
        name = str(old.name)
        old.name = self.make_unique_name(f"{name}_{dtype.short_name()}")
        new.name = name
        new.shape = None if old.shape is None else old.shape.copy()
        new.metadata_props.update(old.metadata_props)
        old.metadata_props.clear()


def _infer_shape(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> ir.Shape | None:
    """Infers the shape of a node in an expansion; sizes that are not obvious are unknown."""
    shapes = [None if value is None else value.shape for value in inputs]
    first = shapes[0] if shapes else None
    if op_type in _POINTWISE:
        return _broadcast_shapes(shapes)
    if first is None:
        return None
    if op_type == "Shape":
        return ir.Shape([len(first.dims[attributes.get("start", 0) : attributes.get("end")])])
    if op_type == "Concat" and len(first) == 1:
        lengths = [None if s is None or not isinstance(s[0], int) else s[0] for s in shapes]
        return ir.Shape([None if None in lengths else sum(n for n in lengths if n is not None)])
    if op_type == "Reshape":
        return _infer_reshape(inputs[1])
    if op_type.startswith("Reduce") and attributes.get("keepdims", 1):
        return ir.Shape([None] * len(first))
    return None


def _infer_reshape(sizes: ir.Value | None) -> ir.Shape | None:
    """The shape after a Reshape: as many dimensions as sizes, with numbers for constant ones."""
    if sizes is None or sizes.shape is None or not isinstance(sizes.shape[0], int):
        return None
    known = None if sizes.const_value is None else sizes.const_value.numpy().tolist()
    return ir.Shape([n if n > 0 else None for n in known] if known else [None] * sizes.shape[0])


def _broadcast_shapes(shapes: Sequence[ir.Shape | None]) -> ir.Shape | None:
    """The broadcast shape; differing sizes other than 1 are unknown."""
    if any(shape is None for shape in shapes):
        return None
    known = [shape.dims for shape in shapes if shape is not None]
    rank = max(map(len, known))
    sizes = [{dims[place] for dims in known if len(dims) >= -place} for place in range(-rank, 0)]
    wide = [found - {1} or found for found in sizes]
    return ir.Shape([next(iter(found)) if len(found) == 1 else None for found in wide])
