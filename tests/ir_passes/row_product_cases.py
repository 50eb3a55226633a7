"""Cases of products of the rows of tensors of higher rank."""

from __future__ import annotations

from tests.ir_passes.cases import Case

__all__ = ["ROW_PRODUCTS"]

_IN = "(float[b,h,2] x) => (float[b,h,3] y)"
_STORED = "float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9}, int64[2] s={-1,2}, int64[1] n={3}"
_ROWS = "r=Reshape(x,s) u=Shape<start=0,end=2>(x) o=Concat<axis=0>(u,n)"

ROW_PRODUCTS = [
    Case(
        "matmul_of_rows",
        f"{_IN} <{_STORED}> {{{_ROWS} g=Gemm(r,k,t) y=Reshape(g,o)}}",
        "MatMul Add",
    ),
    Case(
        "matmul_of_rows",
        f"{_IN} <{_STORED}> {{{_ROWS} g=Gemm(r,k) y=Reshape(g,o)}}",
        "MatMul",
        "no bias",
    ),
    Case(
        "matmul_of_rows",
        f"{_IN} <{_STORED}> {{{_ROWS} g=Gemm<alpha=2.0>(r,k,t) y=Reshape(g,o)}}",
        None,
        "a factor",
    ),
    Case(
        "matmul_of_rows",
        f"(float[b,h,2] x) => (float[b,h,3] y, float[m,3] z) <{_STORED}>"
        f" {{{_ROWS} g=Gemm(r,k,t) z=Relu(g) y=Reshape(g,o)}}",
        None,
        "the matrix is read too",
    ),
    Case(
        "matmul_of_rows",
        "(float[b,h,2] x) => (float[h,b,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9},"
        " int64[2] s={-1,2}, int64[1] n={3}, int64[2] p={1,0}>"
        " {r=Reshape(x,s) u=Shape<start=0,end=2>(x) v=Gather(u,p) o=Concat<axis=0>(v,n)"
        " g=Gemm(r,k,t) y=Reshape(g,o)}",
        None,
        "other rows",
    ),
    Case(
        "matmul_of_rows",
        "(float[b,h,2,1] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9},"
        " int64[2] s={-1,2}, int64[1] n={3}>"
        " {r=Reshape(x,s) u=Shape<start=0,end=2>(x) o=Concat<axis=0>(u,n) g=Gemm(r,k,t)"
        " y=Reshape(g,o)}",
        "Reshape MatMul Add",
        "heads",
    ),
    Case(
        "matmul_of_rows",
        "(float[b,h,2] x, float[2,3] k) => (float[b,h,3] y) <float[3] t={7,8,9}, int64[2] s={-1,2},"
        f" int64[1] n={{3}}> {{{_ROWS} g=Gemm(r,k,t) y=Reshape(g,o)}}",
        None,
        "a weight that is an input",
    ),
    Case(
        "bias_before_tanh_gelu",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9}>"
        ' {a=MatMul(x,k) c=Add(a,t) y=Gelu<approximate="tanh">(c)}',
        "MatMul Add Gelu",
    ),
    Case(
        "bias_before_tanh_gelu",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9}>"
        " {a=MatMul(x,k) c=Add(a,t) y=Gelu(c)}",
        None,
        "no approximation",
    ),
]
