"""Cases of the clean-up rules for dequantized weights."""

from __future__ import annotations

from tests.ir_passes.cases import Case

__all__ = ["DEQUANTIZED"]

I8 = "int8[3,2] w={-8,7,100,4,-5,6}, float[3] t={0.5,2,0.25}"
I8_COLUMNS = "int8[2,3] w={-8,7,100,4,-5,6}, float[3] t={0.5,2,0.25}, float[3] c={1,-2,3}"
DEQUANTIZED = [
    Case(
        "transpose_dequantized",
        f"(float[b,4,2] x) => (float[b,4,3] y) <{I8}>"
        " {d=DequantizeLinear<axis=0>(w,t) p=Transpose<perm=[1,0]>(d) y=MatMul(x,p)}",
        "Transpose DequantizeLinear MatMul",
    ),
    Case(
        "transpose_dequantized",
        "(float[b,2] x) => (float[b,3] y) <uint8[3,2] w={0,7,200,4,5,6}, float t={0.5},"
        " uint8 z={3}> {d=DequantizeLinear(w,t,z) p=Transpose(d) y=MatMul(x,p)}",
        "Transpose DequantizeLinear MatMul",
        "of one scale",
    ),
    Case(
        "transpose_dequantized",
        f"(float[b,2] x) => (float[b,3] y, float[3,2] v) <{I8}>"
        " {d=DequantizeLinear<axis=0>(w,t) p=Transpose<perm=[1,0]>(d) y=MatMul(x,p) v=Neg(d)}",
        None,
        "two readers",
    ),
    Case(
        "transpose_dequantized",
        "(int8[3,b] x) => (float[b,3] y) <float t={0.5}>"
        " {d=DequantizeLinear(x,t) y=Transpose<perm=[1,0]>(d)}",
        None,
        "an input",
    ),
    Case(
        "gemm_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8}, float[3] c={{1,-2,3}}>"
        " {d=DequantizeLinear<axis=0>(w,t) y=Gemm<transB=1>(x,d,c)}",
        "Transpose DequantizeLinear Gemm",
    ),
    Case(
        "gemm_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=DequantizeLinear<axis=1>(w,t) y=Gemm(x,d,c)}",
        None,
        "not transposed",
    ),
    Case(
        "scaled_product",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=Cast<to=1>(w) p=MatMul(x,d) q=Mul(t,p) y=Add(q,c)}",
        "DequantizeLinear MatMul Add",
    ),
    Case(
        "scaled_product",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=Cast<to=1>(w) p=MatMul(x,d) q=Mul(p,p) y=Add(q,c)}",
        None,
        "no scale",
    ),
    Case(
        "scaled_product",
        "(float[b,2] x) => (float[b,3] y) <int32[2,3] w={-8,7,100,4,-5,6}, float[3] t={5,2,3}>"
        " {d=Cast<to=1>(w) p=MatMul(x,d) y=Mul(p,t)}",
        None,
        "integers of four bytes",
    ),
    Case(
        "scaled_product",
        "(float[b,2] x) => (float[b,2] y) <int8[2,2] w={-8,7,100,4}, float[1] t={5}>"
        " {d=Cast<to=1>(w) p=MatMul(x,d) y=Mul(p,t)}",
        None,
        "one scale",
    ),
    Case(
        "bias_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=DequantizeLinear<axis=1>(w,t) p=Gemm(x,d,c) y=Relu(p)}",
        "DequantizeLinear Gemm Add Relu",
    ),
    Case(
        "bias_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}, float s={{0.5}}, uint8 z={{9}}>"
        " {q=QuantizeLinear(x,s,z) u=DequantizeLinear(q,s,z) d=DequantizeLinear<axis=1>(w,t)"
        " p=Gemm(u,d,c) y=Gelu(p)}",
        "QuantizeLinear DequantizeLinear DequantizeLinear Gemm Add Gelu",
        "of quantized numbers",
    ),
    Case(
        "bias_of_dequantized",
        f"(float[b,2] x) => (uint8[b,3] y) <{I8_COLUMNS}, float s={{0.5}}, uint8 z={{9}}>"
        " {q=QuantizeLinear(x,s,z) u=DequantizeLinear(q,s,z) d=DequantizeLinear<axis=1>(w,t)"
        " p=Gemm(u,d,c) r=Relu(p) y=QuantizeLinear(r,s,z)}",
        None,
        "quantized",
    ),
    Case(
        "bias_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=DequantizeLinear<axis=1>(w,t) p=Gemm(x,d,c) y=Gelu(p)}",
        None,
        "no activation of Gemm",
    ),
    Case(
        "bias_of_dequantized",
        f"(float[b,2] x) => (float[b,3] y) <{I8_COLUMNS}>"
        " {d=DequantizeLinear<axis=1>(w,t) p=Gemm<beta=2.0>(x,d,c) y=Relu(p)}",
        None,
        "a factor",
    ),
]
