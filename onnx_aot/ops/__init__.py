"""The operator table: the ONNX form of each ATen, Python or custom operator.

Every entry goes through ``registry``. Translations are grouped in families: ``core``, ``nn``,
``linalg``, ``complex``, ``special``, ``random``, ``quantized``, ``control``, and ``libraries`` for
operators of other packages. ``families`` imports those that few models need on demand. ``user``
takes translations that users provide. ``not_translated`` says why an operator has no translation,
and ``operator_table`` lists everything for the documentation.
"""
