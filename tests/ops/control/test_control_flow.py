"""One row for each higher-order operator; tests/translate has more."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_slices
from torch.nn.attention.flex_attention import flex_attention

from onnx_aot.torch_compat import higher_order
from tests.ops.rows import SIZES, Call, Row, check, check_dynamic, floats, ints, parametrize


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def switched(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.switch import switch  # since torch 2.14

    result: torch.Tensor = switch(index, (torch.sin, torch.cos, lambda x: x * 2), (x,))
    return result


ROWS = [
    Row(
        higher_order.cond,
        (floats("n", 3),),
        call=lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
    ),
    Row(
        higher_order.switch,
        (floats("n", 3), ints(low=-1, high=4)),
        call=switched,
    ),
    Row(
        higher_order.while_loop,
        (floats("n", 3),),
        call=lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x)),
        sizes=({"n": 0},),
    ),
    Row(
        higher_order.scan,
        (floats("n", 3),),
        call=lambda x: scan(lambda a, b: (a + b, a * b), torch.zeros(3), x),
    ),
    Row(
        higher_order.map_impl,
        (floats("n", 3),),
        call=lambda x: map_slices(lambda row: row.cumsum(0), x),
    ),
    Row(
        higher_order.flex_attention,
        (floats("n", 2, "m", 16), floats("n", 2, "k", 16), floats("n", 2, "k", 16)),
        call=lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, *_: torch.tanh(s)),
    ),
    Row(higher_order.invoke_subgraph, (floats("n", 3),), call=lambda x: region(region(x))),
]

# Torch unrolls the map in a separate capture, under vmap.
OWN_CAPTURE = [
    Row(
        higher_order.associative_scan,
        (floats("n", 3),),
        call=lambda x: associative_scan(torch.mul, x, 0, combine_mode="generic"),
    ),
]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@parametrize(ROWS)
def test_control_flow(row: Row) -> None:
    check(row)


@parametrize(OWN_CAPTURE)
def test_control_flow_in_our_capture(row: Row) -> None:
    check_dynamic(row, Call(row), row.examples(SIZES[0]))
