"""The only package that touches private torch APIs.

Each is looked up guarded. The docstring of the function that uses it says what is lost when a torch
release no longer has it. Public APIs are used directly where they are needed.
"""

from __future__ import annotations

from onnx_aot.torch_compat.captures import (
    cheap_recompilation,
    dynamo_stack,
    keep_frames_of,
    marked_as_onnx_export,
    override_composite_kernels,
    override_module_function,
    quiet_failures,
    without_gradients,
    without_log_file,
)
from onnx_aot.torch_compat.fake_kernels import (
    Results,
    ShapeRule,
    faster_shapes,
    meta_tensors_on,
)
from onnx_aot.torch_compat.names import (
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    auto_functionalized,
    overload_of,
    pytree,
)
from onnx_aot.torch_compat.programs import (
    condition_holds,
    copy_node,
    copy_program,
    functionalized_by_torch,
    missing_fake_kernels,
    set_graph,
    set_graph_signature,
    size_conditions,
)
from onnx_aot.torch_compat.sizes import (
    creation_stack,
    decision_symbols,
    example_size,
    expression_key,
    is_symbol,
    new_symbol,
    observe_decisions,
    python_expression,
    root_symbol,
    size_function,
    storage_key,
    symbolic_expression,
    symbolic_truth,
    symbols_of_its_own,
)
from onnx_aot.torch_compat.tracing import (
    decompositions,
    fake_mode_of,
    refuse_fixed_sizes,
    trace_fake,
    without_fake_mode,
    without_recording,
)
from onnx_aot.torch_compat.zero_sizes import (
    holds_when_empty,
    keep_small_sizes_dynamic,
    observe_zero_ignored,
)

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "Results",
    "ShapeRule",
    "auto_functionalized",
    "cheap_recompilation",
    "condition_holds",
    "copy_node",
    "copy_program",
    "creation_stack",
    "decision_symbols",
    "decompositions",
    "dynamo_stack",
    "example_size",
    "expression_key",
    "fake_mode_of",
    "faster_shapes",
    "functionalized_by_torch",
    "holds_when_empty",
    "is_symbol",
    "keep_frames_of",
    "keep_small_sizes_dynamic",
    "marked_as_onnx_export",
    "meta_tensors_on",
    "missing_fake_kernels",
    "new_symbol",
    "observe_decisions",
    "observe_zero_ignored",
    "overload_of",
    "override_composite_kernels",
    "override_module_function",
    "python_expression",
    "pytree",
    "quiet_failures",
    "refuse_fixed_sizes",
    "root_symbol",
    "set_graph",
    "set_graph_signature",
    "size_conditions",
    "size_function",
    "storage_key",
    "symbolic_expression",
    "symbolic_truth",
    "symbols_of_its_own",
    "trace_fake",
    "without_fake_mode",
    "without_gradients",
    "without_log_file",
    "without_recording",
]
