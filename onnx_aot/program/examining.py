"""Methods of ``ONNXProgram`` that report on its export and verify it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import onnx_ir as ir
import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.program.arguments import example_arguments
from onnx_aot.serialization.weights import weights_by_target

if TYPE_CHECKING:
    from onnx_aot.inspection.verification import Verification
    from onnx_aot.reporting.record import ExportRecord
    from onnx_aot.reporting.report import ExportReport

__all__ = ["Examinable"]


class Examinable:
    """Methods of ``ONNXProgram`` that report on its export and verify it."""

    model: ir.Model
    exported_program: torch.export.ExportedProgram | None
    weights: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    _record: ExportRecord | None

    @property
    def report(self) -> ExportReport | None:
        """Report of the export, or None if the program was loaded from a file.

        It is built on each access and describes the model as it is now.
        """
        if self._record is None:
            return None
        from onnx_aot.reporting.report import build_report

        return build_report(self._record, self)

    def verify(
        self,
        model: Any = None,
        args: tuple[Any, ...] | torch.Tensor | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        sizes: bool = True,
        runtime: Literal["onnxruntime", "reference"] = "onnxruntime",
    ) -> Verification:
        """Runs the model and PyTorch on the same inputs, and compares outputs and new state.

        Args:
            model: The module or function that was exported; its buffers are restored afterwards.
                None: the captured program.
            args: Inputs. None, if ``kwargs`` is None too: the example inputs of the capture.
            kwargs: Keyword inputs.
            sizes: Whether to try up to five other sizes of the dynamic dimensions too.
            runtime: ``"onnxruntime"``, or ``"reference"`` for ONNX's reference implementation,
                which is slow and written in Python.

        Returns:
            A ``Verification``: ``ok``, and the difference of each output at each set of sizes. It
            prints as a table.

        Raises:
            InvalidOptionError: There is neither a model nor a captured program, or there are no
                inputs; the inputs do not fit; weights have no values; the runtime is unknown, or
                lacks operators.
            InferenceError: The inputs do not fit the ONNX model.
            Exception: Whatever PyTorch raises on the inputs.
        """
        from onnx_aot.inspection.verify import verify_program

        captured = self.exported_program
        if captured is None and (model is None or args is None):
            raise InvalidOptionError(
                "a program that was loaded from a file has neither the model nor example inputs; "
                "give both: program.verify(model, args)",
                code="OA607",
            )
        if args is None and kwargs is None and captured is not None:
            args, kwargs = example_arguments(captured)
        against = captured if model is None else model
        result = verify_program(
            self,
            against,
            () if args is None else args,
            kwargs,
            sizes=sizes,
            runtime=runtime,
        )
        return result if result.ok else self._add_other_weights(result, against)

    def _add_other_weights(self, result: Verification, model: Any) -> Verification:
        """Adds the weights in which the models differ, since outputs differ then."""
        from onnx_aot.program.other_weights import find_other_weights

        fed = {**self.weights, **self.state}
        values = weights_by_target(self.model.graph, self.exported_program, fed)
        return dataclasses.replace(result, other_weights=find_other_weights(values, fed, model))
