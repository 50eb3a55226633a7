"""More effects of missing private parts of torch: operators, weights, libraries."""

from __future__ import annotations

import gc
import importlib
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._export import utils as export_utils
from torch._higher_order_ops import associative_scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import onnx_aot
from onnx_aot.errors import (
    CaptureError,
    DynamicShapeError,
    InferenceError,
    OnnxExporterWarning,
    UnsupportedOperatorError,
)
from onnx_aot.torch_compat import hidden, private, size_function
from tests.releases import TORCH
from tests.torch_compat.models import Example, Joined, function, rows
from tests.torch_compat.without import SHAPES, absent, differs, exported, made, shows

pytestmark = pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")

FUNCTIONS = {"FloorDiv": "floordiv", "Max": "max", "Min": "min", "Mod": "mod"}


# --- higher-order operators ----------------------------------------------------------------------


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.sin() + 1


def other_region() -> Any:
    @torch.compiler.nested_compile_region
    def region(x: Tensor) -> Tensor:
        return x.cos() * 2

    return region


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return region(x) + other_region()(x) + region(x * 2)


def writing(x: Tensor) -> Tensor:
    def double(x: Tensor) -> Tensor:
        x = x.clone()
        x[0].mul_(2)
        return x

    chosen: Tensor = torch.cond(x.sum() > 0, double, torch.clone, (x,))
    return chosen


@shows("torch._dynamo.config:inline_single_use_invoke_subgraph")
def test_single_regions_are_inlined() -> None:
    def once(program: Any) -> bool:
        targets = {str(node.target) for node in program.exported_program.graph.nodes}
        return "invoke_subgraph" in targets

    example = Example(function(region), rows)
    assert once(exported(example))
    name = "torch._dynamo.config:inline_single_use_invoke_subgraph"
    with absent(name):
        program = exported(example)
    assert not differs(example, program)
    assert once(program) == (torch.__version__ < "2.13")


@shows("torch._higher_order_ops.invoke_subgraph:get_invoke_subgraph_cache")
def test_regions_of_one_name_are_mixed_up() -> None:
    example = Example(Nested, rows)
    assert not differs(example, exported(example))
    with absent("torch._higher_order_ops.invoke_subgraph:get_invoke_subgraph_cache"):
        program = exported(example)
    assert differs(example, program) == [4, 7]


@shows("torch._higher_order_ops.utils:_hop_compile_and_call")
def test_branches_that_write_are_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            def count(x: Tensor) -> Tensor:
                self.total.add_(1)
                return x * self.total

            chosen: Tensor = torch.cond(x.sum() > 0, count, lambda x: x * 1, (x,))
            return chosen

    example = Example(Counts, rows)
    exported(example)
    with (
        absent("torch._higher_order_ops.utils:_hop_compile_and_call"),
        pytest.raises(CaptureError),
    ):
        exported(example)


