"""Parts of ONNX graphs that every stage shares.

``names`` and ``constants`` say what things are called and where constants go, ``attributes`` and
``nodes`` make what the builder, the rewriter and the legalizer emit, and ``traversal`` walks over
subgraphs and functions. ``opset_range`` is the range of opsets of the whole package.
"""
