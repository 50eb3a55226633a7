"""Implements ``ONNXProgram``, a model that is saved, called, edited and inspected.

``program`` has the class; ``editing``, ``examining`` and ``viewing`` add methods to it.
``arguments`` binds the arguments of a call, ``fed_inputs`` supplies state and weights, ``session``
runs ONNX Runtime, and ``loading`` reads files.
"""
