"""The tests of ``pytest --fast``: every stage, and the most common operators.

They have the marker ``smoke``, take a few minutes, and show whether a release of torch or Python is
usable at all.
"""

from __future__ import annotations

import re

__all__ = ["OPERATORS", "TESTS", "is_smoke"]

# For each stage, the tests that cover most of it: whole files, or single tests of long ones.
TESTS = (
    "test_cuda.py",
    "test_dtypes.py",
    "test_export.py",
    "test_fresh_interpreter.py::test_importing",
    "builder/test_rollback.py",
    "capture/sizes/test_size_branches.py",
    "capture/sizes/test_dynamic_shapes_of_inputs.py",
    "capture/sizes/test_dynamic_shapes.py",
    "capture/sizes/test_data_dependent.py",
    "capture/test_inputs.py",
    "capture/sizes/test_data_dependent_as_sizes.py",
    "capture/sizes/test_specialization.py",
    "capture/sizes/test_empty_inputs.py",
    "cli/test_exporting.py::test_export_with_inputs_on_the_command_line",
    "cli/test_machine.py",
    "dimensions/test_expressions.py",
    "explanations/test_explanations.py::test_an_unknown_code",
    "fx_passes/test_functionalize.py",
    "generation/test_exports.py::test_names_and_dimensions",
    "graph/test_attributes.py",
    "integrations/test_observe.py::test_what_differs_is_dynamic",
    "inspection/view/test_mermaid.py::test_modules_are_boxes",
    "reporting/test_report.py",
    "sweep/test_difference.py",
    "sweep/test_plan.py",
    "reporting/test_repro_script.py",
    "inspection/test_verify.py",
    "ir_passes/test_ir_passes.py",
    "ir_passes/test_eliminate_common_subexpressions.py",
    "ir_passes/test_remove_unused.py",
    "ir_passes/test_share_initializers.py",
    "ir_passes/fusions/test_contrib.py",
    "ir_passes/fusions/test_dot_product_attention.py",
    "ir_passes/fusions/test_rotary_embedding.py",
    "models/test_models.py::test_model[clip]",
    "models/test_models.py::test_model[gemma]",
    "models/test_models.py::test_model[mobilenet_v3_small]",
    "models/test_models.py::test_model[resnet18]",
    "models/test_models.py::test_model[t5]",
    "models/test_models.py::test_model[whisper]",
    "program/test_program.py",
    "serialization/test_serialize.py",
    "pytrees/test_outputs.py",
    "targets/test_fusion_workarounds.py",
    "torch_compat/test_autocast_marks.py",
    "torch_compat/test_lookup_covered.py",
    "torch_compat/test_patching_undone.py",
    "torch_compat/test_overloads.py",
    "torch_compat/test_patching.py",
    "torch_compat/test_places.py",
    "torch_compat/test_releases.py",
    "torch_compat/test_texts.py",
    "translate/test_check_results.py",
    "ops/control/test_control_flow_branches_and_loops.py",
    "ops/user/test_custom_translations.py",
    "ops/user/test_process_registrations.py",
    "metadata/test_stamp.py",
    "metadata/test_trace_paths.py",
)

# The hundred operators that the most architectures of benchmarks/zoo_models have when captured.
_NAMES = """
__and__.Tensor abs.default adaptive_avg_pool2d.default add.Tensor alias.default
arange.default arange.start avg_pool2d.default baddbmm.default batch_norm.default
bitwise_not.default bmm.default cat.default chunk.default clamp.default clone.default
contiguous.default conv1d.default conv2d.default cos.default cumsum.default detach.default
div.Tensor dropout.default einsum.default embedding.default empty_like.default eq.Scalar
exp.default expand.default expand_as.default flatten.using_ints floor_divide.default
full.default full_like.default gather.default ge.Scalar gelu.default group_norm.default
gt.Scalar gt.Tensor histc.default index.Tensor layer_norm.default le.Tensor
lift_fresh_copy.default linear.default log.default lt.Scalar masked_fill.Scalar
matmul.default max_pool2d.default mean.dim min.other mul.Tensor ne.Scalar neg.default
new_ones.default ones.default ones_like.default pad.default permute.default
pow.Tensor_Scalar relu.default repeat.default reshape.default rsqrt.default rsub.Scalar
scaled_dot_product_attention.default select.int sigmoid.default silu.default sin.default
slice.Tensor softmax.int softplus.default sort.default split.Tensor split_with_sizes.default
square.default squeeze.dim stack.default sub.Tensor sum.dim_IntList t.default tanh.default
to.device to.dtype to.dtype_layout topk.default transpose.int type_as.default unbind.int
unsqueeze.default upsample_bilinear2d.vec view.default where.ScalarOther where.self
zeros.default zeros_like.default
"""
OPERATORS = frozenset(f"aten.{name}" for name in _NAMES.split())

_ROW = re.compile(r"ops/\w+/test_\w+\.py::test_row\[([\w.]+)")


def is_smoke(test: str) -> bool:
    """Returns True if the test with this id is a smoke test."""
    row = _ROW.search(test)
    return row[1] in OPERATORS if row else test.removeprefix("tests/").startswith(TESTS)
