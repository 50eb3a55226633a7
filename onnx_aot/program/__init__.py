"""``ONNXProgram``: a model that is saved, called, edited and inspected.

``program`` is the class; ``arguments`` binds calls, ``session`` runs ONNX Runtime, ``fed_inputs``
holds state. ``examining``, ``editing`` and ``viewing`` are its other methods, ``loading`` reads
files.
"""
