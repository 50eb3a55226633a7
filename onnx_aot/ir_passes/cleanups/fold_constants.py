"""Folds nodes that read only constants and weights."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.cleanups.gemm import transposes_shared_weight
from onnx_aot.ir_passes.evaluate import EXACT, ROUNDED, SEVERAL, Evaluation
from onnx_aot.ir_passes.lazy_tensor import FoldedTensor, contents_of
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.tensors import SMALL

__all__ = ["FOLD_CONSTANTS", "FOLD_PARTS", "FOLD_ROUNDED_CONSTANTS"]

SMALL_RESULT = 1 << 16
"""Number of elements up to which results computed from weights may make the file larger."""

MODERATE_RESULT = 1 << 20
"""Number of elements up to which results may be larger than the weights that they free."""

GROWTH = 4
"""Factor by which they may be larger, as a table of relative positions read by an index is."""

LARGEST = 64 * 1024 * 1024
"""Bytes. Larger results stay nodes: one result at a time is in memory while saving."""


BYTE = 8
"""Bits."""


class _Plan(NamedTuple):
    """The computation of a node's result: the function, its inputs, and a key for it."""

    evaluate: Callable[..., torch.Tensor]
    given: tuple[ir.Value, ...]
    key: Hashable


def _make_fold(operators: Mapping[str, Evaluation]) -> Callable[[ir.Node, Rewriter], bool]:
    def fold(node: ir.Node, rewriter: Rewriter) -> bool:
        """Folds a node; results computed from weights are evaluated while saving.

        ``Transpose(weight)`` -> ``weight_folded``; ``Add([1, 2], [3, 4])`` -> ``[4, 6]``. Large
        results are folded only if they replace weights that nothing else reads, of that size or, up
        to a million elements, a quarter of it; tensors that are not in memory are never folded.
        Values stored in a byte or less, such as quantized weights, are not widened. A product with
        a weight that is used elsewhere too is left to ``gemm_of_shared_weight``, which needs no
        second copy.
        """
        if node.op_type == "Transpose" and transposes_shared_weight(node):
            return False
        plan = _plan_evaluation(node, operators[node.op_type], rewriter)
        if plan is None or len(node.outputs) != 1:
            return False
        return _fold_result(node, 0, plan, rewriter)

    return fold


