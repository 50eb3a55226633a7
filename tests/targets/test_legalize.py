"""Models in types for which ONNX Runtime lacks kernels match PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import onnx_aot
from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.targets import legalize, unsupported_nodes
from tests.tolerances import assert_close

TARGET = "onnxruntime"
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (*HALVES, torch.float64)
NARROW = (torch.uint8, torch.int8, torch.int16)
EVERY = (*FLOATS, *NARROW, torch.bool)


@dataclasses.dataclass(frozen=True)
class LegalizeCase:
    """A function of tensors with one dtype, and their shapes."""

    name: str
    call: Callable[..., Any]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...] = ((3, 4),)


X, XY = ((3, 4),), ((3, 4), (3, 4))
IMAGE = ((2, 4, 6, 6),)

CASES = [
    *(
        LegalizeCase(function.__name__, function, FLOATS)
        for function in (
            *(torch.abs, torch.atan, torch.asinh, torch.ceil, torch.cos, torch.cosh, torch.erf),
            *(torch.exp, torch.floor, torch.neg, torch.round, torch.sigmoid, torch.sin, torch.sinh),
            *(torch.sign, torch.tan, torch.tanh, F.elu, F.gelu, F.hardsigmoid, F.hardswish),
            *(F.leaky_relu, F.mish, F.relu, F.selu, F.softplus, F.softsign, F.celu),
            *(torch.isnan, torch.isinf, torch.nonzero),
        )
    ),
    LegalizeCase(
        "bounded", lambda x: torch.asin(x / 4) + torch.acos(x / 4) + torch.atanh(x / 4), FLOATS
    ),
    LegalizeCase("acosh", lambda x: torch.acosh(x.abs() + 1), FLOATS),
    LegalizeCase("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), FLOATS),
    LegalizeCase("log sqrt", lambda x: torch.log(x.abs() + 1).sqrt(), FLOATS),
    LegalizeCase("softmax", lambda x: F.softmax(x, -1), FLOATS),
    LegalizeCase("layer_norm", lambda x: F.layer_norm(x, (4,)), FLOATS),
    LegalizeCase("instance_norm", F.instance_norm, FLOATS, IMAGE),
    LegalizeCase("group_norm", lambda x: F.group_norm(x, 2), FLOATS, IMAGE),
    LegalizeCase("avg_pool", lambda x: F.avg_pool2d(x, 2), FLOATS, IMAGE),
    LegalizeCase("global", lambda x: F.adaptive_avg_pool2d(x, 1), FLOATS, IMAGE),
    LegalizeCase("max_pool", lambda x: F.max_pool2d(x, 3), FLOATS, IMAGE),
    LegalizeCase("conv", F.conv2d, FLOATS, (*IMAGE, (2, 4, 3, 3))),
    LegalizeCase("conv transposed", F.conv_transpose2d, FLOATS, (*IMAGE, (4, 2, 3, 3))),
    LegalizeCase("prelu", F.prelu, FLOATS, (*IMAGE, (4,))),
    LegalizeCase("linear", F.linear, FLOATS, ((3, 4), (5, 4), (5,))),
    LegalizeCase("matmul", torch.matmul, (*FLOATS, *NARROW), ((3, 4), (4, 5))),
    LegalizeCase("attention", F.scaled_dot_product_attention, FLOATS, ((2, 4, 3, 8),) * 3),
    LegalizeCase("add", torch.add, (*FLOATS, *NARROW), XY),
    LegalizeCase("chain", lambda x, y: (x * y + x - y) * x, (*FLOATS, *NARROW), XY),
    LegalizeCase("pow", lambda x: x**2, (*FLOATS, *NARROW)),
    LegalizeCase("floor_divide", lambda x: x // 3, (*FLOATS, *NARROW)),
    LegalizeCase("where", lambda x, y: torch.where(x > y, x, y), EVERY, XY),
    LegalizeCase("maximum", torch.maximum, EVERY, XY),
    LegalizeCase("clamp", lambda x: x.clamp(1, 2), (*FLOATS, *NARROW)),
    LegalizeCase("equal", torch.eq, EVERY, XY),
    LegalizeCase("less", torch.lt, EVERY, XY),
    LegalizeCase("sum", lambda x: x.sum(1), EVERY),
    LegalizeCase("prod", lambda x: x.prod(1), EVERY),
    LegalizeCase("amax", lambda x: x.amax(1), EVERY),
    LegalizeCase("argmax", lambda x: x.flatten().argmax(), (*FLOATS, *NARROW)),
    LegalizeCase("cumsum", lambda x: x.cumsum(1), EVERY),
    LegalizeCase("sort", lambda x: x.sort(1).values, (*FLOATS, *NARROW)),
    LegalizeCase("mean var", lambda x: (x.mean(1), x.var(1)), FLOATS),
    LegalizeCase("expand", lambda x: x[:1].expand(3, 4), EVERY),
    LegalizeCase("repeat", lambda x: x.repeat(2, 2), EVERY),
    LegalizeCase("pad", lambda x: F.pad(x, (1, 2)), EVERY),
    LegalizeCase("flip", lambda x: x.flip(0), EVERY),
    LegalizeCase("tril", torch.tril, EVERY),
    LegalizeCase("roll", lambda x: x.roll(1, 1), EVERY),
    LegalizeCase("cat", lambda x, y: torch.cat([x, y], 1), EVERY, XY),
    LegalizeCase("index", lambda x: x[[2, 0]], EVERY),
    LegalizeCase("gather", lambda x: x.gather(1, torch.tensor([[0], [1], [2]])), EVERY),
    LegalizeCase("index_add", lambda x, y: x.index_add(0, torch.tensor([0, 1, 0]), y), FLOATS, XY),
    LegalizeCase("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), EVERY, IMAGE),
    LegalizeCase("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), EVERY, IMAGE),
    LegalizeCase("bits", lambda x, y: (x & y) | (x ^ ~y), (*NARROW, torch.bool), XY),
    LegalizeCase("einsum", lambda x, y: torch.einsum("ij,kj->ik", x, y), FLOATS, XY),
]


def example(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.4
    if dtype.is_floating_point:
        return (torch.rand(shape, dtype=torch.float64) * 6 - 3).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, shape).to(dtype)


class Call(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def outputs(module: torch.nn.Module, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    returned = module(*args)
    return list(returned) if isinstance(returned, tuple) else [returned]


def check(
    call: Callable[..., Any], args: tuple[torch.Tensor, ...], **options: Any
) -> onnx_aot.ONNXProgram:
    module = call if isinstance(call, torch.nn.Module) else Call(call)
    program = onnx_aot.export(module, args, **options)
    assert not unsupported_nodes(program.model, TARGET), program.model
    onnx.checker.check_model(program.model_proto, full_check=True)
    expected = outputs(module, args)
    names = [str(value.name) for value in program.model.graph.outputs]
    actual = program(*args)
    differences = compare_outputs(names, expected, actual)
    if not all(d.within for d in differences) and expected[0].dtype in HALVES:
        # some processors' kernels accumulate in half precision, and are less accurate than ONNX's
        exact = outputs(module, [a.double() if a.is_floating_point() else a for a in args])
        rounded = [e.to(wanted.dtype) for e, wanted in zip(exact, expected, strict=True)]
        differences = compare_outputs(names, rounded, actual)
    assert all(d.within for d in differences), f"{format_differences(differences)}\n{program.model}"
    return program


def operators(program: onnx_aot.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in CASES for dtype in case.dtypes],
    ids=lambda p: getattr(p, "name", str(p)),
)
def test_types_without_kernels(case: LegalizeCase, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(case.call, tuple(example(shape, dtype) for shape in case.shapes))


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_recurrent_layers(layer: Any, dtype: torch.dtype) -> None:
    module = layer(3, 4, num_layers=2, bidirectional=True).to(dtype).eval()
    check(Call(lambda x: module(x)[0]), (example((5, 2, 3), dtype),), opset_version=17)
    program = check(Call(lambda x: module(x)[0]), (example((5, 2, 3), dtype),), opset_version=23)
    used = {value for node in program.model.graph for value in node.inputs}
    ends = {node for node in program.model.graph if not used & set(node.outputs)}
    assert len(ends) == 1, ends


# --- placement of casts --------------------------------------------------------------------------


def test_what_has_a_kernel_is_left_alone() -> None:
    for dtype in (torch.float32, torch.int64):
        x = torch.arange(3).to(dtype)
        program = check(lambda x, y: (x + y) * x, (x, x + 1))
        assert operators(program) == ["Add", "Mul"]


def test_pure_graph() -> None:
    x = example((3, 4), torch.bfloat16)
    program = onnx_aot.export(Call(lambda x: torch.exp(x) + x), (x,), target=None)
    assert operators(program) == ["Exp", "Add"]
    assert unsupported_nodes(program.model, TARGET)


def test_unknown_target() -> None:
    with pytest.raises(InvalidOptionError, match="'tensorrt'; expected 'onnxruntime', which"):
        onnx_aot.export(Call(torch.sin), (torch.ones(2),), target="tensorrt")


def test_a_value_is_cast_once() -> None:
    x = example((3, 4), torch.bfloat16)
    program = check(lambda x: (x + x, x * x, x - x), (x,))
    assert operators(program).count("Cast") == 4


def test_one_captured_operator_rounds_once() -> None:
    """Torch's kernel for one operator rounds once; two operators round twice."""
    x = example((3, 4), torch.bfloat16)
    program = check(lambda x: x.remainder(0.7), (x,))
    assert operators(program).count("Cast") == 2
    program = check(lambda x, y: x * y * y, (x, x + 1))
    assert operators(program).count("Cast") == 5


