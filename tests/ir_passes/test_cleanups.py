"""Each clean-up rule: what it makes of a graph, where it does not apply, and equal results.

Graphs are in ONNX's text form; ``b``, ``h`` and ``w`` are sizes that vary.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnx_aot.ir_passes import RULES, Outcome
from onnx_aot.ir_passes.apply_rules import apply_rules

BY_NAME = {rule.name: rule for rule in RULES}


class Case(NamedTuple):
    """A rule, a graph, and the operators that it leaves; None where it does not apply."""

    rule: str
    graph: str
    left: str | None
    name: str = ""


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

CASES = [
    # --- remove_no_ops
    Case("remove_no_ops", "(float[b,3] x) => (float[b,3] y) {a=Identity(x) y=Relu(a)}", "Relu"),
    Case("remove_no_ops", "(float[b,3] x) => (float[b,3] y) {a=Relu(x) y=Identity(a)}", "Relu"),
    Case("remove_no_ops", "(float[b,3] x) => (float[b,3] y) {y=Identity(x)}", None, "interface"),
    Case("remove_no_ops", "(float[b] x) => (float[b] y) {a=Cast<to=1>(x) y=Relu(a)}", "Relu"),
    Case("remove_no_ops", "(float[b] x) => (double[b] y) {y=Cast<to=11>(x)}", None, "type"),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) <float one = {1}> {a=Mul(one,x) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(float[b] x) => (float[1,b] y) <float[1,1] one = {1}> {a=Mul(x,one) y=Relu(a)}",
        None,
        "rank",
    ),
    Case(
        "remove_no_ops",
        "(float[b] x) => (float[b] y) <float zero = {0}> {a=Add(x,zero) y=Relu(a)}",
        None,
        "negative zero",
    ),
    Case(
        "remove_no_ops",
        "(int64[b] x) => (int64[b] y) <int64 zero = {0}> {a=Add(x,zero) y=Neg(a)}",
        "Neg",
    ),
    Case(
        "remove_no_ops",
        "(float[b,h] x) => (float[b,h] y) {s=Shape(x) a=Expand(x,s) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) {a=Transpose<perm=[0,1]>(x) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) <int64[1] s={0}, int64[1] e={9223372036854775807}>"
        " {a=Slice(x,s,e) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) <int64[1] s={0}, int64[1] e={9223372036854775807},"
        " int64[1] a1={0}, int64[1] t={-1}> {a=Slice(x,e,s,a1,t) y=Relu(a)}",
        None,
        "step",
    ),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) <int64[4] p={0,0,0,0}> {a=Pad(x,p) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(bool[b,3] x) => (bool[b,3] y) <bool t={1}> {a=And(t,x) y=Not(a)}",
        "Not",
    ),
    # --- drop_zeros
    Case(
        "drop_zeros",
        "(float[b,3] x, float[b,3] z) => (float[b,3] y) <float o = {0}> {a=Add(o,x) y=Sub(z,a)}",
        "Sub",
    ),
    Case(
        "drop_zeros",
        "(float[b,3] x, float[b,3] z) => (float[b,3] y) <float o = {0}> {a=Add(o,x) y=Mul(z,a)}",
        None,
        "a sign that is seen",
    ),
    # --- fold_constants
    Case(
        "fold_constants",
        "(float[b,3] x) => (float[b,2] y) <float[2,3] w={1,2,3,4,5,6}>"
        " {t=Transpose<perm=[1,0]>(w) y=MatMul(x,t)}",
        "MatMul",
    ),
    Case(
        "fold_constants",
        "(float[b] x) => (float[b] y) <float[2] w={1,2}, int64 i={1}, float[2] v={3,-4}>"
        " {s=Mul(w,v) t=Gather<axis=0>(s,i) y=Add(x,t)}",
        "Add",
    ),
    Case(
        "fold_constants",
        "(float[b] x) => (float[b] y) <float w={2.7}> {i=Cast<to=7>(w) f=Cast<to=1>(i) y=Mul(x,f)}",
        None,
        "rounding",
    ),
    Case(
        "fold_rounded_constants",
        "(float[b] x) => (float[b] y) <float w={2.7}> {e=Exp(w) y=Mul(x,e)}",
        "Mul",
    ),
    # --- sizes
    Case(
        "fold_shapes",
        "(float[b,3,h] x) => (int64[1] y) {s=Shape<start=1,end=2>(x) y=Neg(s)}",
        "Neg",
    ),
    Case(
        "fold_shapes",
        "(float[b,3,h] x) => (int64 y) <int64 i={-2}> {s=Shape(x) g=Gather(s,i) y=Neg(g)}",
        "Neg",
    ),
    Case(
        "fold_shapes",
        "(float[b,3,h] x) => (int64[1] y) <int64[1] f={-2}, int64[1] t={-1}>"
        " {s=Shape<start=1>(x) p=Slice(s,f,t) y=Neg(p)}",
        "Neg",
        "to a constant",
    ),
    Case(
        "fold_shapes",
        "(float[b,3,h] x) => (int64[1] y) <int64[1] i={1}> {s=Shape<start=1>(x) y=Gather(s,i)}",
        "Shape",
    ),
    Case(
        "fold_shapes",
        "(float[b,3,h] x) => (int64 y) <int64 i={0}> {s=Shape(x) y=Gather(s,i)}",
        None,
        "dynamic",
    ),
    Case(
        "join_shapes",
        "(float[b,3,h] x) => (int64[2] y) {s=Shape<start=1,end=2>(x) t=Shape<start=-1>(x)"
        " y=Concat<axis=0>(s,t)}",
        "Shape",
    ),
    Case(
        "join_shapes",
        "(float[b,3,h] x) => (int64[2] y) {s=Shape<start=0,end=1>(x) t=Shape<start=-1>(x)"
        " y=Concat<axis=0>(s,t)}",
        None,
        "not in a row",
    ),
    Case(
        "shorten_floor_division",
        "(float[b,h] x) => (int64[1] y) <int64 n={3}> {s=Shape<start=1>(x) m=Mod(s,n) d=Sub(s,m)"
        " y=Div(d,n)}",
        "Shape Div",
    ),
    Case(
        "shorten_floor_division",
        "(int64[b] x) => (int64[b] y) <int64 n={3}> {m=Mod(x,n) d=Sub(x,m) y=Div(d,n)}",
        None,
        "sign",
    ),
    Case(
        "shorten_floor_division",
        "(float[b,h] x) => (int64[1] y) <int64 n={3}, int64 k={-9}> {s=Shape<start=1>(x)"
        " z=Add(s,k) m=Mod(z,n) d=Sub(z,m) y=Div(d,n)}",
        None,
        "negative term",
    ),
    Case(
        "drop_expand",
        "(float[b,h] x, float[h] z) => (float[b,h] y) {s=Shape(x) e=Expand(z,s) y=Add(e,x)}",
        "Add",
    ),
    Case(
        "drop_expand",
        "(float[b,h] x, float[h] z, float[1] u) => (float[b,h] y) {s=Shape(x) e=Expand(z,s)"
        " y=Add(e,u)}",
        None,
        "the other is smaller",
    ),
    # --- views
    Case(
        "merge_reshapes",
        "(float[b,6] x) => (float[c,3] y) <int64[3] s={0,2,3}, int64[2] t={-1,3}>"
        " {a=Reshape(x,s) y=Reshape(a,t)}",
        "Reshape",
    ),
    Case(
        "merge_reshapes",
        "(float[b,6] x) => (float[b,6] y) <int64[3] s={-1,2,3}, int64[2] t={0,-1}>"
        " {a=Reshape(x,s) y=Reshape(a,t)}",
        "Reshape",
        "copies a size",
    ),
    Case(
        "merge_reshapes",
        "(float[b,6,h] x) => (float[b,2,k] y) <int64[2] s={0,-1}, int64[3] t={0,2,-1}>"
        " {a=Reshape(x,s) y=Reshape(a,t)}",
        None,
        "copies and infers a size",
    ),
    Case(
        "merge_reshapes",
        "(float[b,6] x) => (float[c,3] y) <int64[1] s={1}, int64[2] t={-1,3}>"
        " {a=Unsqueeze(x,s) y=Reshape(a,t)}",
        "Reshape",
    ),
    Case(
        "constant_reshape",
        "(float[b,6] x) => (float[b,2,3] y) <int64[2] t={2,3}> {s=Shape<start=0,end=1>(x)"
        " u=Concat<axis=0>(s,t) y=Reshape(x,u)}",
        "Reshape",
    ),
    Case(
        "constant_reshape",
        "(float[b,h,6] x) => (float[b,3,2,h] y) <int64[2] t={3,2}> {s=Shape<start=0,end=1>(x)"
        " r=Shape<start=1,end=2>(x) u=Concat<axis=0>(s,t,r) y=Reshape(x,u)}",
        None,
        "nothing to infer from",
    ),
    Case(
        "constant_reshape",
        "(float[b,6] x, int64[1] s) => (float[b,2,3] y) <int64[2] t={2,3}>"
        " {u=Concat<axis=0>(s,t) y=Reshape(x,u)}",
        None,
        "not worked out of shapes",
    ),
    Case(
        "merge_squeezes",
        "(float[b,3] x) => (float[1,b,1,3] y) <int64[1] s={1}, int64[1] t={0}>"
        " {a=Unsqueeze(x,s) y=Unsqueeze(a,t)}",
        "Unsqueeze",
    ),
    Case(
        "merge_squeezes",
        "(float[1,b,1,3] x) => (float[b,3] y) <int64[1] s={0}, int64[1] t={-2}>"
        " {a=Squeeze(x,s) y=Squeeze(a,t)}",
        "Squeeze",
    ),
    Case(
        "merge_squeezes",
        "(float[b,1] x) => (float[c] y) <int64[2] s={-1,1}, int64[1] t={1}>"
        " {a=Reshape(x,s) y=Squeeze(a,t)}",
        "Reshape",
    ),
    Case(
        "merge_squeezes",
        "(float[b,6] x) => (float[b,1,2,3] y) <int64[3] s={0,2,3}, int64[1] t={1}>"
        " {a=Reshape(x,s) y=Unsqueeze(a,t)}",
        "Reshape",
    ),
    Case(
        "merge_squeezes",
        "(float[b,6] x) => (float[1,b,2,3] y) <int64[3] s={0,2,3}, int64[1] t={0}>"
        " {a=Reshape(x,s) y=Unsqueeze(a,t)}",
        None,
        "a copied size would move",
    ),
    Case(
        "merge_transposes",
        "(float[b,3,h] x) => (float[h,b,3] y) {a=Transpose<perm=[1,2,0]>(x)"
        " y=Transpose<perm=[1,2,0]>(a)}",
        "Transpose",
    ),
    Case(
        "merge_slices",
        "(float[5,7] x) => (float[3,4] y) <int64[1] s={1}, int64[1] e={-1}, int64[1] p={0},"
        " int64[1] q={-1}, int64[1] f={0}, int64[1] g={4}> {a=Slice(x,s,e,p) y=Slice(a,f,g,q)}",
        "Slice",
    ),
    Case(
        "merge_slices",
        "(float[5,7] x) => (float[2,7] y) <int64[1] s={1}, int64[1] e={-1}, int64[1] p={0}>"
        " {a=Slice(x,s,e,p) y=Slice(a,s,e,p)}",
        None,
        "one axis",
    ),
    Case(
        "gather_unsqueezed",
        "(float[b,3,h] x) => (float[b,1,h] y) <int64 i={2}, int64[1] a={1}>"
        " {g=Gather<axis=1>(x,i) y=Unsqueeze(g,a)}",
        "Gather",
    ),
    Case(
        "gather_unsqueezed",
        "(float[b,3,h] x) => (float[1,b,h] y) <int64 i={2}, int64[1] a={0}>"
        " {g=Gather<axis=1>(x,i) y=Unsqueeze(g,a)}",
        None,
        "another axis",
    ),
    Case("merge_casts", "(int32[b] x) => (float[b] y) {a=Cast<to=7>(x) y=Cast<to=1>(a)}", "Cast"),
    Case(
        "merge_casts",
        "(int32[b] x) => (int32[b] y) {a=Cast<to=7>(x) b1=Cast<to=6>(a) y=Neg(b1)}",
        "Neg",
    ),
    Case("merge_casts", "(float[b] x) => (float[b] y) {a=Cast<to=10>(x) y=Cast<to=1>(a)}", None),
    # --- transposes
    Case(
        "join_transposes",
        "(float[b,3,h] x) => (float[b,3,h] y) <float c={0.5}> {t=Transpose<perm=[0,2,1]>(x)"
        " r=Relu(t) m=Mul(c,r) y=Transpose<perm=[0,2,1]>(m)}",
        "Relu Mul",
    ),
    Case(
        "join_transposes",
        "(float[b,3,h] x) => (float[h,3,b] y) {t=Transpose<perm=[0,2,1]>(x) r=Sigmoid(t)"
        " y=Transpose<perm=[1,2,0]>(r)}",
        "Sigmoid Transpose",
    ),
    Case(
        "join_transposes",
        "(float[b,3,h] x) => (float[b,3,h] y) <float[3] c={1,2,3}> {t=Transpose<perm=[0,2,1]>(x)"
        " r=Mul(t,c) y=Transpose<perm=[0,2,1]>(r)}",
        None,
        "an operand along an axis",
    ),
    Case(
        "join_transposes",
        "(float[b,3,h] x) => (float[b,3,h] y, float[b,h,3] z) {t=Transpose<perm=[0,2,1]>(x)"
        " r=Relu(t) z=Neg(r) y=Transpose<perm=[0,2,1]>(r)}",
        None,
        "another reader",
    ),
    Case(
        "join_floor_division",
        "(float[b,h] x) => (int64 y) <int64[1] z={0}, int64 k={-1}, int64 n={2}, int64 c={1}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) a=Add(k,u) m=Mod(a,n) d=Sub(a,m) q=Div(d,n)"
        " y=Add(c,q)}",
        "Shape Squeeze Add Div",
    ),
    Case(
        "join_floor_division",
        "(float[b,h] x) => (int64 y) <int64[1] z={0}, int64 k={-3}, int64 n={3}, int64 c={1}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) a=Add(u,k) m=Mod(a,n) d=Sub(a,m) q=Div(d,n)"
        " y=Add(q,c)}",
        "Shape Squeeze Div",
        "nothing is left to add",
    ),
    Case(
        "join_floor_division",
        "(float[b,h] x) => (int64 y) <int64[1] z={0}, int64 k={-9}, int64 n={3}, int64 c={1}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) a=Add(u,k) m=Mod(a,n) d=Sub(a,m) q=Div(d,n)"
        " y=Add(q,c)}",
        None,
        "negative",
    ),
    Case(
        "unsqueezed_sizes",
        "(float[b,h] x) => (int64[1] y) <int64[1] z={0}, int64 k={7}, int64 n={3}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) a=Add(k,u) q=Div(a,n) y=Unsqueeze(q,z)}",
        "Shape Add Div",
    ),
    Case(
        "unsqueezed_sizes",
        "(float[b,h] x) => (int64[1] y) <int64[1] z={0}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) r=Shape<end=1>(x) v=Squeeze(r,z) a=Mul(u,v)"
        " y=Unsqueeze(a,z)}",
        "Shape Shape Mul",
        "of two sizes",
    ),
    Case(
        "unsqueezed_sizes",
        "(float[b,h] x) => (int64[1] y, int64 w) <int64[1] z={0}, int64 k={7}>"
        " {s=Shape<start=1>(x) u=Squeeze(s,z) w=Add(k,u) y=Unsqueeze(w,z)}",
        None,
        "another reader",
    ),
    # --- windows
    Case(
        "pad_into_windows",
        "(float[b,2,h,w] x) => (float[b,1,c,d] y) <int64[8] p={0,0,1,2,0,0,2,0},"
        " float[1,2,2,2] k={1,2,3,4,5,6,7,8}> {a=Pad(x,p) y=Conv<pads=[1,0,0,0]>(a,k)}",
        "Conv",
    ),
    Case(
        "pad_into_windows",
        "(float[b,2,h,w] x) => (float[b,2,c,d] y) <int64[8] p={0,0,1,1,0,0,1,0}>"
        " {a=Pad(x,p) y=AveragePool<kernel_shape=[2,2]>(a)}",
        "AveragePool",
    ),
    Case(
        "pad_into_windows",
        "(float[b,2,h,w] x) => (float[b,1,c,d] y) <int64[8] p={0,0,1,1,0,0,1,1}, float v={1},"
        " float[1,2,2,2] k={1,2,3,4,5,6,7,8}> {a=Pad(x,p,v) y=Conv(a,k)}",
        None,
        "ones",
    ),
    Case(
        "pad_into_windows",
        "(float[b,1,h,w] x) => (float[b,1,c,d] y) <int64[8] p={0,1,1,1,0,0,1,1},"
        " float[1,2,2,2] k={1,2,3,4,5,6,7,8}> {a=Pad(x,p) y=Conv(a,k)}",
        None,
        "channels",
    ),
    Case(
        "add_to_conv_bias",
        "(float[b,1,h,w] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[2,1,1] t={3,4}>"
        " {a=Conv(x,k) y=Add(t,a)}",
        "Conv",
    ),
    Case(
        "add_to_conv_bias",
        "(float[b,2,h,w] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[1] t={3},"
        " float[2] u={5,6}> {a=ConvTranspose<group=2>(x,k,u) y=Add(a,t)}",
        "ConvTranspose",
    ),
    Case(
        "add_to_conv_bias",
        "(float[b,1,h,2] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[2] t={3,4}>"
        " {a=Conv(x,k) y=Add(a,t)}",
        None,
        "along another axis",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,1,h,w] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[2] u={5,6},"
        " float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=Conv(x,k,u) y=BatchNormalization<epsilon=0.1>(a,s,t,m,v)}",
        "Conv",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,2,h,w] x) => (float[b,4,c,d] y) <float[2,2,1,1] k={1,2,3,4}, float[4] s="
        "{0.5,-2,1,3}, float[4] t={1,0,2,3}, float[4] m={3,4,0,1}, float[4] v={0.25,9,1,4}>"
        " {a=ConvTranspose<group=2>(x,k) y=BatchNormalization(a,s,t,m,v)}",
        "ConvTranspose",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,3] x) => (float[b,2] y) <float[2,3] k={1,2,3,4,5,6}, float[2] u={5,6},"
        " float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=Gemm<transB=1>(x,k,u) y=BatchNormalization(a,s,t,m,v)}",
        "Gemm",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,1,h,w] x) => (float[b,2,c,d] y, float[b,2,c,d] z) <float[2,1,1,1] k={1,2},"
        " float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=Conv(x,k) z=Relu(a) y=BatchNormalization(a,s,t,m,v)}",
        None,
        "another reader",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,1,h,w] x, float[2] s) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2},"
        " float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=Conv(x,k) y=BatchNormalization(a,s,t,m,v)}",
        None,
        "an input",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,1,h,w] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[2] s={0.5,-2},"
        " float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=Conv(x,k) y,p,q=BatchNormalization<training_mode=1>(a,s,t,m,v)}",
        None,
        "training",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,h,3] x) => (float[b,h,2] y) <float[3,2] k={1,2,3,4,5,6}, int64[2] r={-1,2},"
        " float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=MatMul(x,k) c=Reshape(a,r) z=BatchNormalization(c,s,t,m,v) u=Shape(a) y=Reshape(z,u)}",
        None,
        "a product that something else reads",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,4,3] x) => (float[n,2] y) <float[3,2] k={1,2,3,4,5,6}, int64[2] r={-1,2},"
        " float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4}, float[2] v={0.25,9}>"
        " {a=MatMul(x,k) c=Reshape(a,r) y=BatchNormalization(c,s,t,m,v)}",
        "MatMul Add Reshape",
        "a product",
    ),
    Case(
        "fold_batch_norm",
        "(float[b,2,3] x) => (float[n,2] y) <float[3,4] k={1,2,3,4,5,6,7,8,9,1,2,3},"
        " int64[2] r={-1,2}, float[2] s={0.5,-2}, float[2] t={1,0}, float[2] m={3,4},"
        " float[2] v={0.25,9}> {a=MatMul(x,k) c=Reshape(a,r) y=BatchNormalization(c,s,t,m,v)}",
        None,
        "other columns",
    ),
    Case(
        "fold_factor",
        "(float[b,1,h,w] x) => (float[b,2,c,d] y) <float[2,1,1,1] k={1,2}, float[2] u={5,6},"
        " float[2,1,1] f={3,4}> {a=Conv(x,k,u) y=Mul(f,a)}",
        "Conv",
    ),
    Case(
        "fold_factor",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] u={5,6,7},"
        " float[3] f={3,4,-1}> {a=MatMul(x,k) c=Add(a,u) y=Mul(c,f)}",
        "MatMul Add",
        "a product with a bias",
    ),
    Case(
        "fold_factor",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float f={0.5}>"
        " {a=MatMul(x,k) y=Mul(a,f)}",
        "MatMul",
        "a number",
    ),
    Case(
        "fold_factor",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float f={0}>"
        " {a=MatMul(x,k) y=Mul(a,f)}",
        None,
        "a number that takes digits",
    ),
    Case(
        "fold_factor",
        "(float[b,1,3,2] x) => (float[b,2,3,2] y) <float[2,1,1,1] k={1,2}, float[2] f={3,4}>"
        " {a=Conv(x,k) y=Mul(f,a)}",
        None,
        "along another axis",
    ),
    Case(
        "fold_factor",
        "(float[b,h,2] x) => (float[b,h,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] f={3,4,-1}>"
        " {a=MatMul(x,k) c=Mul(a,f) d=MatMul(x,k) y=Add(c,d)}",
        None,
        "a weight that something else reads",
    ),
    # --- products
    Case(
        "matmul_add_to_gemm",
        "(float[b,2] x) => (float[b,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9}>"
        " {a=MatMul(x,k) y=Add(t,a)}",
        "Gemm",
    ),
    Case(
        "matmul_add_to_gemm",
        "(float[h,b,2] x) => (float[h,b,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9}>"
        " {a=MatMul(x,k) y=Add(a,t)}",
        None,
        "a batch",
    ),
    Case(
        "gemm_of_transposed",
        "(float[b,2] x, float[3,2] k) => (float[b,3] y) {a=Transpose(k) y=Gemm(x,a)}",
        "Gemm",
    ),
    Case(
        "gemm_of_transposed",
        "(float[2,b] x, float[3,2] k) => (float[b,3] y) {u=Transpose<perm=[1,0]>(x) a=Transpose(k)"
        " y=Gemm<alpha=2.0>(u,a)}",
        "Gemm",
    ),
    *DEQUANTIZED,
]


def parsed(graph: str) -> ir.Model:
    text = f'<ir_version: 9, opset_import: ["": 20]> g {graph}'
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
    return ir.from_proto(proto)


def feeds(model: ir.Model, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    found = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = [size if isinstance(size, int) else sizes[str(size.value)] for size in value.shape]
        numbers = generator.integers(-9, 9, shape) / (1 if value.dtype.is_integer() else 4)
        found[str(value.name)] = numbers.astype(value.dtype.numpy())
    if "s" in found and found["s"].dtype == np.int64:
        found["s"][:] = sizes["b"]
    return found


def run(model: ir.Model, given: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(model).SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    return onnxruntime.InferenceSession(data, options).run(None, given)


def applied(model: ir.Model, name: str) -> int:
    outcome = Outcome()
    assert apply_rules(model, [BY_NAME[name]], outcome) is None
    assert not outcome.undone
    return outcome.counts[name]


def ids(case: Case) -> str:
    kind = case.name or re.sub(r"[^A-Z]*([A-Z]\w*)?", r"\1 ", case.graph).split()[0]
    return f"{case.rule}-{kind}{'' if case.left is not None else '-not'}"


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_left(case: Case) -> None:
    model = parsed(case.graph)
    before = [node.op_type for node in model.graph]
    expected = before if case.left is None else case.left.split()
    interface = [(v.name, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)]
    assert bool(applied(model, case.rule)) == (case.left is not None)
    assert [node.op_type for node in model.graph] == expected
    assert [(v.name, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == interface
    known = [v for node in model.graph for v in node.outputs]
    assert all(v.shape is not None and v.type is not None for v in known)


@pytest.mark.parametrize("case", [c for c in CASES if c.left is not None], ids=ids)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(b=st.integers(1, 4), h=st.integers(2, 5), w=st.integers(2, 4), seed=st.integers(0, 99))
def test_results_are_equal(case: Case, b: int, h: int, w: int, seed: int) -> None:
    model = parsed(case.graph)
    given_ = feeds(model, {"b": b, "h": h, "w": w}, seed)
    before = run(model, given_)
    applied(model, case.rule)
    for old, new in zip(before, run(model, given_), strict=True):
        assert old.shape == new.shape
        if BY_NAME[case.rule].exact:
            assert old.tobytes() == new.tobytes()
        else:
            np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)


def test_every_rule_has_both_kinds_of_cases() -> None:
    cleanups = {r.name for r in RULES if "cleanups" in r.apply.__module__}
    assert {case.rule for case in CASES if case.left is not None} == cleanups
    # rules that always apply where their pattern is there
    always = {"fold_rounded_constants", "merge_transposes", "gemm_of_transposed"}
    assert {case.rule for case in CASES if case.left is None} == cleanups - always


@pytest.mark.parametrize("sizes", [{"b": 0, "h": 3}, {"b": 2, "h": 0}])
def test_reshapes_of_nothing(sizes: dict[str, int]) -> None:
    """A size that is inferred cannot be told where there are no elements."""
    graph = (
        "(float[b,h,6] x) => (float[b,3,2,h] y) <int64[2] t={3,2}> {s=Shape<start=0,end=1>(x)"
        " r=Shape<start=1,end=2>(x) u=Concat<axis=0>(s,t,r) y=Reshape<allowzero=1>(x,u)}"
    )
    model = parsed(graph)
    applied(model, "constant_reshape")
    given_ = feeds(model, sizes, 0)
    assert run(model, given_)[0].shape == (sizes["b"], 3, 2, sizes["h"])
