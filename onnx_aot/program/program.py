"""``ONNXProgram``: what an export returns."""

from __future__ import annotations

import contextlib
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
from onnx_aot.program.summary import NameTable, ValueSummary, name_table, summary
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
    """An ONNX model with what is needed to save, run and inspect it.

    Calling it runs the model in ONNX Runtime with torch tensors.

    Attributes:
        model: The ``onnx_ir.Model``. It may be edited; call ``release`` before running it again.
        exported_program: The captured program that the model was translated from, or None.
        state: With ``state="io"``, what the next call feeds to inputs that are state (buffers that
            the module writes to), by input name. A call replaces it by the new values, as a call
            of the module does with its buffers; ``reset_state`` makes it what it was first. Set
            an entry to go on from another value.
        weights: With ``weights_as_inputs``, what calls feed to inputs that are parameters and
            buffers of the module, by input name; the module's own tensors, until
            ``apply_weights`` or an assignment replaces them.

    Either can be given in a call instead, as a keyword argument of the input's name
    (``program(x, **{"linear.weight": weight})``), for this call alone: state that was given is
    not replaced in ``state``; its new value is among the outputs. A saved model has neither; who
    runs it feeds these inputs by name.
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
        """``forward`` is the signature of the model, by which calls get their defaults.

        ``state`` and ``weights`` are the first values of the attributes; state is copied.
        ``origin`` is how the model was made, where it was exported in this process; ``record`` is
        what ``report`` is made of.
        """
        self.model = model
        self.exported_program = exported_program
        self._forward = forward
        self._origin = origin
        self._record = record
        inputs = {value.name for value in model.graph.inputs}
        self.weights = {name: t for name, t in (weights or {}).items() if name in inputs}
        self._first_state = _copies(state or {})
        self.state = _copies(self._first_state)
        self._session: onnxruntime.InferenceSession | None = None
        self._device: torch.device | None = None  # that it was made for; None: it is the user's own
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        graph = self.model.graph
        weights = graph.initializers.values()
        size = sum(v.const_value.nbytes for v in weights if v.const_value is not None)
        lines = [
            f"ONNXProgram(opset {self.model.opset_imports.get('')}, {len(graph)} nodes, "
            f"{len(graph.initializers)} initializers, {size_text(size)})"
        ]
        lines += [f"  in   {_describe(value)}{self._role(value)}" for value in graph.inputs]
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
            Complex tensors are taken and given as such, though the model holds their parts. They
            are on the device of the inputs, where the model runs if ONNX Runtime has a provider
            for it.

        Raises:
            InferenceError: The arguments are not those that were captured, an input's type or
                shape does not fit the model, or a Python constant differs from the captured one.
            InvalidOptionError: ``structured=True`` without an exported program.
        """
        structured = self._takes_structured() and kwargs.pop("structured", False)
        outputs = self._run(self._inputs(args, kwargs))
        self._take_state(outputs, kwargs)
        return self.unflatten(outputs) if structured else outputs

    def _run(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        from onnx_aot.program import session

        device = session.device_of(inputs.values())
        if self._session is None or self._device not in (None, device):
            self._initialize(lambda model: session.create_session(model, device))
            self._device = device
        assert self._session is not None
        outputs = (t.to(device) for t in session.run_session(self._session, inputs))
        return session.joined_parts(self.model.graph.outputs, tuple(outputs))

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
        from onnx_aot.pytrees.outputs import structured

        if self.exported_program is None:
            raise InvalidOptionError(
                "the program has no exported_program, which holds the structure of the outputs; "
                "programs that onnx_aot.export returns have one"
            )
        return structured(self.exported_program, outputs)

    def reset_state(self) -> None:
        """Makes ``state`` what it was when the model was exported, or last in ``apply_weights``."""
        self.state = _copies(self._first_state)

    @contextlib.contextmanager
    def state_kept(self) -> Iterator[None]:
        """A context after which ``state`` is what it was before, whatever was called."""
        before = dict(self.state)
        try:
            yield
        finally:
            self.state = before

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The same with ONNX's reference implementation, which is slow and written in Python."""
        import onnx.reference

        from onnx_aot.program.session import from_numpy, joined_parts, to_numpy

        evaluator = onnx.reference.ReferenceEvaluator(self.model_proto)
        feeds = {name: to_numpy(tensor) for name, tensor in self._inputs(args, kwargs).items()}
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
        """Runs the model and returns inner values by name, in the order asked for.

        ``state`` stays as it is.

        Raises:
            InvalidOptionError: The main graph has no value of a name.
        """
        return self._inner_values(value_names, self._inputs(args, kwargs or {}))

    def _inner_values(
        self, value_names: Iterable[str], inputs: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        graph = self.model.graph
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
                    computed = self._run(inputs)
                finally:
                    self.release()
            known |= dict(zip(wanted, computed, strict=True))
        return tuple(known[name] for name in value_names)

    def compare(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Comparison:
        """Compares every value of the captured graph with the one of the model that holds it.

        Both run on the same inputs, PyTorch node by node. ``first`` of what is returned says which
        value goes wrong by itself, with its captured node and the user's line; ``isolate`` and
        ``bisect`` go on from there. ``state`` stays as it is. docs/debugging-a-mismatch.md shows
        how.

        Args:
            args: Positional arguments, as in a call; by default, with ``kwargs``, the example
                inputs of the export.
            kwargs: Keyword arguments.

        Returns:
            A row per value, in execution order; it prints as a table.

        Raises:
            InvalidOptionError: The program has no exported program, or that has no values for
                weights or no example inputs.
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
        """Makes the session that calls use.

        Args:
            initializer: Called with the serialized model, or with the path of a temporary file
                where it has more than 1.5 GB of weights; by default ONNX Runtime on the CPU.

        Raises:
            InferenceError: The model has operators that ONNX Runtime does not have, and no
                ``initializer`` was given that registers them.
            Exception: Whatever ONNX Runtime raises when it refuses the model otherwise.
        """
        from onnx_aot.program.session import create_session

        if initializer is not None:
            self._initialize(initializer, own=True)
            return
        self._initialize(create_session)
        self._device = torch.device("cpu")

    def _initialize(
        self, make: Callable[[str | bytes], onnxruntime.InferenceSession], own: bool = False
    ) -> None:
        """``own``: the user makes the session, and knows all operators."""
        from onnx_aot.program.custom_op_domains import foreign_operators

        self.release()
        if not own and (foreign := foreign_operators(self.model)):
            raise InferenceError(
                f"ONNX Runtime has no {', '.join(foreign)}. Pass a function to "
                "initialize_inference_session that makes a session whose options have a library of "
                "custom operators: SessionOptions.register_custom_ops_library"
            )
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
        self._session = self._device = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _takes_structured(self) -> bool:
        """Whether ``structured`` in a call is meant for the program, not for the model."""
        if self.exported_program is None:
            return True
        return not any("structured" in names for names in argument_names(self.exported_program))

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The graph's inputs by name: the arguments, and what the program holds."""
        from onnx_aot.program.constraints import refuse_other_sizes
        from onnx_aot.program.session import checked_inputs

        held = {**self.weights, **self.state}
        own = [value for value in self.model.graph.inputs if value.name in held]
        others = [value for value in self.model.graph.inputs if value.name not in held]
        given = self._given(kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in given}
        fed = checked_inputs(own, fed_values(own, held, given))
        values = graph_inputs(self.exported_program, args, rest, self._forward)
        inputs = checked_inputs(others, values) | fed
        refuse_other_sizes(self.model.graph, inputs)
        return inputs

    def _given(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments that are state or weights; an argument of the model goes first."""
        if not kwargs or not (self.state or self.weights):
            return {}
        held = {*self.weights, *self.state}
        for names in argument_names(self.exported_program) if self.exported_program else ():
            held.difference_update(names)
        return {name: value for name, value in kwargs.items() if name in held}

    def _take_state(self, outputs: Sequence[torch.Tensor], kwargs: Mapping[str, Any]) -> None:
        names = set(self.state) - set(self._given(kwargs))
        if names:
            self.state.update(new_state(self.model.graph.outputs, outputs, names))

    def _role(self, value: ir.Value) -> str:
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
        """Saves the model; a failed or interrupted save leaves the old file whole.

        Weights go to the disk in one pass, from where they are: memory, or files that
        ``apply_weights`` was given. What takes over a second shows a bar on a terminal.

        Args:
            destination: A path, or a binary file object.
            include_initializers: False leaves parameters and buffers out.
            keep_initializers_as_inputs: True lists parameters and buffers as inputs too.
            external_data: ``"auto"`` or None: one file up to 1.5 GB of weights, else two; True:
                ``<name>.data`` beside the file; ``"safetensors"``: ``<name>.safetensors``, which
                is also a checkpoint; False: one file, at most 2 GB.
            max_shard_size: With ``"safetensors"``: bytes, or a text such as ``"5GB"``, that none
                of several files exceeds, unless one tensor does.
            default_weights: True writes the values in ``weights``, of inputs, so that who runs
                the model need not feed them. Python sessions of ONNX Runtime ask for that where
                adapters do.

        Raises:
            InvalidOptionError: External data with a file object, or an option that is not accepted.
            SaveError: The model does not fit, weights have no values, or the disk refuses.
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
            path: Where.
            state_dict: Other values than ``weights``, as in ``apply_weights``, which is not done.
            version: What the file says of itself.

        Raises:
            InvalidOptionError: No weights are inputs, or ``state_dict`` does not fit them.
            InferenceError: A weight has no values yet.
            SaveError: The file cannot be written; what was there before is untouched.
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
        """A program for a saved model, to run, compare, optimize and save.

        What ``exported_program`` is for, it does not have: arguments of calls are taken in the
        order of the graph's inputs, state and weights that are inputs have no values.

        Args:
            path: Of the ``.onnx`` file; data files beside it are mapped, not read.

        Raises:
            InvalidOptionError: There is no model, or a file that it refers to is missing.
        """
        from onnx_aot.program.loading import load_model

        return cls(load_model(path))

    # --- what is in it ---------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[ValueSummary, ...]:
        """Names, types and shapes of the graph's inputs."""
        roles = dict.fromkeys(self.weights, "weight") | dict.fromkeys(self.state, "state")
        return tuple(summary(v, roles.get(str(v.name), "input")) for v in self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[ValueSummary, ...]:
        """Names, types and shapes of the graph's outputs."""
        return tuple(summary(value, "output") for value in self.model.graph.outputs)

    @property
    def hash(self) -> str:
        """SHA-256 of what ``save(..., external_data=False)`` writes, computed each time.

        It is also there for models that are too large for one file. Of a model whose weights have
        no values it is that of the file without them.
        """
        return model_hash(self.model)

    @property
    def has_values(self) -> bool:
        """Whether all weights have values, which a model without weights gets later."""
        fed = (*self.weights.values(), *self.state.values())
        held = (value.const_value for value in self.model.graph.initializers.values())
        return not any(map(is_absent, (*fed, *held)))

    def names(self) -> NameTable:
        """What parameters and values of the PyTorch module are called in the graph, and back."""
        fed = {**self.weights, **self.state}
        weights = weights_by_target(self.model.graph, self.exported_program, fed)
        return name_table(self.model.graph, self.exported_program, weights)


def _copies(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


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
