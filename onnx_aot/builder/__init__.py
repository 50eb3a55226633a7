"""``op``, the object through which translations emit ONNX, and what it knows of values."""
