"""Nodes that read constants and weights only become constants and weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.evaluate import EXACT, ROUNDED, Evaluation
from onnx_aot.ir_passes.folded import contents_of
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.tensors import SMALL

__all__ = ["FOLD_CONSTANTS", "FOLD_ROUNDED_CONSTANTS"]

SMALL_RESULT = 1 << 16
"""Elements. What is made of weights and is no larger may add to the file."""

LARGEST = 64 * 1024 * 1024
"""Bytes. What is larger stays a node: one such result at a time is in memory while saving."""


def _fold(operators: Mapping[str, Evaluation]) -> Callable[[ir.Node, Rewriter], bool]:
    def fold(node: ir.Node, rewriter: Rewriter) -> bool:
        """What weights give is computed while saving.

        ``Transpose(weight)`` -> ``weight_folded``; ``Add([1, 2], [3, 4])`` -> ``[4, 6]``. Large
        results only where they stand for weights of that size that nothing else reads, and
        never from tensors that are not in memory.
        """
        given = [value for value in node.inputs if value is not None]
        for value in given:
            if value.const_value is None and rewriter.producer(value, "Constant") is None:
                return False
        if len(given) != len(node.inputs) or len(node.outputs) != 1 or not given:
            return False
        result = node.outputs[0]
        evaluate = functools.partial(_evaluated, operators[node.op_type], _attributes(node))
        contents = [rewriter.constant(value) for value in given]
        if all(tensor is not None for tensor in contents):
            tensor = _result(evaluate, contents)
            if tensor is None or tensor.numel() > SMALL:
                return False
            rewriter.replace(result, rewriter.initializer(tensor))
            return True
        shape, dtype = result.shape, result.dtype
        if shape is None or not shape.is_static() or dtype is None:
            return False
        sizes = [int(size) for size in shape.numpy()]
        if not _pays(given, math.prod(sizes), dtype) or not all(map(rewriter.foldable, given)):
            return False
        # tried once, so that saving cannot fail; most often a view
        tried = _result(evaluate, list(map(contents_of, given)))
        if tried is None or list(tried.shape) != sizes or dtypes.to_onnx(tried.dtype) != dtype:
            return False
        key = (node.op_type, repr(sorted(_attributes(node).items())))
        new = rewriter.folded(evaluate, given, dtype=dtype, shape=sizes, key=key)
        rewriter.replace(result, new)
        return True

    return fold


def _result(
    evaluate: Callable[..., torch.Tensor], contents: list[torch.Tensor | None]
) -> torch.Tensor | None:
    try:
        tensor: torch.Tensor = evaluate(*contents)
    except (NotImplementedError, IndexError, RuntimeError, ValueError, ZeroDivisionError):
        return None  # what torch does not do; or the runtime says what is wrong when it runs
    return tensor


def _pays(given: list[ir.Value], size: int, dtype: ir.DataType) -> bool:
    """Whether the result is small, or no larger than what goes away for it."""
    if size <= SMALL_RESULT:
        return True
    nbytes = size * dtype.itemsize
    freed = sum(v.const_value.nbytes for v in given if v.const_value and len(v.uses()) == 1)
    return nbytes <= min(freed, LARGEST)


def _attributes(node: ir.Node) -> dict[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _evaluated(
    evaluation: Evaluation, attributes: Mapping[str, object], *tensors: torch.Tensor
) -> torch.Tensor:
    return evaluation(attributes, tensors)


FOLD_CONSTANTS = Rule("fold_constants", tuple(EXACT), _fold(EXACT), exact=True, since=13)
FOLD_ROUNDED_CONSTANTS = Rule(
    "fold_rounded_constants", tuple(ROUNDED), _fold(ROUNDED), exact=False, since=13
)
