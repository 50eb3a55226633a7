"""Implements ``op``, the first argument of every translation.

Read ``builder`` first: it has everything that a translation may call. ``graph_builder`` emits a
node, with types from ``graph/onnx_schemas``, shapes from ``shape_inference`` (``slice_shapes``,
``conv_shapes``) and sizes from ``size_table``. It emits nothing if ``peephole`` finds that the node
has no effect. ``state`` holds everything that emission changes; ``rollback`` restores it.
``subgraphs``, ``local_functions`` and ``checks`` build the larger structures.
"""