def test_an_operator_that_torch_runs_as_several_rounds_after_each() -> None:
    """PyTorch's terms of equal distributions cancel; those of one kernel would not."""
    x = example((26, 10), torch.float16)

    def diverge(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="sum")

    program = check(diverge, (x,))
    casts = operators(program).count("Cast")
    assert casts > operators(check(lambda x: x.log_softmax(-1) * x.softmax(-1), (x,))).count("Cast")


def test_rounding_does_not_depend_on_metadata() -> None:
    x = example((3, 4), torch.bfloat16)
    for metadata in ("full", "none"):
        program = check(lambda x: x.remainder(0.7), (x,), metadata=metadata)
        assert operators(program).count("Cast") == 2


def test_a_loss_is_a_warning() -> None:
    def determinant(op: Any, A: Any) -> Any:  # noqa: N803
        return op.Det(A)

    with pytest.warns(OnnxExporterWarning, match="Det of DOUBLE as FLOAT") as caught:
        onnx_aot.export(
            Call(torch.linalg.det),
            (torch.eye(3, dtype=torch.float64),),
            custom_translation_table={torch.ops.aten.linalg_det.default: determinant},
        )
    assert caught[0].filename == __file__


def test_moved_elements_are_not_rounded_again() -> None:
    """Tile and Where lack a kernel but are exact, so no rounding is added between them."""
    x, y = example((3, 4), torch.float16), example((6, 4), torch.float16)
    program = check(lambda x, y, c: torch.where(c, x.repeat(2, 1), y), (x, y, y > 0))
    assert operators(program) == ["Cast", "Tile", "Cast", "Where", "Cast"]


