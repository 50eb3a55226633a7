"""``ONNXProgram``: what an export returns."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch.export.graph_signature import InputKind

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning
from onnx_aot.metadata_keys import ORIGINAL_NAME
from onnx_aot.program.arguments import argument_names, graph_inputs
from onnx_aot.program.serialize import (
    EXTERNAL_THRESHOLD,
    ExternalData,
    model_bytes,
    save_model,
    weights_of,
)

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
        self,
        model: ir.Model,
        exported_program: torch.export.ExportedProgram | None = None,
        forward: inspect.Signature | None = None,
    ) -> None:
        """``forward`` is the signature of the model, by which calls get their defaults."""
        self.model = model
        self.exported_program = exported_program
        self._forward = forward
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model in ONNX Runtime with the arguments that the PyTorch module takes.

        Args:
            *args: Positional arguments.
            **kwargs: Keyword arguments. ``structured=True`` among them, where the captured model
                has no argument of that name, gives what ``unflatten`` makes of the outputs.

        Returns:
            Its outputs, flat, as a tuple of torch tensors; mutated buffers and inputs come last.
            Complex tensors are taken and given as such, though the model holds their parts.

        Raises:
            InferenceError: The arguments are not those that were captured, an input's type or
                shape does not fit the model, or a Python constant differs from the captured one.
            InvalidOptionError: ``structured=True`` without an exported program.
        """
        from onnx_aot.program.session import joined_parts, run_session

        structured = self._takes_structured() and kwargs.pop("structured", False)
        inputs = self._inputs(args, kwargs)
        if self._session is None:
            self.initialize_inference_session()
        assert self._session is not None
        outputs = joined_parts(self.model.graph.outputs, run_session(self._session, inputs))
        return self.unflatten(outputs) if structured else outputs

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """Gives outputs the structure that the captured module returns.

        Args:
            outputs: What a call of the program returned.

        Returns:
            What the module returns, with None, strings and Python numbers in their places; the new
            values of mutated buffers and inputs are left out.

        Raises:
            InvalidOptionError: The program has no exported program, or other outputs.
        """
        from onnx_aot.program.structure import structured

        if self.exported_program is None:
            raise InvalidOptionError(
                "the program has no exported_program, which holds the structure of the outputs; "
                "programs that onnx_aot.export returns have one"
            )
        return structured(self.exported_program, outputs)

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The same with ONNX's reference implementation, which is slow and written in Python."""
        import onnx.reference

        from onnx_aot.program.session import from_numpy, joined_parts, to_numpy

        evaluator = onnx.reference.ReferenceEvaluator(self.model_proto)
        feeds = {name: to_numpy(tensor) for name, tensor in self._inputs(args, kwargs).items()}
        outputs: Any = evaluator.run(None, feeds)
        return joined_parts(self.model.graph.outputs, tuple(map(from_numpy, outputs)))

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
        inputs = self._inputs(args, kwargs or {})
        inner = {str(v.name): v for node in graph for v in node.outputs}
        present = {*inputs, *inner, *graph.initializers}
        unknown = [name for name in value_names if name not in present]
        if unknown:
            raise InvalidOptionError(
                f"the model has no value {unknown[0]!r}; program.model lists all of them"
            )
        # ONNX Runtime would hand out inputs and weights in memory that is not ours to keep
        known = {name: tensor.clone() for name, tensor in inputs.items()}
        known |= {n: _weight(graph.initializers[n]) for n in value_names if n in graph.initializers}
        wanted = [name for name in dict.fromkeys(value_names) if name in inner]
        if wanted:
            self.release()
            with _outputs_replaced(graph, [inner[name] for name in wanted]):
                try:
                    computed = self(*args, **(kwargs or {}))
                finally:
                    self.release()
            known |= dict(zip(wanted, computed, strict=True))
        return tuple(known[name] for name in value_names)

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

    def _takes_structured(self) -> bool:
        """Whether ``structured`` in a call is meant for the program, not for the model."""
        if self.exported_program is None:
            return True
        return not any("structured" in names for names in argument_names(self.exported_program))

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The graph's inputs by name."""
        from onnx_aot.program.session import checked_inputs

        given = graph_inputs(self.exported_program, args, kwargs, self._forward)
        return checked_inputs(self.model.graph.inputs, given)

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
            state_dict: Tensors of the shapes and types that the model's weights have. Weights of
                the module that the model does not use are passed over.

        Raises:
            InvalidOptionError: Shapes or types differ, or tied weights get different values;
                nothing has been replaced.
        """
        initializers = self.model.graph.initializers
        names = self._initializer_names()
        of_module = self.exported_program.state_dict if self.exported_program is not None else {}
        wrong: list[str] = []
        replaced: dict[str, tuple[str, torch.Tensor]] = {}
        for given, value in state_dict.items():
            name = names.get(given)
            if name is None:
                continue
            # of complex numbers the model holds the parts
            tensor = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            old = initializers[name].const_value
            dtype, shape = dtypes.to_onnx(tensor.dtype), ir.Shape(tensor.shape)
            if old is not None and (old.dtype != dtype or old.shape != shape):
                wrong.append(
                    f"{given} is {old.dtype.name}{old.shape} in the model, "
                    f"{dtype.name}{shape} was given"
                )
            elif name in replaced and not _equal(replaced[name][1], tensor):
                wrong.append(
                    f"{given} and {replaced[name][0]} are one weight in the model, two different "
                    "ones were given"
                )
            replaced.setdefault(name, (given, tensor))
        if wrong:
            raise InvalidOptionError("weights do not fit the model: " + "; ".join(wrong))
        for name, (_, tensor) in replaced.items():
            initializers[name].const_value = tensor_adapters.TorchTensor(tensor.detach(), name=name)
        unknown = [given for given in state_dict if given not in names and given not in of_module]
        if unknown:
            warnings.warn(
                f"the model has no weight {', '.join(map(repr, unknown))}; not applied",
                OnnxExporterWarning,
                stacklevel=2,
            )
        self.release()

    def _initializer_names(self) -> dict[str, str]:
        """Initializers by the names that their weights, also tied ones, have in the module."""
        initializers = self.model.graph.initializers
        program = self.exported_program
        if program is None:
            return {name: name for name in initializers}
        targets = {
            spec.arg.name: spec.target
            for spec in program.graph_signature.input_specs
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        }
        names = {}
        for name, value in initializers.items():
            target = targets.get(value.metadata_props.get(ORIGINAL_NAME, name))
            if target is not None:
                names[str(target)] = name
        held = {
            _memory(program.state_dict[t]): n for t, n in names.items() if t in program.state_dict
        }
        for target, tensor in program.state_dict.items():
            if _memory(tensor) in held:
                names.setdefault(target, held[_memory(tensor)])
        return names


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (id(tensor) if tensor.is_meta else tensor.data_ptr(), tensor.shape, tensor.stride())


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left is right or (not left.is_meta and not right.is_meta and torch.equal(left, right))


def _weight(initializer: ir.Value) -> torch.Tensor:
    from onnx_aot.program.session import from_numpy

    assert initializer.const_value is not None
    return from_numpy(initializer.const_value.numpy())


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
