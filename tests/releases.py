"""Limitations and bugs of older releases, by the tests that they make fail.

A test is expected to fail on such a release of torch or ONNX Runtime. If it passes there, its entry
is wrong, and the test is reported as a failure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import onnx
import onnxruntime
import torch

from onnx_aot.graph.opset_range import MAX_OPSET

__all__ = ["HIGHEST_OPSET", "REFERENCE", "TORCH", "Expected", "failure_expected"]

_CRASH = "the process ends at "

_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2]))

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
"""Major and minor version of the installed torch."""

REFERENCE = (2, 13)
"""The torch release that the documentation's output comes from."""


def _is_read(opset: int) -> bool:
    """True if the installed ONNX Runtime reads models of an opset."""
    opsets = [onnx.helper.make_opsetid("", opset)]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    version = onnx.helper.find_min_ir_version_for(opsets)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=version)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # its errors have no common class
        return False
    return True


HIGHEST_OPSET = max(filter(_is_read, range(MAX_OPSET - 4, MAX_OPSET + 1)))
"""The highest opset that is emitted and that the installed ONNX Runtime reads."""

_BEFORE: dict[tuple[int, int], dict[str, str]] = {
    (2, 13): {
        r"capture/sizes/test_dynamic_shapes_of_inputs.py::test_a_float_is_an_input\[given[012]\]": (
            "math.sqrt of a symbolic float needs its value"
        ),
        r"capture/test_error_hints.py::test_a_generator_in_a_model": (
            "a torch.Generator is refused in the capture already"
        ),
        r"capture/sizes/test_data_dependent.py::test_a_float_that_decides": (
            "draft_export stops at floats that decide"
        ),
        r"capture/sizes/test_shape_rules.py::test_what_torch_refuses\[<lambda>13\]": (
            "x.select(1, 3) of three elements is not refused"
        ),
        r"capture/patches/test_detection.py::test_any_number_is_found\[keypoint_rcnn\]": (
            "map reads the number of slices, which depends on data"
        ),
        r"test_lookup_missing.py::test_detection_is_refused\[.*(keypoints|map:map)\]": (
            "map reads the number of slices, which depends on data"
        ),
        r"translate/test_opset_errors.py::test_all_that_is_missing_is_said_at_once": (
            "lines of functions are not recorded"
        ),
        r"translate/test_stubs.py::test_lines_of_functions_and_methods": (
            "lines of functions are not recorded"
        ),
        r"explanations/test_explanations.py::test_the_fix_of_a_page\[OA104\]": (
            "indexing with a tensor of no dimension needs its value"
        ),
        r"ops/random/test_distributions.py::test_row\[aten._standard_gamma.default": (
            "aten._standard_gamma has no fake kernel"
        ),
        r"ops/nn/test_rnn.py::test_row\[aten.lstm.input": (
            "torch.export records results of aten.lstm with a rank of 4"
        ),
        r"bucketize.py::test_row\[aten.bincount.default-(weights|int weights|int32)\]": (
            "results of aten.bincount are recorded as int64"
        ),
        r"^conformance bincount ": "results of aten.bincount are recorded as int64",
        r"ops/core/test_unique.py::test_row\[aten._unique.default\]": (
            "inverse indices of aten._unique are recorded with a size of 1"
        ),
        r"ops/nn/test_fused_attention.py::test_row\[aten._transformer_encoder_layer_fwd": (
            "aten._transformer_encoder_layer_fwd has no fake kernel"
        ),
        r"ops/linalg/test_products_and_norms_mixed.py::test_row\[aten.addmm.dtype": (
            "aten.addmm.dtype cannot be captured"
        ),
        r"ops/core/test_movement.py::test_row\[aten.split.Tensor-empty\]": (
            "split of an empty axis cannot be captured"
        ),
        r"control_flow_branches_and_loops.py::test_control_flow\[(loop|inner_branch)_writes\]": (
            "while_loop refuses bodies that write to what is around them"
        ),
    },
}


_RUNTIME_BEFORE: dict[tuple[int, int], dict[str, str]] = {
    (1, 24): {
        r"ops/core/test_sorting.py::test_row\[aten.(sort|topk)": _CRASH + "TopK of an empty tensor",
        r"ops/nn/test_normalization.py::test_row\[aten.layer_norm.default-one element": (
            "LayerNormalization refuses an axis of one element"
        ),
        r"aten.avg_pool2d.default-(ceil|ceil, padding|unbatched|divisor, ceil)\]": (
            "AveragePool with ceil_mode counts elements that are not there"
        ),
        r"upsample_bilinear2d.vec-torch.float64, mode bilinear, (size|scale)": (
            "transposed MatMuls of float64 are fused to one that has no kernel"
        ),
        r"upsample_bilinear2d.vec-torch.uint8, mode bilinear, (size|scale)": (
            "transposed MatMuls of float64 are fused to one that has no kernel"
        ),
        r"test_fusion_workarounds.py::test_answers_are_pytorch_s\[(many_)?transposed.*dtype3\]": (
            "transposed MatMuls of float64 are fused to one that has no kernel"
        ),
        r"fusions/test_dot_product_attention.py::test_with_and_without": (
            "GroupQueryAttention needs past keys"
        ),
        r"fusions/test_contrib.py::test_contrib_ops\[causal": "GroupQueryAttention needs past keys",
    },
}


class Expected(NamedTuple):
    """Reason why a test fails, and whether it can be run at all."""

    reason: str
    runs: bool


def failure_expected(test: str) -> Expected | None:
    """Returns the reason why a test fails on these releases, or None if it passes.

    Args:
        test: Id of the test, or ``"conformance"`` and a case of PyTorch's operator database.
    """
    for package, here, table in (
        ("torch", TORCH, _BEFORE),
        ("onnxruntime", _RUNTIME, _RUNTIME_BEFORE),
    ):
        for release, known in table.items():
            for pattern, reason in known.items() if release > here else ():
                if re.search(pattern, test):
                    said = f"{package} {'.'.join(map(str, here))}: {reason}"
                    return Expected(said, runs=not reason.startswith(_CRASH))
    return None