def test_integers_wrap_around_between_operators() -> None:
    x = torch.tensor([-32768, 32767, 255, -1], dtype=torch.int16)
    y = torch.tensor([127, -127, 2, 3], dtype=torch.int16)
    check(lambda x, y: (x.abs() * y, (x * y) // 3, torch.where(x > 0, x + y, y)), (x, y))


def test_constants_are_cast_now_and_weights_by_the_model() -> None:
    x = example((3, 4), torch.bfloat16)
    linear = torch.nn.Linear(4, 4).to(torch.bfloat16)
    program = check(linear, (x,))
    weights = program.model.graph.initializers
    assert weights["weight"].dtype == ir.DataType.BFLOAT16
    program = check(lambda x: x * 3 + 0.5, (x,))
    constants = program.model.graph.initializers.values()
    assert {value.dtype for value in constants if value.uses()} == {ir.DataType.FLOAT}


def test_inserted_nodes_belong_to_the_node_that_they_serve() -> None:
    program = check(lambda x: torch.asinh(x) * x, (example((3, 4), torch.float64),))
    stamped = {node.metadata_props["namespace"] for node in program.model.graph}
    assert len(stamped) == 2
    names = [node.name for node in program.model.graph]
    values = [value.name for node in program.model.graph for value in node.outputs]
    assert len(set(names)) == len(names)
    assert len(set(values)) == len(values)
    assert program.model.graph.outputs[0].name == "mul"


def test_dynamic_sizes() -> None:
    x = example((3, 4), torch.bfloat16)
    program = onnx_aot.export(
        Call(lambda x: torch.softmax(x, 1) + x), (x,), dynamic_shapes=({0: "n"},)
    )
    other = example((7, 4), torch.bfloat16)
    expected = torch.softmax(other, 1) + other
    assert_close(program(other)[0], expected)
    assert str(program.model.graph.outputs[0].shape) == "[n,4]"


def _subgraph_model(dtype: ir.DataType) -> ir.Model:
    """A loop whose branch reads an outer value: ``y = x; 3 times: y = sinh(y) + x``."""
    name = "bfloat16" if dtype == ir.DataType.BFLOAT16 else "double"
    text = f"""
        <ir_version: 10, opset_import: ["" : 20]>
        loop ({name}[2] x, bool c) => ({name}[2] y) {{
            n = Constant <value = int64 {{3}}> ()
            t = Constant <value = bool {{1}}> ()
            y = Loop (n, t, x) <body = step (int64 i, bool go, {name}[2] v)
                => (bool on, {name}[2] w) {{
                on = Identity (go)
                w = If (c) <
                    then_branch = yes () => ({name}[2] a) {{
                        s = Sinh (v)
                        a = Add (s, x)
                    }},
                    else_branch = no () => ({name}[2] b) {{ b = Neg (v) }}
                >
            }}>
        }}
    """
    inferred = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), strict_mode=True)
    return ir.from_proto(inferred)


