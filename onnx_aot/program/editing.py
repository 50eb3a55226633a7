"""Methods of ``ONNXProgram`` that change it in place."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir
import torch

from onnx_aot.errors import OnnxExporterWarning
from onnx_aot.program.origin import Origin
from onnx_aot.program.summary import rename_axes
from onnx_aot.serialization.checkpoints import read_checkpoint
from onnx_aot.serialization.weights import (
    absent_weights,
    as_fed,
    as_held,
    check_read_weights,
    fitting_weights,
    weights_by_target,
)

__all__ = ["Editable"]


class Editable:
    """Methods of ``ONNXProgram`` that change its model, weights and state."""

    model: ir.Model
    exported_program: torch.export.ExportedProgram | None
    state: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]
    _first_state: dict[str, torch.Tensor]
    _origin: Origin | None

    if TYPE_CHECKING:

        def release(self) -> None:
            """Frees the session; ``ONNXProgram`` defines it."""

    def optimize(
        self,
        optimize: bool | Literal["safe"] | Collection[str] = True,
        *,
        contrib_ops: bool = False,
    ) -> dict[str, int]:
        """Runs optimization passes and rules on the model in place, as ``export`` does.

        Args:
            optimize: True: all; ``"safe"``: those that keep every value bit for bit; a collection
                of names: only these; False: none.
            contrib_ops: Whether to use operators that only ONNX Runtime has, where they are faster.

        Returns:
            How often each pass and rule changed the model, by name. One that fails is undone, with
            a warning.

        Raises:
            InvalidOptionError: ``optimize`` is not one of these, or a name is unknown.
        """
        from onnx_aot.errors import warn
        from onnx_aot.ir_passes import run_passes
        from onnx_aot.options import check_optimize
        from onnx_aot.targets import has_kernel

        check_optimize(optimize)
        target = None if self._origin is None else self._origin.target
        outcome = run_passes(self.model, optimize, contrib_ops, has_kernel(target))
        self.release()
        if self._origin is not None:
            self._origin.passes.update(outcome.counts)
        for name, reason in outcome.undone.items():
            warn(f"the optimization {name} failed and was undone: {reason}", "OA407")
        return dict(outcome.counts)

    def inline(self) -> None:
        """Replaces every call of a local function by the function's body, in place.

        The metadata that says where the nodes of a module's function come from stays relative to
        the module.
        """
        from onnx_ir.passes.common import InlinePass

        domains = {function.domain for function in self.model.functions.values()}
        InlinePass()(self.model)
        for domain in domains - {node.domain for node in self.model.graph.all_nodes()}:
            self.model.opset_imports.pop(domain, None)
        self.release()

    def rename_axes(self, names: Mapping[str, str]) -> None:
        """Renames dynamic dimensions, in place.

        Args:
            names: New names, keyed by the present ones, which ``program.inputs`` shows.

        Raises:
            InvalidOptionError: The model has no such dimension, or a new name cannot be used.
        """
        rename_axes(self.model, names)
        self.release()

    def apply_weights(
        self,
        state_dict: Mapping[str, torch.Tensor] | str | os.PathLike[str],
        *,
        cast: bool = False,
        partial: bool = False,
    ) -> None:
        """Replaces weights, given by their names in the PyTorch module.

        Weights that are state or inputs of the graph are replaced too. Tensors in a file stay there
        until they are needed; saving copies them from file to file.

        Args:
            state_dict: Tensors with the shapes and types of the model's weights; or the path of a
                ``.safetensors`` file, of a file that ``torch.save`` wrote, of an ``.index.json``,
                or of a folder with ``model.safetensors``, ``pytorch_model.bin`` or the index of
                either. Weights of the module that the model does not use are ignored; names that
                the module does not have cause a warning.
            cast: Whether to cast tensors of other types to the types of the model's weights.
            partial: Whether a model without weights may get some of them now and others later.

        Raises:
            InvalidOptionError: Shapes or types differ, tied weights get different values, weights
                that have no values yet are missing, a weight whose elements the module's Python
                code reads gets other ones, or the path holds no weights. Nothing is replaced then.
        """
        fed = {**self.weights, **self.state}
        given = read_checkpoint(state_dict)
        values = weights_by_target(self.model.graph, self.exported_program, fed)
        needed = {} if partial else absent_weights(values, fed)
        of_module = self.exported_program.state_dict if self.exported_program is not None else {}
        unknown = [name for name in given if name not in values and name not in of_module]
        pairs = fitting_weights(values, given, needed, unknown, cast=cast)
        if self._origin is not None:
            check_read_weights(self._origin.read, given)
        for value, stored in pairs:
            name = str(value.name)
            if name in self.state:
                tensor = as_fed(value, stored)
                self._first_state[name], self.state[name] = tensor.clone(), tensor.clone()
            elif name in self.weights:
                self.weights[name] = as_fed(value, stored)
            else:
                value.const_value = as_held(value, stored)
        if unknown:
            warnings.warn(
                OnnxExporterWarning(
                    f"the model has no weight {', '.join(map(repr, unknown))}; not applied",
                    "OA506",
                ),
                stacklevel=2,
            )
        self.release()
