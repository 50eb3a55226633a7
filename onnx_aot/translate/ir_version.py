"""Chooses the lowest IR version that a model needs, so that older runtimes load it.

Parsers skip fields that they do not know. The metadata of nodes and values, which was added in
version 10, is also written to older versions and is not read there.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx.helper
import onnx_ir as ir

from onnx_aot.graph.opset_range import FUNCTIONS_SINCE

__all__ = ["ELEMENT_TYPES_SINCE", "ir_version"]

# Element types that version 8, the version of opset 17, cannot hold, and the first that can.
ELEMENT_TYPES_SINCE: dict[ir.DataType, int] = {
    ir.DataType.FLOAT8E4M3FN: 9,
    ir.DataType.FLOAT8E4M3FNUZ: 9,
    ir.DataType.FLOAT8E5M2: 9,
    ir.DataType.FLOAT8E5M2FNUZ: 9,
    ir.DataType.INT4: 10,
    ir.DataType.UINT4: 10,
    ir.DataType.FLOAT4E2M1: 11,
    ir.DataType.FLOAT8E8M0: 12,
    ir.DataType.INT2: 13,
    ir.DataType.UINT2: 13,
    ir.DataType.FLOAT6E2M3: 14,
    ir.DataType.FLOAT6E3M2: 14,
}


def ir_version(graph: ir.Graph, functions: Iterable[ir.Function]) -> int:
    """Returns the lowest IR version that has the opsets and the element types of a model.

    Values inside the graph have types that the opset's operators accept; only inputs, outputs,
    weights and results of operators of other domains can have a later type.
    """
    opsets = dict(graph.opset_imports)
    functions = list(functions)
    for function in functions:  # a function written for another opset keeps it
        for domain, version in function.opset_imports.items():
            opsets[domain] = max(version, opsets.get(domain, version))
    ids = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    least = int(onnx.helper.find_min_ir_version_for(ids, ignore_unknown=True))
    least = max(least, FUNCTIONS_SINCE) if functions else least
    values = [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    if len(graph.opset_imports) > 1:
        values += [value for node in graph if node.domain for value in node.outputs]
    types = {value.dtype for value in values}
    return max(
        [least, *(version for dtype, version in ELEMENT_TYPES_SINCE.items() if dtype in types)]
    )
