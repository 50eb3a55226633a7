"""``ONNXProgram``: what an export returns."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.program.serialize import (
    EXTERNAL_THRESHOLD,
    ExternalData,
    model_bytes,
    save_model,
    weights_of,
)
from onnx_aot.torch_compat import pytree

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["ONNXProgram"]


class ONNXProgram:
    """An ONNX model with what is needed to save, run and inspect it.

    Calling it runs the model in ONNX Runtime with torch tensors.

    Attributes:
        model: The ``onnx_ir.Model``. It may be edited; call ``release`` before running it again.
        exported_program: The captured program that the model was translated from, or None.
    """

    def __init__(
        self, model: ir.Model, exported_program: torch.export.ExportedProgram | None = None
    ) -> None:
        self.model = model
        self.exported_program = exported_program
        self._session: onnxruntime.InferenceSession | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        graph = self.model.graph
        weights = graph.initializers.values()
        size = sum(v.const_value.nbytes for v in weights if v.const_value is not None)
        lines = [
            f"ONNXProgram(opset {self.model.opset_imports.get('')}, {len(graph)} nodes, "
            f"{len(graph.initializers)} initializers, {_megabytes(size)})"
        ]
        lines += [f"  in   {_describe(value)}" for value in graph.inputs]
        lines += [f"  out  {_describe(value)}" for value in graph.outputs]
        return "\n".join(lines)

    # --- running ---------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Runs the model in ONNX Runtime with the arguments that the PyTorch module takes.

        Returns:
            Its outputs, flat, as torch tensors; mutated buffers and inputs come last.

        Raises:
            InferenceError: An input's type or shape does not fit the model, or a Python constant
                differs from the captured one.
        """
        from onnx_aot.program.session import run_session

        if self._session is None:
            self.initialize_inference_session()
        assert self._session is not None
        return run_session(self._session, self.model.graph.inputs, self._flatten(args, kwargs))

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The same with ONNX's reference implementation, which is slow and written in Python."""
        import onnx.reference

        from onnx_aot.program.session import from_numpy, to_numpy

        evaluator = onnx.reference.ReferenceEvaluator(self.model_proto)
        values = self._flatten(args, kwargs)
        feeds = {
            str(declared.name): to_numpy(torch.as_tensor(value))
            for declared, value in zip(self.model.graph.inputs, values, strict=True)
        }
        outputs: Any = evaluator.run(None, feeds)
        return tuple(map(from_numpy, outputs))

    def compute_values(
        self,
        value_names: Sequence[str],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Runs the model and returns inner values by name, in the order asked for.

        Raises:
            InvalidOptionError: The main graph has no value of a name.
        """
        graph = self.model.graph
        values: dict[str, ir.Value] = dict(graph.initializers)
        values.update((str(value.name), value) for value in graph.inputs)
        values.update((str(v.name), v) for node in graph for v in node.outputs)
        unknown = [name for name in value_names if name not in values]
        if unknown:
            raise InvalidOptionError(
                f"the model has no value {unknown[0]!r}; program.model lists all of them"
            )
        self.release()
        with _outputs_replaced(graph, [values[name] for name in value_names]):
            try:
                return self(*args, **(kwargs or {}))
            finally:
                self.release()

    def initialize_inference_session(
        self,
        initializer: Callable[[str | bytes], onnxruntime.InferenceSession] | None = None,
    ) -> None:
        """Makes the session that calls use.

        Args:
            initializer: Called with the serialized model, or with the path of a temporary file
                where it has more than 1.5 GB of weights; by default ONNX Runtime on the CPU.
        """
        from onnx_aot.program.session import create_session

        self.release()
        make = initializer or create_session
        weights = sum(v.const_value.nbytes for v in weights_of(self.model) if v.const_value)
        if weights <= EXTERNAL_THRESHOLD:
            self._session = make(model_bytes(self.model))
            return
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        path = os.path.join(self._folder.name, "model.onnx")
        self.save(path, external_data=True)
        self._session = make(path)

    def release(self) -> None:
        """Frees the session; the next call makes a new one from the model as it is then."""
        self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments' leaves that are inputs of the graph."""
        program = self.exported_program
        if program is None:
            leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
            return [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, int, float, bool))]
        leaves = pytree.tree_leaves((tuple(args), _in_captured_order(program, kwargs)))
        user = [
            spec
            for spec in program.graph_signature.input_specs
            if spec.kind == InputKind.USER_INPUT
        ]
        if len(leaves) != len(user):
            return leaves  # the session says what is wrong
        inputs = []
        for leaf, spec in zip(leaves, user, strict=True):
            if not isinstance(spec.arg, ConstantArgument):
                inputs.append(leaf)
            elif isinstance(leaf, torch.Tensor) or leaf != spec.arg.value:
                raise InferenceError(
                    f"{spec.arg.name} was {spec.arg.value!r} when the model was captured, which is "
                    f"now part of it; {leaf!r} was given. Export the model anew with {leaf!r}"
                )
        return inputs

    # --- saving ----------------------------------------------------------------------------------

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model as an ``onnx.ModelProto``, weights included."""
        return ir.serde.serialize_model(self.model)

    def save(
        self,
        destination: str | os.PathLike[str] | Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: ExternalData = "auto",
    ) -> None:
        """Saves the model; a failed or interrupted save leaves the old file whole.

        Args:
            destination: A path, or a binary file object.
            include_initializers: False leaves parameters and buffers out.
            keep_initializers_as_inputs: True lists parameters and buffers as inputs too.
            external_data: ``"auto"`` or None: one file up to 1.5 GB of weights, else two; True:
                ``<name>.data`` beside the file; False: one file, at most 2 GB.

        Raises:
            InvalidOptionError: External data with a file object.
            SaveError: The model does not fit, weights have no values, or the disk refuses.
        """
        save_model(
            self.model,
            destination,
            external_data=external_data,
            include_initializers=include_initializers,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
        )

    # --- changing --------------------------------------------------------------------------------

    def optimize(self) -> None:
        """Runs the optimization passes on the model in place."""
        from onnx_aot.ir_passes import run_passes

        run_passes(self.model)
        self.release()

    def apply_weights(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Replaces weights by their names in the PyTorch module.

        Args:
            state_dict: Tensors of the shapes and types that the model's weights have.

        Raises:
            InvalidOptionError: Shapes or types differ; nothing has been replaced.
        """
        initializers = self.model.graph.initializers
        tied = self._tied_names()
        unknown = []
        replacements = {}
        wrong = []
        for given, tensor in state_dict.items():
            name = given if given in initializers else tied.get(given)
            if name is None:
                unknown.append(given)
                continue
            new = tensor_adapters.TorchTensor(tensor.detach(), name=name)
            old = initializers[name].const_value
            if old is not None and (old.dtype != new.dtype or old.shape != new.shape):
                wrong.append(
                    f"{given} is {old.dtype.name}{old.shape} in the model, "
                    f"{new.dtype.name}{new.shape} was given"
                )
            replacements[name] = new
        if wrong:
            raise InvalidOptionError("weights do not fit the model: " + "; ".join(wrong))
        for name, new in replacements.items():
            initializers[name].const_value = new
        if unknown:
            warnings.warn(
                f"the model has no weight {', '.join(map(repr, unknown))}; not applied",
                OnnxExporterWarning,
                stacklevel=2,
            )
        self.release()

    def _tied_names(self) -> dict[str, str]:
        """Names of the module's weights that the model holds under the name of a tied weight."""
        if self.exported_program is None:
            return {}
        weights = self.exported_program.state_dict
        held = {
            _memory(tensor): name
            for name, tensor in weights.items()
            if name in self.model.graph.initializers
        }
        return {
            name: held[_memory(tensor)]
            for name, tensor in weights.items()
            if _memory(tensor) in held
        }


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (id(tensor) if tensor.is_meta else tensor.data_ptr(), tensor.shape, tensor.stride())


def _in_captured_order(
    program: torch.export.ExportedProgram, kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments in the order in which the capture flattened them."""
    spec = program.call_spec.in_spec
    children = spec.children() if spec is not None else []
    names = list(children[1].context or ()) if len(children) == 2 else []
    if set(names) != set(kwargs):
        return dict(kwargs)
    return {name: kwargs[name] for name in names}


@contextlib.contextmanager
def _outputs_replaced(graph: ir.Graph, outputs: Sequence[ir.Value]) -> Iterator[None]:
    before = list(graph.outputs)
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    try:
        yield
    finally:
        graph.outputs.clear()
        graph.outputs.extend(before)


def _describe(value: ir.Value) -> str:
    dtype = value.dtype.name if value.dtype is not None else "?"
    return f"{value.name}: {dtype}{value.shape if value.shape is not None else '[?]'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