@shows("torch._higher_order_ops.wrap:reenter_make_fx")
def test_some_checkpoints_are_refused() -> None:
    def inner(x: Tensor) -> Tensor:
        kept: Tensor = checkpoint(lambda y: y * 2, x.sin(), use_reentrant=False)
        return kept + 1

    class Checkpoints(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept: Tensor = checkpoint(torch.cos, x, use_reentrant=False)
            chosen: Tensor = torch.cond(x.sum() > 0, inner, torch.sin, (kept,))
            return chosen

    example = Example(Checkpoints, rows)
    assert not differs(example, exported(example))
    with absent("torch._higher_order_ops.wrap:reenter_make_fx"), pytest.raises(CaptureError):
        exported(example)


@shows(
    "torch._higher_order_ops.associative_scan:generic_associative_scan",
    "torch._inductor.utils:is_pointwise_use",
)
def test_associative_scans() -> None:
    def scanned(x: Tensor) -> Tensor:
        found: Tensor = associative_scan(lambda a, b: a @ b, x, 0, combine_mode="generic")
        return found

    example = Example(function(scanned), lambda n: (torch.linspace(-1, 2, 4 * n).reshape(n, 2, 2),))
    assert not differs(example, exported(example))
    scan = "torch._higher_order_ops.associative_scan:generic_associative_scan"
    with absent(scan), pytest.raises((CaptureError, DynamicShapeError)):
        exported(example)
    with absent("torch._inductor.utils:is_pointwise_use"), pytest.raises(CaptureError):
        exported(example)


@shows("torch.nn.attention.flex_attention:_transpose_ordered")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_block_masks_limit_lengths() -> None:
    class Masked(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            length = q.shape[2]
            mask = create_block_mask(
                lambda batch, head, i, j: i >= j, 1, 1, length, length, device="cpu"
            )
            attended: Tensor = flex_attention(q, q, q, block_mask=mask)
            return attended

    example = Example(
        Masked,
        lambda n: (torch.linspace(-1, 2, 32 * n).reshape(1, 2, n, 16),),
        sizes=(100, 300),
        dynamic_shapes=({2: "n"},),
    )
    assert not differs(example, exported(example))
    with absent("torch.nn.attention.flex_attention:_transpose_ordered"):
        program = exported(example)
    with pytest.raises(InferenceError, match="to 128"):
        program(*example.args(300))


@shows("torch.nn.modules.transformer:_detect_is_causal_mask")
def test_masks_of_transformers_are_compared_when_the_model_runs() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            encoded: Tensor = self.encoder(x, mask)
            return encoded

    example = Example(
        Masked,
        lambda n: (torch.ones(2, n, 4), torch.zeros(n, n)),
        dynamic_shapes=({1: "n"}, {0: "n", 1: "n"}),
    )
    program = exported(example)
    assert not differs(example, program)
    with absent("torch.nn.modules.transformer:_detect_is_causal_mask"):
        other = exported(example)
    assert not differs(example, other)
    branches = [[n.op_type for n in p.model.graph].count("If") for p in (program, other)]
    assert branches == [0, 1]


# --- decompositions ------------------------------------------------------------------------------

DECOMPOSITIONS = {
    "torch._decomp:decomposition_table": lambda x: torch.ops.aten.logit_backward(x, x, 0.2),
    "torch._ops:OpOverload._can_decompose": torch.ops.aten.msort,
    "torch.fx.experimental.proxy_tensor:make_fx": torch.ops.aten.msort,
}


@shows(*DECOMPOSITIONS)
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_operators_are_not_taken_apart(name: str) -> None:
    example = Example(function(DECOMPOSITIONS[name]), rows)
    assert not differs(example, exported(example))
    with absent(name), pytest.raises(UnsupportedOperatorError):
        exported(example)


@shows(
    "torch.fx.experimental.sym_node:SymNode.guard_int",
    "torch.fx.experimental.sym_node:SymNode.guard_float",
)
def test_sizes_are_fixed_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decomposition that reads a size as a number is skipped; without this part, it is used."""

    @torch.library.custom_op("onnx_aot_without::repeated", mutates_args=())
    def repeated(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * x.shape[0])

    repeated.register_fake(torch.empty_like)
    example = Example(function(repeated), rows)
    captured = torch.export.export(
        made(example), rows(4), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    table = private("torch._decomp:decomposition_table")
    target = torch.ops.onnx_aot_without.repeated.default
    monkeypatch.setitem(table, target, lambda x: x * int(x.shape[0]))
    with pytest.raises(UnsupportedOperatorError):
        onnx_aot.export(captured)
    names = [f"torch.fx.experimental.sym_node:SymNode.guard_{kind}" for kind in ("int", "float")]
    with absent(*names):
        assert onnx_aot.export(captured).inputs[0].shape[0] == 4


# --- sizes ---------------------------------------------------------------------------------------


@shows(*(f"torch.utils._sympy.functions:{name}" for name in FUNCTIONS))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_inner_sizes_have_no_expression(name: str) -> None:
    example = Example(function(lambda x: torch.linalg.qr(x)[1]), rows)
    assert size_function(FUNCTIONS[name]) is not None
    with absent(f"torch.utils._sympy.functions:{name}"):
        assert size_function(FUNCTIONS[name]) is None
        program = exported(example)
    assert not differs(example, program)


@shows("torch._subclasses.meta_utils:MetaTensorDescriber.describe_tensor")
def test_weights_without_elements_are_refused() -> None:
    example = Example(Joined, rows)
    program = exported(example)
    program.apply_weights({"weight": torch.ones(3)}, partial=True)
    torch.testing.assert_close(program(*rows(7))[0], rows(7)[0] * 2)
    with (
        absent("torch._subclasses.meta_utils:MetaTensorDescriber.describe_tensor"),
        pytest.raises(CaptureError, match="meta"),
    ):
        exported(example)


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.last
        self.last = x * 2
        return y


class AssignsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unused", None)
        self.register_buffer("held", torch.ones(3))
        self.register_buffer("other", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.held = self.held + 1
        return x * self.held * self.other


ASSIGNED = ("buffers before the model is called", "buffers that the model assigns")


@shows(*ASSIGNED)
@pytest.mark.parametrize("name", ASSIGNED)
def test_assigned_buffers_are_not_kept(name: str) -> None:
    example = Example(AssignsBuffer, lambda n: (torch.rand(n, 3),))
    assert [value.name for value in exported(example).outputs][1:] == ["held_out"]
    with absent(name):
        assert len(exported(example).outputs) == 1


@shows("torch.export._trace:register_buffer_assignment_hook")
def test_assigned_buffers_are_written_to_others() -> None:
    example = Example(AssignsBuffer, lambda n: (torch.rand(n, 3),))
    with absent("torch.export._trace:register_buffer_assignment_hook"):
        assert "other_out" in [value.name for value in exported(example).outputs]


@pytest.mark.filterwarnings("ignore:The tensor attribute")
@shows("tensor attributes of a model with state")
def test_an_attribute_that_forward_assigns_is_no_state() -> None:
    def inputs() -> list[str]:
        program = onnx_aot.export(Remembers(), (torch.ones(4, 3),), state="io")
        return [value.name for value in program.inputs]

    assert inputs() == ["x", "last"]
    with absent("tensor attributes of a model with state"):
        assert inputs() == ["x"]


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([1, 2]))

    def forward(self, x: Tensor) -> Tensor:
        y = x[: self.counts[1].item()]
        torch.vmap(lambda count: count.add_(1))(self.counts)
        return y


@shows("torch._C._functorch:get_unwrapped")
def test_a_buffer_that_vmap_writes_to_is_taken_for_a_constant() -> None:
    def slices(program: Any) -> str:
        return str(program.outputs[0].shape[0])

    example = Example(Mapped, rows)
    assert slices(exported(example)) != "min(2, n)"
    with absent("torch._C._functorch:get_unwrapped", "torch._functorch.apis:vmap_impl"):
        assert slices(exported(example)) == "min(2, n)"


@shows("torch.fx.experimental.proxy_tensor:CONSTANT_NUMEL_LIMIT")
def test_a_literal_that_was_written_to_is_taken_for_the_old_one() -> None:
    def slices(x: Tensor) -> Tensor:
        count = torch.tensor(1)
        count[None].add_((x > 0).sum())
        return x[: count.item()]

    example = Example(function(slices), lambda n: (torch.ones(n),))
    assert not differs(example, exported(example))
    with absent("torch.fx.experimental.proxy_tensor:CONSTANT_NUMEL_LIMIT"):
        assert differs(example, exported(example))


@shows(f"{SHAPES}:ShapeEnv.backed_var_to_val")
def test_sizes_of_slices_are_not_compared_with_the_example() -> None:
    def last(x: Tensor) -> Tensor:
        return x[x.shape[0] - 2 : x.shape[0] - 1] * 2

    example = Example(function(last), rows)
    assert not differs(example, exported(example))
    with absent(f"{SHAPES}:ShapeEnv.backed_var_to_val"):
        exported(example)


@shows("torch.fx.experimental.sym_node:SymNode.hint")
def test_dimensions_of_a_program_may_share_a_name() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.sum() + y.sum()

    args = (torch.ones(3), torch.ones(4))
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.export.export(Two(), args, dynamic_shapes=({0: dynamic}, {0: dynamic}))
    shapes = ({0: "n"}, {0: "n"})
    with pytest.raises(DynamicShapeError):
        onnx_aot.export(program, dynamic_shapes=shapes)
    with hidden("torch.fx.experimental.sym_node:SymNode.hint"):
        onnx_aot.export(program, dynamic_shapes=shapes)


@shows("torch._library.fake_impl:FakeImplCtx.create_unbacked_symint")
@pytest.mark.filterwarnings("ignore:.create_unbacked_symint. is deprecated")
def test_custom_operators_return_two_elements() -> None:
    @torch.library.custom_op("onnx_aot_without::positive", mutates_args=())
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    @positive.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().create_unbacked_symint())

    def asked(x: Tensor) -> Tensor:
        chosen = positive(x)
        return chosen * 2 if chosen.shape[0] > 1 else chosen * 3

    example = Example(function(asked), lambda n: (torch.linspace(-1, 1, n),), sizes=(5, 3))
    options = {
        "custom_translation_table": {
            positive: lambda op, x: op.Compress(x, op.Greater(x, 0.0), axis=0)
        }
    }
    assert not differs(example, exported(example, **options))
    with (
        absent("torch._library.fake_impl:FakeImplCtx.create_unbacked_symint"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", OnnxExporterWarning)
        program = exported(example, **options)
    assert differs(example, program) == [3]  # one of its elements is positive


@shows(f"{SHAPES}:ShapeEnv.ignore_fresh_unbacked_symbols")
def test_scripted_sizes_of_data_are_refused() -> None:
    class Selects(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            chosen = x[x > 0]
            return chosen.new_zeros(chosen.shape[0]) + chosen

    example = Example(lambda: torch.jit.script(Selects()), rows)
    assert not differs(example, exported(example))
    name = f"{SHAPES}:ShapeEnv.ignore_fresh_unbacked_symbols"
    with absent(name), pytest.raises(CaptureError):
        exported(example)


@shows(f"{SHAPES}:DimConstraints.solve")
def test_conditions_that_sympy_cannot_solve_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:

    def solve(self: Any) -> None:
        raise NotImplementedError("sympy cannot")

    monkeypatch.setattr(f"{SHAPES}.DimConstraints.solve", solve)
    example = Example(
        function(lambda x: x.view(-1, 2, 3) * 2),
        rows,
        sizes=(4, 6),
        dynamic_shapes=({0: torch.export.Dim("n")},),
    )
    with pytest.raises(DynamicShapeError, match=r"even|% 2|2\*"):
        exported(example)
    with (
        absent(f"{SHAPES}:DimConstraints.solve"),
        pytest.raises(CaptureError, match="sympy cannot"),
    ):
        exported(example)


@shows("torch.fx.experimental.proxy_tensor:_extract_tensor_metadata")
def test_torch_asks_for_the_memory_format_of_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "is_contiguous_for_memory_format_or_false"
    module = importlib.import_module("torch.fx.passes.shape_prop")
    original, asked = getattr(module, name), []

    def note(tensor: Tensor, memory_format: torch.memory_format) -> bool:
        asked.append(memory_format)
        return bool(original(tensor, memory_format=memory_format))

    monkeypatch.setattr(module, name, note)
    example = Example(function(lambda x: (x.T * 2).T.sin()), rows)
    assert not differs(example, exported(example))
    assert not asked
    with absent("torch.fx.experimental.proxy_tensor:_extract_tensor_metadata"):
        assert not differs(example, exported(example))
    assert len(asked) >= 4


# --- libraries -----------------------------------------------------------------------------------


KERNELS = ("torch._library.custom_ops:OPDEFS", "torch._library.custom_ops:CustomOpDef._init_fn")


@shows(*KERNELS)
@pytest.mark.parametrize("name", KERNELS)
def test_functions_of_custom_operators_are_not_traced(name: str) -> None:
    @torch.library.custom_op("onnx_aot_without::tripled", mutates_args=(), device_types="cuda")
    def tripled(x: Tensor) -> Tensor:
        return x * 3

    tripled.register_kernel("cpu")(lambda x: torch.from_numpy(x.numpy() * 3))
    tripled.register_fake(torch.empty_like)
    example = Example(function(tripled), rows)
    assert not differs(example, exported(example))
    with absent(name), pytest.raises(UnsupportedOperatorError):
        exported(example)


REGISTERED = ("torch.library:_impls", "torch._C:DispatchKey", "torch._C:DispatchKeySet")


@shows(*REGISTERED)
@pytest.mark.parametrize("name", REGISTERED)
def test_registered_functions_are_not_traced(name: str) -> None:
    with torch.library._scoped_library("onnx_aot_without", "FRAGMENT") as library:
        library.define("halved(Tensor x) -> Tensor")
        library.impl("halved", lambda x: x / 2, "CompositeExplicitAutograd")
        example = Example(function(torch.ops.onnx_aot_without.halved), rows)
        assert not differs(example, exported(example))
        with absent(name), pytest.raises(UnsupportedOperatorError):
            exported(example)


@shows("torch._library.custom_ops:CustomOpDef._opoverload")
def test_custom_operators_are_no_keys() -> None:
    @torch.library.custom_op("onnx_aot_without::doubled", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    doubled.register_fake(torch.empty_like)
    example = Example(function(doubled), rows)
    table = {doubled: lambda op, x: op.Add(x, x)}
    assert not differs(example, exported(example, custom_translation_table=table))
    with (
        absent("torch._library.custom_ops:CustomOpDef._opoverload"),
        pytest.raises(UnsupportedOperatorError),
    ):
        exported(example, custom_translation_table=table)


@shows(
    "torch.utils._pytree:_deregister_pytree_node",
    "torch.utils._pytree:SUPPORTED_SERIALIZED_TYPES",
)
@pytest.mark.parametrize("name", ["_deregister_pytree_node", "SUPPORTED_SERIALIZED_TYPES"])
def test_registrations_stay(name: str) -> None:
    from onnx_aot.torch_compat import deregister_pytree_node, pytree

    class Box:
        pass

    pytree.register_pytree_node(
        Box, lambda box: ([], None), lambda _, __: Box(), serialized_type_name=f"box.{name}"
    )
    with hidden(f"torch.utils._pytree:{name}"):
        deregister_pytree_node(Box)
        assert Box in pytree.SUPPORTED_NODES
    again = deregister_pytree_node(Box)
    assert Box not in pytree.SUPPORTED_NODES
    again()
    assert Box in pytree.SUPPORTED_NODES
    deregister_pytree_node(Box)


@shows("hooks for all modules")
def test_hooks_for_all_modules_are_taken_back() -> None:
    from torch.nn.modules import module

    class Leaves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            module.register_module_buffer_registration_hook(lambda *_: None)
            return x * 2

    before = dict(module._global_buffer_registration_hooks)
    exported(Example(Leaves, rows))
    assert module._global_buffer_registration_hooks == before
    with absent("hooks for all modules"):
        exported(Example(Leaves, rows))
    assert module._global_buffer_registration_hooks != before
    module._global_buffer_registration_hooks.clear()
    module._global_buffer_registration_hooks.update(before)


NODES = "torch.fx.experimental.proxy_tensor:_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT"


@shows(NODES)
def test_the_graph_of_the_last_capture_is_forgotten() -> None:
    def kept() -> bool:
        program = exported(Example(nn.ReLU, rows)).exported_program
        graph = weakref.ref(program.graph_module)
        del program
        gc.collect()
        return graph() is not None

    assert not kept()
    with absent(NODES):
        assert kept() == (TORCH < (2, 15))  # which no longer keeps it


OPERATORS = "torch._export.utils:_collect_all_valid_cia_ops_for_aten_namespace"


@shows(OPERATORS)
def test_torch_keeps_no_list_with_replaced_kernels() -> None:
    """torch._inductor cannot be imported once the list contains this operator."""
    collect: Any = export_utils._collect_all_valid_cia_ops_for_aten_namespace
    example = Example(function(torch.vmap(torch.sin)), rows)

    def lists_operator() -> bool:
        collect.cache_clear()
        exported(example)
        listed: set[Any] = collect()
        collect.cache_clear()
        return torch.ops.aten.histogram.bin_ct in listed

    assert not lists_operator()
    with absent(OPERATORS):
        assert lists_operator()
