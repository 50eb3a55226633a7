"""Lists the rules that rewrite the graph around one node, in the order in which they are tried.

A rule is a function in a file of its own, or of its family, and an entry below. To add one:

1. In ``cleanups/`` or ``fusions/`` write ``def my_rule(node, rewriter) -> bool`` with a docstring
   that shows before -> after. ``node`` is of an operator in ``roots``, preferably the last one of
   the pattern, so that everything it reads precedes it.
2. Check the pattern first and return False early: ``rewriter.producer(value, "Mul")``,
   ``rewriter.constant``, ``rewriter.only_use``, ``value.shape`` (dimensions with the same name are
   equal sizes).
3. ``new = rewriter.emit("Gelu", [x], {...}, like=first_node)``; give intermediate results a shape.
4. ``rewriter.replace(node.outputs[0], new)``; return True. Nodes that became unused are removed.
5. ``MY_RULE = Rule("my_rule", ("Add",), my_rule, exact=False, behind=frozenset({"Mul"}))`` if
   one input of every matching Add comes from a Mul; then add a line below, with the reason for
   its place.
6. Test it: it applies and the result matches eager; with another reader, axis or constant it does
   not apply.

Nothing is changed until the function returns True, so a rule may emit nodes and then give up.
"""

from __future__ import annotations

from onnx_aot.ir_passes.cleanups.casts import MERGE_CASTS
from onnx_aot.ir_passes.cleanups.convolutions import ADD_TO_CONV_BIAS, PAD_INTO_WINDOWS
from onnx_aot.ir_passes.cleanups.dequantized import (
    BIAS_OF_DEQUANTIZED,
    GEMM_OF_DEQUANTIZED,
    SCALED_PRODUCT,
    TRANSPOSE_DEQUANTIZED,
)
from onnx_aot.ir_passes.cleanups.fold_batch_norm import FOLD_BATCH_NORM
from onnx_aot.ir_passes.cleanups.fold_constants import (
    FOLD_CONSTANTS,
    FOLD_PARTS,
    FOLD_ROUNDED_CONSTANTS,
)
from onnx_aot.ir_passes.cleanups.fold_factor import FACTOR_OF_GEMM, FOLD_FACTOR
from onnx_aot.ir_passes.cleanups.gemm import (
    GEMM_OF_SHARED_WEIGHT,
    GEMM_OF_TRANSPOSED,
    MATMUL_ADD_TO_GEMM,
)
from onnx_aot.ir_passes.cleanups.joined_products import JOINED_PRODUCTS
from onnx_aot.ir_passes.cleanups.no_ops import DROP_ZEROS, REMOVE_NO_OPS, RESIZE_TO_SAME_SIZE
from onnx_aot.ir_passes.cleanups.row_products import BIAS_BEFORE_TANH_GELU, MATMUL_OF_ROWS
from onnx_aot.ir_passes.cleanups.size_arithmetic import (
    DROP_EXPAND,
    FOLD_SHAPES,
    JOIN_FLOOR_DIVISION,
    JOIN_SHAPES,
    SHORTEN_FLOOR_DIVISION,
    UNSQUEEZED_SIZES,
)
from onnx_aot.ir_passes.cleanups.stored_factors import STORED_FACTORS
from onnx_aot.ir_passes.cleanups.transposes import JOIN_TRANSPOSES
from onnx_aot.ir_passes.cleanups.views import (
    CONSTANT_RESHAPE,
    GATHER_UNSQUEEZED,
    MERGE_RESHAPES,
    MERGE_SLICES,
    MERGE_SQUEEZES,
    MERGE_TRANSPOSES,
    MOVED_ONES,
)
from onnx_aot.ir_passes.fusions.activations import HARD_SWISH, MISH
from onnx_aot.ir_passes.fusions.attention_cache import ATTENTION_CACHE
from onnx_aot.ir_passes.fusions.contrib import (
    GROUP_QUERY_ATTENTION,
    MICROSOFT_ROTARY_EMBEDDING,
    MULTI_HEAD_ATTENTION,
)
from onnx_aot.ir_passes.fusions.dot_product_attention import ATTENTION, ATTENTION_OF_HEADS
from onnx_aot.ir_passes.fusions.gelu import GELU
from onnx_aot.ir_passes.fusions.grouped_attention import GROUPED_ATTENTION
from onnx_aot.ir_passes.fusions.layer_normalization import LAYER_NORMALIZATION
from onnx_aot.ir_passes.fusions.masks import (
    ADMITTED_ROWS,
    CHOSEN_EVERYWHERE,
    SHIFTED_SOFTMAX,
    TRUE_MASK,
    WHOLE_INDEX,
)
from onnx_aot.ir_passes.fusions.rms_normalization import RMS_NORMALIZATION, ROOT_MEAN_SQUARE
from onnx_aot.ir_passes.fusions.rotary_embedding import (
    ROTARY_EMBEDDING,
    ROTARY_EMBEDDING_OF_HALVES,
    ROTATED_HALVES,
)
from onnx_aot.ir_passes.fusions.shared_cache import SHARED_CACHE
from onnx_aot.ir_passes.rewriter import Rule

