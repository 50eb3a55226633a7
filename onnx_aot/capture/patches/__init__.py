"""Lists everything that is changed while a capture runs.

A row says what is replaced, by what, for which captures, and what is lost on a release of torch
that does not have it (``torch_compat/patching.py``). Rows about torch's symbolic sizes and fake
tensors are in ``torch_compat``; those for operators, functions, packages and the model are here.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from onnx_aot.capture.patches.assigned_buffers import ASSIGNED_BUFFERS
from onnx_aot.capture.patches.autograd_functions import FUNCTIONS_KEPT
from onnx_aot.capture.patches.derivatives import DERIVATIVES
from onnx_aot.capture.patches.detection import DETECTION
from onnx_aot.capture.patches.flex_masks import BLOCK_MASKS
from onnx_aot.capture.patches.functions import FUNCTIONS
from onnx_aot.capture.patches.higher_order import HIGHER_ORDER, WHILE_TRACED
from onnx_aot.capture.patches.kernel_sizes import KERNEL_PATCHES
from onnx_aot.capture.patches.memories import MEMORIES
from onnx_aot.capture.patches.model_calls import MODEL
from onnx_aot.capture.patches.module_moves import MODULE_MOVES
from onnx_aot.capture.patches.number_conversions import CONVERSIONS
from onnx_aot.capture.patches.numpy_numbers import NUMPY_NUMBERS
from onnx_aot.capture.patches.packing import PACKED_SEQUENCES
from onnx_aot.capture.patches.python_builtins import BUILTINS
from onnx_aot.capture.patches.python_loops import LOOPS
from onnx_aot.capture.patches.recorded_gradients import RECORDED_GRADIENTS
from onnx_aot.capture.patches.size_functions import SIZE_FUNCTIONS
from onnx_aot.capture.patches.stack_traces import STACK_TRACES
from onnx_aot.capture.patches.tensor_data import STATE_DATA, TENSOR_DATA
from onnx_aot.capture.patches.tensor_subclasses import TENSOR_SUBCLASSES
from onnx_aot.capture.sizes.shape_rules import SHAPE_RULES
from onnx_aot.capture.tracing_state import TRACING
from onnx_aot.torch_compat import (
    BATCHING,
    BRANCHES,
    CAPTURE,
    DECISIONS,
    EXPECTED_WARNINGS,
    EXPRESSION_LOG,
    FIXED_SIZES,
    FROM_ZERO,
    LARGER_SIZES,
    LOG_FILE,
    META_TENSORS,
    MODULE_CALLS,
    OPERATOR_LIST,
    ROUNDED_SIZES,
    SHORT_PATHS,
    SIZE_DIVISION,
    SIZE_ORDER,
    SLICE_BOUNDS,
    SMALL_SIZES,
    SPARED_WORK,
    TIME_CHECKS,
    UNINTERESTING,
    VALIDATIONS,
    WARNINGS_WHILE_TRACING,
    WHILE_RECORDED,
    WHILE_RETRACED,
    ZERO_IGNORED,
    Capabilities,
    Patch,
    Settings,
    applied,
    find_capabilities,
    shape_rule_patches,
)

__all__ = ["ALL_PATCHES", "PATCHES", "capabilities", "capture_conditions"]

PATCHES: tuple[Patch, ...] = (
    TRACING,
    *CAPTURE,
    MODULE_CALLS,
    *STACK_TRACES,
    EXPRESSION_LOG,
    LOG_FILE,
    META_TENSORS,
    *SPARED_WORK,
    *SHORT_PATHS,
    # sizes
    SMALL_SIZES,
    *FROM_ZERO,
    *ZERO_IGNORED,
    *DECISIONS,
    LARGER_SIZES,
    UNINTERESTING,
    *VALIDATIONS,
    *TIME_CHECKS,
    *ROUNDED_SIZES,
    SIZE_DIVISION,
    SIZE_ORDER,
    SLICE_BOUNDS,
    *BRANCHES,
    *shape_rule_patches(SHAPE_RULES),
    # operators and functions
    *KERNEL_PATCHES,
    *BATCHING,
    OPERATOR_LIST,
    *FUNCTIONS,
    *SIZE_FUNCTIONS,
    *NUMPY_NUMBERS,
    *TENSOR_DATA,
    *TENSOR_SUBCLASSES,
    *MODULE_MOVES,
    *HIGHER_ORDER,
    *DERIVATIVES,
    RECORDED_GRADIENTS,
    *BLOCK_MASKS,
    *FUNCTIONS_KEPT,
    # packages
    *PACKED_SEQUENCES,
    *DETECTION,
    # the model
    *MEMORIES,
    *BUILTINS,
    *LOOPS,
    *CONVERSIONS,
    *MODEL,
    STATE_DATA,
    *ASSIGNED_BUFFERS,
)
"""Rows in order of application; those that a capture does not need are skipped."""

ALL_PATCHES: tuple[Patch, ...] = tuple(
    dict.fromkeys((*PATCHES, *WHILE_TRACED, *WHILE_RECORDED, *WHILE_RETRACED, *FIXED_SIZES))
)
"""Includes rows that are applied only briefly, while one function is traced."""


@contextlib.contextmanager
def capture_conditions(settings: Settings | None = None) -> Iterator[None]:
    """Applies the patches and silences expected warnings while torch traces a program.

    With ``python -W error``, torch's warnings about assigned attributes are shown, and do not end
    the capture.
    """
    with applied(PATCHES, settings or Settings()), warnings.catch_warnings():
        if any(action == "error" for action, *_ in warnings.filters):
            for message in WARNINGS_WHILE_TRACING:
                warnings.filterwarnings("default", message=message)
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield


def capabilities() -> Capabilities:
    """Reports what of the installed torch can be used; takes a second."""
    return find_capabilities(ALL_PATCHES)