def fold_parts(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Split(weight, [2, 3])`` -> two weights, under the conditions of ``fold_constants``."""
    plan = _plan_evaluation(node, _taker(0), rewriter)
    used = [place for place, value in enumerate(node.outputs) if value.uses()]
    if plan is None or not used:
        return False
    for place in used:
        part = _plan_evaluation(node, _taker(place), rewriter)
        if part is None or not _fold_result(node, place, part, rewriter):
            return False
    return True


@functools.cache  # one function for all nodes, by which equal computations are recognized
def _taker(place: int) -> Evaluation:
    return lambda attributes, inputs: SEVERAL["Split"](attributes, inputs)[place]


def _fold_result(node: ir.Node, place: int, plan: _Plan, rewriter: Rewriter) -> bool:
    """Replaces one result of a node, or returns False if it must or had better be computed."""
    evaluate, given, key = plan
    result = node.outputs[place]
    if not given or any(_widens_elements(value, result) for value in given):
        return False
    contents = [rewriter.constant(value) for value in given]
    packed = result.dtype in dtypes.FOUR_BITS
    if not packed and all(tensor is not None for tensor in contents):
        tensor = _try_evaluate(evaluate, contents)
        if tensor is None:
            return False
        if tensor.numel() <= SMALL:
            rewriter.replace(result, rewriter.initializer(tensor))
            return True
    if _truncates(node):
        return False  # other weights might exceed the range of the integers
    shape, dtype = result.shape, result.dtype
    if shape is None or not shape.is_static() or dtype is None:
        return False
    sizes = [int(size) for size in shape.numpy()]
    if not _is_worth_folding(given, sum(map(_count_elements, node.outputs)), dtype) or not all(
        map(rewriter.is_foldable, given)
    ):
        return False
    if _try_folding(place, plan, rewriter) != (sizes, dtypes.storage_dtype(dtype)):
        return False
    new = rewriter.fold(evaluate, given, dtype=dtype, shape=sizes, key=(place, key))
    rewriter.replace(result, new)
    return True


def _try_folding(
    place: int, plan: _Plan, rewriter: Rewriter
) -> tuple[list[int], torch.dtype] | None:
    """Shape and type of one result of a node, or None if torch cannot compute it.

    Tried so that saving cannot fail: on shapes alone, unless the computation needs the contents.
    Layers that repeat share a trial.
    """
    evaluate, given, key = plan
    stand_ins = [_stand_in(value, rewriter) for value in given]
    kinds = tuple(
        (one.shape, one.dtype) if one.is_meta else value
        for one, value in zip(stand_ins, given, strict=True)
    )
    trial = (place, key, kinds)
    found = rewriter.trials.get(trial)
    if found is not None:
        return found
    tried = _try_evaluate(evaluate, stand_ins)
    if tried is not None:
        found = rewriter.trials[trial] = list(tried.shape), tried.dtype
        return found
    tried = _try_evaluate(evaluate, list(map(contents_of, given)))
    return None if tried is None else (list(tried.shape), tried.dtype)


def _count_elements(value: ir.Value) -> int:
    """Number of elements of a value; more than any limit if it is not known."""
    shape = value.shape
    return math.prod(shape.numpy()) if shape is not None and shape.is_static() else sys.maxsize


def _truncates(node: ir.Node) -> bool:
    """Returns True for a Cast from floating point to integers, which need not hold the values."""
    source, wanted = node.inputs[0], node.outputs[0].dtype
    if node.op_type != "Cast" or source is None or source.dtype is None or wanted is None:
        return False
    return source.dtype.is_floating_point() and wanted.is_integer()


def _plan_evaluation(
    node: ir.Node, evaluation: Evaluation, rewriter: Rewriter, inner: bool = True
) -> _Plan | None:
    """Returns the plan for a node, or None if it reads values that are not constant.

    ``inner`` also admits operands from one more node, which was kept because its result is large,
    such as the square of a weight whose mean is small.
    """
    given: list[ir.Value] = []
    plans: list[_Plan | None] = []
    for value in node.inputs:
        if value is None:
            return None
        if value.const_value is not None or rewriter.producer(value, "Constant") is not None:
            plans.append(None)
            given.append(value)
            continue
        producer = value.producer()
        if not inner or producer is None or producer.domain or producer.op_type not in EXACT:
            return None
        if _truncates(producer):
            return None
        plan = _plan_evaluation(producer, EXACT[producer.op_type], rewriter, inner=False)
        if plan is None or len(producer.outputs) != 1 or not rewriter.only_use(value):
            return None
        plans.append(plan)
        given.extend(plan.given)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    evaluate = functools.partial(_evaluate_plans, evaluation, attributes, tuple(plans))
    keys = tuple(None if plan is None else plan.key for plan in plans)
    key = (evaluation, node.op_type, repr(sorted(attributes.items())), keys)
    return _Plan(evaluate, tuple(given), key)


def _try_evaluate(
    evaluate: Callable[..., torch.Tensor], contents: Sequence[torch.Tensor | None]
) -> torch.Tensor | None:
    try:
        tensor: torch.Tensor = evaluate(*contents)
    except (NotImplementedError, IndexError, RuntimeError, ValueError, ZeroDivisionError):
        return None  # torch cannot do it, or the runtime will report the error when it runs
    return tensor


def _stand_in(value: ir.Value, rewriter: Rewriter) -> torch.Tensor:
    """Returns a small constant itself; for weights, a tensor without contents."""
    constant = rewriter.constant(value)
    if constant is not None:
        return constant
    tensor = value.const_value
    if not isinstance(tensor, FoldedTensor):
        return contents_of(value).to("meta")
    sizes = [int(size) for size in tensor.shape.numpy()]
    return torch.empty(sizes, dtype=dtypes.storage_dtype(tensor.dtype), device="meta")


def _widens_elements(value: ir.Value, result: ir.Value) -> bool:
    """Returns True if a result would store the elements of a narrow tensor in a wider type."""
    narrow, wide, held = value.dtype, result.dtype, value.const_value
    if narrow is None or wide is None or held is None or narrow == ir.DataType.BOOL:
        return False
    if narrow.bitwidth > BYTE or wide.bitwidth <= narrow.bitwidth or held.size == 1:
        return False
    shape = result.shape
    return shape is None or not shape.is_static() or math.prod(shape.numpy()) >= held.size


def _is_worth_folding(given: Sequence[ir.Value], size: int, dtype: ir.DataType) -> bool:
    """Returns True if the result is small, or not (much) larger than the inputs that it frees."""
    if size <= SMALL_RESULT:
        return True
    nbytes = size * dtype.itemsize
    freed = sum(v.const_value.nbytes for v in given if v.const_value and len(v.uses()) == 1)
    return nbytes <= min(freed * (GROWTH if size <= MODERATE_RESULT else 1), LARGEST)


def _evaluate_plans(
    evaluation: Evaluation,
    attributes: Mapping[str, object],
    plans: Sequence[_Plan | None],
    *tensors: torch.Tensor,
) -> torch.Tensor:
    left = iter(tensors)
    inputs = [
        next(left) if plan is None else plan.evaluate(*itertools.islice(left, len(plan.given)))
        for plan in plans
    ]
    return evaluation(attributes, inputs)


FOLD_CONSTANTS = Rule("fold_constants", tuple(EXACT), _make_fold(EXACT), exact=True, since=13)
FOLD_ROUNDED_CONSTANTS = Rule(
    "fold_rounded_constants", tuple(ROUNDED), _make_fold(ROUNDED), exact=False, since=13
)
FOLD_PARTS = Rule("fold_parts", ("Split",), fold_parts, exact=True, since=13)
