"""The operator table: what each ATen, Python or custom operator becomes in ONNX.

``registry`` is the only way in. Translations stand in families: ``core``, ``nn``, ``linalg``,
``complex``, ``special``, ``random``, ``quantized``, ``control``, and ``libraries`` for operators of
other packages. ``user`` takes translations that users bring. ``not_translated`` gives reasons, and
``operator_table`` lists everything for the documentation.
"""
