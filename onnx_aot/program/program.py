"""``ONNXProgram``, the result of an export."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import torch

from onnx_aot.errors import InferenceError, InvalidOptionError
from onnx_aot.inspection.text import size_text
from onnx_aot.program.arguments import argument_names, graph_inputs
from onnx_aot.program.editing import Editable
from onnx_aot.program.examining import Examinable
from onnx_aot.program.fed_inputs import fed_values, new_state
from onnx_aot.program.origin import Origin
from onnx_aot.program.summary import NameTable, ValueSummary, name_table, summarize_value
from onnx_aot.program.viewing import Viewable
from onnx_aot.serialization.checkpoints import read_checkpoint
from onnx_aot.serialization.serialize import (
    EXTERNAL_THRESHOLD,
    ExternalData,
    model_bytes,
    model_hash,
    save_model,
    weights_of,
)
from onnx_aot.serialization.weights import as_fed, fitting_weights, is_absent, weights_by_target

if TYPE_CHECKING:
    import onnxruntime

    from onnx_aot.inspection.comparison import Comparison
    from onnx_aot.reporting.record import ExportRecord

__all__ = ["ONNXProgram"]


class ONNXProgram(Editable, Examinable, Viewable):
    """An ONNX model with everything needed to save, run and inspect it.

    Calling it runs the model in ONNX Runtime with torch tensors.

    Attributes:
        model: The ``onnx_ir.Model``. It may be edited; call ``release`` before running it again.
        exported_program: The captured program that the model was translated from, or None.
        state: With ``state="io"``, the values that the next call feeds to inputs that are state
            (buffers that the module writes to), by input name. A call replaces them by the new
            values, as a call of the module updates its buffers; ``reset_state`` restores the
            first ones. Assign an entry to continue from another value.
        weights: With ``weights_as_inputs``, the values that calls feed to inputs that are
            parameters and buffers of the module, by input name. They are the module's own tensors
            until ``apply_weights`` or an assignment replaces them.

    The weights in ``model`` are the module's own tensors, not copies. A later change to them, by
    training or ``load_state_dict``, changes what ``save`` writes. The session that the first call
    creates keeps the values that it was created with until ``release``. Saved files never change.
    Export ``copy.deepcopy(module)`` for a program that is independent of the module.

    A keyword argument with the input's name overrides an entry of either for one call
    (``program(x, **{"linear.weight": weight})``). State given this way is not updated in
    ``state``; its new value is among the outputs. A saved model has neither: whoever runs it feeds
    these inputs by name, except weights saved with ``default_weights=True``.
    """

    def __init__(
        self,
        model: ir.Model,
        exported_program: torch.export.ExportedProgram | None = None,
        forward: inspect.Signature | None = None,
        *,
        state: Mapping[str, torch.Tensor] | None = None,
        weights: Mapping[str, torch.Tensor] | None = None,
        origin: Origin | None = None,
        record: ExportRecord | None = None,
    ) -> None:
        """``forward`` is the signature of the model, which supplies the defaults of calls.

        ``state`` and ``weights`` are the first values of the attributes; state is copied.
        ``origin`` says how the model was made, if it was exported in this process; ``report`` is
        built from ``record``.
        """
        self.model = model
        self.exported_program = exported_program
        self._forward = forward
        self._origin = origin
        self._record = record
        inputs = {value.name for value in model.graph.inputs}
        self.weights = {name: t for name, t in (weights or {}).items() if name in inputs}
        self._first_state = _clone_tensors(state or {})
        self.state = _clone_tensors(self._first_state)
        self._session: onnxruntime.InferenceSession | None = None
        self._device: torch.device | None = None  # of the session; None: the user made it
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        graph = self.model.graph
        weights = graph.initializers.values()
        size = sum(v.const_value.nbytes for v in weights if v.const_value is not None)
        lines = [
            f"ONNXProgram(opset {self.model.opset_imports.get('')}, {len(graph)} nodes, "
            f"{len(graph.initializers)} initializers, {size_text(size)})"
        ]
        lines += [
            f"  in   {_describe(value)}{self._describe_role(value)}" for value in graph.inputs
        ]
        lines += [f"  out  {_describe(value)}" for value in graph.outputs]
        return "\n".join(lines)

    # --- running ---------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model in ONNX Runtime with the arguments that the PyTorch module takes.

        Args:
            *args: Positional arguments.
            **kwargs: Keyword arguments. With ``structured=True``, unless the captured model has an
                argument of that name, the call returns ``unflatten`` of the outputs.

        Returns:
            The outputs as a flat tuple of torch tensors; mutated buffers and inputs come last.
            Complex tensors are accepted and returned as such, although the model holds their real
            and imaginary parts. Outputs are on the device of the inputs; the model runs there if
            ONNX Runtime has a provider for it.

        Raises:
            InferenceError: The arguments do not match the captured ones, an input's type or shape
                does not fit the model, or a Python constant differs from the captured one.
            InvalidOptionError: ``structured=True`` without an exported program.
        """
        structured = self._takes_structured() and kwargs.pop("structured", False)
        outputs = self._run(self._bind_inputs(args, kwargs))
        self._take_state(outputs, kwargs)
        return self.unflatten(outputs) if structured else outputs

    def _run(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        from onnx_aot.program import session
        from onnx_aot.program.constraints import refuse_crashes

        device = session.device_of(inputs.values())
        if device.type == "cpu":
            refuse_crashes(self.model.graph, inputs)
        if self._session is None or self._device not in (None, device):
            quantizes = self._quantizes()
            self._create_session(
                lambda model: session.create_session(model, device, quantizes), device
            )
            self._device = device
        assert self._session is not None
        outputs = (t.to(device) for t in session.run_session(self._session, inputs))
        return session.joined_parts(self.model.graph.outputs, tuple(outputs))

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """Gives outputs the structure that the captured module returns.

        Args:
            outputs: The outputs of a call of the program.

        Returns:
            The module's return value, with None, strings and Python numbers in their places and
            without the new values of mutated buffers and inputs.

        Raises:
            InvalidOptionError: The program has no exported program, or the number of outputs is
                wrong.
        """
        from onnx_aot.pytrees.outputs import structure_outputs

        if self.exported_program is None:
            raise InvalidOptionError(
                "the program has no exported_program, which holds the structure of the outputs; "
                "programs that onnx_aot.export returns have one",
                code="OA607",
            )
        return structure_outputs(self.exported_program, outputs)

    def reset_state(self) -> None:
        """Resets ``state`` to its values at the export or, if later, of ``apply_weights``."""
        self.state = _clone_tensors(self._first_state)

    @contextlib.contextmanager
    def state_kept(self) -> Iterator[None]:
        """Context manager that restores ``state`` at its end."""
        before = dict(self.state)
        try:
            yield
        finally:
            self.state = before

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Like a call, in ONNX's reference implementation, which is slow and written in Python."""
        import onnx.reference

        from onnx_aot.program.session import from_numpy, joined_parts, to_numpy

        evaluator = onnx.reference.ReferenceEvaluator(self.model_proto)
        feeds = {name: to_numpy(tensor) for name, tensor in self._bind_inputs(args, kwargs).items()}
        returned: Any = evaluator.run(None, feeds)
        outputs = joined_parts(self.model.graph.outputs, tuple(map(from_numpy, returned)))
        self._take_state(outputs, kwargs)
        return outputs

    def compute_values(
        self,
        value_names: Sequence[str],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Runs the model and returns the named inner values, in the given order.

        ``state`` does not change.

        Raises:
            InvalidOptionError: The main graph has no value with such a name.
        """
        return self._inner_values(value_names, self._bind_inputs(args, kwargs or {}))

    def _inner_values(
        self, value_names: Iterable[str], inputs: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        graph = self.model.graph
        inner = {str(v.name): v for node in graph for v in node.outputs}
        present = {*inputs, *inner, *graph.initializers}
        unknown = [name for name in value_names if name not in present]
        if unknown:
            raise InvalidOptionError(
                f"the model has no value {unknown[0]!r}; program.model lists all of them",
                code="OA014",
            )
        # ONNX Runtime would return inputs and weights in memory that callers must not keep
        known = {name: tensor.clone() for name, tensor in inputs.items()}
        known |= {
            n: _read_weight(graph.initializers[n]) for n in value_names if n in graph.initializers
        }
        wanted = [name for name in dict.fromkeys(value_names) if name in inner]
        if wanted:
            self.release()
            with _outputs_replaced(graph, [inner[name] for name in wanted]):
                try:
                    computed = self._run(inputs)
                finally:
                    self.release()
            known |= dict(zip(wanted, computed, strict=True))
        return tuple(known[name] for name in value_names)

    def compare(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Comparison:
        """Compares every value of the captured graph with its counterpart in the model.

        Both run on the same inputs, PyTorch node by node. ``first`` of the result is the first
        value that goes wrong by itself, with its captured node and the user's line; ``isolate`` and
        ``bisect`` continue from there. ``state`` does not change. The
        page "Debugging a mismatch" of the documentation shows each step.

        Args:
            args: Positional arguments, as in a call; by default, with ``kwargs``, the example
                inputs of the export.
            kwargs: Keyword arguments.

        Returns:
            A ``Comparison`` with a row per value, in execution order. It prints as a table.

        Raises:
            InvalidOptionError: The program has no exported program, its weights have no values, or
                there are no example inputs.
            InferenceError: The arguments do not fit the model.
        """
        from onnx_aot.inspection.compare import compare_values
        from onnx_aot.program.arguments import example_arguments

        if args is None and kwargs is None and self.exported_program is not None:
            args, kwargs = example_arguments(self.exported_program)
        return compare_values(self, args or (), kwargs or {})

    def initialize_inference_session(
        self,
        initializer: Callable[[str | bytes], onnxruntime.InferenceSession] | None = None,
    ) -> None:
        """Creates the session that calls use.

        Args:
            initializer: Called with the serialized model, or with the path of a temporary file if
                its weights exceed 1.5 GB; by default ONNX Runtime on the CPU.

        Raises:
            InferenceError: The model has operators that ONNX Runtime lacks, and there is no
                ``initializer`` to register them.
            Exception: Whatever ONNX Runtime raises if it rejects the model otherwise.
        """
        from onnx_aot.program.session import create_session

        if initializer is not None:
            self._create_session(initializer)
            return
        cpu = torch.device("cpu")
        self._create_session(functools.partial(create_session, quantizes=self._quantizes()), cpu)
        self._device = cpu

    def _quantizes(self) -> bool:
        """Returns True if the model quantizes activations."""
        return any(node.op_type == "QuantizeLinear" for node in self.model.graph)

    def _create_session(
        self,
        make: Callable[[str | bytes], onnxruntime.InferenceSession],
        device: torch.device | None = None,
    ) -> None:
        """Creates the session; without a device by a function of the user.

        Then the user provides all operators.
        """
        from onnx_aot.program.custom_op_domains import foreign_operators

        self.release()
        if device is not None and (foreign := foreign_operators(self.model)):
            raise InferenceError(
                f"ONNX Runtime has no {', '.join(foreign)}. Pass a function to "
                "initialize_inference_session that makes a session whose options have a library of "
                "custom operators: SessionOptions.register_custom_ops_library",
                code="OA604",
            )
        model = self.model if device is None else self._fit_to_device(device)
        weights = sum(v.const_value.nbytes for v in weights_of(model) if v.const_value)
        if weights <= EXTERNAL_THRESHOLD:
            self._session = make(model_bytes(model))
            return
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        path = os.path.join(self._folder.name, "model.onnx")
        save_model(model, path, external_data=True)
        self._session = make(path)

    def _save_for(self, device: torch.device, path: str) -> None:
        """Saves what a session on a device gets."""
        save_model(self._fit_to_device(device), path)

    def _fit_to_device(self, device: torch.device) -> ir.Model:
        """The model; if it is for CUDA and the session will not run there, a copy for the CPU."""
        from onnx_aot.program.session import providers_for
        from onnx_aot.targets import ON_CUDA, RUNTIME, find_kernels, legalize

        target = None if self._origin is None else self._origin.target
        if (
            target is None
            or find_kernels(target).runtime != ON_CUDA
            or len(providers_for(device)) > 1
        ):
            return self.model
        copy = self.model.clone()
        legalize(copy, RUNTIME)
        return copy

    def release(self) -> None:
        """Frees the session; the next call creates one from the model as it is then."""
        self._session = self._device = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _takes_structured(self) -> bool:
        """True if ``structured`` in a call is meant for the program, not for the model."""
        if self.exported_program is None:
            return True
        return not any("structured" in names for names in argument_names(self.exported_program))

    def _bind_inputs(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, torch.Tensor]:
        """Tensors for the graph's inputs by name: arguments, and values that the program holds."""
        from onnx_aot.program.constraints import refuse_other_sizes
        from onnx_aot.program.session import checked_inputs

        held = {**self.weights, **self.state}
        own = [value for value in self.model.graph.inputs if value.name in held]
        others = [value for value in self.model.graph.inputs if value.name not in held]
        given = self._select_state(kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in given}
        fed = checked_inputs(own, fed_values(own, held, given))
        values = graph_inputs(self.exported_program, args, rest, self._forward)
        inputs = checked_inputs(others, values) | fed
        refuse_other_sizes(self.model.graph, inputs)
        return inputs

    def _select_state(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments that are state or weights; arguments of the model take precedence."""
        if not kwargs or not (self.state or self.weights):
            return {}
        held = {*self.weights, *self.state}
        for names in argument_names(self.exported_program) if self.exported_program else ():
            held.difference_update(names)
        return {name: value for name, value in kwargs.items() if name in held}

    def _take_state(self, outputs: Sequence[torch.Tensor], kwargs: Mapping[str, Any]) -> None:
        names = set(self.state) - set(self._select_state(kwargs))
        if names:
            self.state.update(new_state(self.model.graph.outputs, outputs, names))

    def _describe_role(self, value: ir.Value) -> str:
        if value.name in self.state:
            return " (state)"
        return " (weight)" if value.name in self.weights else ""

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
        max_shard_size: int | str | None = None,
        default_weights: bool = False,
    ) -> None:
        """Saves the model; a failed or interrupted save leaves an existing file intact.

        Weights are written in one pass from where they are: memory, or files that
        ``apply_weights`` was given. A save of over a second shows a progress bar on a terminal.

        Args:
            destination: A path, or a binary file object.
            include_initializers: False leaves parameters and buffers out.
            keep_initializers_as_inputs: True lists parameters and buffers as inputs too.
            external_data: ``"auto"`` or None: one file up to 1.5 GB of weights, else two. True:
                weights in ``model.onnx.data`` beside ``model.onnx``. ``"safetensors"``: weights in
                ``model.safetensors``, which is also a checkpoint. False: one file, at most 2 GB.
            max_shard_size: With ``"safetensors"``: limit for the tensors of one file, in bytes or
                as a text such as ``"5GB"``. A larger tensor gets a file of its own.
            default_weights: True writes the values in ``weights`` as defaults of these inputs, so
                that the model runs without feeding them. ONNX Runtime's Python sessions need such
                defaults if an adapter feeds the inputs.

        Raises:
            InvalidOptionError: External data with a file object, or an option that is not accepted.
            SaveError: The model does not fit into one file or on the disk, weights have no values,
                or writing fails.
        """
        save_model(
            self.model,
            destination,
            external_data=external_data,
            max_shard_size=max_shard_size,
            defaults=self.weights if default_weights else None,
            include_initializers=include_initializers,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
        )

    def save_adapter(
        self,
        path: str | os.PathLike[str],
        state_dict: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
        *,
        version: int = 1,
    ) -> None:
        """Writes weights that are inputs to a file that ``onnxruntime.LoraAdapter`` loads.

        A session that runs with it (``RunOptions.add_active_adapter``) feeds them by itself, so
        that one model serves many adapters.

        Args:
            path: Path of the file.
            state_dict: Values to write instead of those in ``weights``, in the forms that
                ``apply_weights`` takes; ``weights`` does not change.
            version: Adapter and model version to store in the file.

        Raises:
            InvalidOptionError: No weights are inputs, or ``state_dict`` does not fit them.
            InferenceError: A weight has no values yet.
            SaveError: The file cannot be written; an existing file is untouched.
        """
        from onnx_aot.program.adapters import write_adapter

        inputs = {str(v.name): v for v in self.model.graph.inputs if v.name in self.weights}
        tensors = dict(self.weights)
        if state_dict is not None:
            given = read_checkpoint(state_dict)
            values = weights_by_target(self.model.graph, self.exported_program, self.weights)
            values = {name: v for name, v in values.items() if v.name in inputs}
            strangers = [name for name in given if name not in values]
            fitting = fitting_weights(values, given, values, strangers, cast=False)
            tensors = {str(value.name): as_fed(value, stored) for value, stored in fitting}
        fed = fed_values(list(inputs.values()), tensors, {})
        write_adapter(path, dict(zip(inputs, fed, strict=True)), version)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ONNXProgram:
        """Loads a saved model, to run, verify, optimize and save it.

        There is no ``exported_program``: calls take arguments in the order of the graph's inputs,
        including inputs that are state or weights, for which the program holds no values.

        Args:
            path: Path of the ``.onnx`` file; data files beside it are mapped, not read.

        Raises:
            InvalidOptionError: There is no such file, it is not a model, or a data file that it
                refers to is missing or too short.
        """
        from onnx_aot.program.loading import load_model

        return cls(load_model(path))

    # --- what is in it ---------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[ValueSummary, ...]:
        """Names, types and shapes of the graph's inputs."""
        roles = dict.fromkeys(self.weights, "weight") | dict.fromkeys(self.state, "state")
        return tuple(
            summarize_value(v, roles.get(str(v.name), "input")) for v in self.model.graph.inputs
        )

    @property
    def outputs(self) -> tuple[ValueSummary, ...]:
        """Names, types and shapes of the graph's outputs."""
        return tuple(summarize_value(value, "output") for value in self.model.graph.outputs)

    @property
    def hash(self) -> str:
        """SHA-256 of the file that ``save(..., external_data=False)`` writes, computed each time.

        Models that are too large for one file have a hash too. If a weight has no values, it is the
        hash of the file without parameters and buffers.
        """
        return model_hash(self.model)

    @property
    def has_values(self) -> bool:
        """True if all weights have values; ``apply_weights`` supplies missing ones."""
        fed = (*self.weights.values(), *self.state.values())
        held = (value.const_value for value in self.model.graph.initializers.values())
        return not any(map(is_absent, (*fed, *held)))

    def names(self) -> NameTable:
        """Returns the table of names: PyTorch parameters and values to ONNX names, and back."""
        fed = {**self.weights, **self.state}
        weights = weights_by_target(self.model.graph, self.exported_program, fed)
        return name_table(self.model.graph, self.exported_program, weights)


def _clone_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _read_weight(initializer: ir.Value) -> torch.Tensor:
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
