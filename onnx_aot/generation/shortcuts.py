"""Checks that code captured for one kind of step is right for the others.

Models test whether there is a past, or one new token, mostly for a shortcut that gives the same
answer. A capture takes one branch, and nothing in it says whether the other is only a shortcut. So
the captured graph is run beside the model in steps of each kind, with PyTorch: that costs a few
tokens, and no second copy of the weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot.capture.sizes.dimension_requests import is_unlimited
from onnx_aot.errors import DynamicShapeError, warn
from onnx_aot.generation.caches import Layout, cache_parameter
from onnx_aot.generation.examples import KINDS, Sizes, cut_step, device_for, make_text
from onnx_aot.generation.steps import make_step_forward
from onnx_aot.inspection.rounding import run_in_double
from onnx_aot.torch_compat import pytree

if TYPE_CHECKING:
    from onnx_aot.inspection.differences import OutputDifference
    from onnx_aot.program.program import ONNXProgram

__all__ = ["continues_text", "refuse_limits", "refuse_other_texts", "refuse_other_ways"]

STEPS = (4, 1, 1, 3, 1)
"""Numbers of tokens in the steps of a text: after a past there are steps of one and of several."""


def refuse_other_ways(
    program: ONNXProgram,
    model: torch.nn.Module,
    inputs: Callable[[Sizes], dict[str, Any]],
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
        outputs = _run(program, inputs(sizes))
        if outputs is None:  # torch cannot run it; happens with models other than transformers'
            return
        given = inputs(sizes)
        expected = _logits_of(model, (), given)
        if expected.shape[:2] != (sizes.batch, sizes.sequence):
            continue  # an error of the model: that of RWKV, for one token in each of two rows
        compared = expected, outputs[0], given.get("attention_mask"), sizes.past
        difference = _difference(*compared)
        if not difference.within:
            difference = _difference(*compared, run_in_double(_logits_of, model, (), inputs(sizes)))
        if not difference.right:
            raise DynamicShapeError(
                f"{type(model).__name__} computes some steps differently from the captured one, "
                f"which has a past and several tokens: with {sizes.batch} row(s), {sizes.past} "
                f"tokens before and {sizes.sequence} new ones the logits of the capture differ by "
                f"up to {difference.max_absolute:.3g}. One program cannot do both. Export two with "
                "onnx_aot.export, one for first steps, without past_key_values, and one for the "
                "others; or find the code in forward that depends on the length of the past or "
                "the sequence",
                code="OA703",
            )


def refuse_other_texts(
    program: ONNXProgram, model: Any, layout: Layout, alone: bool = False
) -> None:
    """Compares the logits of the captured graph, step by step, with the model's on a whole text.

    This is for states that sum up the tokens before, or that keep some of them: an error in one
    step shows in the next. Does nothing where ``refuse_other_ways`` does nothing.

    Args:
        program: The result of the export.
        model: The model, with its own ``forward``, which is called once without a cache.
        layout: Its states.
        alone: Accept logits that the model itself computes if it reads one token after another,
            and warn.

    Raises:
        DynamicShapeError: The logits of a step differ.
    """
    if model.training or not program.has_values:
        return
    text = make_text(model, 2, sum(STEPS))
    with torch.no_grad():
        whole = model(**text, use_cache=False).logits
    found = _find_difference(program, model, layout, text, whole, widen=True)
    if found is None:
        return
    tokens, size = found
    name = type(model).__name__
    differs = (
        f"{name} computes a text differently in steps: the logits of {tokens} differ by up to "
        f"{size:.3g} from those of one call without a cache."
    )
    if not alone:
        raise DynamicShapeError(
            f"{differs} One program cannot be right for both. by_token=True accepts what the model "
            "computes if it reads one token after another; or export with onnx_aot.export, where "
            "inputs, states and names are up to you",
            code="OA703",
        )
    steps = _read_by_token(model, layout, text)
    found = _find_difference(program, model, layout, text, steps, widen=False)
    if found is not None:
        tokens, size = found
        raise DynamicShapeError(
            f"the logits of {tokens} differ by up to {size:.3g} from those that {name} computes if "
            "it reads one token after another. Export with onnx_aot.export, where inputs, states "
            "and names are up to you",
            code="OA703",
        )
    warn(f"{differs} The program reads one token after another, a prompt too", "OA703")


def _find_difference(
    program: ONNXProgram,
    model: Any,
    layout: Layout,
    text: Mapping[str, torch.Tensor],
    expected: torch.Tensor,
    widen: bool,
) -> tuple[str, float] | None:
    """Returns which tokens have other logits in steps, and by how much; None if none has.

    Args:
        program: The result of the export.
        model: The model, with its own ``forward``.
        layout: Its states.
        text: Its inputs for a text.
        expected: The logits of the text.
        widen: Tell rounding from errors by the logits of the whole text in a wider type.
    """
    cache, start, exact = layout.make(2, 0, device_for(model)), 0, None
    for step in STEPS:
        stop = start + step
        outputs = _run(program, cut_step(model, text, start, stop, cache))
        if outputs is None:
            return None
        logits, *tensors = outputs
        mask = text["attention_mask"][:, :stop]
        difference = _difference(expected[:, start:stop], logits, mask, start)
        if widen and not difference.within:
            exact = _widened(model, text) if exact is None else exact
            part = None if exact is None else exact[:, start:stop]
            difference = _difference(expected[:, start:stop], logits, mask, start, part)
        if not difference.right:
            return f"tokens {start + 1} to {stop}", difference.max_absolute
        cache, start = layout.fill(tensors), stop
    return None


def _read_by_token(model: Any, layout: Layout, text: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the logits of a text whose tokens the model is given one after another."""
    read = make_step_forward(model, model.forward, layout=layout, by_token=True)
    cache, logits = layout.make(2, 0, device_for(model)), []
    with torch.no_grad():
        for start in range(text["input_ids"].shape[1]):
            found, tensors = read(**cut_step(model, text, start, start + 1, cache))
            logits.append(found)
            cache = layout.fill(tensors)
    return torch.cat(logits, 1)


