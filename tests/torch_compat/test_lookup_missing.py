"""Every private part of torch that this package uses: effects of a release without it.

``hidden`` makes a place appear absent. These tests show the loss that the row describes, and
its limits: the model is correct, or rejected with an error of this package.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from benchmarks.models.torchvision_cpu import load_torchvision
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import (
    CaptureError,
    DynamicShapeError,
    InferenceError,
    OnnxExporterWarning,
    UnsupportedOperatorError,
)
from onnx_aot.torch_compat import FakeTensorMode, without_new_conditions
from tests.capture.sizes.validating_models import catching
from tests.releases import TORCH
from tests.torch_compat.detection_models import DETECTION_MODELS
from tests.torch_compat.models import (
    MODELS,
    SIZE_FUNCTIONS,
    AssignedState,
    Clipped,
    Example,
    function,
    rows,
)
from tests.torch_compat.without import SHAPES, absent, differs, exported, message, shows

pytestmark = pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")

SIZES = "torch.utils._sympy"
DETECTION = "torchvision.models.detection"


@pytest.mark.parametrize("name", MODELS)
def test_all_is_right_with_everything(name: str) -> None:
    example = MODELS[name]
    if name in ("number of data", "fixed"):
        with pytest.raises((CaptureError, DynamicShapeError)):
            exported(example)
    else:
        assert not differs(example, exported(example))


# --- without these, models are rejected ----------------------------------------------------------

REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "torch.fx.experimental._config:backed_size_oblivious": (
        "batch of one",
        CaptureError,
        "conflicts between user-specified ranges",
    ),
    f"{SHAPES}:ShapeEnv._evaluate_expr": ("selected", CaptureError, "values of its data"),
    f"{SHAPES}:GuardOnDataDependentSymNode": ("selected", CaptureError, "values of its data"),
    f"{SHAPES}:ShapeEnv.size_like": ("selected", CaptureError, "values of its data"),
    f"{SIZES}.value_ranges:bound_sympy": ("selected", CaptureError, "values of its data"),
    f"{SIZES}.value_ranges:ValueRanges": ("selected", CaptureError, "values of its data"),
    f"{SIZES}.numbers:int_oo": ("selected", CaptureError, "values of its data"),
    **dict.fromkeys(
        (
            "torch.fx.experimental.sym_node:SymNode.guard_bool",
            "torch._higher_order_ops.utils:reenter_make_fx",
            "forward: both ways of branches on data",
        ),
        ("branch on data", CaptureError, r"values of its data[\s\S]* if x\.sum\(\) > 0"),
    ),
    "torch.fx.graph:Graph.eliminate_dead_code": (
        "unread number",
        CaptureError,
        "the model computes other values before the branch",
    ),
    "torch.fx.passes.runtime_assert:insert_deferred_runtime_asserts": (
        "branch on data",
        CaptureError,
        "could not be captured",
    ),
    "torch:as_tensor": ("as tensor", DynamicShapeError, r"x, axis 0 \('n'\): fixed at 4"),
    **{name: (name, DynamicShapeError, "fixed at 4") for name in SIZE_FUNCTIONS},
    "torch:affine_grid_generator": (
        "torch:affine_grid_generator",
        UnsupportedOperatorError,
        "affine_grid_generator",
    ),
    "torch.nn:Module.to": ("moves", CaptureError, "Couldn.t swap Linear.weight"),
    "torch:_shape_as_tensor": ("shape as a tensor", CaptureError, "data is not allocated"),
    "torch:Tensor.data": ("data", CaptureError, "capture does not see"),
    **{
        f"torch.fx.experimental.proxy_tensor:{name}": (
            "assigned data",
            CaptureError,
            r"assigns to \.data[\s\S]*y\.data = x \+ 1",
        )
        for name in ("get_proxy_mode", "get_proxy_slot", "set_proxy_slot")
    },
    "torch._C._autograd:_get_data_attr": (
        "data in a branch",
        CaptureError,
        "uses a tensor from outside",
    ),
    "forward: values that do not depend on the inputs": (
        "padded",
        CaptureError,
        "values of its data",
    ),
    "torch.fx.experimental.proxy_tensor:proxy_call": ("padded", CaptureError, "values of its data"),
    "torch._subclasses.fake_tensor:unset_fake_temporarily": (
        "padded",
        CaptureError,
        "values of its data",
    ),
    "len in the packages of the model": ("length", DynamicShapeError, r"fixed at 4\s.*len\(x\)"),
    "range in the packages of the model": ("range", DynamicShapeError, r"fixed at 4\s.*range\("),
    "int in the modules where it fixed a size": ("int", DynamicShapeError, r"fixed at 4\s.*int\("),
    "float in the modules where it fixed a size": (
        "float of a size",
        DynamicShapeError,
        r"fixed at 4\s.*float\(",
    ),
    "numpy.sqrt of a size": ("root", CaptureError, "computes with NumPy"),
    "math:sqrt": ("root of a product", DynamicShapeError, r"fixed at 4.*\s.*math\.sqrt\("),
    "torch.fx._symbolic_trace:Tracer.call_module": ("catching", CaptureError, "Unexpected key"),
    "torch.nn.utils._named_member_accessor:NamedMemberAccessor.get_submodule": (
        "method's name",
        CaptureError,
        "submodule `parameters`",
    ),
    "torch.nn.functional:scaled_dot_product_attention": ("causal", CaptureError, "not SymBool"),
    "kernel of aten.lstm.input": ("lstm", DynamicShapeError, "fixed at 4"),
    "kernel of aten.gru.input": ("gru", DynamicShapeError, "fixed at 4"),
    "kernel of aten.rnn_tanh.input": ("rnn tanh", DynamicShapeError, "fixed at 4"),
    "kernel of aten.rnn_relu.input": ("rnn relu", DynamicShapeError, "fixed at 4"),
    "kernel of aten.lstm.data": ("packed lstm", CaptureError, r"self\.layer\(packed\)"),
    "kernel of aten.gru.data": ("packed gru", CaptureError, r"self\.layer\(packed\)"),
    "kernel of aten.rnn_tanh.data": ("packed rnn tanh", CaptureError, r"self\.layer\(packed\)"),
    "kernel of aten.rnn_relu.data": ("packed rnn relu", CaptureError, r"self\.layer\(packed\)"),
    "torch.nn.utils.rnn:_VF": ("packed lstm", CaptureError, "pad_packed_sequence"),
    "torch.nn.utils.rnn:pad_packed_sequence.__code__": (
        "packed lstm",
        CaptureError,
        "pad_packed_sequence",
    ),
    "torch.nn:GRU.forward": ("packed gru", CaptureError, r"self\.layer\(packed\)"),
    "torch.nn:RNN.forward": ("packed rnn relu", CaptureError, r"self\.layer\(packed\)"),
    "kernel of aten.geqrf.default": ("reflectors", CaptureError, "no fake kernel"),
    "kernel of aten.histogram.bin_ct": ("histogram", CaptureError, "no fake kernel"),
    "kernel of aten.histogram.bins_tensor": ("histogram between", CaptureError, "no fake kernel"),
    "torch._export.non_strict_utils:_NonStrictTorchFunctionHandler._override": (
        "equal",
        CaptureError,
        r"aten\.equal returns",
    ),
    "torch:_debug_has_internal_overlap": ("every second", DynamicShapeError, r"// 2\) >= 2"),
    "kernel of aten.kron.default": ("kron", DynamicShapeError, "fixed at 4"),
    "kernel of aten.take_along_dim.default": ("taken", DynamicShapeError, "fixed at 4"),
    "kernel of aten.cov.default": ("covariance", CaptureError, r"torch\.cov"),
    "kernel of aten.ctc_loss.IntList": ("ctc of numbers", CaptureError, "ctc_loss"),
    "kernel of aten.ctc_loss.Tensor": ("ctc", CaptureError, "ctc_loss"),
    "kernel of aten.linalg_lstsq.default": ("least squares", CaptureError, "linalg_lstsq"),
    "kernel of aten.max_pool1d.default": ("max_pool1d", DynamicShapeError, "fixed at 4"),
    "kernel of aten.fake_quantize_per_tensor_affine.default": (
        "quantized",
        CaptureError,
        "no fake kernel",
    ),
    "kernel of aten.fake_quantize_per_tensor_affine.tensor_qparams": (
        "quantized by tensors",
        CaptureError,
        "no fake kernel",
    ),
    "kernel of aten.fake_quantize_per_channel_affine.default": (
        "quantized columns",
        CaptureError,
        "no fake kernel",
    ),
    "constants among the arguments of the model": ("constant", CaptureError, "kind.value"),
    "containers among the results of the model": ("dataclass", CaptureError, "not a known type"),
    "forward: floats that are inputs": ("float", CaptureError, "by is a float"),
    "scripted submodules": ("scripted", CaptureError, r"self\.part\(x\)"),
}


@shows(*REFUSED)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    key, error, message = REFUSED[name]
    with absent(name), pytest.raises(error, match=message):
        exported(MODELS[key])


@shows("forward of fake quantization that does not observe")
def test_operators_that_observe_are_kept() -> None:
    def operators() -> set[str]:
        return {node.op_type for node in exported(MODELS["fused observed"]).model.graph}

    assert "ReduceMax" not in operators()
    with absent("forward of fake quantization that does not observe"):
        assert "ReduceMax" in operators()


REFUSED_DETECTION: dict[str, tuple[str, type[Exception]]] = {
    "torchvision.ops:batched_nms": ("suppressed", CaptureError),
    "torchvision.ops.boxes:batched_nms": ("suppressed by module", CaptureError),
    "torchvision.ops.poolers:_infer_scale": ("pooled", CaptureError),
    f"{DETECTION}.transform:paste_masks_in_image": ("pasted", CaptureError),
    f"{DETECTION}.roi_heads:heatmaps_to_keypoints": ("found", DynamicShapeError),
    "torch._higher_order_ops.map:map": ("found", CaptureError),
}
needs_torchvision = pytest.mark.skipif(load_torchvision() is None, reason="needs torchvision")


@needs_torchvision
@shows(*REFUSED_DETECTION)
@pytest.mark.parametrize("name", REFUSED_DETECTION)
def test_detection_is_refused(name: str) -> None:
    key, error = REFUSED_DETECTION[name]
    assert not differs(DETECTION_MODELS[key], exported(DETECTION_MODELS[key]))
    with absent(name), pytest.raises(error):
        exported(DETECTION_MODELS[key])


@needs_torchvision
@shows(f"{DETECTION}.transform:GeneralizedRCNNTransform.batch_images")
def test_batches_of_images_are_captured_twice() -> None:
    example = DETECTION_MODELS["batched"]
    with absent(f"{DETECTION}.transform:GeneralizedRCNNTransform.batch_images"):
        assert not differs(example, exported(example))


@needs_torchvision
@shows(f"{DETECTION}._utils:BoxCoder.decode")
def test_boxes_are_asked_how_many_they_are() -> None:
    example = DETECTION_MODELS["decoded"]
    exported(example)
    with (
        absent(f"{DETECTION}._utils:BoxCoder.decode"),
        pytest.warns(OnnxExporterWarning, match="how many elements"),
    ):
        exported(example)


@shows("forward: keyword inputs by name")
def test_keyword_inputs_have_no_dynamic_dimensions() -> None:
    """Applies to releases until torch 2.13."""
    example = MODELS["collected"]
    with absent("forward: keyword inputs by name"):
        if TORCH < (2, 14):
            assert "top-level keys" in message(example)
        else:
            assert not differs(example, exported(example))


# --- without these, exports are correct but slower -----------------------------------------------

AS_RIGHT: dict[str, str] = {
    "torch.fx._lazy_graph_module:_get_graph_module_cls": "linear",
    "torch._subclasses.fake_tensor:get_fast_op_impls": "promised",
    "torch._subclasses.fake_tensor:FakeTensorMode._cached_dispatch_impl": "promised",
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager": "padded",
    "torch._prims_common:is_contiguous_for_memory_format_or_false": "padded",
    "torch:UntypedStorage._cdata": "writes",
    "torch.fx.experimental.sym_node:SymNode._expr": "promised",
    "torch.fx.experimental.sym_node:SymNode.expr": "promised",
    "torch.fx._lazy_graph_module:_LazyGraphModule": "writes",
    f"{SHAPES}:statically_known_true": "scripted branch",
    "torch._C:DisableTorchFunction": "cond",
    "torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing": "symbolic",
    f"{SHAPES}:ShapeEnv.var_to_range": "at least one",
}


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0].mul_(2)
    return y.view(-1).add_(1).view_as(x) + y


@torch.jit.script
def branching(x: Tensor) -> Tensor:
    if x.shape[0] > 5:
        x = x * 2
    return x


class Chooses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return chosen


MORE = {
    "writes": Example(function(written), rows),
    "scripted branch": Example(lambda: torch.jit.script(ScriptedBranch()), rows),
    "cond": Example(Chooses, rows),
}


class ScriptedBranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 0:
            x = x * 2
        return x


@shows(*AS_RIGHT)
@pytest.mark.parametrize("name", AS_RIGHT)
def test_as_right(name: str) -> None:
    example = (MODELS | MORE)[AS_RIGHT[name]]
    with absent(name):
        program = exported(example)
    assert not differs(example, program, tuple(size for size in example.sizes if size))


@shows(f"{SHAPES}:ShapeEnv._is_python_assert")
def test_a_caught_assertion_is_ignored() -> None:
    example = Example(function(catching), lambda n: (torch.ones(n),))
    assert exported(example)(-torch.ones(2))[0].tolist() == [2, 2]
    with absent(f"{SHAPES}:ShapeEnv._is_python_assert"), warnings.catch_warnings():
        warnings.simplefilter("error")
        program = exported(example)
    assert program(-torch.ones(2))[0].tolist() == [-2, -2]  # eager PyTorch gives 2


@shows("torch._subclasses.fake_tensor:FakeTensorMode.dispatch")
def test_operators_take_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError

    monkeypatch.setattr("onnx_aot.capture.time_limits.FACTOR", 0.0)
    monkeypatch.setattr("onnx_aot.capture.time_limits.ALLOWANCE", 0.0)
    monkeypatch.setattr(TimeLimit, "allows", lambda self, what, runs=1: True)
    example = Example(
        function(lambda x: fails(x * 2)), lambda n: (torch.ones(n),), (4,), None, options={}
    )
    assert "left out" in message(example)
    with absent("torch._subclasses.fake_tensor:FakeTensorMode.dispatch"):
        assert "left out" not in message(example)


# --- without these, something else differs -------------------------------------------------------


@shows("onnx_aot.is_in_onnx_export()", "torch.onnx._internal.exporter._flags:_is_onnx_exporting")
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("onnx_aot.is_in_onnx_export()", "asks"),
        ("torch.onnx._internal.exporter._flags:_is_onnx_exporting", "asks torch"),
    ],
)
def test_the_eager_path_is_taken(name: str, key: str) -> None:
    example = MODELS[key]
    targets = [str(node.target) for node in exported(example).exported_program.graph.nodes]
    assert "aten.clone.default" not in targets
    with absent(name):
        program = exported(example)
    assert "aten.clone.default" in [
        str(node.target) for node in program.exported_program.graph.nodes
    ]
    assert not differs(example, program)


@shows("torch.backends.opt_einsum:enabled")
def test_einsum_is_planned_by_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``opt_einsum`` installed, ``einsum`` plans the order of products by plain sizes."""
    from torch.backends import opt_einsum

    names = opt_einsum.get_opt_einsum.__globals__
    monkeypatch.setitem(names, "_opt_einsum", object())
    monkeypatch.setitem(names, "enabled", True)
    seen: list[bool] = []

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(opt_einsum.enabled)
            return x * 2

    exported(Example(Model, rows))
    assert not any(seen)
    assert opt_einsum.enabled
    seen.clear()
    with absent("torch.backends.opt_einsum:enabled"):
        exported(Example(Model, rows))
    assert all(seen)


