"""The table of kernels matches the installed ONNX Runtime: listed kernels load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_aot.targets import legalize, unsupported_nodes
from onnx_aot.targets.kernels import signature

TARGET = "onnxruntime"
OPSETS = (17, 20, 23)

TYPES = "FLOAT FLOAT16 BFLOAT16 DOUBLE INT64 INT32 INT16 INT8 UINT8 UINT16 UINT32 UINT64 BOOL"
UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg NonZero "
    "Not Reciprocal Relu Round Selu Shape Sigmoid Sign Sin Sinh Size Softmax Softplus "
    "Softsign Sqrt Tan Tanh ThresholdedRelu Celu Swish Hardmax ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare Dropout Transpose Flatten Shrink "
)
BINARY = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mul Or PRelu Pow Sub Sum Xor"
)

X, I64, BOOL = ("x", None, [2, 3, 4]), "INT64", "BOOL"
Y = ("y", None, [2, 3, 4])
IMAGE = ("x", None, [1, 4, 6, 6])

# Inputs of one node: name, type (None: the type under test) and shape; then attributes.
NODES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    **{name: ([X], {}) for name in UNARY.split()},
    **{name: ([X, Y], {}) for name in BINARY.split()},
    "ArgMax": ([X], {"axis": 1}),
    "ArgMin": ([X], {"axis": 1}),
    "Attention": ([(n, None, [2, 4, 3, 8]) for n in "qkv"] + [("m", BOOL, [3, 3])], {}),
    "AveragePool": ([IMAGE], {"kernel_shape": [2, 2]}),
    "BatchNormalization": ([IMAGE, *((n, None, [4]) for n in "abcd")], {}),
    "BitShift": ([X, Y], {"direction": "LEFT"}),
    "Clip": ([X, ("a", None, []), ("b", None, [])], {}),
    "Col2Im": ([("x", None, [1, 8, 9]), ("s", I64, [2]), ("b", I64, [2])], {}),
    "Compress": ([X, ("c", BOOL, [3])], {"axis": 1}),
    "Concat": ([X, Y], {"axis": 1}),
    "Conv": ([IMAGE, ("w", None, [2, 4, 3, 3])], {}),
    "ConvTranspose": ([IMAGE, ("w", None, [4, 2, 3, 3])], {}),
    "CumSum": ([X, ("a", I64, [])], {}),
    "DFT": ([("x", None, [2, 4, 1])], {}),
    "DepthToSpace": ([IMAGE], {"blocksize": 2}),
    "Det": ([("x", None, [2, 3, 3])], {}),
    "Einsum": ([("x", None, [2, 3]), ("y", None, [3, 4])], {"equation": "ij,jk->ik"}),
    "Expand": ([X, ("s", I64, [4])], {}),
    "EyeLike": ([("x", None, [3, 4])], {}),
    "Gather": ([X, ("i", I64, [2])], {"axis": 1}),
    "GatherElements": ([X, ("i", I64, [2, 3, 4])], {"axis": 1}),
    "GatherND": ([X, ("i", I64, [2, 2])], {}),
    "Gemm": ([("x", None, [2, 3]), ("y", None, [3, 4]), ("z", None, [4])], {}),
    "GlobalAveragePool": ([IMAGE], {}),
    "GlobalMaxPool": ([IMAGE], {}),
    "GridSample": ([IMAGE, ("g", "FLOAT", [1, 3, 3, 2])], {}),
    "GroupNormalization": ([IMAGE, ("s", None, [4]), ("b", None, [4])], {"num_groups": 4}),
    "InstanceNormalization": ([IMAGE, ("s", None, [4]), ("b", None, [4])], {}),
    "LayerNormalization": ([X, ("s", None, [4]), ("b", None, [4])], {}),
    "LRN": ([IMAGE], {"size": 3}),
    "MatMul": ([("x", None, [2, 3]), ("y", None, [3, 4])], {}),
    "MaxPool": ([IMAGE], {"kernel_shape": [2, 2]}),
    "Mod": ([X, Y], {"fmod": 1}),
    "OneHot": ([("i", None, [3]), ("d", I64, []), ("v", "FLOAT", [2])], {}),
    "Pad": ([X, ("p", I64, [6])], {}),
    "RMSNormalization": ([X, ("s", None, [4])], {}),
    "Range": ([(n, None, []) for n in "abc"], {}),
    "Reshape": ([X, ("s", I64, [2])], {}),
    "Resize": ([IMAGE, None, ("s", "FLOAT", [4])], {"mode": "linear"}),
    "ScatterElements": (
        [X, ("i", I64, [2, 3, 4]), ("u", None, [2, 3, 4])],
        {"reduction": "add", "axis": 1},
    ),
    "ScatterND": ([X, ("i", I64, [2, 1]), ("u", None, [2, 3, 4])], {"reduction": "add"}),
    "Slice": ([X, *((n, I64, [1]) for n in "abcd")], {}),
    "SpaceToDepth": ([IMAGE], {"blocksize": 2}),
    "Split": ([X], {"axis": 0, "num_outputs": 1}),
    "Squeeze": ([("x", None, [2, 1]), ("a", I64, [1])], {}),
    "Tile": ([X, ("r", I64, [3])], {}),
    "TopK": ([X, ("k", I64, [1])], {}),
    "Trilu": ([X], {}),
    "Unique": ([X], {}),
    "Unsqueeze": ([X, ("a", I64, [1])], {}),
    "Where": ([("c", BOOL, [2, 3, 4]), X, Y], {}),
}

OUTPUTS = {"TopK": 2}

# ONNX's shape inference does not support these outputs.
TYPED_LIKE_THE_INPUT = {"GroupNormalization", "RMSNormalization"}


def single(op_type: str, opset: int, dtype: str) -> onnx.ModelProto:
    inputs, attributes = NODES[op_type]
    values = [
        onnx.helper.make_tensor_value_info(item[0], ir.DataType[item[1] or dtype].value, item[2])
        for item in inputs
        if item is not None
    ]
    if op_type == "Split" and opset < 18:
        attributes = {"axis": 0}
    names = ["" if item is None else item[0] for item in inputs]
    outputs = [f"out{i}" for i in range(OUTPUTS.get(op_type, 1))]
    node = onnx.helper.make_node(op_type, names, outputs, **attributes)
    typed = op_type in TYPED_LIKE_THE_INPUT
    infos = [
        onnx.helper.make_tensor_value_info(o, ir.DataType[dtype].value, inputs[0][2])
        if typed
        else onnx.helper.make_empty_tensor_value_info(o)
        for o in outputs
    ]
    graph = onnx.helper.make_graph([node], "one", values, infos)
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model if typed else onnx.shape_inference.infer_shapes(model, strict_mode=True)


def load(model: onnx.ModelProto) -> str:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        return str(error)
    return ""


def cases() -> Iterator[tuple[str, int]]:
    for op_type in sorted(NODES):
        seen = set()
        for opset in OPSETS:
            types = signature(op_type, opset)
            deprecated = op_type == "GroupNormalization" and opset < 21
            if types is not None and types.version not in seen and not deprecated:
                seen.add(types.version)
                yield op_type, opset


@pytest.mark.parametrize(("op_type", "opset"), list(cases()))
def test_every_type_of_an_operator_loads(op_type: str, opset: int) -> None:
    """Loads directly if the table has a kernel, and after ``legalize`` wherever it can help."""
    schema = onnx.defs.get_schema(op_type, opset)
    variables = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    tried = next(i for i, item in enumerate(NODES[op_type][0]) if item and item[1] is None)
    variable = schema.inputs[min(tried, len(schema.inputs) - 1)].type_str
    problems = []
    for dtype in TYPES.split():
        name = {"DOUBLE": "double"}.get(dtype, dtype.lower())
        if f"tensor({name})" not in variables.get(variable, [variable]):
            continue
        proto = single(op_type, opset, dtype)
        model = ir.from_proto(proto)
        if not unsupported_nodes(model, TARGET):
            refused = load(proto)
            if refused:
                problems.append(f"{dtype}: the table says it runs: {refused}")
            continue
        legalize(model, TARGET)
        left = unsupported_nodes(model, TARGET)
        if left:
            problems.append(f"{dtype}: {left} cannot run")
            continue
        changed = ir.to_proto(model)
        onnx.checker.check_model(changed, full_check=True)
        refused = load(changed)
        if refused:
            problems.append(f"{dtype}: {refused}")
    assert not problems, "\n".join(problems)
