"""Operators of ``onnx_aot/ops/libraries/torch_onnx_ops.py``.

The kernel of ``symbolic`` returns zeros, so the rows name operators that do the same.
"""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
import torch.onnx.ops

import onnx_aot
from onnx_aot.errors import OpsetError, TranslationError
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

SYMBOLIC = torch.ops.onnx_symbolic._symbolic.default
MULTI = torch.ops.onnx_symbolic._symbolic_multi_out.default
ATTENTION = torch.ops.onnx.Attention.opset23
ROTARY = torch.ops.onnx.RotaryEmbedding.opset23
ops = torch.onnx.ops


def difference(x: torch.Tensor) -> torch.Tensor:
    return ops.symbolic("Sub", (x, x), dtype=x.dtype, shape=x.shape)


def largest(x: torch.Tensor) -> Any:
    one, rows = torch.tensor([1]), [x.shape[0], 1]
    types = [torch.float32, torch.int64]
    inputs = (difference(x), one)
    return ops.symbolic_multi_out("TopK", inputs, {"axis": 1}, dtypes=types, shapes=[rows, rows])


def admitting(*sizes: int | str) -> T:
    """A mask in which every row admits its first key."""

    def make(*concrete: int) -> torch.Tensor:
        mask = torch.rand(concrete) > 0.5
        mask[..., 0] = True
        return mask

    return T(sizes, torch.bool, make)


QUERY, KEY = floats("n", 4, "m", 8), floats("n", 2, "m", 8)
FLAT, NARROW = floats("n", "m", 32), floats("n", "m", 16)
PAST = floats("n", 4, 3, 8)
COS = floats(10, 4)

ROWS = [
    Row(SYMBOLIC, (floats("n", 3),), call=difference),
    Row(MULTI, (floats("n", 3),), call=largest),
    Row(ATTENTION, (QUERY, QUERY, QUERY)),
    Row(ATTENTION, (QUERY, QUERY, QUERY), {"is_causal": True}, name="causal"),
    Row(ATTENTION, (QUERY, KEY, KEY), name="groups", call=lambda *a: ATTENTION(*a)[0]),
    Row(ATTENTION, (QUERY, QUERY, QUERY, bools("n", 1, "m", "m")), name="mask"),
    Row(
        ATTENTION,
        (QUERY, QUERY, QUERY, floats("m", "m")),
        {"softcap": 2.0, "scale": 0.3},
        name="cap",
    ),
    *(
        Row(
            ATTENTION,
            (QUERY, QUERY, QUERY, floats("m", "m")),
            {"qk_matmul_output_mode": mode},
            name=f"mode {mode}",
        )
        for mode in (1, 2, 3)
    ),
    Row(ATTENTION, (QUERY, QUERY, QUERY), {"softmax_precision": 11}, name="precision"),
    Row(ATTENTION, (QUERY, QUERY, QUERY, None, PAST, PAST), name="past"),
    Row(
        ATTENTION,
        (QUERY, QUERY, QUERY, None, PAST, PAST),
        {"is_causal": True},
        name="past causal",
    ),
    Row(
        ATTENTION,
        (FLAT, NARROW, NARROW),
        {"q_num_heads": 4, "kv_num_heads": 2},
        name="flat",
        call=lambda *a, **k: ATTENTION(*a, **k)[0],
    ),
    Row(
        ATTENTION,
        (QUERY, QUERY, QUERY, admitting("n", 1, "m", "m")),
        {"softcap": 2.0},
        name="cap mask",
    ),
    Row(ROTARY, (QUERY, COS, COS, ints("n", "m", low=0, high=10))),
    Row(
        ROTARY,
        (QUERY, COS, COS, ints("n", "m", low=0, high=10)),
        {"interleaved": True},
        name="interleaved",
    ),
    *(
        Row(
            ROTARY,
            (QUERY, floats(10, 2), floats(10, 2), ints("n", "m", low=0, high=10)),
            {"rotary_embedding_dim": 4, "interleaved": interleaved},
            name=f"part {interleaved}",
        )
        for interleaved in (False, True)
    ),
    Row(ROTARY, (FLAT, floats("n", "m", 4), floats("n", "m", 4)), {"num_heads": 4}, name="flat"),
]


@parametrize(ROWS)
def test_rows(row: Row) -> None:
    check(row)


X = torch.randn(4, 3)


def exported(function: Any, **options: Any) -> onnx_aot.ONNXProgram:
    program = onnx_aot.export(function, (X,), **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def test_the_nodes_are_those_that_are_named() -> None:
    attributes = {
        "a": 1,
        "b": 2.5,
        "c": "text",
        "d": [1, 2],
        "e": [1.5, 2],
        "f": ["x", "y"],
        "g": True,
    }

    def named(x: torch.Tensor) -> Any:
        y = ops.symbolic(
            "my.domain::Foo",
            (x, None, x),
            attributes,
            dtype=torch.float16,
            shape=[x.shape[0], 7],
            version=3,
            metadata_props={"key": "value"},
        )
        return ops.symbolic_multi_out(
            "my.domain::Bar", (y,), dtypes=[torch.int64, 1], shapes=[[2], [x.shape[0]]], version=3
        )

    program = exported(named, dynamic_shapes=({0: "n"},))
    foo, bar = program.model.graph
    assert (foo.domain, foo.op_type, len(foo.inputs), foo.inputs[1]) == (
        "my.domain",
        "Foo",
        3,
        None,
    )
    expected = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    assert {name: attribute.value for name, attribute in foo.attributes.items()} == expected
    assert foo.metadata_props["key"] == "value"
    assert program.model.opset_imports == {"": 20, "my.domain": 3}
    shapes = [(str(v.dtype), str(v.shape)) for v in (*foo.outputs, *bar.outputs)]
    assert shapes == [("FLOAT16", "[n,7]"), ("INT64", "[2]"), ("FLOAT", "[n]")]


def test_attention_is_one_node_from_opset_23() -> None:
    query = torch.randn(2, 4, 5, 8)
    program = onnx_aot.export(lambda q: ops.attention(q, q, q)[0], (query,), opset_version=23)
    assert [node.op_type for node in program.model.graph] == ["Attention"]
    program = onnx_aot.export(
        lambda q: ops.rotary_embedding(q, torch.ones(2, 5, 4), torch.ones(2, 5, 4)),
        (query,),
        opset_version=23,
    )
    assert [node.op_type for node in program.model.graph] == ["RotaryEmbedding"]


def test_what_cannot_be_named() -> None:
    def named(name: str, dtype: Any = torch.float32, **options: Any) -> Any:
        return lambda x: ops.symbolic(name, (x,), dtype=dtype, shape=x.shape, **options)

    with pytest.raises(OpsetError, match=r"names ONNX Swish of opset 24; the opset is 20"):
        exported(named("Swish", version=24))
    with pytest.raises(OpsetError, match=r"Nope does not exist in opset 20"):
        exported(named("Nope"))
    with pytest.raises(TranslationError, match=r"gives FLOAT, the capture recorded INT32"):
        exported(named("Relu", torch.int32))
    with pytest.raises(TranslationError, match=r"4-bit integers"):
        exported(named("my.domain::Pack", 21))
    with pytest.raises(TranslationError, match=r"Relu has no attribute 'alpha'"):
        exported(named("Relu", attrs={"alpha": 1}))