@pytest.mark.parametrize("dtype", [ir.DataType.DOUBLE, ir.DataType.BFLOAT16])
def test_subgraphs(dtype: ir.DataType) -> None:
    from onnx_aot.program.session import create_session, run_session

    model = _subgraph_model(dtype)
    done = legalize(model, TARGET)
    assert not done.left
    assert {adaptation.op_type for adaptation in done.adaptations} >= {"Sinh"}
    assert not unsupported_nodes(model, TARGET)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = create_session(proto.SerializeToString())
    torch_type = torch.float64 if dtype == ir.DataType.DOUBLE else torch.bfloat16
    x = torch.tensor([0.25, -0.5], dtype=torch_type)
    expected = x
    for _ in range(3):
        expected = torch.sinh(expected) + x
    (y,) = run_session(session, {"x": x, "c": torch.tensor(True)})
    assert_close(y, expected)
    outer = [node.op_type for node in model.graph]
    if dtype == ir.DataType.BFLOAT16:
        assert "Cast" in outer  # the cast of x, which is not repeated in each step


def test_report(tmp_path: Any) -> None:
    x = example((3, 4), torch.float64)
    onnx_aot.export(
        Call(lambda x: torch.erf(x.to(torch.bfloat16)) + torch.asinh(x)),
        (x,),
        report=True,
        artifacts_dir=tmp_path,
    )
    (report,) = tmp_path.glob("*.md")
    text = report.read_text(encoding="utf-8")
    assert "What the target needed" in text
    assert "casts to FLOAT" in text
    assert "other operators" in text


@pytest.mark.parametrize("dtype", [torch.float32, *FLOATS], ids=str)
@pytest.mark.parametrize("opset", [11, 17, 20])
def test_small_sums_after_a_first_number_that_is_excluded(dtype: torch.dtype, opset: int) -> None:
    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.logsumexp(1), x.logsumexp((0, 2), keepdim=True), x.logsumexp((0, 1, 2))

    x = -torch.arange(200.0, 224).reshape(2, 3, 4).to(dtype)
    x[:, 0, :2] = x[0, :2, 0] = x[1, :, 3] = -torch.inf
    opset = max(opset, 13) if dtype == torch.bfloat16 else opset  # its first opset
    program = onnx_aot.export(sums, (x,), dynamic_shapes=({0: "n"},), opset_version=opset)
    for given in (x, x[:1], x[:0], torch.cat([x, torch.full_like(x, torch.inf)])):
        for actual, expected in zip(program(given), sums(given), strict=True):
            assert_close(actual, expected)