def _widened(model: Any, text: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Returns the logits of a text in a wider type, which tell rounding from errors.

    None if PyTorch cannot compute them, as for some experts in float64.
    """
    is_single = next(model.parameters()).dtype == torch.float32
    try:
        with torch.no_grad():
            wider = copy.deepcopy(model).to(torch.float64 if is_single else torch.float32)
            logits: torch.Tensor = wider(**text, use_cache=False).logits
    except RuntimeError:
        return None
    return logits.double()


def refuse_limits(program: ONNXProgram, model: torch.nn.Module) -> None:
    """Refuses a capture that is right for short texts only.

    Args:
        program: The result of the export.
        model: The model, for its name.

    Raises:
        DynamicShapeError: A dimension has a limit.
    """
    assert program.exported_program is not None
    limits = program.exported_program.range_constraints.values()
    largest = [int(limit.upper) for limit in limits if not is_unlimited(limit.upper)]
    if largest:
        raise DynamicShapeError(
            f"the code of {type(model).__name__} for several tokens takes another way for more "
            f"than {min(largest)} of them, and the capture has one way. Let the program read one "
            "token after another: by_token=True",
            code="OA703",
        )


def continues_text(model: Any) -> bool:
    """True if a model reads several tokens after others as if all were given at once.

    Kernels of some recurrent layers begin a sequence of tokens with zeros, and take a state into
    account for one token only. The model is called three times. Without the values of weights, or
    in training mode, the answer is False: steps of one token are what every such model computes.
    """
    if model.training or any(weight.is_meta for weight in model.parameters()):
        return False
    text = make_text(model, 2, 7)
    parameter = str(cache_parameter(model.forward))
    try:
        with torch.no_grad():
            whole = model(**text, use_cache=False).logits
            first = cut_step(model, text, 0, 4, None)
            second = cut_step(model, text, 4, 7, getattr(model(**first), parameter))
            logits = model(**second).logits
    except Exception:  # it refuses such a step, or fails in it
        return False
    return _difference(whole[:, 4:], logits, None, 4).within


def _run(program: ONNXProgram, kwargs: Mapping[str, Any]) -> list[torch.Tensor] | None:
    """Returns the outputs of the captured graph, or None if torch cannot run it."""
    from onnx_aot.inspection.fx_run import run_captured

    assert program.exported_program is not None
    held = {*program.state, *program.weights}
    names = [str(v.name) for v in program.model.graph.inputs if v.name not in held]
    tensors = [leaf for leaf in pytree.tree_leaves(kwargs) if isinstance(leaf, torch.Tensor)]
    wanted = program.exported_program.graph_signature.user_outputs
    found: dict[str, torch.Tensor] = {}

    def collect(node: torch.fx.Node, result: Any, _: bool) -> None:
        if node.name in wanted and isinstance(result, torch.Tensor):
            found[node.name] = result

    run_captured(program, dict(zip(names, tensors, strict=True)) | program.weights, (), collect)
    return [found[str(name)] for name in wanted] if found.keys() == {*wanted} else None


def _logits_of(model: Any, _: Any, kwargs: Mapping[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        returned = model(**kwargs)
    logits: torch.Tensor = returned[0] if isinstance(returned, tuple) else returned.logits
    return logits


def _difference(
    expected: torch.Tensor,
    actual: torch.Tensor,
    mask: torch.Tensor | None,
    start: int,
    exact: torch.Tensor | None = None,
) -> OutputDifference:
    """Compares logits of the tokens from ``start`` on; results at padding are not used."""
    from onnx_aot.inspection.differences import add_rounding, compare_outputs

    read = slice(None) if mask is None else mask[:, start:].bool()
    expected, actual = expected[read], actual[read]
    (difference,) = compare_outputs(["logits"], [expected], [actual])
    return add_rounding(difference, expected, actual, None if exact is None else exact[read])
