"""Cases of the clean-up rules. The sizes ``b``, ``h`` and ``w`` are dynamic."""

from __future__ import annotations

from tests.ir_passes.cases import Case
from tests.ir_passes.dequantized_cases import DEQUANTIZED
from tests.ir_passes.folding_cases import FOLDED
from tests.ir_passes.row_product_cases import ROW_PRODUCTS

__all__ = ["CASES"]

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
        "(float[b,h] x, float[b,0] z) => (float[b,h] y) {a=Concat<axis=-1>(x,z) y=Relu(a)}",
        "Relu",
    ),
    Case(
        "remove_no_ops",
        "(float[b,h] x, float[b,0] z) => (float[b,c] y) {a=Concat<axis=-1>(x,z,x) y=Relu(a)}",
        None,
        "two that are not empty",
    ),
    Case(
        "remove_no_ops",
        "(bool[b,3] x) => (bool[b,3] y) <bool t={1}> {a=And(t,x) y=Not(a)}",
        "Not",
    ),
    Case(
        "remove_no_ops",
        "(float[b,3] x) => (float[b,3] y) <float[1,3] one = {1,1,1}> {a=Mul(one,x) y=Relu(a)}",
        "Relu",
        "ones",
    ),
    Case(
        "remove_no_ops",
        "(float[b,1] x) => (float[b,3] y) <float[1,3] one = {1,1,1}> {a=Mul(one,x) y=Relu(a)}",
        None,
        "broadcast",
    ),
    # --- drop_zeros
    Case(
        "drop_zeros",
        "(float[b,3] x) => (float[b,3] y) <float[3] o = {0,0,0}> {a=Add(x,o) y=Softmax(a)}",
        "Softmax",
        "softmax",
    ),
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
    Case(
        "drop_zeros",
        "(float[b,3] x, bool[b,3] z) => (float[b,3] y) <float o = {0}>"
        " {a=Add(x,o) c=Where(z,a,o) y=Softmax(c)}",
        "Where Softmax",
        "the softmax of chosen scores",
    ),
    Case(
        "drop_zeros",
        "(float[b,3] x, bool[b,3] z) => (float[b,3] y) <float o = {0}>"
        " {a=Add(x,o) c=Where(z,a,o) y=Reciprocal(c)}",
        None,
        "a sign that is seen behind a choice",
    ),
    *FOLDED,
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
        "merge_reshapes",
        "(float[b,1,7,1,3] x) => (float[b,21] y) <int64[2] s={0,21}>"
        " {a=Transpose<perm=[0,2,1,3,4]>(x) y=Reshape(a,s)}",
        "Reshape",
    ),
    Case(
        "merge_reshapes",
        "(float[b,1,7,h,3] x) => (float[c,21] y) <int64[2] s={-1,21}>"
        " {a=Transpose<perm=[0,3,1,2,4]>(x) y=Reshape(a,s)}",
        None,
        "the order of elements changes",
    ),
    Case(
        "moved_ones",
        "(float[b,1,3] x) => (float[b,3,1] y) {y=Transpose<perm=[0,2,1]>(x)}",
        "Reshape",
    ),
    Case(
        "moved_ones",
        "(float[b,6] x) => (float[b,3,1,2] y) <int64[4] s={-1,1,3,2}>"
        " {a=Reshape(x,s) t=Transpose<perm=[0,2,1,3]>(a) y=Relu(t)}",
        "Reshape Relu",
        "and reshape",
    ),
    Case(
        "moved_ones",
        "(float[b,6] x) => (float[b,1,3,2] z, float[b,3,1,2] y) <int64[4] s={-1,1,3,2}>"
        " {z=Reshape(x,s) y=Transpose<perm=[0,2,1,3]>(z)}",
        "Reshape Reshape",
        "the reshape is read elsewhere",
    ),
    Case(
        "moved_ones",
        "(float[b,h,1] x) => (float[1,b,h] y) {y=Transpose<perm=[2,0,1]>(x)}",
        None,
        "two unknown sizes",
    ),
    Case(
        "moved_ones",
        "(float[b,2,3] x) => (float[b,3,2] y) {y=Transpose<perm=[0,2,1]>(x)}",
        None,
        "others",
    ),
    Case(
        "resize_to_same_size",
        "(float[1,2,6,6] x) => (float[1,2,6,6] y) <float[4] s={1,1,1,1}>"
        ' {a=Resize<mode="cubic">(x,,s) y=Relu(a)}',
        "Relu",
    ),
    Case(
        "resize_to_same_size",
        "(float[1,2,6,6] x) => (float[1,2,6,6] y) <int64[4] s={1,2,6,6}>"
        ' {a=Resize<mode="linear">(x,,,s) y=Relu(a)}',
        "Relu",
        "sizes",
    ),
    Case(
        "resize_to_same_size",
        "(float[1,2,6,6] x) => (float[1,2,6,6] y) <float[4] s={1,1,1.1,1.1}>"
        ' {a=Resize<mode="linear">(x,,s) y=Relu(a)}',
        None,
        "scales that round to the same size",
    ),
    Case(
        "resize_to_same_size",
        "(float[1,2,6,6] x) => (float[1,2,6,6] y)"
        " <float[4] s={1,1,1,1}, float[8] r={0,0,0,0,1,1,0.5,1}>"
        ' {a=Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(x,r,s)'
        " y=Relu(a)}",
        None,
        "crop",
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
        "merge_slices",
        "(float[5,7] x) => (float[3,1] y, float[3,2] z) <int64[1] s={1}, int64[1] e={-1},"
        " int64[1] p={0}, int64[1] q={-1}, int64[1] f={0}, int64[1] g={1}, int64[1] h={3}>"
        " {a=Slice(x,s,e,p) y=Slice(a,f,g,q) z=Slice(a,g,h,q)}",
        "Slice Slice",
        "two readers",
    ),
    Case(
        "merge_slices",
        "(float[5,7] x) => (float[3,1] y, float[3,7] z) <int64[1] s={1}, int64[1] e={-1},"
        " int64[1] p={0}, int64[1] q={-1}, int64[1] f={0}, int64[1] g={1}>"
        " {a=Slice(x,s,e,p) y=Slice(a,f,g,q) z=Relu(a)}",
        None,
        "another reader",
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
    Case(
        "factor_of_gemm",
        "(float[b,2] x) => (float[b,3] y) <float[2,3] k={1,2,3,4,5,6}, float[3] t={7,8,9},"
        " float f={0.5}> {a=Gemm<alpha=3.0>(x,k,t) y=Mul(f,a)}",
        "Gemm",
    ),
    Case(
        "factor_of_gemm",
        "(float[b,2,2] x) => (float[b,2,3] y) <float[2,3] k={1,2,3,4,5,6}, float[1] f={-0.5},"
        " int64[3] s={-1,2,3}> {a=Flatten<axis=2>(x) c=Gemm(a,k) d=Reshape(c,s) y=Mul(d,f)}",
        "Flatten Gemm Reshape",
        "behind a reshape",
    ),
    Case(
        "factor_of_gemm",
        "(float[b,2] x) => (float[b,3] y, float[b,3] z) <float[2,3] k={1,2,3,4,5,6}, float f={0.5}>"
        " {a=Gemm(x,k) y=Mul(a,f) z=Relu(a)}",
        None,
        "another reader",
    ),
    Case(
        "factor_of_gemm",
        "(float[b,2] x) => (float[1,b,3] y) <float[2,3] k={1,2,3,4,5,6}, float[1,1,1] f={0.5}>"
        " {a=Gemm(x,k) y=Mul(a,f)}",
        None,
        "a factor of a higher rank",
    ),
    Case(
        "factor_of_gemm",
        "(double[b,2] x) => (double[b,3] y) <double[2,3] k={1,2,3,4,5,6}, double f={0.1}>"
        " {a=Gemm(x,k) y=Mul(a,f)}",
        None,
        "digits that the attributes do not have",
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
    Case(
        "gemm_of_shared_weight",
        "(int64[b,h] i, float[5] z) => (float[b,h,3] y, float[b,h,2] e)"
        " <float[3,2] w={1,2,3,4,5,6}, float[3] t={7,8,9}, int64[1] o={0}>"
        " {j=Mul(i,o) e=Gather(w,j) a=Transpose<perm=[1,0]>(w) p=MatMul(e,a) y=Add(p,t)}",
        "Mul Gather Flatten Gemm Shape Concat Reshape",
    ),
    Case(
        "gemm_of_shared_weight",
        "(float[b,h,2] x) => (float[b,h,3] y, float[b,h,3] z) <float[3,2] w={1,2,3,4,5,6}>"
        " {a=Transpose<perm=[1,0]>(w) y=MatMul(x,a) c=Transpose<perm=[1,0]>(w) d=MatMul(x,c)"
        " z=Relu(d)}",
        None,
        "layers",
    ),
    *ROW_PRODUCTS,
    *DEQUANTIZED,
]
