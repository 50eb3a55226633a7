"""Checks that code captured for one kind of step is right for the others.

Models test whether there is a past, or one new token, mostly for a shortcut that gives the same
answer. A capture takes one branch, and nothing in it says whether the other is only a shortcut. So
the captured graph is run beside the model in steps of each kind, with PyTorch: that costs a few
tokens, and no second copy of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot.errors import DynamicShapeError
from onnx_aot.generation.examples import KINDS, Sizes
from onnx_aot.torch_compat import pytree

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["refuse_other_ways"]


def refuse_other_ways(
    program: ONNXProgram, model: torch.nn.Module, inputs: Callable[[Sizes], dict[str, Any]]
) -> None:
    """Compares the logits of the captured graph with the model's, in every kind of step.

    Does nothing in training mode, which draws random numbers, or without the values of weights.

    Args:
        program: The result of the export.
        model: The model, which is called once for each kind of step.
        inputs: Makes the model's keyword inputs.

    Raises:
        DynamicShapeError: The model computes one kind of step differently.
    """
    if model.training or not program.has_values:
        return
    for sizes in KINDS:
        actual = _captured_logits(program, inputs(sizes))
        if actual is None:  # torch cannot run it; happens with models other than transformers'
            return
        given = inputs(sizes)
        with torch.no_grad():
            returned = model(**given)
        expected = returned[0] if isinstance(returned, tuple) else returned.logits
        _refuse_difference(type(model).__name__, expected, actual, given, sizes)


def _captured_logits(program: ONNXProgram, kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """Returns the first output of the captured graph, or None if torch cannot run it."""
    from onnx_aot.inspection.fx_run import run_captured

    assert program.exported_program is not None
    held = {*program.state, *program.weights}
    names = [str(v.name) for v in program.model.graph.inputs if v.name not in held]
    tensors = [leaf for leaf in pytree.tree_leaves(kwargs) if isinstance(leaf, torch.Tensor)]
    logits = program.exported_program.graph_signature.user_outputs[0]
    found: list[torch.Tensor] = []

    def collect_logits(node: torch.fx.Node, result: Any, _: bool) -> None:
        if node.name == logits and isinstance(result, torch.Tensor):
            found.append(result)

    run_captured(
        program, dict(zip(names, tensors, strict=True)) | program.weights, (), collect_logits
    )
    return found[0] if found else None


def _refuse_difference(
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    given: Mapping[str, Any],
    sizes: Sizes,
) -> None:
    from onnx_aot.inspection.differences import compare_outputs

    if "attention_mask" in given:  # results at padding are not used
        read = given["attention_mask"][:, sizes.past :].bool()
        expected, actual = expected[read], actual[read]
    (difference,) = compare_outputs(["logits"], [expected], [actual])
    if difference.within:
        return
    raise DynamicShapeError(
        f"{name} computes some steps differently from the captured one, which has a past and "
        f"several tokens: with {sizes.batch} row(s), {sizes.past} tokens before and "
        f"{sizes.sequence} new ones the logits of the capture differ by up to "
        f"{difference.max_absolute:.3g}. One program cannot do both. Export two with "
        "onnx_aot.export, one for first steps, without past_key_values, and one for the others; "
        "or find the code in forward that depends on the length of the past or the sequence",
        code="OA703",
    )
