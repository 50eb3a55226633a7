"""Provides the parts of ONNX graphs that all stages share.

``names`` and ``constants`` choose names and place constants, ``attributes`` and ``nodes`` make the
nodes that the builder, the rewriter and the legalizer emit, and ``traversal`` walks over subgraphs
and functions. ``onnx_schemas`` reads the signatures of ONNX's operators, and ``opset_range`` is the
range of opsets of the whole package.
"""
