"""Cases of the rules that fold constants and weights."""

from __future__ import annotations

from tests.ir_passes.cases import Case

__all__ = ["FOLDED"]

FOLDED = [
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
        "Mul",
        "truncation",
    ),
    Case(
        "fold_constants",
        "(float[b] x) => (float[b] y) <float w={3e9}> {i=Cast<to=6>(w) f=Cast<to=1>(i) y=Mul(x,f)}",
        None,
        "out of range",
    ),
    Case(
        "fold_rounded_constants",
        "(float[b] x) => (float[b] y) <float w={2.7}> {e=Exp(w) y=Mul(x,e)}",
        "Mul",
    ),
    Case(
        "fold_rounded_constants",
        "(int64[b,2] x) => (int64[b,2] y) <float[2] w={-inf,2.7}>"
        " {c=Cast<to=7>(w) m=Min(c,x) y=Neg(m)}",
        "Min Neg",
        "negative infinity",
    ),
    Case(
        "fold_rounded_constants",
        "(int64[b,2] x) => (int64[b,2] y) <float[2] w={inf,2.7}>"
        " {c=Cast<to=7>(w) m=Min(c,x) y=Neg(m)}",
        None,
        "infinity",
    ),
    Case(
        "fold_rounded_constants",
        "(float[b,2,2,2] x) => (float[b,2,2,2] y)"
        " <float[1,1,3,3] c={1,-2,3,4,0.5,6,7,8,-9}, float[2,1,2,2] w={1,2,3,4,5,6,7,8},"
        " float[2] a={0.5,-1}> {k=Conv(c,w,a) y=Mul(x,k)}",
        "Mul",
        "convolution",
    ),
    Case(
        "fold_rounded_constants",
        "(float[b,2,2,2] x) => (float[b,2,2,2] y)"
        " <float[1,1,3,3] c={1,-2,3,4,0.5,6,7,8,-9}, float[2,1,3,3] w={1,2,3,4,5,6,7,8,9,1,2,3,4,5,"
        "6,7,8,9}> {k=Conv<pads=[1,1,0,0]>(c,w) y=Mul(x,k)}",
        None,
        "pads on one side",
    ),
    Case(
        "fold_constants",
        "(float[b,3] x) => (float[b,3] y) <float[3] w={5.5,-5.5,4}, float m={2}>"
        " {r=Mod<fmod=1>(w,m) y=Add(x,r)}",
        "Add",
        "remainder of floats",
    ),
    Case(
        "fold_parts",
        "(float[b,2] x) => (float[b,2] y) <float[4] w={1,2,3,4}, int64[2] n={2,2}>"
        " {a, c=Split<axis=0>(w,n) u=Add(x,a) y=Mul(u,c)}",
        "Add Mul",
    ),
    Case(
        "fold_parts",
        "(float[4] x) => (float[2] y) <int64[2] n={2,2}> {a, c=Split<axis=0>(x,n) y=Mul(a,c)}",
        None,
        "input",
    ),
    Case(
        "fold_constants",
        "(int64[b,2] x) => (int64[b,2] y) <int64[3] w={3,1,2}, int64 a={0}, int64[2] i={2,0}>"
        " {s=CumSum(w,a) g=GatherElements(s,i) m=Min(g,i) y=Add(x,m)}",
        "Add",
        "integers",
    ),
    Case(
        "fold_constants",
        "(float[b,2] x) => (float[b,4] y) <float[1,2] w={3,1}, int64[2] r={1,2},"
        " int64[4] p={0,0,0,0}> {t=Tile(w,r) q=Pad(t,p) u=Concat<axis=1>(x,x) y=Add(u,q)}",
        "Concat Add",
        "copies",
    ),
    Case(
        "fold_constants",
        "(float[b] x) => (float[b] y) <float[2] w={0,-0.0}, int64[1] a={0}>"
        " {m=ReduceMax<keepdims=0>(w,a) y=Mul(x,m)}",
        None,
        "sign of a zero",
    ),
    Case(
        "fold_rounded_constants",
        "(float[b] x) => (float[b] y) <float[2] w={3,4}, int64[1] a={0}>"
        " {n=ReduceL2<keepdims=0>(w,a) m=ReduceMax<keepdims=0>(w,a) s=Add(n,m) y=Mul(x,s)}",
        "Add Mul",
        "reductions",
    ),
]