__all__ = ["CONTRIB_RULES", "LATE_RULES", "RULES", "RULES_ON_REQUEST"]

RULES: tuple[Rule, ...] = (
    REMOVE_NO_OPS,  # first: removed nodes need no other rule
    DROP_ZEROS,
    RESIZE_TO_SAME_SIZE,
    FOLD_CONSTANTS,  # early too: folded nodes need no other rule
    FOLD_ROUNDED_CONSTANTS,
    FOLD_PARTS,
    FOLD_SHAPES,  # sizes before the nodes that read them
    JOIN_SHAPES,
    SHORTEN_FLOOR_DIVISION,
    JOIN_FLOOR_DIVISION,
    UNSQUEEZED_SIZES,  # after the rules that shorten size arithmetic
    CONSTANT_RESHAPE,  # before reshapes are merged, which then see constants
    MERGE_CASTS,
    MERGE_RESHAPES,
    MERGE_SQUEEZES,
    MERGE_TRANSPOSES,
    MERGE_SLICES,
    GATHER_UNSQUEEZED,
    DROP_EXPAND,
    JOIN_TRANSPOSES,  # after adjacent transposes are merged
    TRANSPOSE_DEQUANTIZED,
    GEMM_OF_DEQUANTIZED,  # before products become Gemm, which reads weights as stored
    SCALED_PRODUCT,
    PAD_INTO_WINDOWS,
    ADD_TO_CONV_BIAS,  # before batch normalization, which folds the bias too
    FOLD_BATCH_NORM,
    FOLD_FACTOR,
    FACTOR_OF_GEMM,
    LAYER_NORMALIZATION,
    RMS_NORMALIZATION,  # before the next, which would write it as five nodes
    ROOT_MEAN_SQUARE,
    ROTARY_EMBEDDING,  # before the next, whose result it does not recognize
    ROTATED_HALVES,
    ROTARY_EMBEDDING_OF_HALVES,
    GELU,
    HARD_SWISH,
    MISH,
    WHOLE_INDEX,
    TRUE_MASK,
    CHOSEN_EVERYWHERE,
    SHIFTED_SOFTMAX,
    ADMITTED_ROWS,  # before attention, whose pattern has no such selection of rows
    ATTENTION,  # before the next, which is for opsets without the operator
    GROUPED_ATTENTION,
    ATTENTION_OF_HEADS,
    ATTENTION_CACHE,  # after attention is one node
    MATMUL_OF_ROWS,
    BIAS_BEFORE_TANH_GELU,
    GEMM_OF_SHARED_WEIGHT,
    GEMM_OF_TRANSPOSED,
    MATMUL_ADD_TO_GEMM,  # late: other patterns match MatMul and Add separately
    BIAS_OF_DEQUANTIZED,  # last: splits them again where ONNX Runtime needs it
)

LATE_RULES: tuple[Rule, ...] = (  # after those above
    MOVED_ONES,  # late: attention with one head is recognized by its transposes
    MERGE_RESHAPES,  # again, like the next, for what the first one leaves
    FACTOR_OF_GEMM,
)

CONTRIB_RULES: tuple[Rule, ...] = (  # with contrib_ops=True, before those above
    MICROSOFT_ROTARY_EMBEDDING,
    GROUP_QUERY_ATTENTION,  # before the next, which also computes what causal masks exclude
    MULTI_HEAD_ATTENTION,
)

RULES_ON_REQUEST: tuple[Rule, ...] = (SHARED_CACHE, STORED_FACTORS, JOINED_PRODUCTS)
"""Rules for one kind of runtime or tool, which run before all others if ``optimize`` names them."""
