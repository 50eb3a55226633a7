"""Matrix products and vector norms: ``onnx_aot/ops/linalg/products_and_norms.py``."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, given, ints, parametrize, positive
from tests.tolerances import assert_close

EMPTY = ({"n": 0},)
INT32 = torch.int32


def einsum(equation: str) -> Any:
    """Calls ``torch.einsum``, through which programs call the operator."""
    return lambda *tensors: torch.einsum(equation, *tensors)


KRON = [
    Row(aten.kron.default, (left, right), name=name, sizes=EMPTY)
    for name, left, right in (
        ("2 2", floats(4, 3), floats(2, 5)),
        ("2 1", ints(4, 3), floats(5)),
        ("1 3", floats(5), floats(4, 1, 2)),
        ("0 2", floats(), ints(0, 2, dtype=INT32)),
        ("0 0", floats(), floats()),
        ("bool", bools(4, 3), bools(5)),
        ("dynamic", floats("n", 3), floats("m", 2)),
        ("dynamic 2 1", floats(3, "n"), floats("m", dtype=torch.float64)),
    )
]

MATMUL = [
    Row(aten.matmul.default, (left, right), name=name, sizes=sizes)
    for name, left, right, sizes in (
        ("1 1", floats("n"), floats("n"), EMPTY),
        ("1 2", floats("n"), floats("n", 3), EMPTY),
        ("2 1", floats("n", 3), floats(3), EMPTY),
        ("2 1 inner", floats(3, "n"), floats("n"), EMPTY),
        ("2 1 static", floats(4, 3), floats(3), ()),
        ("2 2", floats("n", 3), floats(3, "m"), EMPTY),
        ("inner", floats(3, "n"), floats("n", 2), EMPTY),
        ("3 1", floats("n", 2, 3), floats(3), EMPTY),
        ("1 3", floats(3), floats("n", 3, 2), ()),
        ("3 2", floats("n", 2, 3), floats(3, "m"), EMPTY),
        ("2 3", floats(2, 3), floats("n", 3, "m"), ()),
        ("3 3", floats("n", 2, 3), floats("n", 3, "m"), EMPTY),
        ("4 4", floats("n", 2, 5, 3), floats("n", 2, 3, "m"), EMPTY),
        ("4 3", floats("n", 2, 5, 3), floats(2, 3, "m"), ()),
        ("broadcast", floats("n", 1, 5, 3), floats(1, 2, 3, 4), ()),
        ("no inner", floats(2, 0), floats(0, 3), ()),
        ("int", ints("n", 3), ints(3, "m"), EMPTY),
        ("int32", ints("n", 2, 3, dtype=INT32), ints("n", 3, 4, dtype=INT32), EMPTY),
    )
]

CHAINS = [
    Row(aten.linalg_multi_dot.default, (list(matrices),), name=name)
    for name, matrices in (
        ("2", (floats(2, 3), floats(3, 4))),
        ("3", (floats(10, 2), floats(2, 10), floats(10, 2))),
        ("5", (floats(3, 9), floats(9, 1), floats(1, 8), floats(8, 2), floats(2, 5))),
        ("vectors", (floats(3), floats(3, 4), floats(4))),
        ("first vector", (floats(3), floats(3, "n"), floats("n", 2))),
        ("last vector", (floats("n", 3), floats(3, "m"), floats("m"))),
        ("dynamic", (floats("n", 3), floats(3, "m"), floats("m", "m"), floats("m", 2))),
    )
]

PRODUCTS = [
    Row(target, args, name=name, sizes=EMPTY)
    for target, args, name in (
        (aten.mm.default, (floats("n", 3), floats(3, "m")), ""),
        (aten.mm.default, (floats(2, "n"), floats("n", 3)), "inner"),
        (aten.mm.default, (ints("n", 3), ints(3, "m")), "int"),
        (aten.bmm.default, (floats("n", 2, 3), floats("n", 3, "m")), ""),
        (aten.bmm.default, (ints("n", 2, 3, dtype=INT32), ints("n", 3, 4, dtype=INT32)), "int32"),
        (aten.mv.default, (floats("n", 3), floats(3)), ""),
        (aten.mv.default, (floats(3, "n"), floats("n")), "inner"),
        (aten.mv.default, (ints("n", 3), ints(3)), "int"),
        (aten.dot.default, (floats("n"), floats("n")), ""),
        (aten.dot.default, (ints("n"), ints("n")), "int"),
    )
]

LINEAR = [
    Row(aten.linear.default, args, name=name, sizes=EMPTY)
    for name, args in (
        ("1", (floats(3), floats(5, 3))),
        ("1, bias", (floats(3), floats(5, 3), floats(5))),
        ("2", (floats("n", 3), floats(5, 3))),
        ("2, bias", (floats("n", 3), floats(5, 3), floats(5))),
        ("2, 0-d bias", (floats("n", 3), floats(5, 3), floats())),
        ("3", (floats("n", "m", 3), floats(5, 3))),
        ("3, bias", (floats("n", "m", 3), floats(5, 3), floats(5))),
        ("4, bias", (floats("n", 2, "m", 3), floats(1, 3), floats(1))),
        ("dynamic weight", (floats("n", "k"), floats("m", "k"), floats("m"))),
        ("vector weight", (floats("n", 3), floats(3))),
        ("vector weight, 1", (floats(3), floats(3))),
        ("vector weight, 3", (floats("n", 2, 3), floats(3))),
        ("no features", (floats("n", 0), floats(5, 0), floats(5))),
        ("int", (ints("n", 3), ints(5, 3), ints(5))),
        ("int32, 3", (ints("n", 2, 3, dtype=INT32), ints(5, 3, dtype=INT32))),
    )
]

nan = float("nan")

SUMS_WITH_PRODUCTS = [
    Row(target, (added, *rest), kwargs, name=name, sizes=() if name in ("1", "0-d") else EMPTY)
    for target, rest, added_rows, int_rest, int_added in (
        (
            aten.addmm.default,
            (floats("n", 3), floats(3, "m")),
            (
                ("vector", floats("m")),
                ("column", floats("n", 1)),
                ("matrix", floats("n", "m")),
                ("0-d", floats()),
            ),
            (ints("n", 3), ints(3, "m")),
            ints("m"),
        ),
        (
            aten.addmv.default,
            (floats("n", 3), floats(3)),
            (("vector", floats("n")), ("1", floats(1)), ("0-d", floats())),
            (ints("n", 3), ints(3)),
            ints("n"),
        ),
        (
            aten.baddbmm.default,
            (floats("n", 2, 3), floats("n", 3, "m")),
            (("batch", floats("n", 2, "m")), ("row", floats(1, "m"))),
            (ints("n", 2, 3), ints("n", 3, "m")),
            ints("n", 2, "m"),
        ),
        (
            aten.addbmm.default,
            (floats("n", 2, 3), floats("n", 3, "m")),
            (("matrix", floats(2, "m")), ("vector", floats("m"))),
            (ints("n", 2, 3), ints("n", 3, "m")),
            ints(2, "m"),
        ),
    )
    for name, added, rest, kwargs in (
        *((name, added, rest, {}) for name, added in added_rows),
        ("scaled", added_rows[0][1], rest, {"beta": 0.5, "alpha": 2}),
        ("beta 0", floats(*added_rows[0][1].sizes, low=nan, high=nan), rest, {"beta": 0}),
        ("alpha 0", added_rows[0][1], rest, {"alpha": 0}),
        ("int", int_added, int_rest, {}),
        ("int, scaled", int_added, int_rest, {"beta": 2, "alpha": 3}),
    )
] + [
    Row(
        aten.addmm.default,
        (floats(2), floats("n", "k"), floats("k", 2)),
        kwargs,
        name=name,
        sizes=({"k": 0},),
    )
    for name, kwargs in (
        ("no inner", {}),
        ("no inner, scaled", {"beta": 0.5, "alpha": 2}),
        ("no inner, beta 0", {"beta": 0}),
        ("no inner, alpha", {"alpha": 2}),
    )
]

EINSUM = [
    Row(aten.einsum.default, tensors, call=einsum(equation), name=equation)
    for equation, tensors in (
        ("ij,jk->ik", (floats("n", 3), floats(3, "m"))),
        ("ij,jk", (floats("n", 3), floats(3, "m"))),
        (" i j , j k -> k i ", (floats("n", 3), floats(3, "m"))),
        ("bij,bjk->bik", (floats("n", 2, 3), floats("n", 3, "m"))),
        ("bhid,bhjd->bhij", (floats("n", 2, "m", 3), floats("n", 2, "m", 3))),
        ("i,j->ij", (floats("n"), floats("m"))),
        ("i,i->", (floats("n"), floats("n"))),
        ("ij->ji", (floats("n", 3),)),
        ("ba", (floats("n", 3),)),
        ("ij->", (floats("n", 3),)),
        ("ij->j", (floats("n", 3),)),
        ("ii->i", (floats(3, 3),)),
        ("ii", (floats(3, 3),)),
        ("aB,Bc", (floats("n", 3), floats(3, "m"))),
        ("Ab,bc", (floats("n", 3), floats(3, "m"))),
        ("bA,Ac", (floats("n", 3), floats(3, "m"))),
        ("...ij,...jk->...ik", (floats("n", 2, 3), floats("n", 3, "m"))),
        ("...ij,jk", (floats("n", 2, 3), floats(3, "m"))),
        ("...ik,...j->ij", (floats("n", 2, 3), floats(4))),
        ("...ik,...k->i", (floats(5, "n", 2, 3), floats("n", 3))),
        ("...i,i...->", (floats("n", 3), floats(3, "n"))),
        ("...i->i", (floats(3),)),
        ("i...,i...->...", (floats("n", 3), floats("n", 3))),
        ("ab,bc->ac", (floats("n", 1), floats(3, 4))),
        ("ij,jk,kl->il", (floats("n", 3), floats(3, 2), floats(2, "m"))),
        ("bn,anm,bm->ba", (floats("n", 3), floats(5, 3, 2), floats("n", 2))),
    )
] + [
    Row(aten.einsum.default, (ints("n", 3), ints(3, 2)), call=einsum("ij,jk->ik"), name="int"),
    Row(aten.einsum.default, (ints("n", dtype=INT32),), call=einsum("i->"), name="int32 sum"),
    Row(
        aten.einsum.default,
        (ints(3, 3, low=0, dtype=torch.uint8),),
        call=einsum("ij->j"),
        name="uint8 sum",
    ),
    Row(
        aten.einsum.default,
        (floats(2, "n", 4), floats(4, 5)),
        call=einsum("...ij,...jk"),
        name="ellipses of two ranks",
    ),
    Row(
        aten.einsum.default,
        (floats(3, "n"), floats(2, 5, "n", 3)),
        call=einsum("ij...,...ji->...j"),
        name="ellipses at both ends",
    ),
    Row(
        aten.einsum.default,
        (floats("n", 3), floats(3, "m")),
        call=lambda a, b: torch.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        name="numbered",
    ),
]

inf, nan = float("inf"), float("nan")

NORMS = [
    *(
        Row(aten.linalg_vector_norm.default, args, kwargs, name=f"{order}, {name}", sizes=sizes)
        for order in (2, 1, 0, inf, -inf, 3, 4.0, 0.5, -1, -2)
        for name, args, kwargs, sizes in (
            ("all", (floats("n", 3), order), {}, ()),
            ("last", (floats("n", 3, "m"), order, [-1]), {}, EMPTY),
            ("several", (floats("n", 3, "m"), order, [0, 2], True), {}, ()),
            ("rank 0", (floats(), order), {}, ()),
        )
    ),
    *(
        Row(aten.linalg_vector_norm.default, (given(1.0, nan, inf, -inf), order), name="nan")
        for order in (inf, -inf)
    ),
    Row(aten.linalg_vector_norm.default, (floats("n", 3),), name="default", sizes=EMPTY),
    Row(aten.linalg_vector_norm.default, (floats("n", 3), 1, [0]), name="empty 1", sizes=EMPTY),
    Row(aten.linalg_vector_norm.default, (floats("n", 3), 0, [0]), name="empty 0", sizes=EMPTY),
    Row(aten.linalg_vector_norm.default, (floats("n", 3), 3, [0]), name="empty 3", sizes=EMPTY),
    Row(aten.linalg_vector_norm.default, (floats("n", 3), 2, []), name="no axes"),
    Row(aten.linalg_vector_norm.default, (floats("n", 3), 2, None, True), name="keepdim"),
    Row(aten.norm.Scalar, (floats("n", 3),), name="default", sizes=EMPTY),
    Row(aten.norm.Scalar, (floats("n", 3), 1), name="1"),
    Row(aten.norm.Scalar, (floats(), 3), name="rank 0"),
    Row(aten.norm.ScalarOpt_dim, (floats("n", 3), None, [1]), name="None", sizes=EMPTY),
    Row(aten.norm.ScalarOpt_dim, (floats("n", 3, "m"), 3, [0, -1], True), name="several"),
    Row(aten.norm.ScalarOpt_dim, (floats("n", 3), inf, []), name="no axes"),
    Row(aten.norm.ScalarOpt_dim_dtype, (floats("n", 3), 2, [1], False), {"dtype": torch.float32}),
]

DISTANCES = [
    *(
        Row(aten.cosine_similarity.default, args, name=name, sizes=EMPTY)
        for name, args in (
            ("", (floats("n", 3), floats("n", 3))),
            ("negative", (floats("n", 3, "m"), floats("n", 3, "m"), -1)),
            ("rank 0", (floats(), floats(), 0)),
            ("first", (floats("m", 3), floats("m", 3), 0)),
            ("broadcast", (floats("n", 3), floats(1, 3))),
            ("broadcast ranks", (floats("n", 2, 3), floats(3), -1)),
            ("broadcast summed", (floats("n", 1), floats("n", 3))),
            ("zeros", (floats("n", 3, low=0, high=0), floats("n", 3), 1, 1e-3)),
        )
    ),
    *(
        Row(aten.cdist.default, (*rows, *rest), name=name, sizes=sizes)
        for rows, rest, name, sizes in (
            ((floats("n", 3), floats("m", 3)), (), "", EMPTY),
            # with more than 25 rows, torch uses a matrix product
            ((floats("n", 3), floats("m", 3)), (), "many", ({"n": 26, "m": 4}, {"n": 3, "m": 40})),
            ((floats("n", 3), floats("m", 3)), (1.0,), "1", EMPTY),
            ((floats("n", 3), floats("m", 3)), (0.0,), "0", ()),
            ((floats("n", 3), floats("m", 3)), (inf,), "infinity", ()),
            ((floats("n", 3), floats("m", 3)), (3.0, 2), "3", ()),
            ((floats("n", "m", 3), floats("n", 4, 3)), (), "batch", EMPTY),
            ((floats(2, "m", 3), floats("k", 3)), (), "broadcast", ()),
        )
    ),
    Row(aten._cdist_forward.default, (floats("n", 3), floats("m", 3), 2.0, None), sizes=EMPTY),
    *(
        Row(
            aten._cdist_backward.default,
            (floats(*batch, "n", "m"), floats(*batch, "n", 3), floats(*batch, "m", 3), p, cdist),
            name=f"{p} {batch}",
        )
        for p, batch, cdist in (
            (2.0, (), positive("n", "m")),
            (1.0, (2,), positive(2, "n", "m")),
            (1.5, (), positive("n", "m")),
            (3.0, (), positive("n", "m")),
            (0.0, (), positive("n", "m")),
        )
    ),
    *(
        Row(target, (rows, p), name=f"{p} {rows.sizes}")
        for target, p, rows in (
            (aten.pdist.default, 2.0, floats("m", 3)),
            (aten.pdist.default, 1.0, floats("m", "n")),
            (aten.pdist.default, inf, floats(4, 3)),
            (aten.pdist.default, 0.0, floats(4, 3)),
            (aten.pdist.default, 3.0, floats(1, 3)),
            (aten.pdist.default, 2.0, floats(0, 3)),
            (aten._pdist_forward.default, 2.0, floats("m", 3, dtype=torch.float64)),
        )
    ),
    *(
        Row(
            aten._trilinear.default,
            (floats("n", 3), floats(4, 3, 2), floats("n", 2), *axes),
            name=str(axes),
        )
        for axes in (
            ([1, 3], [0], [1, 2], [2, 3]),
            ([1, 3], [0], [1, 2], []),
        )
    ),
    *(
        Row(aten.bilinear.default, args, name=name)
        for name, args in (
            ("", (floats("n", 3), floats("n", 2), floats(4, 3, 2))),
            ("bias", (floats("n", "m", 3), floats("n", "m", 2), floats(4, 3, 2), floats(4))),
        )
    ),
]

ROWS = [
    *KRON,
    *MATMUL,
    *CHAINS,
    *PRODUCTS,
    *LINEAR,
    *SUMS_WITH_PRODUCTS,
    *EINSUM,
    *NORMS,
    *DISTANCES,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients_of_distances(p: float) -> None:
    """Equal rows and equal elements have none."""

    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: torch.cdist(y, x[:3], p=p).sin().sum())(x)

    x = torch.tensor([[1.0, 2, 3], [1, 2, 3], [1, 0, 4], [0.5, 0, -3], [2, 2, 2]])
    program = onnx_aot.export(slope, (x,))
    assert_close(program(x)[0], slope(x))


@pytest.mark.parametrize("opset", [11, 13, 20])
@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("bid,bjd->bij", [("n", 2, 4), ("n", 3, 4)]),
        ("bdi,bjd->bij", [("n", 4, 2), ("n", 3, 4)]),
        ("nd,nkdh->nkh", [("n", 4), ("n", 2, 4, 3)]),
        ("nec,nd->ecd", [("n", 2, 3), ("n", 4)]),
        ("qd,kd->qk", [(2, 4), ("n", 4)]),
        ("...id,...jd->...ij", [("n", 2, 2, 4), ("n", 2, 3, 4)]),
        ("ij,kj,lk->il", [("n", 3), (4, 3), ("n", 4)]),
    ],
)
def test_einsum_of_an_empty_batch(
    equation: str, sizes: list[tuple[int | str, ...]], opset: int
) -> None:
    """ONNX Runtime's kernel crashes at some of these if it has to order axes."""

    def product(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, *tensors)

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn([n if s == "n" else int(s) for s in each]) for each in sizes)

    axes = [{axis: "n" for axis, size in enumerate(each) if size == "n"} for each in sizes]
    program = onnx_aot.export(product, make(5), dynamic_shapes=(tuple(axes),), opset_version=opset)
    for n in (5, 1, 7, 0):
        given = make(n)
        assert_close(program(*given)[0], product(*given))
