"""``op``, the first argument of every translation, and what it knows of values.

Read ``builder`` first: all that a translation may call. ``graph_builder`` emits a node, with types
from ``onnx_schemas``, shapes from ``shape_inference`` (``slice_shapes``, ``conv_shapes``), sizes
from ``size_table``, and nothing at all where ``peephole`` finds that it has no effect. ``state`` is
what emitting changes; ``rollback`` restores it. ``subgraphs``, ``local_functions`` and ``checks``
make the larger structures.
"""