@shows("values assigned to .data of the model's state")
def test_assigned_state_is_not_kept() -> None:
    example = Example(AssignedState, rows)
    program = exported(example)
    assert len(program.outputs) == 2
    with absent("values assigned to .data of the model's state"):
        assert len(exported(example).outputs) == 1


FROM_ZERO = (f"{SHAPES}:make_symbol", f"{SHAPES}:ShapeEnv.create_symbol")


@shows(*FROM_ZERO)
@pytest.mark.parametrize("name", FROM_ZERO)
def test_empty_inputs_are_warned_of(name: str) -> None:
    example = MODELS["at least one"]
    assert not differs(example, exported(example))
    with absent(name), pytest.warns(OnnxExporterWarning, match="captured for sizes above 0"):
        program = exported(example)
    assert differs(example, program) == [0]


LARGER = {"torch:SymInt.__sym_max__": "at least one", "torch:SymInt.__sym_min__": "at most one"}


@shows(*LARGER)
@pytest.mark.parametrize("name", LARGER)
def test_empty_inputs_are_wrong(name: str) -> None:
    example = MODELS[LARGER[name]]
    assert not differs(example, exported(example))
    with absent(name), warnings.catch_warnings():
        warnings.simplefilter("error")
        program = exported(example)
    assert differs(example, program) == [0]


COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


@shows(*(f"torch:SymInt.{name}" for name in COMPARED))
@pytest.mark.parametrize("name", COMPARED)
def test_a_branch_on_zero_is_no_condition(name: str) -> None:
    example = MODELS[name]
    with pytest.raises(Exception, match=r"check: x\.shape"):
        exported(example, runtime_checks=True)(*example.args(0))
    with absent(f"torch:SymInt.{name}"):
        program = exported(example, runtime_checks=True)
    assert differs(example, program, (4, 0)) == [0]


@shows("torch._dynamo.source:ConstantSource")
def test_relations_are_positive() -> None:
    n = torch.export.Dim("n")
    example = Example(
        function(lambda x: x.sum() + torch.sym_max(x.shape[0] - 2, 0)),
        lambda size: (torch.ones(size),),
        sizes=(4, 1),
        dynamic_shapes=({0: n + 1},),
    )
    assert not differs(example, exported(example))
    with absent("torch._dynamo.source:ConstantSource"):
        program = exported(example)
    assert not differs(example, program, (4, 7))


# Later releases of torch have shape functions of their own.
REFUSED_BEFORE = {
    "kernel of aten.combinations.default": ("combinations", (2, 14)),
    "kernel of aten.histogramdd.default": ("histogramdd", (2, 15)),
    "kernel of aten.histogramdd.int_bins": ("histogramdd of one number", (2, 15)),
    "kernel of aten.histogramdd.TensorList_bins": ("histogramdd between", (2, 15)),
}


