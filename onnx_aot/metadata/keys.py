"""Defines keys of the metadata on graphs, nodes and values, as torch.onnx 2.13 writes them."""

from __future__ import annotations

__all__ = [
    "APART",
    "ARGUMENTS",
    "CAPTURED_NODE",
    "CHECK",
    "CLASS_HIERARCHY",
    "COMPLEX",
    "CONSTRAINTS",
    "DIMENSIONS",
    "DROPPED_STATE",
    "FUSED",
    "FX_NODE",
    "INPUT_KIND",
    "INPUT_PERSISTENT",
    "NAMED",
    "NAMESPACE",
    "NAME_SCOPES",
    "ORIGINAL_NAME",
    "OUTPUT_KIND",
    "PIECE",
    "PLACEHOLDER_DOMAIN",
    "SIGNATURE",
    "STACK_TRACE",
    "STATE",
    "WRITTEN",
]

CHECK = "check: "
"""Prefix of the names of nodes that ``runtime_checks=True`` adds; the condition follows."""

PLACEHOLDER_DOMAIN = "onnx_aot.placeholder"
"""The domain of the node in a local function that stands for an operator without a translation."""

FX_NODE = "fx_node"
"""In ``Node.meta``, which is not saved: the FX node that an ONNX node comes from."""

PIECE = "piece"
"""Also in ``Node.meta``: the operator, of those that eager PyTorch runs an operator as."""

APART = "apart"
"""Also in ``Node.meta``: nodes that differ in it are not merged, even if otherwise equal."""

NAMED = "named"
"""In ``Value.meta`` of weights that the user named, which keep these names in the graph."""

DROPPED_STATE = "onnx_aot.dropped_state"
"""In ``GraphModule.meta`` of a captured program: state that ``state="drop"`` removed."""

WRITTEN = "written"
"""Keyword of a captured call whose bodies write to their parameters: the positions of these."""

CAPTURED_NODE = "pkg.torch.onnx.fx_node"
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
NAMESPACE = "namespace"
"""On nodes: the FX node as text, the modules around it and then itself, their classes, and both as
one path."""

STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""On nodes: the lines of Python that the FX node comes from, the outermost call first."""

INPUT_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
INPUT_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
OUTPUT_KIND = "pkg.torch.export.graph_signature.OutputSpec.kind"
ORIGINAL_NAME = "pkg.torch.onnx.original_node_name"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
ARGUMENTS = "pkg.onnx_aot.arguments"
"""On nodes of operators without a translation, as JSON: the operator's argument for each input,
such as ``["x", "tensors[0]", "tensors[1]"]``."""
COMPLEX = "pkg.onnx_aot.complex"
"""On inputs and outputs that are complex in PyTorch: the last dimension, of size 2, holds the real
and imaginary parts; the value is PyTorch's type, such as ``complex64``."""
STATE = "pkg.onnx_aot.state"
"""On outputs that are new values of state: the name of the input that holds the current value. A
caller that loops feeds such outputs to these inputs of the next call."""
DIMENSIONS = "pkg.onnx_aot.dimensions"
"""On the graph, as JSON. ``dimensions``: ``min`` and ``max`` by name, if the dimension has them;
``relations``: how sizes of inputs depend on others, such as ``y.shape[0] == 2 * x.shape[0]``;
``conditions``: guards of the capture, such as ``x.shape[1] % 2 == 0``."""
CONSTRAINTS = "pkg.torch.export.ExportedProgram.range_constraints"
FUSED = "pkg.onnx_aot.fused_nodes"
"""On nodes that replace several nodes: the names of these, as a list."""
