"""Supports translations that users provide.

``custom_translations`` reads ``custom_translation_table``, and ``process_registrations`` keeps the
translations given to ``onnx_aot.register``. ``onnxscript_functions`` and ``symbolic_methods`` adapt
functions written for torch.onnx, and ``placeholder_nodes`` emits operators without a translation.
"""