@shows(*REFUSED_BEFORE)
@pytest.mark.parametrize("name", [k for k, (_, later) in REFUSED_BEFORE.items() if later > TORCH])
def test_refused_before_a_release(name: str) -> None:
    with absent(name), pytest.raises(CaptureError):
        exported(MODELS[REFUSED_BEFORE[name][0]])


@shows("kernel of aten.cdist.default")
def test_rows_of_cdist_are_limited() -> None:
    example = Example(function(lambda x: torch.cdist(x, x)), rows)
    assert not differs(example, exported(example), (4, 20))
    with absent("kernel of aten.cdist.default"):
        program = exported(example)
    with pytest.raises(InferenceError, match=r"captured for [02] to 25"):
        program(*rows(26))


@shows("torch.nn:LSTM.forward")
def test_the_batch_of_packed_sequences_is_data() -> None:
    example = MODELS["packed lstm"]
    assert exported(example).outputs[0].shape[0] == 2
    with absent("torch.nn:LSTM.forward"):
        program = exported(example)
    assert program.outputs[0].shape[0] != 2 or len(program.model.graph) > len(
        exported(example).model.graph
    )
    assert not differs(example, program)


@shows("forward: sizes that names say follow from others")
def test_a_name_is_no_promise() -> None:
    example = MODELS["promised"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exported(example)
    with (
        absent("forward: sizes that names say follow from others"),
        pytest.warns(OnnxExporterWarning, match="code branches on sizes"),
    ):
        assert not differs(example, exported(example))


@shows("forward of autograd functions with symbolic")
def test_symbolic_is_not_used() -> None:
    example = MODELS["symbolic"]
    assert "Relu" in {node.op_type for node in exported(example).model.graph}
    with absent("forward of autograd functions with symbolic"):
        program = exported(example)
    assert "Relu" not in {node.op_type for node in program.model.graph}
    assert not differs(example, program)
    assert Clipped.forward is Clipped.__dict__["forward"].__func__


# --- branches on data ----------------------------------------------------------------------------


@shows("torch._export.non_strict_utils:_tensor_min_max")
def test_the_smaller_number_is_a_branch() -> None:
    def has_branch(program: Any) -> bool:
        return any(node.op_type == "If" for node in program.model.graph)

    example = MODELS["smallest"]
    assert not has_branch(exported(example))
    with absent("torch._export.non_strict_utils:_tensor_min_max"):
        program = exported(example)
    assert not differs(example, program)
    assert has_branch(program)


@shows("torch._higher_order_ops.cond:_merge_output")
def test_strides_limit_what_a_branch_gives() -> None:
    example = MODELS["transposed branch"]
    assert exported(example).report.conditions == ()
    with absent("torch._higher_order_ops.cond:_merge_output"):
        program = exported(example)
    assert not differs(example, program)
    # 2.12 sorts strides by the sizes of the example.
    assert bool(program.report.conditions) == (TORCH >= (2, 13))


def fails(program: Any, n: int) -> bool:
    """Tells whether a check in a model rejects the inputs for a size."""
    try:
        program(*MODELS["stated number"].args(n))
    except Exception as error:
        return "check: " in str(error)
    return False


@shows(f"{SHAPES}:ShapeEnv.guard_or_defer_runtime_assert")
def test_what_is_stated_before_a_branch_is_not_checked() -> None:
    example = MODELS["stated number"]
    assert fails(exported(example, runtime_checks=True), 9)
    with absent(f"{SHAPES}:ShapeEnv.guard_or_defer_runtime_assert"):
        program = exported(example, runtime_checks=True)
    assert not differs(example, program)
    assert not fails(program, 9)


@shows(f"{SHAPES}:ShapeEnv.deferred_runtime_asserts")
def test_what_is_stated_on_one_side_is_checked_on_both() -> None:
    example = MODELS["stated on one side"]
    assert not fails(exported(example, runtime_checks=True), 9)
    with absent(f"{SHAPES}:ShapeEnv.deferred_runtime_asserts"):
        assert fails(exported(example, runtime_checks=True), 9)


@shows(f"{SHAPES}:ShapeEnv.replacements")
def test_a_value_on_one_side_counts_as_the_value() -> None:
    def is_forgotten() -> bool:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        number = mode.shape_env.create_unbacked_symint()
        with without_new_conditions(mode):
            torch._check(number == 5)
        return str(number) != "5"

    assert is_forgotten()
    with absent(f"{SHAPES}:ShapeEnv.replacements"):
        assert not is_forgotten()
