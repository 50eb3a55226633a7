"""Translations that users bring.

``custom_translations`` reads ``custom_translation_table``, ``process_registrations`` keeps what
``onnx_aot.register`` was given; ``onnxscript_functions`` and ``symbolic_methods`` adapt functions
written for torch.onnx, and ``placeholder_nodes`` emits operators that nobody translates.
"""
